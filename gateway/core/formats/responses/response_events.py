"""Converts a streamed answer of the inner form to the events of a response, in OpenAI's order and numbering.

Holds the items of a streamed response while they arrive, and makes the events of each.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.core import errors
from gateway.core.formats.responses.item_reader import names_apart
from gateway.core.formats.responses.response_completion import (
    ENCRYPTED,
    INCOMPLETE,
    MESSAGE_AT,
    MESSAGE_PARTS,
    OTHER_PART,
    SUMMARY,
    as_incomplete,
    begun,
    ended,
    extras,
    failed,
    told,
    whole_logprobs,
)
from gateway.core.formats.responses.sealed_thoughts import AnswerThoughts, ThoughtSealer, readable
from gateway.core.ids import MESSAGE
from gateway.core.jsons import Json
from gateway.core.types import items

Events = list[Json]


class OpenItem:
    """An item that has begun. `index` is its number in the output. Methods return events without sequence numbers."""

    def __init__(self, item_id: str) -> None:
        self.item_id = item_id
        self.index = 0
        self.is_open = True

    def item(self, status: str = "completed") -> Json:
        """Returns the item as received so far."""
        raise NotImplementedError

    def first(self) -> Json:
        """Returns the item as it begins, without content."""
        raise NotImplementedError

    def begin(self, index: int) -> Events:
        self.index = index
        return [{"type": "response.output_item.added", "output_index": index, "item": self.first()}]

    def close(self) -> Events:
        """Closes the item and returns its last events; none if it was closed before."""
        if not self.is_open:
            return []
        self.is_open = False
        done = {"type": "response.output_item.done", "output_index": self.index, "item": self.item()}
        return [*self.closing(), done]

    def closing(self) -> Events:
        """Returns the events that end the item's content."""
        return []

    def event(self, kind: str, **fields: Any) -> Json:
        return {"type": f"response.{kind}", "item_id": self.item_id, "output_index": self.index, **fields}


class ReasoningItem(OpenItem):
    """A reasoning item: its text, a summary, or sealed thoughts."""

    def __init__(self, stem: str, number: int, *, is_summary: bool = False) -> None:
        super().__init__(items.numbered_id(stem, number))
        self._pieces: list[str] = []
        self._whole: Json | None = None
        self.sealed: str | None = None
        """Thoughts that the gateway sealed."""
        self._is_summary = is_summary

    @property
    def _text(self) -> str:
        return "".join(self._pieces)

    def first(self) -> Json:
        return {"id": self.item_id, "type": "reasoning", "summary": [], "status": "in_progress"}

    def item(self, status: str = "completed") -> Json:
        shown = {"id": self.item_id, "type": "reasoning", "summary": []}
        if self._whole is not None:
            names = ("summary", "content", "encrypted_content")
            return {**shown, **{k: self._whole[k] for k in names if self._whole.get(k)}, "status": status}
        if self._is_summary:
            return {**shown, "summary": [self._part()], "status": status}
        content = {"content": [self._part()]} if self._pieces else {}
        sealed = {"encrypted_content": self.sealed} if self.sealed else {}
        return {**shown, **content, **sealed, "status": status}

    def add(self, text: str) -> Events:
        """Adds to the reasoning's text; returns the events."""
        of_text, of_part, place = self._names
        begins = [] if self._pieces else [self.event(f"{of_part}.added", **place, part=self._part())]
        self._pieces.append(text)
        return [*begins, self.event(f"{of_text}.delta", **place, delta=text)]

    def take(self, whole: Json) -> Events:
        """Stores the whole item as its maker has it; returns the events of a summary that was not sent yet."""
        parts = whole.get("summary") or []
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        events: Events = []
        if texts and not self._pieces:
            self._is_summary = True
            events = self.add("\n\n".join(texts))
        self._whole = whole
        return events

    def closing(self) -> Events:
        if not self._pieces:
            return []
        of_text, of_part, place = self._names
        done = self.event(f"{of_text}.done", **place, text=self._text)
        return [done, self.event(f"{of_part}.done", **place, part=self._part())]

    def _part(self) -> Json:
        return {"type": "summary_text" if self._is_summary else "reasoning_text", "text": self._text}

    @property
    def _names(self) -> tuple[str, str, Json]:
        """The names of the events of its text and of its part, and where that is."""
        if self._is_summary:
            return "reasoning_summary_text", "reasoning_summary_part", {"summary_index": 0}
        return "reasoning_text", "content_part", {"content_index": 0}


