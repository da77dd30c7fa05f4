"""Converts completion chunks to the events of Anthropic's messages and back (ADR 27), and errors to Anthropic's shape
(guarantee §7).

Answers of upstreams that speak Anthropic's API are repaired for clients that read that API alone: LiteLLM drops
arguments in the event that begins a call, and fails if usage is missing (guarantee §1.9).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gateway.core import errors, jsons
from gateway.core.formats.anthropic.edits import block_events, with_iterations
from gateway.core.formats.anthropic.request_parser import BLOCK_ORDER, PICTURES_NOTE
from gateway.core.formats.anthropic.serializer import (
    ENVELOPE,
    FAULT_STATUSES,
    FINISH,
    GATEWAYS_OWN_FIELDS,
    NATIVE_STOP,
    OF_A_MESSAGE,
    STOPPED,
    annotations_of,
    arguments_of,
    as_usage,
    blocks_in,
    cited_pages,
    ended,
    envelope_of,
    extras,
    images_of,
    is_plain,
    message_id,
    object_of,
    reasoning_of,
    refusal_details,
    sound_block,
    stopped,
    text_of,
    thoughts_in,
    usage_of,
    with_applied,
)
from gateway.core.formats.tool_calls import CallIds
from gateway.core.jsons import Json
from gateway.core.types.bill import of_prompt_alone
from gateway.core.types.items import ANTHROPIC_BLOCKS, ANTHROPIC_EVENTS, with_plain_text

Events = list[Json]
Compaction = Callable[[Json], Json | None]
COMMON_BLOCK_TYPES = ("text", "thinking", "redacted_thinking", "tool_use")
"""Blocks that a chat's delta can express."""


