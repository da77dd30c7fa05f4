"""A streamed answer: its chunks so far are merged into the completion that it would have been, and relayed to the
client, the bill on the last (guarantee §6)."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from gateway.core import errors
from gateway.core.types.bill import USAGE_FIGURES, figure, sound
from gateway.core.types.items import ANTHROPIC_EVENTS, ITEM_ORDER, SIGNED

Chunks = list[dict[str, Any]]
USAGE_SECONDS = 10.0
"""How long a finished answer is held for the upstream's usage."""
END_SECONDS = 1.0
"""How long it is held after usage is known, for an upstream that neither ends the stream nor closes the connection."""
NOT_ENVELOPE = frozenset(("choices", "usage", "object"))
MAX_STREAM_CHARS = 64 * 2**20
"""Characters of a streamed answer, which is held in memory until it is stored; about the limit of an unstreamed one."""
STREAM_INDEXED_LISTS = ("annotations", "reasoning_items", "output_items", ITEM_ORDER)
"""Lists of a delta whose entries may have an `index`, which OpenAI's SDK needs to merge a stream."""
THOUGHT_TEXTS = {"thinking": "thinking", "reasoning.text": "text", "reasoning.summary": "summary"}
"""The text of a thought that comes in pieces, by its type: Anthropic's, and two of OpenRouter's `reasoning_details`."""
CHUNK_FIELDS = ("id", "object", "created", "model", "choices", "usage")
"""Fields of every chunk. Other fields of a chunk without choices move to the next chunk."""
ON_EVERY_CHUNK = ("created", "model", "service_tier", "system_fingerprint")
"""Fields that SDKs take from the last chunk when they merge a stream."""


class StreamRecord:
    """What has been delivered so far: choices, usage, finish reasons and upstream's own fields."""

    def __init__(self, choices: int, most: int = MAX_STREAM_CHARS) -> None:
        """`choices`: the number requested; `most`: the limit of their characters together."""
        self._expected = choices
        self._most = most
        self._messages: dict[int, _Message] = {}
        self._finish: dict[int, Any] = {}
        self._unfinished: set[int] = set()
        self._logprobs: dict[int, dict[str, Any]] = {}
        self.envelope: dict[str, Any] = {}
        self._chars = 0
        self.usage: dict[str, Any] | None = None

    def add(self, chunk: dict[str, Any]) -> None:
        """Merges a chunk as the upstream sent it.
        Raises UpstreamInvalidResponse: the answer has grown longer than a whole answer may be."""
        envelope = self.envelope
        count = len(chunk) - len(NOT_ENVELOPE & chunk.keys())
        if count != len(envelope) or not envelope.items() <= chunk.items():  # most chunks repeat the first one's fields
            for key, value in chunk.items():
                if value is not None and key not in NOT_ENVELOPE:
                    envelope[key] = value
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self.usage = usage if self.usage is None else _merged_usage(self.usage, usage)
        for choice in chunk.get("choices") or ():
            index = choice["index"]
            message = self._messages.get(index)
            if message is None:
                message = self._messages[index] = _Message()
                if index not in self._finish:
                    self._unfinished.add(index)
            delta = choice.get("delta")
            if delta:
                self._chars += message.add(delta)
            if choice.get("finish_reason"):
                self._finish[index] = choice["finish_reason"]
                self._unfinished.discard(index)
            logprobs = choice.get("logprobs")
            if isinstance(logprobs, dict):
                known = self._logprobs.setdefault(index, {})
                for key, value in logprobs.items():
                    if isinstance(value, list):
                        known.setdefault(key, []).extend(value)
        if self._chars > self._most:
            raise errors.UpstreamInvalidResponse(f"The upstream's answer exceeds {self._most} characters.")

    @property
    def begun_are_finished(self) -> bool:
        """Whether every choice that has begun has its finish reason."""
        return bool(self._finish) and not self._unfinished

    @property
    def asked_are_finished(self) -> bool:
        """Whether every requested choice has its finish reason."""
        return len(self._finish) >= self._expected

    @property
    def begun(self) -> bool:
        """Whether anything of an answer has been delivered."""
        return bool(self._messages)

    def missing_finishes(self) -> list[dict[str, Any]]:
        """Builds finish choices for an upstream that ended the stream without a finish reason."""
        found = []
        for index in sorted(self._messages) or [0]:
            if index not in self._finish:
                calls = index in self._messages and self._messages[index].calls
                reason = "tool_calls" if calls else "stop"
                found.append({"index": index, "delta": {}, "finish_reason": reason})
        return found

    def last_finish(self) -> list[dict[str, Any]]:
        """Builds the latest finish choice again, to carry the bill if the first one was already sent."""
        index, reason = next(reversed(self._finish.items()))
        return [{"index": index, "delta": {}, "finish_reason": reason}]

    def completion(self) -> dict[str, Any]:
        """Returns the answer as an unstreamed completion."""
        choices = []
        for index in sorted(self._messages):
            message = self._messages[index].whole()
            choice = {"index": index, "message": message, "finish_reason": self._finish.get(index)}
            choice["logprobs"] = self._logprobs.get(index)
            choices.append(choice)
        return {**self.envelope, "object": "chat.completion", "choices": choices}


