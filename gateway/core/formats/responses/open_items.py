"""The items of a streamed response while they come, and the events of each."""

from typing import Any

from gateway.core.formats.responses.serializer import whole_logprobs
from gateway.core.types.items import CUSTOM, call_item_id, flat_annotation, numbered_id
from gateway.core.types.typed_tools import TYPED_CALLS, status_of, typed_item

Json = dict[str, Any]
Events = list[Json]


class OpenItem:
    """An item that has begun. `index` is its number in the output. Each method gives events without their numbers."""

    def __init__(self, item_id: str) -> None:
        self.item_id = item_id
        self.index = 0
        self.is_open = True

    def item(self, status: str = "completed") -> Json:
        """The item as far as it has come."""
        raise NotImplementedError

    def first(self) -> Json:
        """The item as it begins, with nothing in it."""
        raise NotImplementedError

    def begin(self, index: int) -> Events:
        """Its first event."""
        self.index = index
        return [{"type": "response.output_item.added", "output_index": index, "item": self.first()}]

    def close(self) -> Events:
        """Its last events; none where it is closed."""
        if not self.is_open:
            return []
        self.is_open = False
        done = {"type": "response.output_item.done", "output_index": self.index, "item": self.item()}
        return [*self.closing(), done]

    def closing(self) -> Events:
        """The ends of what is in it."""
        return []

    def event(self, kind: str, **fields: Any) -> Json:
        """An event of this item."""
        return {"type": f"response.{kind}", "item_id": self.item_id, "output_index": self.index, **fields}


class ReasoningItem(OpenItem):
    """Reasoning: its text, a summary, or what is sealed."""

    def __init__(self, stem: str, number: int, *, is_summary: bool = False) -> None:
        super().__init__(numbered_id(stem, number))
        self._pieces: list[str] = []
        self._whole: Json | None = None
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
        return {**shown, **content, "status": status}

    def add(self, text: str) -> Events:
        """More of its text."""
        begins = [] if self._pieces else [self._begins()]
        self._pieces.append(text)
        if self._is_summary:
            return [*begins, self.event("reasoning_summary_text.delta", summary_index=0, delta=text)]
        return [*begins, self.event("reasoning_text.delta", content_index=0, delta=text)]

    def take(self, whole: Json) -> Events:
        """All of it, as its maker has it; the text that is new is an event."""
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
        text = self._text
        if self._is_summary:
            done = self.event("reasoning_summary_text.done", summary_index=0, text=text)
            return [done, self.event("reasoning_summary_part.done", summary_index=0, part=self._part())]
        done = self.event("reasoning_text.done", content_index=0, text=text)
        return [done, self.event("content_part.done", content_index=0, part=self._part())]

    def _part(self) -> Json:
        return {"type": "summary_text" if self._is_summary else "reasoning_text", "text": self._text}

    def _begins(self) -> Json:
        part = {**self._part(), "text": ""}
        if self._is_summary:
            return self.event("reasoning_summary_part.added", summary_index=0, part=part)
        return self.event("content_part.added", content_index=0, part=part)


class MessageItem(OpenItem):
    """A message: a text, or a refusal, or one after the other."""

    def __init__(self, item_id: str, number: int | None = None, phase: str | None = None) -> None:
        """`number`: that of the message in its maker's answer, where it tells that."""
        super().__init__(item_id)
        self.number = number
        self.phase = phase
        self.part = 0
        """The number that its maker gives to the part of which pieces come."""
        self._parts: list[_MessagePart] = []
        self._ended = 0

    def first(self) -> Json:
        item = {"id": self.item_id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        return {**item, "phase": self.phase} if self.phase else item

    def item(self, status: str = "completed") -> Json:
        return {**self.first(), "status": status, "content": [part.whole() for part in self._parts]}

    def text(self, text: str, logprobs: Any) -> Events:
        """More of its text, with its tokens' log probabilities."""
        part, events = self._part("output_text")
        part.pieces.append(text)
        part.logprobs += logprobs or []
        said = [_token(each) for each in logprobs or ()]
        place = {"content_index": part.index}
        return [*events, self.event("output_text.delta", **place, delta=text, logprobs=said)]

    def empty(self) -> Events:
        """A text of which nothing came."""
        return self._part("output_text")[1]

    def refusal(self, text: str) -> Events:
        """More of its refusal."""
        part, events = self._part("refusal")
        part.pieces.append(text)
        return [*events, self.event("refusal.delta", content_index=part.index, delta=text)]

    def annotation(self, annotation: Any) -> Events:
        """A citation of its text; it may come after the part."""
        known = [part for part in self._parts if (part.kind, part.number) == ("output_text", self.part)]
        part, events = (known[-1], []) if known else self._part("output_text")
        flat = flat_annotation(annotation)
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
            else:
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

    def __init__(self, kind: str, index: int, number: int) -> None:
        self.kind = kind
        self.index = index
        self.number = number
        self.pieces: list[str] = []
        self.annotations: list[Any] = []
        self.logprobs: list[Json] = []

    def whole(self) -> Json:
        text = "".join(self.pieces)
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        logprobs = whole_logprobs(self.logprobs)
        return {"type": "output_text", "text": text, "annotations": [*self.annotations], "logprobs": logprobs}


def _token(token: Json) -> Json:
    """A token's log probability as events have it."""
    others = [{"token": each.get("token"), "logprob": each.get("logprob")} for each in token.get("top_logprobs") or ()]
    return {"token": token.get("token"), "logprob": token.get("logprob"), "top_logprobs": others}


class ToolCallItem(OpenItem):
    """A call of a tool that the client runs. Those that have items of their own come whole: no events tell of their
    pieces."""

    def __init__(self, stem: str, call_id: str, before: int, name: Json, kind: str) -> None:
        """`name`: the tool's, and its namespace if it has one. `kind`: the type of the item."""
        super().__init__(call_item_id(stem, call_id, before, kind))
        self.call_id = call_id
        self._name = name
        self._kind = kind
        self._field = "input" if kind == CUSTOM else "arguments"
        self._pieces: list[str] = []

    def first(self) -> Json:
        return self._shown("in_progress", "")

    def item(self, status: str = "completed") -> Json:
        return self._shown(status, "".join(self._pieces))

    def _shown(self, status: str, text: str) -> Json:
        shared = {"id": self.item_id, "call_id": self.call_id, "status": status_of(self._kind, status)}
        if self._kind in TYPED_CALLS:
            return {**shared, **typed_item(self._kind, text)}
        return {**shared, "type": self._kind, **self._name, self._field: text}

    def add(self, piece: str) -> Events:
        """More of its arguments."""
        self._pieces.append(piece)
        return [self.event(f"{self._event}.delta", delta=piece)] if piece and self._kind not in TYPED_CALLS else []

    @property
    def _event(self) -> str:
        return f"{self._kind}_{self._field}"

    def closing(self) -> Events:
        if self._kind in TYPED_CALLS:
            return []
        name = {} if self._kind == CUSTOM else {"name": self._name["name"]}
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
