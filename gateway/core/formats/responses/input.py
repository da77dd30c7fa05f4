"""`input` of a request: its items as chat messages, with what only an upstream that speaks Responses understands."""

import re
from dataclasses import dataclass
from typing import Any

from gateway.core.errors import invalid, missing
from gateway.core.formats.compaction_items import as_message
from gateway.core.formats.responses.item_reader import Item, ItemReader, ReadMessage
from gateway.core.types.items import BETWEEN, ITEM_ORDER, item_order, output_parts

STANDING = ("item_reference", "compaction", "compaction_trigger")
"""Items that stand for something else: they are answered, or that is put in their place, before the rest is read."""
COVERED = object()
"""Stands for an item that a compaction behind it stands for."""
OURS = re.compile(r"[a-z]+_([0-9a-f]{32})(_[0-9a-f]{12})?")
"""An id that this gateway gave to an item of an answer, which is the same for all of them (`core.ids.new_id`)."""
COMMENTARY = "commentary"
"""The phase of a message that is not the last of its answer."""


@dataclass(frozen=True, slots=True)
class CompactedExtract:
    """Stands for a compaction item: what it holds of what was said before it."""

    text: str | None
    question: Item | None = None


class InputReader(ItemReader):
    """Reads the items of a request.

    The assistant's thoughts are kept as `reasoning_items`, for whoever wrote them, and as `reasoning_content` where
    they are text. Hosted calls and what belongs to them are kept as `output_items`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unheld: list[str] = []
        self.hosted: list[tuple[str, str]] = []
        """Path and type of items that only whoever ran them understands."""
        self.needs = self.unheld
        self._items: list[Item] = []
        """Those of the open answer, in their order, as they go back."""
        self._waiting: list[Item] = []
        """Thoughts of which the answer has not come yet."""
        self._stem: str | None = None
        """What the ids of the open answer have in common, if this gateway gave them."""

    def read(self, item: Any, where: str) -> None:
        """Adds an item, and notes where in its answer it stands."""
        before = self._answer
        super().read(item, where)
        kind = item.get("type") or "message"
        if kind == "reasoning" or self._answer is not None:
            self._waiting.append(_without_id(item))
        if kind != "reasoning" and self._answer is not None:
            is_new = self._answer is not before
            self._items, self._waiting = [*([] if is_new else self._items), *self._waiting], []
            self._stem = _stem_of(item) or (None if is_new else self._stem)

    def read_other(self, item: Item, kind: str, where: str) -> None:
        """Kept as it is on the assistant's message that it belongs to."""
        if kind in STANDING:
            raise invalid(f"{where}.type", f"must not be {kind}: this is for responses alone")
        answer = self.open_answer
        if answer is None:
            answer = self.add_answer({"content": None}, "complete", where)
        self._add_thoughts(answer)
        answer.setdefault("output_items", []).append(item)
        self.hosted.append((where, kind))

    def end(self) -> None:
        """Thoughts that led to nothing are left out: an answer was cut, or its rest deleted."""
        self.taken_items()
        self._waiting = []
        self._close()

    def add_answer(self, content: dict[str, Any], status: str, where: str) -> dict[str, Any]:
        """A new message of the assistant's; the one before is whole."""
        self._close()
        return super().add_answer(content, status, where)

    def _close(self) -> None:
        if self._answer is not None and (order := item_order(self._items)):
            self._answer[ITEM_ORDER] = order

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
        """A text; one between calls and their results becomes part of the message with the calls, and one that goes on
        with an answer part of that."""
        if content["content"] is None and not content.get("refusal"):
            content = {**content, "content": ""}  # of an answer that says nothing
        if isinstance(item.get("phase"), str):
            content = {**content, "phase": item["phase"]}
        answer = self.open_answer
        goes_on = self._goes_on(item)
        said = answer is not None and (answer.get("content") is not None or answer.get("refusal"))
        if answer is not None and (goes_on or answer.get("tool_calls")):
            self._add_thoughts(answer)
            _join(answer, content, BETWEEN if goes_on else "")
            self.messages[-1].status = status if status != "complete" else self.messages[-1].status
        elif answer is not None and "output_items" in answer and not said:
            self._add_thoughts(answer)
            answer.update(content)
        else:
            self.add_answer(content, status, where)

    def _goes_on(self, item: Item) -> bool:
        """Whether a message is of the same answer as the one before it, which is stored as one."""
        said = [each for each in self._items if each.get("type") in (None, "message")]
        if self._answer is None or not said:
            return False
        return said[-1].get("phase") == COMMENTARY or (self._stem is not None and self._stem == _stem_of(item))

    def _add_thoughts(self, answer: dict[str, Any]) -> None:
        more = self.taken_thoughts()
        if more:
            answer.setdefault("reasoning_items", []).extend(more["reasoning_items"])
            texts = [text for text in (answer.get("reasoning_content"), more.get("reasoning_content")) if text]
            if texts:
                answer["reasoning_content"] = "\n\n".join(texts)


