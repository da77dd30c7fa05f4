"""The chunks of a completion as the events of a message of Anthropic's (ADR 27)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gateway.core import jsons
from gateway.core.formats.anthropic.compacting import block_events, with_iterations
from gateway.core.formats.anthropic.message_completion import NATIVE_STOP, arguments_of
from gateway.core.formats.anthropic.serializer import (
    ENVELOPE,
    GATEWAYS,
    an_object,
    as_usage,
    blocks_in,
    extras,
    message_id,
    reasoning_of,
    refusal_details,
    stopped,
    text_of,
    thoughts_in,
    with_applied,
)
from gateway.core.types.items import ANTHROPIC_BLOCKS, ANTHROPIC_EVENTS

Json = dict[str, Any]
Events = list[Json]
Compaction = Callable[[Json], Json | None]
COMMON = ("text", "thinking", "redacted_thinking", "tool_use")
"""Blocks that a delta tells in a chat's words."""


class MessageEvents:
    """Makes events of chunks, in Anthropic's order: one block after the other, each with its index.

    Calls that come at once are told one after the other: the first as it comes, the others as soon as those before them
    are complete.
    """

    def __init__(
        self, model: str, stops: Sequence[str] = (), edits: Sequence[Json] = (), compaction: Compaction | None = None
    ) -> None:
        self._model = model
        self._edits = edits
        self._stops = stops
        self._compaction = compaction
        """Makes of the first chunk the block that stands for all before the answer."""
        self._compacted = self._begun = False
        self._told: dict[str, Json] = {}
        """By their ids, blocks of calls that their provider has begun in its own words."""
        self._is_native = False
        """Blocks that a chat has no words for come as events."""
        self._first: Json = {}
        """What the first chunk says beside its choice."""
        self._next = 0
        self._open: str | None = None
        """The kind of the block that is being told."""
        self._calls: dict[int, _StreamedCall] = {}
        """By the index of the chunks."""
        self._waiting: list[_StreamedCall] = []
        self._call: _StreamedCall | None = None
        """The call that is being told."""
        self._called = self._refused = False
        self._choice: Json = {}
        self._usage: Json | None = None
        self._tier: Any = None
        self._said: Json = {}

    def of(self, chunks: Iterable[Json]) -> Events:
        """The events that these chunks are."""
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
        """What stands behind the last chunk."""
        events: Events = []
        self._stop(events)
        while self._waiting:
            self._tell(self._waiting.pop(0), events)
            self._stop(events)
        reason, sequence = stopped(self._choice, self._stops, calls=self._called)
        delta: Json = {"stop_reason": "refusal" if self._refused else reason, "stop_sequence": sequence}
        delta |= an_object(self._choice.get(NATIVE_STOP))
        if details := refusal_details(self._choice):
            delta["stop_details"] = details
        if self._said.get("container") is not None:
            delta["container"] = self._said["container"]
        usage = as_usage(self._usage)
        usage = with_iterations(usage) if self._compacted else usage
        rest = {name: value for name, value in self._said.items() if name != "container"}
        ended = {"type": "message_delta", "delta": delta, "usage": usage, **rest}
        events.append(with_applied(ended, self._edits))
        events.append({"type": "message_stop"})
        return events

    def _note(self, chunk: Json) -> None:
        more = extras(chunk)
        if not self._begun:
            self._first = {name: value for name, value in more.items() if name in GATEWAYS or name not in ENVELOPE}
        self._said |= {k: v for k, v in more.items() if k in ENVELOPE or self._first.get(k) != v}
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]

    def _start(self, chunk: Json) -> Events:
        """What the prompt takes is by our own count until upstream has told its usage."""
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
        if signed := thoughts_in(delta):
            for block in signed:
                self._thought(block, events)
        elif text := reasoning_of(delta):
            self._thought({"type": "thinking", "thinking": text}, events)
        for event in delta.get(ANTHROPIC_EVENTS) or ():
            self._native(event, events)
        for block in blocks_in(delta.get(ANTHROPIC_BLOCKS)):
            if block["type"] not in COMMON and not self._is_native:
                self._whole(block, events)
        if text := text_of(delta.get("content")):
            self._text(text, events)
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            self._refused = True
            self._text(delta["refusal"], events)
        for position, fragment in enumerate(delta.get("tool_calls") or ()):
            self._fragment(fragment, position, events)

    def _native(self, event: Json, events: Events) -> None:
        """An event of Anthropic's in its place among ours: with our number, for the block that is open."""
        block = an_object(event.get("content_block"))
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
            self._is_native = self._is_native or block.get("type") not in COMMON
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
        if isinstance(signature, str) and signature:  # it stands at the end of a thought
            events.append(self._changed({"type": "signature_delta", "signature": signature}))
            self._stop(events)

    def _text(self, text: str, events: Events) -> None:
        self._ensure("text", {"type": "text", "text": ""}, events)
        events.append(self._changed({"type": "text_delta", "text": text}))

    def _whole(self, block: Json, events: Events) -> None:
        self._stop(events)
        self._ensure(str(block.get("type")), block, events)
        self._stop(events)

    def _fragment(self, fragment: Json, position: int, events: Events) -> None:
        index, call_id = fragment.get("index"), fragment.get("id")
        function = an_object(fragment.get("function"))
        place = index if isinstance(index, int) else position
        call = self._calls.get(place)
        if call is None or (call_id and call.id and call_id != call.id):
            call = self._calls[place] = _StreamedCall()
            self._waiting.append(call)
        call.id = call.id or str(call_id or "")
        call.name = call.name or str(function.get("name") or "")
        piece = function.get("arguments")
        if isinstance(piece, str) and piece:
            call.add(piece)
            if call is self._call and call.is_object:
                events.append(self._changed({"type": "input_json_delta", "partial_json": piece}))
        if self._waiting and self._waiting[0].name and (self._call is None or self._call.is_whole):
            self._tell(self._waiting.pop(0), events)

    def _tell(self, call: "_StreamedCall", events: Events) -> None:
        """Begins the block of a call, with what has come of it."""
        self._stop(events)
        self._called = True
        block = {**self._told.get(call.id, {}), "type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        self._ensure("tool_use", block, events)
        self._call = call
        if call.text and call.is_object:
            events.append(self._changed({"type": "input_json_delta", "partial_json": call.text}))

    def _ensure(self, kind: str, block: Json, events: Events) -> None:
        """Opens a block of that kind, unless the open one is."""
        if self._open == kind:
            return
        self._stop(events)
        self._open = kind
        events.append({"type": "content_block_start", "index": self._next, "content_block": block})

    def _stop(self, events: Events) -> None:
        if self._open is not None:
            if self._call is not None and not self._call.is_object:
                given = jsons.dumps_text(arguments_of(self._call.text))
                events.append(self._changed({"type": "input_json_delta", "partial_json": given}))
            events.append({"type": "content_block_stop", "index": self._next})
            self._next += 1
            self._open = self._call = None

    def _changed(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": self._next, "delta": delta}


class _StreamedCall:
    """A tool call of which pieces come."""

    __slots__ = ("_pieces", "id", "name")

    def __init__(self) -> None:
        self.id = self.name = ""
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def is_object(self) -> bool:
        """Whether they may become an object, as this API has them; others are told whole, in one."""
        first = next((piece.lstrip()[:1] for piece in self._pieces if not piece.isspace()), "{")
        return first == "{"

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are complete."""
        return jsons.is_json(self.text)