class MessageItem(OpenItem):
    """A message item: a text, a refusal, or one after the other."""

    def __init__(self, item_id: str, number: int | None = None, phase: str | None = None) -> None:
        """`number`: the index of the message in its maker's answer, if reported."""
        super().__init__(item_id)
        self.number = number
        self.phase = phase
        self.part = 0
        """The maker's index of the part whose pieces are arriving."""
        self._parts: list[_MessagePart] = []
        self._ended = 0

    def first(self) -> Json:
        item = {"id": self.item_id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        return {**item, "phase": self.phase} if self.phase else item

    def item(self, status: str = "completed") -> Json:
        return {**self.first(), "status": status, "content": [part.whole() for part in self._parts]}

    def text(self, text: str, logprobs: Any) -> Events:
        """Adds to the message's text, with its tokens' log probabilities; returns the events."""
        part, events = self._part("output_text")
        part.pieces.append(text)
        part.logprobs += logprobs or []
        said = [_token(each) for each in logprobs or ()]
        place = {"content_index": part.index}
        return [*events, self.event("output_text.delta", **place, delta=text, logprobs=said)]

    def empty(self) -> Events:
        """Adds an empty text to the message; returns the events."""
        return self._part("output_text")[1]

    def refusal(self, text: str) -> Events:
        """Adds to the message's refusal; returns the events."""
        part, events = self._part("refusal")
        part.pieces.append(text)
        return [*events, self.event("refusal.delta", content_index=part.index, delta=text)]

    def other(self, whole: Json) -> Events:
        """Adds a part of another type, which comes whole; returns the events."""
        part = _MessagePart(str(whole.get("type")), len(self._parts), self.part, whole)
        before = self.closing()
        self._parts.append(part)
        added = self.event("content_part.added", content_index=part.index, part=whole)
        return [*before, added, *self.closing()]

    def annotation(self, annotation: Any) -> Events:
        """Adds a citation to the message's text, which may have ended; returns the events."""
        known = [part for part in self._parts if (part.kind, part.number) == ("output_text", self.part)]
        part, events = (known[-1], []) if known else self._part("output_text")
        flat = items.flat_annotation(annotation)
        place = {"content_index": part.index, "annotation_index": len(part.annotations)}
        part.annotations.append(flat)
        return [*events, self.event("output_text.annotation.added", **place, annotation=flat)]

    def closing(self) -> Events:
        events: Events = []
        while self._ended < len(self._parts):
            part = self._parts[self._ended]
            whole, place = part.whole(), {"content_index": part.index}
            if part.kind == "refusal":
                events.append(self.event("refusal.done", **place, refusal=whole["refusal"]))
            elif part.other is None:
                said = [_token(each) for each in part.logprobs]
                events.append(self.event("output_text.done", **place, text=whole["text"], logprobs=said))
            events.append(self.event("content_part.done", **place, part=whole))
            self._ended += 1
        return events

    def _part(self, kind: str) -> "tuple[_MessagePart, Events]":
        if self._parts and (self._parts[-1].kind, self._parts[-1].number) == (kind, self.part):
            return self._parts[-1], []
        events = self.closing()
        part = _MessagePart(kind, len(self._parts), self.part)
        self._parts.append(part)
        return part, [*events, self.event("content_part.added", content_index=part.index, part=part.whole())]


class _MessagePart:
    """A part of a message."""

    def __init__(self, kind: str, index: int, number: int, other: Json | None = None) -> None:
        """`other`: the part itself, where it is neither a text nor a refusal."""
        self.kind = kind
        self.other = other
        self.index = index
        self.number = number
        self.pieces: list[str] = []
        self.annotations: list[Any] = []
        self.logprobs: list[Json] = []

    def whole(self) -> Json:
        if self.other is not None:
            return self.other
        text = "".join(self.pieces)
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        logprobs = whole_logprobs(self.logprobs)
        return {"type": "output_text", "text": text, "annotations": [*self.annotations], "logprobs": logprobs}


def _token(token: Json) -> Json:
    """Converts a token's log probability to the form of events."""
    others = [{"token": each.get("token"), "logprob": each.get("logprob")} for each in token.get("top_logprobs") or ()]
    return {"token": token.get("token"), "logprob": token.get("logprob"), "top_logprobs": others}


class ToolCallItem(OpenItem):
    """A call of a client-run tool. Calls of typed tools come whole: no event exists for their pieces."""

    def __init__(self, stem: str, call_id: str, before: int, name: Json, kind: str) -> None:
        """`name`: the tool's, and its namespace if it has one. `kind`: the type of the item."""
        super().__init__(items.call_item_id(stem, call_id, before, kind))
        self.call_id = call_id
        self._name = name
        self._kind = kind
        self._field = "input" if kind == items.CUSTOM else "arguments"
        self._pieces: list[str] = []

    def first(self) -> Json:
        return self._shown("in_progress", "")

    def item(self, status: str = "completed") -> Json:
        return self._shown(status, "".join(self._pieces))

    def _shown(self, status: str, text: str) -> Json:
        shared = {"id": self.item_id, "call_id": self.call_id, "status": items.status_of(self._kind, status)}
        if self._kind in items.TYPED_CALLS:
            return {**shared, **items.typed_item(self._kind, text)}
        return {**shared, "type": self._kind, **self._name, self._field: text}

    def add(self, piece: str) -> Events:
        """Adds to the call's arguments; returns the events."""
        self._pieces.append(piece)
        return (
            [self.event(f"{self._event}.delta", delta=piece)] if piece and self._kind not in items.TYPED_CALLS else []
        )

    @property
    def _event(self) -> str:
        return f"{self._kind}_{self._field}"

    def closing(self) -> Events:
        if self._kind in items.TYPED_CALLS:
            return []
        name = {} if self._kind == items.CUSTOM else {"name": self._name["name"]}
        return [self.event(f"{self._event}.done", **{self._field: "".join(self._pieces)}, **name)]


class HostedCallItem(OpenItem):
    """A call that the upstream ran itself; it comes whole."""

    def __init__(self, whole: Json) -> None:
        super().__init__(str(whole.get("id")))
        self._whole = whole

    def first(self) -> Json:
        return self._whole

    def item(self, status: str = "completed") -> Json:
        return self._whole


Compaction = Callable[[Mapping[str, Any]], Json | None]


class ResponseEvents:
    """Converts the chunks of one answer to events.

    A chunk has one choice, or none. The response's items are numbered as they begin. If the upstream does not report
    the end of an item (`ITEM_DONE`), thoughts end when text or calls begin, and text when calls begin; calls stay open
    to the end, since their pieces may be mixed.
    """

    def __init__(
        self,
        echoed: Mapping[str, Any],
        include: tuple[str, ...] = (),
        compaction: Compaction | None = None,
        sealer: ThoughtSealer | None = None,
    ) -> None:
        self._echoed = echoed
        self._include = include
        self._compaction = compaction
        """Makes the item that replaces everything before the answer, from the first chunk."""
        self._sealer = sealer if ENCRYPTED in include else None
        self._unsealed = AnswerThoughts()
        self._ahead = 0
        self._number = 0
        self._choice: Any = None
        """The number of the choice that came first: a response has one answer."""
        self._response: Json | None = None
        self._extras: Json = {}
        self._stem = ""
        self._items: list[OpenItem] = []
        self._names = names_apart(echoed.get("tools"))
        self._calls: dict[int, ToolCallItem] = {}
        """Calls by the index of their pieces."""
        self._has_content = False
        self._finish: Any = None
        self._usage: Any = None

    def of(self, chunks: Sequence[Json]) -> list[Json]:
        """Converts chunks to events."""
        events: list[Json] = []
        for chunk in chunks:
            if self._response is None:
                events += self._begin(chunk)
            self._extras.update(extras(chunk))
            self._usage = chunk.get("usage") or self._usage
            for choice in self._of_first(chunk):
                delta = choice.get("delta") or {}
                is_whole = bool(delta.get(items.ITEM_ORDER)) and len(self._items) == self._ahead
                for each in _in_order(choice) if is_whole else (choice,):
                    events += self._delta(each.get("delta") or {}, each)
                self._finish = choice.get("finish_reason") or self._finish
        return self._numbered(events)

    def end(self) -> list[Json]:
        """Returns the events after the last chunk: the ends of all items, and the whole response."""
        events = self._sealed()
        if len(self._items) == self._ahead:
            words, begun_now = self._words()
            events += [*begun_now, *(words.empty() if self._has_content else ())]
        events += [event for item in self._items for event in item.close()]
        output = [self._shown(item.item()) for item in self._items]
        reason = INCOMPLETE.get(str(self._finish))
        if reason:
            output[-1] = as_incomplete(output[-1])
        response = ended(self._response or {}, output, reason, self._usage, self._extras)
        return self._numbered([*events, {"type": f"response.{response['status']}", "response": response}])

    def fault(self, error: errors.GatewayError) -> list[Json]:
        """Returns the events that end an answer that broke off."""
        events: list[Json] = [{"type": "error", **told(error)}]
        if self._response is not None:
            output = [self._shown(item.item("completed" if not item.is_open else "incomplete")) for item in self._items]
            response = {**self._response, **self._extras, "output": output, **failed(error)}
            events.append({"type": "response.failed", "response": response})
        return self._numbered(events)

    def _of_first(self, chunk: Json) -> list[Json]:
        """Returns the pieces of the choice that came first."""
        choices = chunk.get("choices") or []
        if self._choice is None and choices:
            self._choice = choices[0].get("index", 0)
        return [choice for choice in choices if choice.get("index", 0) == self._choice]

    def _begin(self, chunk: Json) -> list[Json]:
        self._response = response = begun(chunk, self._echoed)
        self._stem = response["id"].partition("_")[2]
        events: list[Json] = [{"type": f"response.{name}", "response": response} for name in ("created", "in_progress")]
        item = self._compaction(chunk) if self._compaction is not None else None
        if item is not None:
            events += self._whole(item)
            self._ahead = len(self._items)
        return events

    def _numbered(self, events: list[Json]) -> list[Json]:
        found = []
        for event in events:
            item = event.get("item")
            shown = {**event, "item": self._shown(item)} if item is not None else event
            found.append({**shown, "sequence_number": self._number})
            self._number += 1
        return found

    def _shown(self, item: Json) -> Json:
        """Removes sealed thoughts from an item unless the request includes them."""
        if item.get("type") != "reasoning" or "encrypted_content" not in item or ENCRYPTED in self._include:
            return item
        return readable(item)

    def _delta(self, delta: Json, choice: Json) -> list[Json]:
        events: list[Json] = []
        if self._sealer is not None and SUMMARY not in choice:
            self._unsealed.add(delta)
        if isinstance(delta.get("content"), list) or "audio" in delta:
            delta = items.with_plain_text(delta)
        thoughts = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thoughts, str) and thoughts:
            thought, begun_now = self._thought(is_summary=bool(choice.get(SUMMARY)))
            events += [*begun_now, *thought.add(thoughts)]
        for whole in (*(delta.get("reasoning_items") or ()), *(delta.get("output_items") or ())):
            events += self._whole(whole)
        at = choice.get(MESSAGE_AT)
        content: Any = delta.get("content")
        self._has_content = self._has_content or isinstance(content, str)
        if at and at.get("between"):
            last, _, content = content.partition(items.BETWEEN)
            if last:  # held back from the message before
                words, begun_now = self._words()
                events += [*begun_now, *words.text(last, None)]
        if OTHER_PART in choice:
            words, begun_now = self._words(at)
            events += [*begun_now, *words.other(choice[OTHER_PART])]
        if _is_text(content):
            words, begun_now = self._words(at)
            logprobs = choice.get("logprobs")
            said = logprobs.get("content") if isinstance(logprobs, dict) else None
            events += [*begun_now, *words.text(content, said)]
        if _is_text(delta.get("refusal")):
            words, begun_now = self._words(at)
            events += [*begun_now, *words.refusal(delta["refusal"])]
        for annotation in delta.get("annotations") or ():
            words, begun_now = self._words(at)
            events += [*begun_now, *words.annotation(annotation)]
        if delta.get("images"):
            shown = sum(isinstance(item, HostedCallItem) for item in self._items)
            for picture in items.pictures_of(delta, self._stem, shown):
                events += self._whole(picture)
        for position, piece in enumerate(delta.get("tool_calls") or ()):
            events += self._call(position, piece)
        for item in self._items:
            if isinstance(item, MessageItem) and item.number is None:  # its phase comes at the end
                item.phase = delta.get("phase") or item.phase
        return events + self._done(choice.get(items.ITEM_DONE) or {})

    def _done(self, told: Json) -> list[Json]:
        """Closes the item that the upstream reports as complete."""
        for item in self._items if told else ():
            if isinstance(item, MessageItem) and item.is_open and item.number == told.get("message", ""):
                item.phase = told.get("phase") or item.phase
                return item.close()
            if isinstance(item, ToolCallItem) and item.is_open and item.call_id == told.get("call"):
                return item.close()
        return []

    def _thought(self, *, is_summary: bool = False) -> tuple[ReasoningItem, list[Json]]:
        last = self._items[-1] if self._items else None
        if isinstance(last, ReasoningItem) and last.is_open:
            return last, []
        number = sum(isinstance(item, ReasoningItem) for item in self._items)
        thought = ReasoningItem(self._stem, number, is_summary=is_summary)
        return thought, self._opened(thought)

    def _sealed(self) -> list[Json]:
        """Seals what was thought so far into the open reasoning item, else into a new one; returns the events."""
        sealed = self._sealer.sealed(self._unsealed.taken()) if self._sealer is not None else None
        if sealed is None:
            return []
        thought, events = self._thought()
        thought.sealed = sealed
        return events

    def _words(self, at: Json | None = None) -> tuple[MessageItem, list[Json]]:
        """Returns the open message, or the one that the upstream names, with the events of its beginning."""
        events: list[Json] = []
        number = at["message"] if at else None
        said = [item for item in self._items if isinstance(item, MessageItem)]
        words = said[-1] if said and said[-1].is_open else None
        if (
            words is None
            or not (words is self._items[-1] or words.number is not None)
            or (at and words.number != number)
        ):
            words = MessageItem(
                items.numbered_id(self._stem, len(said), MESSAGE), number, at.get("phase") if at else None
            )
            events = self._opened(words)
        if at:
            words.part, words.phase = at["part"], at.get("phase") or words.phase
        return words, events

    def _whole(self, item: Any) -> list[Json]:
        """Adds an item that its maker sends whole: thoughts, or a hosted call."""
        if not isinstance(item, dict):
            return []
        if item.get("type") != "reasoning":
            hosted = HostedCallItem(item)
            return [*self._opened(hosted), *hosted.close()]
        thought, events = self._thought()
        return [*events, *thought.take(item), *thought.close()]

    def _call(self, position: int, piece: Json) -> list[Json]:
        index = piece.get("index")
        index = index if isinstance(index, int) else position
        custom = piece.get("custom")
        said = (custom if isinstance(custom, dict) else piece.get("function")) or {}
        call, events = self._calls.get(index), []
        call_id = piece.get("id")
        if call is None or (call_id and call_id != call.call_id):
            known = next((each for each in self._of_calls() if call_id and each.call_id == call_id), None)
            if known is None:
                before = sum(each.call_id == str(call_id or "") for each in self._of_calls())
                name = str(said.get("name") or "")
                own = self._names.get(name, {"name": name})
                known = ToolCallItem(self._stem, str(call_id or ""), before, own, items.call_kind(piece))
                events = self._opened(known)
            call = self._calls[index] = known
        return [*events, *call.add(str(said.get("arguments") or said.get("input") or ""))]

    def _of_calls(self) -> list[ToolCallItem]:
        return [item for item in self._items if isinstance(item, ToolCallItem)]

    def _opened(self, item: OpenItem) -> list[Json]:
        """Begins an item; closes thoughts before it, and messages whose end no upstream reports."""
        sealed = self._sealed() if not isinstance(item, ReasoningItem) else []
        tells = not isinstance(item, MessageItem)
        ending = [
            each
            for each in self._items
            if not (
                isinstance(each, ToolCallItem) or (tells and isinstance(each, MessageItem) and each.number is not None)
            )
        ]
        events = [event for each in ending for event in each.close()]
        self._items.append(item)
        return [*sealed, *events, *item.begin(len(self._items) - 1)]


