"""I6: the one block at the head of the current user message."""

import re
from dataclasses import dataclass

from tests.properties.checks import escapes
from tests.properties.checks.contents import EXTRACTS, IDENTITY
from tests.properties.checks.lossless import shorter, unquoted
from tests.properties.checks.seen import Json, Seen, hold, text_of

OPENING = re.compile(r'<context_data(?: [a-z_]+="[^"<>]*")*>\n')
END = "</context_data>\n\n"
FILE_END = "\n</context_data>"
"""How a file ends that is shown as text: it stands in its own place, and nothing follows it there."""
ITEM = re.compile(r"<artifact((?: [a-z_]+=(?:\"[^\"<>]*\"|'[^'<>]*'))*)(/?)>\n")
ITEM_END = "\n</artifact>\n"
KNOWN_THINGS = 'type="known_things"'
REDUCED = ("[Extract of ", "[Summary of ")
REPEATED = 80
"""Characters in a row that are a repetition."""


@dataclass
class Item:
    """One thing in a block: its attributes as they are written, and its text."""

    attributes: str
    body: str

    @property
    def identity(self) -> str:
        found = IDENTITY.search(self.attributes)
        return found.group(0) if found else ""


def split(message: Json) -> tuple[list[Item] | None, str | list[Json]]:
    """The items of the block at a message's head (None: it has none), and the content without it.
    Raises Broken: the block is none: delimiters in it are not escaped, or something stands between its items."""
    content = message["content"]
    text = content if isinstance(content, str) else (content[0].get("text") or "" if content else "")
    opening = OPENING.match(text)
    if opening is None or "data, not instructions" not in opening.group(0):
        return None, content
    if not isinstance(content, str) and text.endswith(FILE_END):
        return None, content
    items, at = _items(text, opening.end())
    hold("I6", text.startswith(END, at), f"a block that does not end where its items end: {text[at : at + 80]!r}")
    rest = text[at + len(END) :]
    if isinstance(content, str):
        return items, rest
    hold("I6", not rest, "something behind the block in its part")
    return items, content[1:]


def file_in_place(text: str) -> str:
    """The item of a file that is shown as text in its place. Raises Broken: it is not marked as data."""
    opening = OPENING.match(text)
    marked = opening is not None and "data, not instructions" in opening.group(0) and text.endswith(FILE_END)
    hold("I6", marked, f"a file that is not marked as data: {text[:120]!r}")
    return text[opening.end() if opening else 0 :].removesuffix(FILE_END)


def _items(text: str, at: int) -> tuple[list[Item], int]:
    items = []
    while (opening := ITEM.match(text, at)) is not None:
        at = opening.end()
        body = ""
        if not opening.group(2):
            end = text.find(ITEM_END, at - 1)
            hold("I6", end >= 0, "an item without an end")
            body, at = text[at : max(at, end)], end + len(ITEM_END)
        is_summary = ' shown="summary' in opening.group(1)
        escapes.check(body.replace(EXTRACTS, "\n", 1) if is_summary else body)
        items.append(Item(opening.group(1), body))
    return items, at


def check(seen: Seen, items: list[Item] | None) -> None:
    """What stands in the block of the current message is named, known to the bill, and not in the window already."""
    for item in items or ():
        if KNOWN_THINGS in item.attributes:
            continue  # what is remembered of things is no artifact
        hold("I6", item.identity, f"an item without an id: {item.attributes[:160]!r}")
        hold("I6", "type=" in item.attributes and "source=" in item.attributes, "an item that does not say what it is")
        hold("I6", "shown=" in item.attributes, "an item that does not say how much of it is shown")
        record = next((r for r in seen.records if r["artifact_id"] == item.identity), None)
        hold("bill", record is not None, f"the bill does not know {item.identity}")
        if record is not None and 'shown="full"' not in item.attributes:
            size = f"{record['original_size_chars']:,}"
            hold("I6", size in item.attributes, f"an item of {size} characters that does not say so")
    _no_repetition(seen, items or [])


def _no_repetition(seen: Seen, items: list[Item]) -> None:
    if not items:
        return
    window = [text_of(m["content"]) for m, i in zip(seen.forwarded, seen.indexes, strict=True) if i != seen.current]
    window += [text_of(seen.memory["content"])] if seen.memory is not None else []
    attached = {form for a in seen.case.attachments for form in _forms(a["content"])}
    for item in items:
        if 'shown="full"' in item.attributes and not any(item.body in text for text in window):
            continue  # another artifact than the one in the window, of which it happens to repeat a part
        for line in item.body.split("\n"):
            if len(line) < REPEATED or any(line in text for text in attached):
                continue
            again = any(line in text for text in window)
            hold("I6 repetition", not again, f"the block repeats what the window holds: {line[:120]!r}")


def check_reduced(seen: Seen) -> None:
    """What a request reduces in its place does not repeat the block of the current message, fixed or new."""
    if seen.current not in seen.indexes:
        return
    items, _ = split(seen.forwarded[seen.indexes.index(seen.current)])
    attached = {form for a in seen.case.attachments for form in _forms(a["content"])}
    for message, index in zip(seen.forwarded, seen.indexes, strict=True):
        text = text_of(message["content"])
        if not items or message["role"] != "tool" or message in seen.standing.get(index, ()):
            continue
        if not text.startswith(REDUCED):
            continue
        for line in text.split("\n")[1:]:
            if len(line) >= REPEATED and not any(line in form for form in attached):
                again = any(line in item.body for item in items)
                hold("I6 repetition", not again, f"a reduced result repeats the block: {line[:120]!r}")


def _forms(content: str) -> set[str]:
    """What is attached although a message says the same stands twice while both fit: as it is, or compacted."""
    forms = (content, escapes.escaped(content), shorter(content), unquoted(content))
    return {form for form in forms if form}
