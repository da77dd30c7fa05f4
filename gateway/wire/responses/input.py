"""`input` of a request: its items as chat messages, with what only an upstream that speaks Responses understands."""

from dataclasses import dataclass
from typing import Any

from gateway.errors import invalid, missing
from gateway.wire.compaction import as_message
from gateway.wire.responses.items import Item, ItemReader, ReadMessage

STANDING = ("item_reference", "compaction", "compaction_trigger")
"""Items that stand for something else: they are answered, or that is put in their place, before the rest is read."""
COVERED = object()
"""Stands for an item that a compaction behind it stands for."""


@dataclass(frozen=True, slots=True)
class Extract:
    """Stands for a compaction item: what it holds of what was said before it."""

    text: str | None
    question: Item | None = None


class InputReader(ItemReader):
    """Reads the items of a request.

    The assistant's thoughts are kept as `reasoning_items`, for whoever wrote them, and as `reasoning_content` where
    they are text. Hosted calls and what belongs to them are kept as `output_items`, thoughts among them in their order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unheld: list[str] = []
        self.needs = self.unheld

    def read_other(self, item: Item, kind: str, where: str) -> None:
        """Kept as it is on the assistant's message that it belongs to."""
        if kind in STANDING:
            raise invalid(f"{where}.type", f"must not be {kind}: this is for responses alone")
        answer = self.open_answer
        if answer is None:
            answer = self.add_answer({"content": None}, "complete", where)
        kept = answer.get("output_items")
        if kept is None:  # from here on thoughts and hosted items stand in one order
            kept = answer["output_items"] = answer.pop("reasoning_items", [])
        kept += [*map(_without_id, self.taken_items()), item]
        self.unheld.append(where)

    def end(self) -> None:
        """Thoughts that led to nothing are left out: an answer was cut, or its rest deleted."""
        self.taken_items()

    def before_thought(self) -> None:
        """Several in a row belong to what follows."""

    def thoughts(self, items: list[Item], where: str) -> dict[str, Any]:
        """The items, and their text where it is said."""
        found: dict[str, Any] = {"reasoning_items": [_without_id(item) for item in items]}
        texts = [text for item in items for text in _texts(item, where)]
        return {**found, "reasoning_content": "\n\n".join(texts)} if texts else found

    def answer(self, where: str) -> dict[str, Any]:
        """What stands between two results, or between what others said, is one message: that is how it is stored."""
        answer = self.open_answer
        if answer is None:
            return super().answer(where)
        self._add_thoughts(answer)
        return answer

    def add_words(self, content: dict[str, Any], item: Item, status: str, where: str) -> None:
        """A text; one between calls and their results becomes part of the message with the calls."""
        if content["content"] is None and not content.get("refusal"):
            content = {**content, "content": ""}  # of an answer that says nothing
        if isinstance(item.get("phase"), str):
            content = {**content, "phase": item["phase"]}
        answer = self.open_answer
        if answer is not None and answer.get("tool_calls"):
            self._add_thoughts(answer)
            _join(answer, content)
        elif answer is not None and "output_items" in answer and answer.get("content") is None:
            self._add_thoughts(answer)
            answer.update(content)
        else:
            self.add_answer(content, status, where)

    def _add_thoughts(self, answer: dict[str, Any]) -> None:
        if "output_items" in answer:
            answer["output_items"] += map(_without_id, self.taken_items())
            return
        more = self.taken_thoughts()
        if more:
            answer.setdefault("reasoning_items", []).extend(more["reasoning_items"])
            texts = [text for text in (answer.get("reasoning_content"), more.get("reasoning_content")) if text]
            if texts:
                answer["reasoning_content"] = "\n\n".join(texts)


def read_input(value: Any) -> tuple[list[ReadMessage], list[str]]:
    """The chat messages that `input` is, and the paths of what no chat can hold.

    Raises:
        InvalidRequest: an item breaks a rule; names `input[i]…`.
    """
    if value is None:
        raise missing("input")
    if isinstance(value, str):
        return [ReadMessage({"role": "user", "content": value}, "complete", "input")], []
    if not isinstance(value, list):
        raise invalid("input", "must be a string or a list of items")
    reader = InputReader()
    for index, item in enumerate(value):
        if isinstance(item, Extract):
            for body in (as_message(item.text) if item.text else None, item.question):
                if body is not None:
                    reader.add(body, f"input[{index}]")
                    reader.messages[-1].stands = True
        elif item is not COVERED:
            reader.read(item, f"input[{index}]")
    reader.end()
    return reader.messages, reader.unheld


def _texts(item: Item, where: str) -> list[str]:
    """What a reasoning item says: its thoughts, else their summary where the thoughts are not sealed in it."""
    for name, sealed in (("content", False), ("summary", bool(item.get("encrypted_content")))):
        parts = item.get(name)
        if parts is None:
            continue
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            raise invalid(f"{where}.{name}", "must be a list of parts")
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and part["text"]]
        if texts and not sealed:
            return texts
    return []


def _without_id(item: Item) -> Item:
    """A thought goes back without the id that this gateway gave it: whoever sealed it knows it by another."""
    return {name: value for name, value in item.items() if name not in ("id", "status", "pinned")}


def _join(answer: dict[str, Any], content: dict[str, Any]) -> None:
    """Adds a text to a message in place."""
    parts: list[Any] = []
    for each in (answer.get("content"), content.get("content")):
        parts += [{"type": "text", "text": each}] if isinstance(each, str) else each or []
    answer.update({name: value for name, value in content.items() if name != "content"})
    texts = [part.get("text") for part in parts]
    plain = len(parts) == 1 and parts[0].keys() == {"type", "text"}
    answer["content"] = (texts[0] if plain else parts) if parts else None
