"""A streamed answer of the inner form as the events of a response, in OpenAI's order and numbering."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.base.ids import MESSAGE
from gateway.errors import GatewayError
from gateway.models.items import thought_id
from gateway.wire.responses.namespaces import names_apart
from gateway.wire.responses.parts import Call, Hosted, Open, Thought, Words
from gateway.wire.responses.wording import ENCRYPTED, INCOMPLETE, as_incomplete, begun, ended, extras, failed, told

Json = dict[str, Any]
Compaction = Callable[[Mapping[str, Any]], Json | None]
SUMMARY = "thoughts_are_summary"
"""The field of a choice by which an adapter says that its thoughts are a summary of them."""


class ResponseEvents:
    """Makes events of chunks, one answer long.

    A chunk has one choice, or none. The response's items are numbered as they begin. Thoughts end where words or calls
    begin, and words where calls begin; calls stay open to the end, as their pieces may be mixed.
    """

    def __init__(
        self, echoed: Mapping[str, Any], include: tuple[str, ...] = (), compaction: Compaction | None = None
    ) -> None:
        self._echoed = echoed
        self._include = include
        self._compaction = compaction
        """Makes of the first chunk the item that stands for all before the answer."""
        self._ahead = 0
        self._number = 0
        self._response: Json | None = None
        self._extras: Json = {}
        self._stem = ""
        self._items: list[Open] = []
        self._names = names_apart(echoed.get("tools"))
        self._calls: dict[int, Call] = {}
        """The call that a piece of an index belongs to."""
        self._has_content = False
        self._finish: Any = None
        self._usage: Any = None

    def of(self, chunks: Sequence[Json]) -> list[Json]:
        """The events that these chunks are."""
        events: list[Json] = []
        for chunk in chunks:
            if self._response is None:
                events += self._begin(chunk)
            self._extras.update(extras(chunk))
            self._usage = chunk.get("usage") or self._usage
            for choice in (chunk.get("choices") or ())[:1]:
                events += self._delta(choice.get("delta") or {}, choice)
                self._finish = choice.get("finish_reason") or self._finish
        return self._numbered(events)

    def end(self) -> list[Json]:
        """What stands behind the last chunk: the ends of all items, and the whole response."""
        events: list[Json] = []
        if len(self._items) == self._ahead:
            words, events = self._words()
            if self._has_content:
                events += words.empty()
        events += [event for item in self._items for event in item.close()]
        output = [self._shown(item.item()) for item in self._items]
        reason = INCOMPLETE.get(str(self._finish))
        if reason:
            output[-1] = as_incomplete(output[-1])
        response = ended(self._response or {}, output, reason, self._usage, self._extras)
        return self._numbered([*events, {"type": f"response.{response['status']}", "response": response}])

    def fault(self, error: GatewayError) -> list[Json]:
        """What stands at the end of an answer that broke off."""
        events: list[Json] = [{"type": "error", **told(error)}]
        if self._response is not None:
            output = [self._shown(item.item("completed" if not item.is_open else "incomplete")) for item in self._items]
            response = {**self._response, **self._extras, "output": output, **failed(error)}
            events.append({"type": "response.failed", "response": response})
        return self._numbered(events)

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
        """An item as the request wants to see it."""
        if item.get("type") != "reasoning" or "encrypted_content" not in item or ENCRYPTED in self._include:
            return item
        return {name: value for name, value in item.items() if name != "encrypted_content"}

    def _delta(self, delta: Json, choice: Json) -> list[Json]:
        events: list[Json] = []
        thoughts = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thoughts, str) and thoughts:
            thought, begun_now = self._thought(is_summary=bool(choice.get(SUMMARY)))
            events += [*begun_now, *thought.add(thoughts)]
        for whole in (*(delta.get("reasoning_items") or ()), *(delta.get("output_items") or ())):
            events += self._whole(whole)
        self._has_content = self._has_content or isinstance(delta.get("content"), str)
        if _is_text(delta.get("content")):
            words, begun_now = self._words()
            logprobs = choice.get("logprobs")
            said = logprobs.get("content") if isinstance(logprobs, dict) else None
            events += [*begun_now, *words.text(delta["content"], said)]
        if _is_text(delta.get("refusal")):
            words, begun_now = self._words()
            events += [*begun_now, *words.refusal(delta["refusal"])]
        for annotation in delta.get("annotations") or ():
            words, begun_now = self._words()
            events += [*begun_now, *words.annotation(annotation)]
        for position, piece in enumerate(delta.get("tool_calls") or ()):
            events += self._call(position, piece)
        if isinstance(delta.get("phase"), str):  # it comes with the end
            for item in self._items:
                if isinstance(item, Words):
                    item.phase = delta["phase"]
        return events

    def _thought(self, *, is_summary: bool = False) -> tuple[Thought, list[Json]]:
        last = self._items[-1] if self._items else None
        if isinstance(last, Thought) and last.is_open:
            return last, []
        number = sum(isinstance(item, Thought) for item in self._items)
        thought = Thought(self._stem, number, is_summary=is_summary)
        return thought, self._opened(thought)

    def _words(self) -> tuple[Words, list[Json]]:
        last = self._items[-1] if self._items else None
        if isinstance(last, Words) and last.is_open:
            return last, []
        number = sum(isinstance(item, Words) for item in self._items)
        words = Words(thought_id(self._stem, number).replace("rs_", MESSAGE, 1))
        return words, self._opened(words)

    def _whole(self, item: Any) -> list[Json]:
        """An item that its maker sends whole: thoughts, or a hosted call."""
        if not isinstance(item, dict):
            return []
        if item.get("type") != "reasoning":
            hosted = Hosted(item)
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
                known = Call(self._stem, str(call_id or ""), before, own, custom=isinstance(custom, dict))
                events = self._opened(known)
            call = self._calls[index] = known
        return [*events, *call.add(str(said.get("arguments") or said.get("input") or ""))]

    def _of_calls(self) -> list[Call]:
        return [item for item in self._items if isinstance(item, Call)]

    def _opened(self, item: Open) -> list[Json]:
        """Begins an item; thoughts and words before it end."""
        events = [event for each in self._items if not isinstance(each, Call) for event in each.close()]
        self._items.append(item)
        return [*events, *item.begin(len(self._items) - 1)]


def whole_events(begins: Json, response: Json) -> list[Json]:
    """The events of a response whose items are made at once."""
    events = [{"type": f"response.{name}", "response": begins} for name in ("created", "in_progress")]
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item": item}
        events += [{"type": f"response.output_item.{name}", **place} for name in ("added", "done")]
    events.append({"type": f"response.{response['status']}", "response": response})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