def _in_order(choice: Json) -> list[Json]:
    """Splits the choice of an answer that comes in one piece into choices for its items, as if they were streamed."""
    delta = choice["delta"]
    calls = [{"call_id": str(call.get("id")), "piece": call} for call in delta.get("tool_calls") or ()]
    kept = [*(delta.get("reasoning_items") or ()), *(delta.get("output_items") or ())]
    said = [{"type": "message", "content": items.output_parts(delta), "phase": delta.get("phase")}]
    found: list[Json] = []
    number = 0
    for item in items.ordered(delta, kept, said, calls, _apart):
        if "piece" in item:
            found.append({"delta": {"tool_calls": [item["piece"]]}, items.ITEM_DONE: {"call": item["call_id"]}})
        elif item["type"] != "message":
            found.append({"delta": {"output_items": [item]}})
        else:
            for place, part in enumerate(item["content"]):
                at = {"message": number, "part": place, "phase": item.get("phase")}
                if part.get("type") not in MESSAGE_PARTS:
                    found.append({"delta": {}, MESSAGE_AT: at, OTHER_PART: part})
                    continue
                piece = {"content": part.get("text"), **{k: part.get(k) for k in ("refusal", "annotations")}}
                tokens = {"content": part.get("logprobs")}
                found.append({"delta": piece, MESSAGE_AT: at, "logprobs": tokens})
            found[-1][items.ITEM_DONE] = {"message": number, "phase": item.get("phase")}
            number += 1
    return found


def _apart(entry: Json, _: int) -> Json:
    return {**entry, "type": "message", "content": items.output_parts({"content": entry["content"]})}


def whole_events(begins: Json, response: Json) -> list[Json]:
    """Builds the events of a response whose items are all complete."""
    events = [{"type": f"response.{name}", "response": begins} for name in ("created", "in_progress")]
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item": item}
        events += [{"type": f"response.output_item.{name}", **place} for name in ("added", "done")]
    events.append({"type": f"response.{response['status']}", "response": response})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