class MessageEvents:
    """Converts chunks to events in Anthropic's order: one block after the other, each with its index.

    Parallel calls are sent one after the other: the first as it comes, each of the others when those before it are
    complete.
    """

    def __init__(
        self, model: str, stops: Sequence[str] = (), edits: Sequence[Json] = (), compaction: Compaction | None = None
    ) -> None:
        self._model = model
        self._edits = edits
        self._stops = stops
        self._compaction = compaction
        """Makes the block that replaces everything before the answer, from the first chunk."""
        self._compacted = self._begun = False
        self._told: dict[str, Json] = {}
        """Native blocks of calls that the provider has begun, by id."""
        self._is_native = False
        """Blocks that a chat cannot express come as events."""
        self._first: Json = {}
        """Extra fields of the first chunk."""
        self._next = 0
        self._words: list[str] = []
        self._pictures: list[Any] = []
        self._open: str | None = None
        """The kind of the block that is being sent."""
        self._calls: dict[int, _StreamedCall] = {}
        """By the index in the chunks."""
        self._waiting: list[_StreamedCall] = []
        self._call: _StreamedCall | None = None
        """The call that is being sent."""
        self._called = self._refused = False
        self._choice: Json = {}
        self._usage: Json | None = None
        self._said: Json = {}

    def of(self, chunks: Iterable[Json]) -> Events:
        """Converts chunks to events."""
        events: Events = []
        for chunk in chunks:
            self._note(chunk)
            if not self._begun:
                self._begun = True
                events += self._start(chunk)
                block = self._compaction(chunk) if self._compaction is not None else None
                if block is not None:
                    self._compacted = True
                    events += block_events(block, self._next)
                    self._next += 1
            for choice in chunk.get("choices") or ():
                if choice.get("index", 0) == 0:
                    self._delta(choice.get("delta") or {}, events)
                    told = {k: v for k, v in choice.items() if k != "delta" and v is not None}
                    self._choice |= told
        return events

    def end(self) -> Events:
        """Returns the events after the last chunk."""
        events: Events = []
        self._stop(events)
        while self._waiting:
            self._tell(self._waiting.pop(0), events)
            self._stop(events)
        reason, sequence = stopped(self._choice, self._stops, calls=self._called)
        delta: Json = {"stop_reason": "refusal" if self._refused else reason, "stop_sequence": sequence}
        delta |= object_of(self._choice.get(NATIVE_STOP))
        if details := refusal_details(self._choice):
            delta["stop_details"] = details
        if self._said.get("container") is not None:
            delta["container"] = self._said["container"]
        usage = as_usage(self._usage)
        usage = with_iterations(usage) if self._compacted else usage
        rest = {name: value for name, value in self._said.items() if name != "container"}
        if self._pictures:
            rest["images"] = self._pictures
        ended = {"type": "message_delta", "delta": delta, "usage": usage, **rest}
        events.append(with_applied(ended, self._edits))
        events.append({"type": "message_stop"})
        return events

    def _note(self, chunk: Json) -> None:
        more = extras(chunk)
        if not self._begun:
            self._first = {
                name: value for name, value in more.items() if name in GATEWAYS_OWN_FIELDS or name not in ENVELOPE
            }
        self._said |= {k: v for k, v in more.items() if k in ENVELOPE or self._first.get(k) != v}
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]

    def _start(self, chunk: Json) -> Events:
        """Begins the message. Its prompt tokens are the gateway's count until the upstream reports its usage."""
        known = chunk.get("response_metadata")
        used = (known.get("context_utilization") if isinstance(known, dict) else None) or {}
        message: Json = {
            "id": message_id(str(chunk.get("id"))),
            "type": "message",
            "role": "assistant",
            "model": str(chunk.get("model") or self._model),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": as_usage({"prompt_tokens": used.get("tokens_used")}, chunk.get("service_tier")),
        }
        message |= self._first
        return [{"type": "message_start", "message": message}, {"type": "ping"}]

    def _delta(self, delta: Json, events: Events) -> None:
        if isinstance(delta.get("content"), list) or "audio" in delta:
            delta = with_plain_text(delta)
        if signed := thoughts_in(delta):
            for block in signed:
                self._thought(block, events)
        elif text := reasoning_of(delta):
            self._thought({"type": "thinking", "thinking": text}, events)
        for event in delta.get(ANTHROPIC_EVENTS) or ():
            self._native(event, events)
        for block in blocks_in(delta.get(ANTHROPIC_BLOCKS)):
            if block["type"] not in COMMON_BLOCK_TYPES and not self._is_native:
                self._whole(block, events)
        if text := text_of(delta.get("content")):
            self._text(text, events)
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            self._refused = True
            self._text(delta["refusal"], events)
        if delta.get("annotations") and not delta.get(ANTHROPIC_EVENTS):  # Anthropic's own come as events
            self._cited(delta["annotations"], events)
        if pictures := images_of(delta):
            if not self._pictures:
                self._stop(events)
                self._text(PICTURES_NOTE, events)
                self._stop(events)
            self._pictures += pictures
        for position, fragment in enumerate(delta.get("tool_calls") or ()):
            self._fragment(fragment, position, events)

    def _native(self, event: Json, events: Events) -> None:
        """Inserts an event of Anthropic's among ours: with our index, for the open block."""
        block = object_of(event.get("content_block"))
        if event.get("type") == "content_block_delta":
            if self._open is not None:
                events.append(self._changed(event["delta"]))
        elif event.get("type") == "content_block_stop":
            self._stop(events)
        elif event.get("type") != "content_block_start":
            events.append(event)
        elif block.get("type") == "tool_use":
            self._told[str(block.get("id"))] = block
        else:
            self._is_native = self._is_native or block.get("type") not in COMMON_BLOCK_TYPES
            self._stop(events)
            self._ensure(str(block.get("type")), block, events)

    def _thought(self, block: Json, events: Events) -> None:
        if block.get("type") != "thinking":
            self._whole(block, events)
            return
        text, signature = block.get("thinking"), block.get("signature")
        self._ensure("thinking", {"type": "thinking", "thinking": "", "signature": ""}, events)
        if isinstance(text, str) and text:
            events.append(self._changed({"type": "thinking_delta", "thinking": text}))
        if isinstance(signature, str) and signature:  # a signature ends a thought
            events.append(self._changed({"type": "signature_delta", "signature": signature}))
            self._stop(events)

    def _text(self, text: str, events: Events) -> None:
        self._ensure("text", {"type": "text", "text": ""}, events)
        self._words.append(text)
        events.append(self._changed({"type": "text_delta", "text": text}))

    def _cited(self, annotations: Any, events: Events) -> None:
        """Sends citations, which come with or after their text: in the open text block, or in a new one."""
        for page in cited_pages(annotations, "".join(self._words)):
            self._ensure("text", {"type": "text", "text": ""}, events)
            events.append(self._changed({"type": "citations_delta", "citation": page}))

    def _whole(self, block: Json, events: Events) -> None:
        self._stop(events)
        self._ensure(str(block.get("type")), block, events)
        self._stop(events)

    def _fragment(self, fragment: Json, position: int, events: Events) -> None:
        index, call_id = fragment.get("index"), fragment.get("id")
        custom = fragment.get("custom")
        function = object_of(fragment.get("function") if custom is None else custom)
        place = index if isinstance(index, int) else position
        call = self._calls.get(place)
        if call is None or (call_id and call.id and call_id != call.id):
            call = self._calls[place] = _StreamedCall()
            self._waiting.append(call)
        call.id = call.id or str(call_id or "")
        call.name = call.name or str(function.get("name") or "")
        call.is_freeform = call.is_freeform or custom is not None
        piece = function.get("arguments" if custom is None else "input")
        if isinstance(piece, str) and piece:
            call.add(piece)
            if call is self._call and call.is_object:
                events.append(self._changed({"type": "input_json_delta", "partial_json": piece}))
        if self._waiting and self._waiting[0].name and (self._call is None or self._call.is_whole):
            self._tell(self._waiting.pop(0), events)

    def _tell(self, call: "_StreamedCall", events: Events) -> None:
        """Begins the block of a call, with the arguments received so far."""
        self._stop(events)
        self._called = True
        block = {**self._told.get(call.id, {}), "type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        self._ensure("tool_use", block, events)
        self._call = call
        if call.text and call.is_object:
            events.append(self._changed({"type": "input_json_delta", "partial_json": call.text}))

    def _ensure(self, kind: str, block: Json, events: Events) -> None:
        """Opens a block of this kind, unless one is open."""
        if self._open == kind:
            return
        self._stop(events)
        self._open = kind
        events.append({"type": "content_block_start", "index": self._next, "content_block": block})

    def _stop(self, events: Events) -> None:
        if self._open is not None:
            if self._call is not None and not self._call.is_object:
                text = self._call.text
                given = jsons.dumps_text({"input": text} if self._call.is_freeform else arguments_of(text))
                events.append(self._changed({"type": "input_json_delta", "partial_json": given}))
            events.append({"type": "content_block_stop", "index": self._next})
            self._next += 1
            self._open = self._call = None

    def _changed(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": self._next, "delta": delta}


class _StreamedCall:
    """A tool call that comes in pieces."""

    __slots__ = ("_pieces", "id", "is_freeform", "name")

    def __init__(self) -> None:
        self.id = self.name = ""
        self.is_freeform = False
        """The input is a text, not an object."""
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def is_object(self) -> bool:
        """Whether the arguments may become an object, as this API requires; others are sent whole, in one piece."""
        first = next((piece.lstrip()[:1] for piece in self._pieces if not piece.isspace()), "{")
        return first == "{" and not self.is_freeform

    @property
    def is_whole(self) -> bool:
        return not self.is_freeform and jsons.is_json(self.text)


TYPES = {503: "overloaded_error"} | {status: kind for kind, status in FAULT_STATUSES.items()}
"""By status; any other 4xx is an `invalid_request_error`, and all else an `api_error`."""
OPENAI_OVERFLOW = re.compile(
    r"maximum context length is (\d+) tokens(?:\. However, (?:your messages resulted in|you requested) (\d+) tokens)?"
)


def error_body(error: errors.GatewayError, request_id: str) -> dict[str, Any]:
    """Returns an error's body in this API's shape. An error of Anthropic's is passed on verbatim; that of another
    upstream is put under `upstream`."""
    if isinstance(error, errors.UpstreamRefused) and _is_anthropics(error.original):
        return {"request_id": request_id, **error.original}
    said = error.body()["error"]
    text, status = str(said.get("message") or error.message), error.status
    if isinstance(error, errors.ContextLengthExceeded | errors.UpstreamOverflow):
        text = overflow_text(text)
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    found = {"type": kind, "message": text}
    found |= {name: said[name] for name in ("param", "code") if said.get(name) is not None}
    if isinstance(error, errors.UpstreamRefused):
        found["upstream"] = error.original
    return {"type": "error", "error": found, "request_id": request_id}


def overflow_text(text: str) -> str:
    """Rewrites the message of an overlong prompt in Anthropic's words, which clients look for."""
    told = OPENAI_OVERFLOW.search(text)
    if told is None:
        return text if text.startswith("prompt is too long") else f"prompt is too long: {text}"
    limit, tokens = told.groups()
    if tokens is None:
        return f"prompt is too long: more than {limit} tokens"
    return f"prompt is too long: {tokens} tokens > {limit} maximum"


def _is_anthropics(original: Any) -> bool:
    if not isinstance(original, dict) or original.get("type") != "error":
        return False
    error = original.get("error")
    return isinstance(error, dict) and isinstance(error.get("type"), str) and isinstance(error.get("message"), str)


COUNTS = ("input_tokens", "output_tokens")
CUT_STOP_REASON = "max_tokens"
"""Stop reason of a truncated answer: the only such reason that every client knows."""


def sound_message(message: Json) -> Json:
    """Repairs a whole message; sound parts stay unchanged."""
    ids = CallIds()
    blocks = [sound_block(block, ids) for block in message["content"]]
    named = {} if isinstance(message.get("model"), str) else {"model": ""}
    return {**message, **named, **_ended(message), "content": blocks, "usage": _usage(message.get("usage"))}


class EventMender:
    """Repairs the events of one message."""

    def __init__(self) -> None:
        self._ids = CallIds()
        self._given: dict[Any, Json] = {}
        """Arguments that came with the beginning of their call, by the block's index."""

    def of(self, event: Json) -> list[Json]:
        """Repairs an event; returns those to send in its place."""
        kind, place = event.get("type"), event.get("index")
        if kind == "message_start":
            message = object_of(event.get("message"))
            return [{**event, "message": {**message, "usage": _usage(message.get("usage"))}}]
        if kind == "content_block_start":
            return [self._begun(event, object_of(event.get("content_block")))]
        if kind == "content_block_delta" and object_of(event.get("delta")).get("partial_json"):
            self._given.pop(place, None)
        if kind == "content_block_stop" and place in self._given:
            delta = {"type": "input_json_delta", "partial_json": jsons.dumps_text(self._given.pop(place))}
            return [{"type": "content_block_delta", "index": place, "delta": delta}, event]
        if kind == "message_delta":
            delta = object_of(event.get("delta"))
            return [{**event, "delta": {**delta, **_ended(delta)}, "usage": _usage(event.get("usage"), COUNTS[1:])}]
        return [event]

    def _begun(self, event: Json, block: Json) -> Json:
        if block.get("type") != "tool_use":
            return event
        block = sound_block(block, self._ids)
        self._given[event.get("index")] = block["input"]
        return {**event, "content_block": {**block, "input": {}}}


def _usage(usage: Any, counts: Iterable[str] = COUNTS) -> Json:
    """Sets missing counts of usage to 0: the gateway then counts itself."""
    said = object_of(usage)
    return {**said, **{name: 0 for name in counts if type(said.get(name)) is not int}}


def _ended(said: Mapping[str, Any]) -> Json:
    reason = said.get("stop_reason")
    return {"stop_reason": CUT_STOP_REASON} if FINISH.get(str(reason)) == FINISH[CUT_STOP_REASON] else {}


PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""Kinds of deltas, and the field of each that has the piece."""
SAYS_NOTHING = ("ping", "message_stop")


class MessageChunks:
    """Converts events to chunks.

    Blocks are merged alongside. When one has more than a chat can express, the complete blocks are added in
    `native_blocks`, and so is each later one when it is complete. Events that a chat cannot express are added verbatim.
    """

    def __init__(self, created: int) -> None:
        self.ended = False
        self._envelope: Json = {"id": "", "object": "chat.completion.chunk", "created": created}
        self._message: Json = {}
        self._usage: Json = {}
        self._open: dict[int, _StreamedBlock] = {}
        self._complete: list[Json] = []
        self._is_told = False
        self._calls = 0
        self._ids = CallIds()

    def of(self, event: Json) -> list[Json]:
        """Converts an event to chunks; none for an event without content."""
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
        """Returns the message as far as its blocks are complete."""
        return {**self._message, "content": list(self._complete), "usage": self._usage}

    def _start(self, message: Json) -> list[Json]:
        self._message = {**message}
        self._envelope |= {"id": str(message.get("id")), "model": message.get("model")}
        self._usage = object_of(message.get("usage"))
        chunk = self._chunk({"role": "assistant", "content": ""})
        if usage := usage_of(self._usage):  # of an answer that breaks off this alone is known
            chunk["usage"] = of_prompt_alone(usage)
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
        return [] if kind in BLOCK_ORDER else [self._native({"type": "content_block_start", "content_block": block})]

    def _delta(self, block: "_StreamedBlock", delta: Json) -> list[Json]:
        name = PIECES.get(str(delta.get("type")), "")
        piece = delta.get(name)
        if name and not isinstance(piece, str):
            return []  # a known kind without its text, which clients would concatenate
        if not isinstance(piece, str):
            block.take(delta)
        else:
            block.add(name, piece)
        if not isinstance(piece, str) or block.said["type"] not in BLOCK_ORDER:
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
        if (
            BLOCK_ORDER.get(block.said["type"], BLOCK_ORDER["text"]) == BLOCK_ORDER["text"]
        ):  # the ends of others follow from a chat's deltas
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
        """Wraps an event for clients of Anthropic's API alone."""
        return self._chunk({**delta, ANTHROPIC_EVENTS: [event]})

    def _chunk(self, delta: Json) -> Json:
        return {**self._envelope, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def events_of(message: Json) -> list[Json]:
    """Converts a whole message to events, with each text of a block in one piece."""
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
    """A block that comes in pieces. Texts are kept in pieces until read."""

    def __init__(self, said: Json) -> None:
        self.said = said
        self.call: int | None = None
        """The block's index among the calls."""
        self._pieces: dict[str, list[str]] = {}

    def add(self, name: str, piece: str) -> None:
        self._pieces.setdefault(name, []).append(piece)

    def take(self, delta: Json) -> None:
        """Merges a delta of a kind that a chat does not know: texts and lists are extended, all else is replaced."""
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
