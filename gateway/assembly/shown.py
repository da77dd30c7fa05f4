"""Reads forwarded texts again: what they show of an artifact, by the labels that name its id (guarantee §14.8)."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gateway.assembly.block import BLOCK_TAG, ELISION, ITEM_TAG

OPENED = re.compile(rf'<{ITEM_TAG} id="(art_[0-9a-f]{{16}})(?:-\d+)?"([^<>\n]*)(?<!/)>\n')
CLOSED = f"\n</{ITEM_TAG}>"
SHOWN = re.compile(r' shown="(full|extract|summary)')
LABEL = re.compile(r"^\[(Extract of|Summary of|Left out:)[^\n]*", re.MULTILINE)
EXTRACTS = "\n[Extracts:]\n"
MOST_LINES = 400
"""Lines of an extract that are looked for in the content."""
LONG_LINE = 40
"""Characters of a line that needs no neighbour to be known again."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What stands of an artifact in one place.

    Attributes:
        text: what is shown, lines of the content among it; "" if `spans` say so, or `whole`.
        full: that is all of it, be it compacted.
        summarized: a summary of it stands there.
    """

    text: str = ""
    whole: bool = False
    full: bool = False
    summarized: bool = False
    spans: tuple[tuple[int, int], ...] = ()


def _full(body: str) -> Shown:
    return Shown(body, full=True)


def _summary(body: str) -> Shown:
    """The extracts behind it are the content's own words."""
    return Shown(body.partition(EXTRACTS)[2], summarized=True)


def _nothing(_: str) -> Shown:
    return Shown()


HOW: Mapping[str, Callable[[str], Shown]] = {
    "full": _full,
    **dict.fromkeys(("extract", "Extract of"), Shown),
    **dict.fromkeys(("summary", "Summary of"), _summary),
    "Left out:": _nothing,
}
"""What stands behind a label, by the word in it that says how it is shown."""


def items_in(text: str) -> Iterator[tuple[str, Shown]]:
    """The artifacts that blocks in a text show, by their content ids."""
    at = 0 if f"<{BLOCK_TAG} " in text else len(text)
    while (found := OPENED.search(text, at)) is not None:
        end = text.find(CLOSED, found.end())
        if end < 0:
            return
        at = end + len(CLOSED)
        how = SHOWN.search(found[2])
        if how is not None:
            yield found[1], HOW[how[1]](text[found.end() : end].replace("&lt;", "<"))


def in_place_of(text: str, content_id: str) -> Shown | None:
    """What a message shows of an artifact that was reduced in its place; None if no label in it names the artifact."""
    named = re.compile(rf'", id {content_id}(?:-\d+)?, from ')
    for label in LABEL.finditer(text):
        if named.search(label[0]) is not None:
            return HOW[label[1]](text[label.end() + 1 :])
    return None


def stretches(shown: str, content: str) -> list[tuple[int, int]]:
    """The stretches of a content whose lines stand in a text in the same order. A line counts if it is long, or if the
    next one of the text follows it in the content, too."""
    if shown.strip() and shown in content:
        at = content.index(shown)
        return [(at, at + len(shown))]
    found: list[tuple[int, int]] = []
    at = 0
    lines = [line.strip("\n") for line in shown.split("\n")[:MOST_LINES]]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if not line.strip() or line == ELISION:
            continue
        begin = content.find(line, at)
        if begin < 0:
            continue
        end = begin + len(line)
        goes_on = bool(found) and not content[found[-1][1] : begin].strip()
        if goes_on:
            found[-1] = (found[-1][0], end)
        elif len(line) >= LONG_LINE or (following.strip() and content[end:].lstrip().startswith(following)):
            found.append((begin, end))
        else:
            continue
        at = end
    return found
