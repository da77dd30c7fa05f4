"""The events of a streamed response as chunks of a chat completion of the inner form."""

from collections.abc import Mapping
from typing import Any

from gateway.core.formats.responses.response_completion import (
    chat_call,
    chat_token,
    chat_usage,
    envelope,
    finish_reason,
    is_whole,
    nested,
    objects,
    order_of,
)
from gateway.core.types.items import BETWEEN, ITEM_ORDER, OWN_CALLS, TYPED_CALLS

Json = dict[str, Any]
ENDS = ("response.completed", "response.incomplete", "response.cancelled")
SUMMARY = "thoughts_are_summary"
"""The field of a choice that tells an edge of Responses that its thoughts are a summary of them."""
MESSAGE_AT = "message_at"
"""The same for words: the number of their message, that of their part of it, and its phase; and whether they come with
what stands between messages in a chat's text."""
ITEM_DONE = "item_done"
"""The same of an item that is complete with this choice: the number of a `message`, or the id of a `call`."""


class ResponseChunks:
    """Makes chunks of events, one answer long: at least one of each, perhaps without choices.

    What an event brings is passed on at once. What a server leaves out of its pieces is made up for where the item, or
    the response, is there whole; what it says twice counts once.
    """

    def __init__(self, *, as_items: bool) -> None:
        """`as_items`: the answer is for an edge of Responses, which shows items as items."""
        self._as_items = as_items
        self._envelope: Json = {"id": None, "object": "chat.completion.chunk", "created": 0, "model": None}
        self._open: dict[Any, _PassedItem] = {}
        """Items by their place in the output."""
        self._whole: dict[Any, Json] = {}
        """The same as they are when they are done."""
        self._speaking: _PassedItem | None = None
        """The message of which words come. Those of others wait until it is done: a chat has one text."""
        self._messages = 0
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
        return self._made(kind, event) or [{**self._envelope, "choices": []}]

    @property
    def ended(self) -> bool:
        """Whether the response has come to its end."""
        return self._ended

    def _made(self, kind: str, event: Mapping[str, Any]) -> list[Json]:
        """The chunks that an event is; none where a chat has none."""
        delta, item = event.get("delta"), event.get("item")
        place, part = self._place(event), event.get("content_index")
        match kind.removeprefix("response."):
            case "output_item.added" if isinstance(item, dict):
                return self._told(self._begin(place, item))
            case "output_item.done" if isinstance(item, dict):
                return self._catch_up(place, item)
            case "output_text.delta" if isinstance(delta, str):
                return self._told(self._words(self._at(place, "message"), delta, part, event.get("logprobs")))
            case "refusal.delta" if isinstance(delta, str):
                return self._told(self._refused(self._at(place, "message"), delta, part))
            case "output_text.annotation.added":
                return self._told(self._cited(self._at(place, "message"), [event.get("annotation")], part))
            case "reasoning_summary_text.delta" | "reasoning_text.delta" if isinstance(delta, str):
                part = event.get("summary_index", part)
                is_summary = "summary" in kind
                return self._told(self._thoughts(self._at(place, "reasoning"), delta, part, is_summary=is_summary))
            case "function_call_arguments.delta" | "custom_tool_call_input.delta" if isinstance(delta, str):
                return self._told(self._arguments(self._open.get(place), delta))
        return []

    def _told(self, delta: Json | None) -> list[Json]:
        return [] if delta is None else [self._chunk(delta)]

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

    def _at(self, place: Any, kind: str) -> "_PassedItem":
        found = self._open.get(place)
        if found is None:
            found = self._open[place] = _PassedItem(kind)
        return found

    def _begin(self, place: Any, item: Json) -> Json | None:
        """An item begins: a call with its name; of all others nothing is known yet."""
        kind = str(item.get("type"))
        if place in self._open:
            return None
        opened = self._open[place] = _PassedItem(kind)
        opened.phase = item.get("phase")
        if kind in OWN_CALLS:
            opened.index, self._calls = self._calls, self._calls + 1
        if kind not in OWN_CALLS or kind in TYPED_CALLS:  # which are told whole
            return {} if not self._role_sent else None
        opened.is_named, call = True, chat_call(item)
        opened.chars = len(_arguments_of(call))
        return {"tool_calls": [{"index": opened.index, **call}]}

    def _waits(self, item: "_PassedItem", part: Any) -> bool:
        """Whether words of a message wait, as those of another still come; else says where they belong."""
        if self._speaking is not item:
            if item.waits or not (self._speaking is None or self._speaking.is_done):
                item.waits = True
                return True
            self._speaking, item.number = item, self._messages
            self._messages += 1
        if self._as_items:
            at = {"message": item.number, "part": part if isinstance(part, int) else 0}
            self._more[MESSAGE_AT] = {**at, "phase": item.phase} if isinstance(item.phase, str) else at
        return False

    def _words(self, item: "_PassedItem", text: str, part: Any, logprobs: Any = None) -> Json | None:
        if self._waits(item, part):
            return None
        between = BETWEEN if text and item.chars == 0 and self._has_words else ""
        if between and self._as_items:
            self._more[MESSAGE_AT]["between"] = True
        item.chars += len(text)
        self._has_words = self._has_words or bool(text)
        if logprobs:
            self._more["logprobs"] = {"content": [chat_token(token) for token in objects(logprobs)]}
        return {"content": between + text}

    def _refused(self, item: "_PassedItem", text: str, part: Any) -> Json | None:
        if self._waits(item, part):
            return None
        item.refused += len(text)
        return {"refusal": text}

    def _cited(self, item: "_PassedItem", cited: list[Any], part: Any) -> Json | None:
        if self._waits(item, part):
            return None
        item.annotations += len(cited)
        return self._listed("annotations", [nested(each) for each in cited])

    def _thoughts(self, item: "_PassedItem", text: str, part: Any, *, is_summary: bool) -> Json:
        begins = item.chars == 0 if item.part is None else part != item.part
        between = self._has_thoughts and begins and (item.part is not None or not self._as_items)
        item.part, item.chars = part, item.chars + len(text)
        self._has_thoughts = True
        if is_summary and self._as_items:
            self._more[SUMMARY] = True
        return {"reasoning_content": BETWEEN + text if between else text}

    def _arguments(self, item: "_PassedItem | None", text: str) -> Json | None:
        if item is None or item.kind not in OWN_CALLS:
            return None
        item.chars += len(text)
        return {"tool_calls": [_piece(item, text)]}

    def _catch_up(self, place: Any, item: Json) -> list[Json]:
        """An item is there whole: what its pieces did not bring, and all of what is kept as it is."""
        opened = self._at(place, str(item.get("type")))
        if opened.is_done:
            return []
        self._whole[place] = item
        if is_whole(item):
            named = "reasoning_items" if item.get("type") == "reasoning" else "output_items"
            thoughts = {} if opened.chars else self._late_thoughts(opened, item)
            opened.is_done = True
            return self._told({**thoughts, **self._listed(named, [item])})
        if opened.kind in OWN_CALLS:
            opened.is_done = True
            return self._done(self._told(self._rest_of_call(opened, item)), call=chat_call(item)["id"])
        if not (self._speaking in (None, opened) or self._speaking.is_done):
            opened.waits = True
            return []
        opened.waits = False
        chunks = self._rest_of_words(opened, item)
        if opened is self._speaking:
            chunks = self._done(chunks, message=opened.number, phase=opened.phase)
        opened.is_done = True
        waiting = [at for at, each in self._open.items() if each.waits and at in self._whole]
        return chunks + [chunk for at in waiting for chunk in self._catch_up(at, self._whole[at])]

    def _done(self, chunks: list[Json], **item: Any) -> list[Json]:
        """The last chunks of an item, for an edge that shows when it ends."""
        if not self._as_items:
            return chunks
        chunks = chunks or [self._chunk({})]
        chunks[-1]["choices"][0][ITEM_DONE] = item
        return chunks

    def _late_thoughts(self, opened: "_PassedItem", item: Json) -> Json:
        for name in ("content", "summary"):
            texts = [str(part.get("text") or "") for part in objects(item.get(name))]
            if any(texts):
                return self._thoughts(opened, BETWEEN.join(texts), 0, is_summary=name == "summary")
        return {}

    def _rest_of_call(self, opened: "_PassedItem", item: Json) -> Json | None:
        call = chat_call(item)
        if opened.index is None:
            opened.index, self._calls = self._calls, self._calls + 1
        if not opened.is_named:
            opened.is_named = True
            return {"tool_calls": [{"index": opened.index, **call}]}
        rest = _arguments_of(call)[opened.chars :]
        opened.chars += len(rest)
        return {"tool_calls": [_piece(opened, rest)]} if rest else None

    def _rest_of_words(self, opened: "_PassedItem", item: Json) -> list[Json]:
        if isinstance(item.get("phase"), str):
            self._phase = opened.phase = item["phase"]
        chars, refused, known = opened.chars, opened.refused, opened.annotations
        chunks: list[Json] = []
        for number, part in enumerate(objects(item.get("content"))):
            text = str(part.get("text") or "") if part.get("type") == "output_text" else ""
            refusal = str(part.get("refusal") or "") if part.get("type") == "refusal" else ""
            cited = objects(part.get("annotations"))
            if text[chars:]:
                tokens = None if chars else part.get("logprobs")
                chunks += self._told(self._words(opened, text[chars:], number, tokens))
            if refusal[refused:]:
                chunks += self._told(self._refused(opened, refusal[refused:], number))
            if cited[known:]:
                chunks += self._told(self._cited(opened, cited[known:], number))
            chars, refused = max(0, chars - len(text)), max(0, refused - len(refusal))
            known = max(0, known - len(cited))
        return chunks

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
        output = objects(response.get("output"))
        chunks: list[Json] = []
        for number, item in enumerate(output):
            chunks += self._catch_up(str(item.get("id")) if self._by_ids else number, item)
        order = order_of(output or [self._whole[place] for place in self._open if place in self._whole])
        if order:
            chunks += self._told(self._listed(ITEM_ORDER, order))
        reason = finish_reason(response, {"tool_calls": self._calls})
        phase = {"phase": self._phase} if self._phase else {}
        usage = chat_usage(response.get("usage"))
        return [*chunks, self._chunk(phase, reason, **({"usage": usage} if usage else {}))]


class _PassedItem:
    """What has been passed on of an item."""

    __slots__ = (
        *("annotations", "chars", "index", "is_done", "is_named", "kind"),
        *("number", "part", "phase", "refused", "waits"),
    )

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.index: int | None = None
        """Of a call, its number."""
        self.is_named = False
        """Of a call, whether its id and name are told."""
        self.part: Any = None
        """Of thoughts, the part that came last."""
        self.chars = 0
        self.refused = 0
        self.annotations = 0
        self.is_done = False
        self.waits = False
        self.number = 0
        """Of a message, its number among those of the answer."""
        self.phase: Any = None


def _arguments_of(call: Json) -> str:
    if call["type"] == "custom":
        return str(call["custom"]["input"])
    return str(call["function"]["arguments"])


def _piece(item: _PassedItem, text: str) -> Json:
    if item.kind == "custom_tool_call":
        return {"index": item.index, "custom": {"input": text}}
    return {"index": item.index, "function": {"arguments": text}}