async def next_batch(batches: AsyncGenerator[Chunks, None], record: StreamRecord) -> Chunks | None:
    """Waits for the next chunks; returns None at the end. After every choice is finished, an upstream that fails or
    falls silent ends the stream and does not fail the answer."""
    if not record.asked_are_finished:
        return await anext(batches, None)
    try:
        async with asyncio.timeout(END_SECONDS if figure(record.usage, "completion_tokens") else USAGE_SECONDS):
            return await anext(batches, None)
    except (TimeoutError, errors.UpstreamInterrupted, errors.UpstreamTimeout):
        return None


class ChunkRelay:
    """Relays chunks as they come; only the finish chunk of the last choice is held until usage is known.

    A chunk without choices is never relayed: upstream's own fields in it move to the next one.
    """

    def __init__(
        self,
        completion_id: str,
        choices: int,
        include_usage: bool,
        envelope: dict[str, Any] | None = None,
        *,
        numbers_thoughts: bool = False,
    ) -> None:
        """`envelope`: fields of every chunk that an upstream may have left out; `numbers_thoughts`: adds to pieces of
        signed thoughts the `index` by which OpenAI's SDKs merge them."""
        self.record = StreamRecord(choices)
        self._envelope = {"object": "chat.completion.chunk", **(envelope or {})}
        self.record.envelope.update(envelope or {})
        self._id = completion_id
        self._include_usage = include_usage
        self._extras: dict[str, Any] = {}
        self._held: list[dict[str, Any]] = []
        self._first = True
        self._numbers_thoughts = numbers_thoughts
        self._thoughts: dict[int, tuple[int, bool]] = {}
        """For each choice: the index of its latest thought, and whether its signature is still to come."""

    def push(self, batch: list[dict[str, Any]], first_fields: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """Records a batch and returns the chunks to send now. `first_fields` makes fields for the very first."""
        record, sent = self.record, []
        for chunk in batch:
            record.add(chunk)
            if not chunk.get("choices"):
                self._extras.update({k: v for k, v in chunk.items() if k not in CHUNK_FIELDS and v is not None})
                continue
            out = {**self._envelope, **self._extras, **chunk, "id": self._id}
            self._extras = {}
            if self._numbers_thoughts:
                out["choices"] = list(map(self._numbered, chunk["choices"]))
            if self._include_usage:
                out["usage"] = None
            else:
                out.pop("usage", None)
            if self._first:
                out.update(first_fields())
                self._first = False
            if record.begun_are_finished and record.asked_are_finished:
                self._held.append(out)
                continue
            if self._held:  # an unrequested choice has begun: no held chunk was the last finish
                sent += self._held
                self._held = []
            sent.append(out)
        return sent

    def _numbered(self, choice: dict[str, Any]) -> dict[str, Any]:
        delta = choice.get("delta") or {}
        pieces = delta.get(SIGNED)
        if type(pieces) is not list:
            return choice
        (number, is_open), numbered = self._thoughts.get(choice["index"], (-1, False)), []
        for piece in pieces:
            is_thought = piece.get("type") == "thinking"
            number += not (is_thought and is_open)
            is_open = is_thought and not piece.get("signature")
            numbered.append({"index": number, **piece})
        self._thoughts[choice["index"]] = number, is_open
        return {**choice, "delta": {**delta, SIGNED: numbered}}

    def conclude(self) -> None:
        """Ends the stream: adds the finish chunks that the upstream did not send."""
        missing = self.record.missing_finishes()
        if missing:
            self.record.add({"choices": missing})
        elif not self._held:  # fewer choices than requested: the last finish was already sent
            missing = self.record.last_finish()
        if missing:
            chunk = {**self._bare_chunk(), "choices": missing}
            self._held.append({**chunk, "usage": None} if self._include_usage else chunk)

    def final(self, last_fields: dict[str, Any], usage: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns, after `conclude`, the held finish chunk with `last_fields`, which hold the whole bill, and the usage
        chunk if the client asked for one."""
        out = list(self._held)
        ends = [n for n, chunk in enumerate(out) if any(each.get("finish_reason") for each in chunk["choices"])]
        last = ends[-1] if ends else 0
        out[last] = {**out[last], **self._extras, **last_fields}
        if self._include_usage:
            metadata = {"response_metadata": last_fields["response_metadata"]}
            out.append({**self._bare_chunk(), "choices": [], "usage": usage, **metadata})
        return out

    def _bare_chunk(self) -> dict[str, Any]:
        envelope = {k: v for k, v in self.record.envelope.items() if k in ON_EVERY_CHUNK}
        return {**envelope, "id": self._id, "object": "chat.completion.chunk"}


class _Message:
    """The message of one choice. Texts are kept in pieces until read: appending to a string would copy it."""

    def __init__(self) -> None:
        self.calls: dict[int, dict[str, Any]] = {}
        self._fields: dict[str, Any] = {"role": "assistant", "content": None}
        self._texts: dict[str, list[str]] = {}

    def add(self, delta: dict[str, Any]) -> int:
        """Merges a delta; returns its approximate number of characters."""
        chars = 0
        for key, value in delta.items():
            if type(value) is str and key != "role":
                pieces = self._texts.get(key)
                if pieces is None:
                    if isinstance(self._fields.get(key), list):  # text after parts
                        self._fields[key] = [*self._fields[key], {"type": "text", "text": value}]
                        chars += len(value)
                        continue
                    pieces = self._texts[key] = []
                pieces.append(value)
                chars += len(value)
            elif value is None or key == ANTHROPIC_EVENTS:
                continue
            elif key == "tool_calls":
                _merge_calls(self.calls, value)
                chars += len(str(value))
            else:
                before = self._texts.pop(key, None)
                if before and isinstance(value, list):  # parts after text
                    self._fields[key] = [{"type": "text", "text": "".join(before)}]
                merge_delta(self._fields, {key: value})
                chars += len(str(value))
        return chars

    def whole(self) -> dict[str, Any]:
        message = {**self._fields, **{key: "".join(pieces) for key, pieces in self._texts.items()}}
        if self.calls:
            message["tool_calls"] = [_function_whole(self.calls[index]) for index in sorted(self.calls)]
            message["content"] = message["content"] or None  # as in an unstreamed answer: some providers refuse ""
        return message


def _function_whole(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if function is None:
        return call
    arguments = function["arguments"]
    whole = {**function, "arguments": "".join(arguments) if isinstance(arguments, list) else arguments}
    return {**call, "function": whole}


def merge_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    """Adds a delta to a message in place: texts and lists grow, other values are replaced. Calls are not merged."""
    for key, value in delta.items():
        if value is None:
            continue
        if key in (SIGNED, "reasoning_details") and isinstance(value, list):
            message[key] = _merge_thoughts(message.get(key) or [], value)
        elif key in STREAM_INDEXED_LISTS and isinstance(value, list):
            bare = ({k: v for k, v in e.items() if k != "index"} if isinstance(e, dict) else e for e in value)
            message[key] = [*(message.get(key) or ()), *bare]
        elif isinstance(value, str) and isinstance(message.get(key), str) and key != "role":
            message[key] += value
        elif isinstance(value, list) and isinstance(message.get(key), list):
            message[key] = message[key] + value
        elif isinstance(value, dict) and isinstance(message.get(key), dict):
            merged = dict(message[key])
            merge_delta(merged, value)
            message[key] = merged
        else:
            message[key] = value


def _merge_thoughts(blocks: list[Any], fragments: list[Any]) -> list[Any]:
    """Merges pieces of thoughts: the signature comes last, and the model accepts a thought only whole and verbatim."""
    merged = list(blocks)
    for fragment in fragments:
        if merged and _continues(merged[-1], fragment):
            name = THOUGHT_TEXTS[fragment["type"]]
            text = f"{merged[-1].get(name) or ''}{fragment.get(name) or ''}"
            merged[-1] = {**merged[-1], **{k: v for k, v in fragment.items() if v is not None}, name: text}
        else:
            merged.append(fragment)
    return merged


def _continues(block: Any, fragment: Any) -> bool:
    if not isinstance(block, dict) or not isinstance(fragment, dict) or block.get("signature"):
        return False
    kind, index = block.get("type"), block.get("index")
    if kind not in THOUGHT_TEXTS or kind != fragment.get("type"):
        return False
    return kind == "thinking" or (type(index) is int and index == fragment.get("index"))


def _merge_calls(calls: dict[int, dict[str, Any]], fragments: list[dict[str, Any]]) -> None:
    for position, fragment in enumerate(fragments):
        index = fragment.get("index")
        index = index if isinstance(index, int) else position
        call = calls.get(index)
        if call is None:
            call = calls[index] = {"id": "", "type": "function", "function": {"name": "", "arguments": []}}
        for key, value in fragment.items():
            if key == "function" and isinstance(value, dict):
                function = call.setdefault("function", {"name": "", "arguments": []})
                for name, text in value.items():
                    if text is None:
                        continue
                    known = function.get(name)
                    if name == "arguments" and isinstance(known, list) and isinstance(text, str):
                        known.append(text)
                        continue
                    function[name] = known + text if isinstance(known, str) and isinstance(text, str) else text
            elif key == "custom" and isinstance(value, dict):
                call.pop("function", None)
                merge_delta(call.setdefault("custom", {}), value)
            elif key == "id":
                call["id"] = value or call["id"]
            elif key != "index" and value is not None:
                call[key] = value


def _merged_usage(before: dict[str, Any], usage: dict[str, Any]) -> dict[str, Any]:
    """Merges usage that a stream reports again: the later figures count, but zeros overwrite nothing, since some
    servers report prompt tokens first and completion tokens last."""
    if not any(figure(usage, name) for name in USAGE_FIGURES):
        return before
    kept = {name: before[name] for name in USAGE_FIGURES[:2] if figure(before, name) and not figure(usage, name)}
    return sound({**before, **usage, **kept}) if kept else usage
