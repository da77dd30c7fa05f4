"""The events of a streamed response as chunks of a chat completion of the inner form."""

from collections.abc import Mapping
from typing import Any

from gateway.wire.responses.receiving import (
    BETWEEN,
    OWN_CALLS,
    chat_call,
    chat_token,
    chat_usage,
    envelope,
    finish_reason,
    is_whole,
    nested,
    objects,
)

Json = dict[str, Any]
ENDS = ("response.completed", "response.incomplete", "response.cancelled")
SUMMARY = "thoughts_are_summary"
"""The field of a choice that tells an edge of Responses that its thoughts are a summary of them."""


class ResponseChunks:
    """Makes chunks of events, one answer long: at least one of each, perhaps without choices.

    What an event brings is passed on at once. What a server leaves out of its pieces is made up for where the item, or
    the response, is there whole; what it says twice counts once.
    """

    def __init__(self, *, as_items: bool, hosted: bool) -> None:
        """
        Args:
            as_items: the answer is for an edge of Responses, which shows items as items.
            hosted: thoughts are kept among the calls that the upstream runs itself, in their order.
        """
        self._as_items = as_items
        self._hosted = hosted
        self._envelope: Json = {"id": None, "object": "chat.completion.chunk", "created": 0, "model": None}
        self._open: dict[Any, _Item] = {}
        """Items by their place in the output."""
        self._calls = 0
        self._has_words = False
        self._has_thoughts = False
        self._role_sent = False
        self._phase: str | None = None
        self._by_ids = False
        self._ended = False
        self._more: Json = {}
        self._numbers: dict[str, int] = {}

    def of(self, event: Mapping[str, Any]) -> list[Json]:
        """The chunks that an event is, the last of them with the usage where it ends the response."""
        kind = str(event.get("type"))
        response = event.get("response")
        if isinstance(response, dict):
            self._envelope = {**self._envelope, **envelope(response, "chat.completion.chunk")}
        if kind in ENDS and isinstance(response, dict):
            return self._finish(response)
        made = self._made(kind, event)
        if made is None:
            return [{**self._envelope, "choices": []}]
        return [self._chunk(made)]

    @property
    def ended(self) -> bool:
        """Whether the response has come to its end."""
        return self._ended

    def _made(self, kind: str, event: Mapping[str, Any]) -> Json | None:
        """The delta that an event is; None where a chat has none."""
        delta, item = event.get("delta"), event.get("item")
        place = self._place(event)
        match kind.removeprefix("response."):
            case "output_item.added" if isinstance(item, dict):
                return self._begin(place, item)
            case "output_item.done" if isinstance(item, dict):
                return self._catch_up(place, item)
            case "output_text.delta" if isinstance(delta, str):
                return self._words(self._at(place, "message"), delta, event.get("logprobs"))
            case "refusal.delta" if isinstance(delta, str):
                return self._refused(self._at(place, "message"), delta)
            case "output_text.annotation.added":
                self._at(place, "message").annotations += 1
                return self._listed("annotations", [nested(event.get("annotation"))])
            case "reasoning_summary_text.delta" | "reasoning_text.delta" if isinstance(delta, str):
                part = event.get("summary_index", event.get("content_index"))
                is_summary = "summary" in kind
                return self._thoughts(self._at(place, "reasoning"), delta, part, is_summary=is_summary)
            case "function_call_arguments.delta" | "custom_tool_call_input.delta" if isinstance(delta, str):
                return self._arguments(self._open.get(place), delta)
        return None

    def _place(self, event: Mapping[str, Any]) -> Any:
        """Where in the output an event belongs: by its number, as some servers change ids, else by its id."""
        number, item = event.get("output_index"), event.get("item")
        if isinstance(number, int):
            return number
        item_id = event.get("item_id") or (item.get("id") if isinstance(item, dict) else None)
        self._by_ids = self._by_ids or item_id is not None
        return str(item_id)

    def _chunk(self, delta: Json, finish: str | None = None, **more: Any) -> Json:
        if not self._role_sent:
            self._role_sent = True
            delta = {"role": "assistant", **delta}
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **self._more}
        self._more = {}
        return {**self._envelope, "choices": [choice], **more}

    def _at(self, place: Any, kind: str) -> "_Item":
        found = self._open.get(place)
        if found is None:
            found = self._open[place] = _Item(kind)
        return found

    def _begin(self, place: Any, item: Json) -> Json | None:
        """An item begins: a call with its name; of all others nothing is known yet."""
        kind = str(item.get("type"))
        if place in self._open:
            return None
        opened = self._open[place] = _Item(kind)
        if kind not in OWN_CALLS:
            return {} if not self._role_sent else None
        opened.index, self._calls = self._calls, self._calls + 1
        call = chat_call(item)
        opened.chars = len(_arguments_of(call))
        return {"tool_calls": [{"index": opened.index, **call}]}

    def _words(self, item: "_Item", text: str, logprobs: Any = None) -> Json:
        between = BETWEEN if text and item.chars == 0 and self._has_words else ""
        item.chars += len(text)
        self._has_words = self._has_words or bool(text)
        if logprobs:
            self._more["logprobs"] = {"content": [chat_token(token) for token in objects(logprobs)]}
        return {"content": between + text}

    def _refused(self, item: "_Item", text: str) -> Json:
        item.refused += len(text)
        return {"refusal": text}

    def _thoughts(self, item: "_Item", text: str, part: Any, *, is_summary: bool) -> Json:
        begins = item.chars == 0 if item.part is None else part != item.part
        between = self._has_thoughts and begins and (item.part is not None or not self._as_items)
        item.part, item.chars = part, item.chars + len(text)
        self._has_thoughts = True
        if is_summary and self._as_items:
            self._more[SUMMARY] = True
        return {"reasoning_content": BETWEEN + text if between else text}

    def _arguments(self, item: "_Item | None", text: str) -> Json | None:
        if item is None or item.kind not in OWN_CALLS:
            return None
        item.chars += len(text)
        return {"tool_calls": [_piece(item, text)]}

    def _catch_up(self, place: Any, item: Json) -> Json | None:
        """An item is there whole: what its pieces did not bring, and all of what is kept as it is."""
        opened = self._at(place, str(item.get("type")))
        if opened.is_done:
            return None
        opened.is_done = True
        if is_whole(item):
            named = "reasoning_items" if item.get("type") == "reasoning" and not self._hosted else "output_items"
            thoughts = {} if opened.chars else self._late_thoughts(opened, item)
            return {**thoughts, **self._listed(named, [item])}
        if opened.kind in OWN_CALLS:
            return self._rest_of_call(opened, item)
        return self._rest_of_words(opened, item)

    def _late_thoughts(self, opened: "_Item", item: Json) -> Json:
        for name in ("content", "summary"):
            texts = [str(part.get("text") or "") for part in objects(item.get(name))]
            if any(texts):
                return self._thoughts(opened, BETWEEN.join(texts), 0, is_summary=name == "summary")
        return {}

    def _rest_of_call(self, opened: "_Item", item: Json) -> Json | None:
        call = chat_call(item)
        if opened.index is None:
            opened.index, self._calls = self._calls, self._calls + 1
            return {"tool_calls": [{"index": opened.index, **call}]}
        rest = _arguments_of(call)[opened.chars :]
        opened.chars += len(rest)
        return {"tool_calls": [_piece(opened, rest)]} if rest else None

    def _rest_of_words(self, opened: "_Item", item: Json) -> Json | None:
        parts = objects(item.get("content"))
        text = "".join(str(part.get("text") or "") for part in parts if part.get("type") == "output_text")
        refusal = "".join(str(part.get("refusal") or "") for part in parts if part.get("type") == "refusal")
        cited = [nested(each) for part in parts for each in objects(part.get("annotations"))][opened.annotations :]
        opened.annotations += len(cited)
        found: Json = self._listed("annotations", cited) if cited else {}
        if len(text) > opened.chars:
            found |= self._words(opened, text[opened.chars :])
        if len(refusal) > opened.refused:
            found |= self._refused(opened, refusal[opened.refused :])
        if isinstance(item.get("phase"), str):
            self._phase = item["phase"]
        return found or None

    def _listed(self, name: str, entries: list[Any]) -> Json:
        """Entries of a list. Chat clients put a stream together by their numbers."""
        if self._as_items:
            return {name: entries}
        first = self._numbers.get(name, 0)
        self._numbers[name] = first + len(entries)
        numbered = [{"index": first + n, **e} for n, e in enumerate(entries) if isinstance(e, dict)]
        return {name: numbered}

    def _finish(self, response: Json) -> list[Json]:
        self._ended = True
        output = response.get("output")
        chunks = []
        for number, item in enumerate(output if isinstance(output, list) else ()):
            place = str(item.get("id")) if self._by_ids and isinstance(item, dict) else number
            if isinstance(item, dict) and (late := self._catch_up(place, item)):
                chunks.append(self._chunk(late))
        reason = finish_reason(response, {"tool_calls": self._calls})
        phase = {"phase": self._phase} if self._phase else {}
        usage = chat_usage(response.get("usage"))
        return [*chunks, self._chunk(phase, reason, **({"usage": usage} if usage else {}))]


class _Item:
    """What has been passed on of an item."""

    __slots__ = ("annotations", "chars", "index", "is_done", "kind", "part", "refused")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.index: int | None = None
        """Of a call, its number."""
        self.part: Any = None
        """Of thoughts, the part that came last."""
        self.chars = 0
        self.refused = 0
        self.annotations = 0
        self.is_done = False


def _arguments_of(call: Json) -> str:
    if call["type"] == "custom":
        return str(call["custom"]["input"])
    return str(call["function"]["arguments"])


def _piece(item: _Item, text: str) -> Json:
    if item.kind == "custom_tool_call":
        return {"index": item.index, "custom": {"input": text}}
    return {"index": item.index, "function": {"arguments": text}}
