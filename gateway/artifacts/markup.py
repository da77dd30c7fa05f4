"""Where a text is fenced or tagged off, found in one pass: a user may send millions of marks without a partner."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator

FENCE = re.compile(r"^(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
OPENING = re.compile(r"<([A-Za-z][\w:.-]*)(?:\s[^<>]*)?>")
CLOSING = re.compile(r"</([A-Za-z][\w:.-]*)\s*>")
Span = tuple[int, int]


def marked_spans(text: str, min_chars: int) -> list[Span]:
    """The insides of fences and of tagged blocks that are longer than `min_chars`, in order; of two that overlap the
    fence counts."""
    fenced = [(start, end) for start, end in _fenced(text) if end - start > min_chars]
    starts = [start for start, _ in fenced]
    tagged = []
    for start, end in _tagged(text):
        after = bisect_left(starts, end)
        if end - start > min_chars and (after == 0 or fenced[after - 1][1] <= start):
            tagged.append((start, end))
    return sorted(fenced + tagged)


def is_tagged(text: str) -> bool:
    """Whether all of the text is one tagged block."""
    opening = OPENING.match(text)
    if opening is None:
        return False
    name = opening.group(1)
    return re.search(rf"</{re.escape(name)}\s*>\Z", text[-len(name) - 100 :]) is not None


def _fenced(text: str) -> Iterator[Span]:
    lines = list(FENCE.finditer(text))
    bare: dict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        if not line.group(2).strip(" \t"):
            bare[line.group(1)].append(number)
    number = 0
    while number < len(lines):
        ends = bare.get(lines[number].group(1), [])
        at = bisect_right(ends, number)
        if at < len(ends):
            yield lines[number].end() + 1, lines[ends[at]].start()
            number = ends[at]
        number += 1


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