def read_input(value: Any) -> tuple[list[ReadMessage], list[str], list[tuple[str, str]]]:
    """The chat messages that `input` is, the paths of what no chat can hold, and paths and types of hosted calls.

    Raises:
        InvalidRequest: an item breaks a rule; names `input[i]…`.
    """
    if value is None:
        raise missing("input")
    if isinstance(value, str):
        return [ReadMessage({"role": "user", "content": value}, "complete", "input")], [], []
    if not isinstance(value, list):
        raise invalid("input", "must be a string or a list of items")
    reader = InputReader()
    for index, item in enumerate(value):
        if isinstance(item, CompactedExtract):
            for body in (as_message(item.text) if item.text else None, item.question):
                if body is not None:
                    reader.add(body, f"input[{index}]")
                    reader.messages[-1].stands = True
        elif item is not COVERED:
            reader.read(item, f"input[{index}]")
    reader.end()
    return reader.messages, reader.unheld, reader.hosted


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
    """An item goes back without the id and status that this gateway gave it: whoever made it knows it by another."""
    own_id = ("id",) if _stem_of(item) is not None else ()
    status = ("status",) if item.get("type") == "reasoning" and (own_id or not item.get("id")) else ()
    return {name: value for name, value in item.items() if name not in (*own_id, *status, "pinned")}


def _stem_of(item: Item) -> str | None:
    """What the ids of an answer's items have in common; None where this gateway gave it none."""
    found = OURS.fullmatch(str(item.get("id")))
    return found[1] if found else None


def _join(answer: dict[str, Any], content: dict[str, Any], between: str) -> None:
    """Adds a text to a message in place: to its text with what stands between them, else as parts. All that is refused
    is one refusal."""
    before, said = answer.get("content"), content.get("content")
    cited = [*(answer.get("annotations") or ()), *(content.get("annotations") or ())]
    told = [
        output_parts({"content": each.get("content"), "refusal": each.get("refusal")}) for each in (answer, content)
    ]
    answer.update({name: value for name, value in content.items() if name != "content"})
    if cited:
        answer["annotations"] = cited
    if refused := "".join(part.get("refusal") or "" for each in told for part in each):
        answer["refusal"] = refused
    if between:
        texts = ["".join(part.get("text") or "" for part in each) for each in told]
        answer["content"] = between.join(filter(None, texts)) or (None if refused else "")
        return
    parts: list[Any] = []
    for each in (before, said):
        parts += [{"type": "text", "text": each}] if isinstance(each, str) else each or []
    parts = [part for part in parts if part.get("type") != "refusal"]
    texts = [part.get("text") for part in parts]
    plain = len(parts) == 1 and parts[0].keys() == {"type", "text"}
    answer["content"] = (texts[0] if plain else parts) if parts else None
