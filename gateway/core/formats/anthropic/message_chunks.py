"""The events of a message of Anthropic's as chunks of a completion (ADR 27)."""

from collections.abc import Iterable
from typing import Any

from gateway.core import jsons
from gateway.core.formats.anthropic.message_completion import (
    NATIVE_STOP,
    OF_A_MESSAGE,
    ORDER,
    STOPPED,
    annotations_of,
    ended,
    envelope_of,
    is_plain,
    object_of,
    sound_block,
    usage_of,
)
from gateway.core.formats.tool_calls import CallIds
from gateway.core.types.items import ANTHROPIC_BLOCKS, ANTHROPIC_EVENTS

Json = dict[str, Any]
PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""Kinds of deltas, and the field that has the piece."""
SAYS_NOTHING = ("ping", "message_stop")


class MessageChunks:
    """Makes chunks of events.

    Blocks are put together beside: as soon as they say more than a chat has a place for, those that are complete, and
    from then on each that is, go along in `native_blocks`. Events that a chat has no words for go along as they came.
    """

    def __init__(self, created: int) -> None:
        self.ended = False
        self._created = created
        self._envelope: Json = {"id": "", "object": "chat.completion.chunk", "created": created}
        self._message: Json = {}
        self._usage: Json = {}
        self._open: dict[int, _StreamedBlock] = {}
        self._complete: list[Json] = []
        self._is_told = False
        self._calls = 0
        self._ids = CallIds()

    def of(self, event: Json) -> list[Json]:
        """The chunks that an event is; none for what says nothing."""
        kind = event.get("type")
        index = event.get("index")
        place = index if type(index) is int else 0
        if kind == "message_start":
            return self._start(object_of(event.get("message")))
        if kind == "content_block_start":
            return self._begin(place, object_of(event.get("content_block")))
        if kind == "content_block_delta":
            return self._delta(self._open[place], object_of(event.get("delta"))) if place in self._open else []
        if kind == "content_block_stop":
            return self._stop(self._open.pop(place)) if place in self._open else []
        if kind == "message_delta":
            return self._finish(event)
        if kind == "message_stop":
            self.ended = True
        is_unknown = isinstance(kind, str) and kind not in SAYS_NOTHING and self._envelope["id"]
        return [self._native(event)] if is_unknown else []

    def message(self) -> Json:
        """All that has come, as a whole message of blocks that are complete."""
        return {**self._message, "content": list(self._complete), "usage": self._usage}

    def _start(self, message: Json) -> list[Json]:
        self._message = {**message}
        self._envelope |= {"id": str(message.get("id")), "model": message.get("model")}
        self._usage = object_of(message.get("usage"))
        chunk = self._chunk({"role": "assistant", "content": ""})
        return [{**chunk, **envelope_of(message)}]

    def _begin(self, place: int, block: Json) -> list[Json]:
        kind = block.get("type")
        if not isinstance(kind, str):
            return []
        block = sound_block(block, self._ids)
        opened = self._open[place] = _StreamedBlock(dict(block))
        if kind == "tool_use":
            opened.call, self._calls = self._calls, self._calls + 1
            function = {"name": block["name"], "arguments": ""}
            call = {"index": opened.call, "id": block["id"], "type": "function", "function": function}
            return [self._native({"type": "content_block_start", "content_block": block}, tool_calls=[call])]
        if kind == "text":
            begun = self._native({"type": "content_block_start", "content_block": {**block, "text": ""}})
            return [begun, self._chunk({"content": str(block["text"])})] if block.get("text") else [begun]
        if kind == "redacted_thinking":
            return [self._chunk({"thinking_blocks": [block]})]
        return [] if kind in ORDER else [self._native({"type": "content_block_start", "content_block": block})]

    def _delta(self, block: "_StreamedBlock", delta: Json) -> list[Json]:
        name = PIECES.get(str(delta.get("type")), "")
        piece = delta.get(name)
        if not isinstance(piece, str):
            block.take(delta)
        else:
            block.add(name, piece)
        if not isinstance(piece, str) or block.said["type"] not in ORDER:
            return [self._native({"type": "content_block_delta", "delta": delta})]
        if name == "text":
            return [self._chunk({"content": piece})] if piece else []
        if name == "thinking":
            thought = {"type": "thinking", "thinking": piece, "signature": None}
            return [self._chunk({"reasoning_content": piece, "thinking_blocks": [thought]})] if piece else []
        if name == "signature":
            return [self._chunk({"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": piece}]})]
        if block.call is None or not piece:
            return []
        return [self._chunk({"tool_calls": [{"index": block.call, "function": {"arguments": piece}}]})]

    def _stop(self, block: "_StreamedBlock") -> list[Json]:
        self._complete.append(block.whole())
        chunks: list[Json] = []
        if ORDER.get(block.said["type"], ORDER["text"]) == ORDER["text"]:  # others end where a chat says so
            cited: Json = {}
            if block.said.get("citations"):
                before = len(annotations_of(self._complete[:-1]))
                cited = {"annotations": annotations_of(self._complete)[before:]}
            chunks.append(self._native({"type": "content_block_stop"}, **cited))
        if block.call is not None and not block.has("partial_json"):
            given = {"index": block.call, "function": {"arguments": jsons.dumps_text(block.said.get("input") or {})}}
            chunks.append(self._chunk({"tool_calls": [given]}))
        if self._is_told:
            chunks.append(self._chunk({ANTHROPIC_BLOCKS: self._complete[-1:]}))
        elif not is_plain(self._complete):
            self._is_told = True
            chunks.append(self._chunk({ANTHROPIC_BLOCKS: list(self._complete)}))
        return chunks

    def _finish(self, event: Json) -> list[Json]:
        delta = object_of(event.get("delta"))
        self._message |= {name: value for name, value in delta.items() if value is not None}
        self._usage = {**self._usage, **{k: v for k, v in object_of(event.get("usage")).items() if v is not None}}
        said = {name: delta[name] for name in STOPPED if delta.get(name) is not None}
        choice = {"index": 0, "delta": {}, **ended(said)}
        more = {name: value for name, value in delta.items() if name not in STOPPED and value is not None}
        if more:
            choice[NATIVE_STOP] = more
        others = ("type", "delta", "usage")
        told = {name: value for name, value in event.items() if name not in others and value is not None}
        return [{**self._envelope, **told, "choices": [choice], "usage": usage_of(self._usage)}]

    def _native(self, event: Json, **delta: Any) -> Json:
        """An event that is for a client of Anthropic's API alone."""
        return self._chunk({**delta, ANTHROPIC_EVENTS: [event]})

    def _chunk(self, delta: Json) -> Json:
        return {**self._envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def message_of(events: Iterable[Json]) -> Json:
    """The whole message that events are."""
    made = MessageChunks(created=0)
    for event in events:
        made.of(event)
    return made.message()


def events_of(message: Json) -> list[Json]:
    """The events of a whole message: each block begins, and its texts come in one piece each."""
    begun = {name: message.get(name) for name in OF_A_MESSAGE if name not in STOPPED}
    usage, rest = message.get("usage"), {k: v for k, v in message.items() if k not in OF_A_MESSAGE}
    events: list[Json] = [{"type": "message_start", "message": {**begun, "content": []}}]
    for index, block in enumerate(message["content"]):
        said = {kind: name for kind, name in PIECES.items() if isinstance(block.get(name), str)}
        bare = {**block, **dict.fromkeys(said.values(), "")}
        events.append({"type": "content_block_start", "index": index, "content_block": bare})
        for kind, name in said.items():
            delta = {"type": kind, name: block[name]}
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    told = {name: message.get(name) for name in STOPPED}
    return [*events, {"type": "message_delta", "delta": told, "usage": usage, **rest}, {"type": "message_stop"}]


class _StreamedBlock:
    """A block of which pieces come. Texts are kept in pieces until they are asked for."""

    def __init__(self, said: Json) -> None:
        self.said = said
        self.call: int | None = None
        """Its number among the calls."""
        self._pieces: dict[str, list[str]] = {}

    def add(self, name: str, piece: str) -> None:
        self._pieces.setdefault(name, []).append(piece)

    def take(self, delta: Json) -> None:
        """Adds what a delta brings whose kind says nothing to a chat: texts and lists go on, all else is as it was said
        last."""
        for name, value in delta.items():
            known = self.said.get(name)
            if name == "citation":
                known, name, value = self.said.get("citations"), "citations", [value]
            if name == "type" or value is None:
                continue
            goes_on = isinstance(value, str | list) and type(known) is type(value)
            self.said[name] = known + value if goes_on else value

    def has(self, name: str) -> bool:
        return any(self._pieces.get(name, ()))

    def whole(self) -> Json:
        found = dict(self.said)
        for name, pieces in self._pieces.items():
            text = "".join(pieces)
            if name != "partial_json":
                found[name] = f"{found.get(name) or ''}{text}"
            elif text:
                found["input"] = _parsed(text)
        return found


def _parsed(text: str) -> Any:
    try:
        return jsons.with_whole_characters(jsons.loads_answer(text.encode("utf-8", "surrogatepass")))
    except jsons.JSONDecodeError:  # the answer was cut off
        return {}
