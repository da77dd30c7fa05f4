"""Where a text is fenced or tagged off, found in one pass: a user may send millions of marks without a partner."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

FENCE = re.compile(r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,})([^\n]*)$", re.MULTILINE)
OPENING = re.compile(r"<([A-Za-z][\w:.-]*)(?:\s[^<>]*)?>")
CLOSING = re.compile(r"</([A-Za-z][\w:.-]*)\s*>")
MARKDOWN = frozenset({"markdown", "md", "mdx", "rst"})
MOST_LEVELS = 3
LEAST_SHARE = 0.8
Span = tuple[int, int]


class Fence(NamedTuple):
    """A line of at least three backticks or tildes; `info` is what it says behind them."""

    start: int
    end: int
    sign: str
    length: int
    info: str


def marked_spans(text: str, min_chars: int) -> list[Span]:
    """The insides of fences and of tagged blocks that are longer than `min_chars`, in order; of two that overlap the
    fence counts, and of a block that holds hardly anything but blocks, those count."""
    fenced = [(start, end) for start, end in _fenced(text) if end - start > min_chars]
    starts = [start for start, _ in fenced]
    tagged = []
    for start, end in _tagged(text):
        after = bisect_left(starts, end)
        if end - start > min_chars and (after == 0 or fenced[after - 1][1] <= start):
            tagged += _members(text, (start, end), min_chars, MOST_LEVELS)
    return sorted(fenced + tagged)


def is_tagged(text: str) -> bool:
    """Whether all of the text is one tagged block."""
    opening = OPENING.match(text)
    if opening is None:
        return False
    name = opening.group(1)
    return re.search(rf"</{re.escape(name)}\s*>\Z", text[-len(name) - 100 :]) is not None


def _members(text: str, span: Span, min_chars: int, levels: int) -> list[Span]:
    """The documents that a block consists of, if there are several, else the block."""
    start, end = span
    inner = [(start + a, start + b) for a, b in _tagged(text[start:end]) if b - a > min_chars] if levels else []
    if len(inner) < 2 or sum(b - a for a, b in inner) < LEAST_SHARE * (end - start):
        return [span]
    return [each for member in inner for each in _members(text, member, min_chars, levels - 1)]


def _fenced(text: str) -> Iterator[Span]:
    """What stands between a fence and the one that closes it, without the line ends beside them."""
    lines = [Fence(m.start(), m.end(), m[1][0], len(m[1]), m[2].strip()) for m in FENCE.finditer(text)]
    longest = _longest_after(lines)
    number, nests = 0, True
    while number < len(lines):
        opening = lines[number]
        if longest[number].get(opening.sign, 0) < opening.length:
            number += 1
            continue
        is_markdown = opening.info.partition(" ")[0].lower() in MARKDOWN
        closing = _closing(lines, number, nested=True) if is_markdown and nests else None
        if closing is None:
            nests = nests and not is_markdown  # once is enough: looking to the end each time would take quadratic time
            closing = _closing(lines, number, nested=False) or len(lines) - 1
        end = text.rfind("\n", opening.end, lines[closing].start)
        yield opening.end + 1, max(opening.end + 1, end - (text[end - 1 : end] == "\r"))
        number = closing + 1


def _closing(lines: Sequence[Fence], number: int, *, nested: bool) -> int | None:
    """The next fence of that kind that is as long and says nothing (CommonMark); or, where Markdown that was pasted has
    fences itself, the one that closes the outermost."""
    opening, depth = lines[number], 1
    for closing in range(number + 1, len(lines)):
        line = lines[closing]
        if line.sign == opening.sign and line.length >= opening.length:
            depth += 1 if line.info else -1
            if not line.info and (depth == 0 or not nested):
                return closing
    return None


def _longest_after(lines: Sequence[Fence]) -> list[dict[str, int]]:
    """For each fence the length of the longest of each kind after it that could close one."""
    found: list[dict[str, int]] = []
    longest: dict[str, int] = {}
    for line in reversed(lines):
        found.append(longest)
        if not line.info and line.length > longest.get(line.sign, 0):
            longest = {**longest, line.sign: line.length}
    return found[::-1]


def _tagged(text: str) -> Iterator[Span]:
    ends: dict[str, list[Span]] = defaultdict(list)
    for match in CLOSING.finditer(text):
        ends[match.group(1)].append(match.span())
    position = 0
    for opening in OPENING.finditer(text):
        if opening.start() < position or opening.group(1) not in ends:
            continue
        closings = ends[opening.group(1)]
        at = bisect_left(closings, (opening.end(), 0))
        if at < len(closings):
            yield opening.end(), closings[at][0]
            position = closings[at][1]
