"""Reads forwarded texts again: what they show of an artifact, by the labels that name its id (guarantee §14.8)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.assembly.block import BLOCK_TAG, ELISION, ITEM_TAG

ITEM = re.compile(rf'<{ITEM_TAG} id="(art_[0-9a-f]{{16}})(?:-\d+)?"([^<>\n]*)(?<!/)>\n(.*?)\n</{ITEM_TAG}>', re.DOTALL)
SHOWN = re.compile(r' shown="(full|extract|summary)')
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


def items_in(text: str) -> Iterator[tuple[str, Shown]]:
    """The artifacts that blocks in a text show, by their content ids."""
    if f"<{BLOCK_TAG} " not in text:
        return
    for found in ITEM.finditer(text):
        name, attributes, body = found.groups()
        how = SHOWN.search(attributes)
        if how is not None:
            yield name, _read(how[1], body.replace("&lt;", "<"))


def in_place_of(text: str, content_id: str) -> Shown | None:
    """What a message shows of an artifact that was reduced in its place; None if no label in it names the artifact."""
    label = re.search(
        rf"^\[(Extract|Summary|Left out)\b[^\n]*, id {content_id}(?:-\d+)?, from [^\n]*\]$", text, re.MULTILINE
    )
    if label is None:
        return None
    if label[1] == "Left out":
        return Shown()
    return _read(label[1].lower(), text[label.end() + 1 :])


def _read(how: str, body: str) -> Shown:
    if how != "summary":
        return Shown(body, full=how == "full")
    return Shown(body.partition(EXTRACTS)[2], summarized=True)


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
