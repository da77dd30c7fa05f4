"""Reads forwarded texts: what they show according to their blocks and labels (guarantee §14.8)."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gateway.core.frozen_records import record

ELISION = "[…]"
BLOCK_TAG = "context_data"
ITEM_TAG = "artifact"
CITE_TAG = "citing"
CITING = re.compile(rf"<{CITE_TAG}>\n.*?\n</{CITE_TAG}>\n", re.DOTALL)
"""The instructions for an answer with citations, first in a block (guarantee §14.8)."""
BLOCK_ITEM = re.compile(rf"<{ITEM_TAG} [^<>\n]*(?:/>|(?<!/)>\n.*?\n</{ITEM_TAG}>)\n", re.DOTALL)
BLOCK_ELSEWHERE = "elsewhere"
SAYS_SAME = re.compile(rf'<{BLOCK_TAG} [^<>\n]*>\n<{ITEM_TAG} [^<>\n]* shown="{BLOCK_ELSEWHERE}"')
SHOWN_FULL = re.compile(rf'<{ITEM_TAG}(?: (?!shown=)[a-z]+="[^"]*")* shown="full"')
ARTIFACT_ID = re.compile(r"art_[0-9a-f]{16}(?:-\d{1,4})?")
OPENED = re.compile(rf'<{ITEM_TAG} id="(art_[0-9a-f]{{16}})(?:-\d+)?"([^<>\n]*)(?<!/)>\n')
ITEM_CLOSING_TAG = f"\n</{ITEM_TAG}>"
SHOWN_ATTRIBUTE = re.compile(r' shown="(full|extract|summary)')
BLOCK_LABEL = re.compile(r"^\[(Extract of|Summary of|Left out:)[^\n]*", re.MULTILINE)
EXTRACTS = "\n[Extracts:]\n"
MAX_EXTRACT_LINES = 400
"""Lines of an extract that are searched for in the content."""
LONG_LINE = 40
"""Characters of a line that is recognised without its neighbour."""


def says_same(part: Any) -> bool:
    """Returns whether a part of a forwarded message refers to another copy of a file's document."""
    return isinstance(part, dict) and SAYS_SAME.match(str(part.get("text"))) is not None


def block_without(text: str, numbers: frozenset[int]) -> str:
    """Removes from a text that begins with a block the items with these numbers among those shown in full, from 0.
    Delimiters inside items are escaped, so that the next one ends the item."""
    head, _, rest = text.partition("\n")
    end = rest.index(f"</{BLOCK_TAG}>")
    asked = CITING.match(rest, 0, end)
    number, kept = -1, [asked[0]] if asked else []
    for item in BLOCK_ITEM.findall(rest[:end]):
        is_full = SHOWN_FULL.match(item) is not None
        number += is_full
        if not is_full or number not in numbers:
            kept.append(item)
    after = rest[end:]
    return f"{head}\n{''.join(kept)}{after}" if kept else after.removeprefix(f"</{BLOCK_TAG}>\n\n")


def without_block_items(rendered: dict[str, Any], numbers: frozenset[int]) -> dict[str, Any]:
    """Removes from a forwarded message the items with these numbers among those that its block shows in full, from 0,
    and the block if it becomes empty."""
    content = rendered["content"]
    if isinstance(content, str):
        return {**rendered, "content": block_without(content, numbers)}
    text = block_without(content[0]["text"], numbers)
    return {**rendered, "content": [{**content[0], "text": text}, *content[1:]] if text else content[1:]}


@record
class ShownSpan:
    """What one place shows of an artifact.

    Attributes:
        text: what is shown, including lines of the content; "" if `spans` or `whole` describe it.
        full: all of the artifact is shown, possibly compacted.
        summarized: a summary of the artifact is shown.
    """

    text: str = ""
    whole: bool = False
    full: bool = False
    summarized: bool = False
    spans: tuple[tuple[int, int], ...] = ()


def _summary(body: str) -> ShownSpan:
    return ShownSpan(body.partition(EXTRACTS)[2], summarized=True)


HOW: Mapping[str, Callable[[str], ShownSpan]] = {
    "full": lambda body: ShownSpan(body, full=True),
    **dict.fromkeys(("extract", "Extract of"), ShownSpan),
    **dict.fromkeys(("summary", "Summary of"), _summary),
    "Left out:": lambda _: ShownSpan(),
}
"""Parses the text behind a label, by the label's word for how it is shown. Of a summary only the extracts behind it
count: they are the content's own text."""


def items_in(text: str) -> Iterator[tuple[str, ShownSpan]]:
    """Yields the artifacts that blocks in a text show, by their content ids."""
    at = 0 if f"<{BLOCK_TAG} " in text else len(text)
    while (found := OPENED.search(text, at)) is not None:
        end = text.find(ITEM_CLOSING_TAG, found.end())
        if end < 0:
            return
        at = end + len(ITEM_CLOSING_TAG)
        how = SHOWN_ATTRIBUTE.search(found[2])
        if how is not None:
            yield found[1], HOW[how[1]](text[found.end() : end].replace("&lt;", "<"))


def in_place_of(text: str, content_id: str) -> ShownSpan | None:
    """Returns what a message shows of an artifact that was reduced in place; None if no label names it."""
    named = re.compile(rf'", id {content_id}(?:-\d+)?, from ')
    for label in BLOCK_LABEL.finditer(text):
        if named.search(label[0]) is not None:
            return HOW[label[1]](text[label.end() + 1 :])
    return None


def stretches(shown: str, content: str) -> list[tuple[int, int]]:
    """Returns the stretches of a content whose lines a text contains in the same order. A line counts if it is long, or
    if the text's next line follows it in the content, too."""
    if shown.strip() and shown in content:
        at = content.index(shown)
        return [(at, at + len(shown))]
    found: list[tuple[int, int]] = []
    at = 0
    lines = [line.strip("\n") for line in shown.split("\n")[:MAX_EXTRACT_LINES]]
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
