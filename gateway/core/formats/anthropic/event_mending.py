"""Answers of those who speak Anthropic's API, as a reader of that API alone can take them: LiteLLM drops arguments that
stand where a call begins, and gives up where usage is missing (guarantee §1.9)."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.core import jsons
from gateway.core.formats.anthropic.message_completion import FINISH, object_of, sound_block
from gateway.core.formats.tool_calls import CallIds

Json = dict[str, Any]
COUNTS = ("input_tokens", "output_tokens")
CUT = "max_tokens"
"""Why an answer ended that was cut off: the only reason for that which every reader knows."""


def sound_message(message: Json) -> Json:
    """A whole message, with nothing changed in which nothing is odd."""
    ids = CallIds()
    blocks = [sound_block(block, ids) for block in message["content"]]
    return {**message, **_ended(message), "content": blocks, "usage": _usage(message.get("usage"))}


class EventMender:
    """Mends the events of one message."""

    def __init__(self) -> None:
        self._ids = CallIds()
        self._given: dict[Any, Json] = {}
        """Arguments that came where their call began, by the block's index."""

    def of(self, event: Json) -> list[Json]:
        """The event, or what it should have been."""
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
        if block["input"]:
            self._given[event.get("index")] = block["input"]
        return {**event, "content_block": {**block, "input": {}}}


def _usage(usage: Any, counts: Iterable[str] = COUNTS) -> Json:
    """Usage in which what is not counted is nothing: the gateway then counts itself."""
    said = object_of(usage)
    return {**said, **{name: 0 for name in counts if type(said.get(name)) is not int}}


def _ended(said: Mapping[str, Any]) -> Json:
    reason = said.get("stop_reason")
    return {"stop_reason": CUT} if FINISH.get(str(reason)) == FINISH[CUT] else {}
