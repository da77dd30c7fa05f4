"""Logs, listings, search results, test reports: a line and those that continue it."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from gateway.relevance.chunks.bounds import bounded
from gateway.relevance.chunks.chunk import MAX_CHARS, Chunk

LINE = re.compile(r"[^\n]+")
SAMPLE_LINES = 200
STAMP = re.compile(
    r"""[\[(<"']?(?: \d{4}[-/.]\d\d[-/.]\d\d | \d\d[-/.]\d\d[-/.]\d\d(?:\d\d)? | \d\d?[-/.]\d\d?[ T]\d\d?:\d\d
    | \d{6,8}[ -]\d\d:?\d\d | \d\d?:\d\d:\d\d | \d{10,19}\b | <\d{1,3}> | [IWEF]\d{4}[ ]
    | (?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?[ ])?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[ ]{1,2}\d\d?[ ]
    | (?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b)""",
    re.VERBOSE,
)
"""What an entry of a log begins with."""
LEAST_STAMPED = 0.25
TRACE = re.compile(r"[ \t]*+(?:at\s|\.\.\. \d+ more|Caused by:|[\])}]+[,;]?\s*$)")
CONTINUES = re.compile(rf"{TRACE.pattern}|[ \t]+\S")
RULE = re.compile(r"([=_#*-])\1{2,}+[ \t]++(\S[^\n]{0,300}?)[ \t]+\1{3,}\s*$")
"""A title in the middle of a line of signs, as test runners write it."""
LEAST_LINES = 4
LEAST_AVERAGE, MOST_AVERAGE = 8, 400


def is_lines(text: str, start: int, end: int) -> bool:
    """Whether a text consists of lines that stand for themselves: no paragraphs, no lines as long as those."""
    lines = text.count("\n", start, end) + 1
    if lines < LEAST_LINES or not LEAST_AVERAGE <= (end - start) / lines <= MOST_AVERAGE:
        return False
    empty = text.count("\n\n", start, end) + text.count("\n\r\n", start, end)
    return empty <= lines / 8


def blocks(text: str, start: int, end: int) -> Iterator[Chunk]:
    """Lines, each with the lines that continue it; the title of a report's section is the heading of its lines."""
    goes_on = _continuation(text, start, end)
    title = heading = ""
    is_section = False
    begin = until = -1
    number = 0
    for match in LINE.finditer(text, start, end):
        at, line_end = match.span()
        rule = RULE.match(text, at, line_end) if text[at] in "=_#*-" else None
        fits = begin >= 0 and line_end - begin <= MAX_CHARS
        if fits and not rule and (is_section or goes_on(text, at, line_end)):
            until = line_end
            continue
        if begin >= 0:
            yield from _entry(text, begin, until, heading, number)
            number += 1
        begin, until = at, line_end
        heading = "" if rule else title
        if rule:
            title, is_section = rule.group(2), rule.group(1) == "_"
    if begin >= 0:
        yield from _entry(text, begin, until, heading, number)


def _entry(text: str, begin: int, until: int, title: str, number: int) -> Sequence[Chunk]:
    if until - begin <= MAX_CHARS:
        return () if text[begin:until].isspace() else (Chunk(begin, until, title, "line", number, begin),)
    return [Chunk(*piece, title, "line", number, begin) for piece in bounded(text, begin, until)]


def _continuation(text: str, start: int, end: int) -> Callable[[str, int, int], object]:
    """What tells that a line belongs to the one before. Where most entries begin with a time or a level, whatever does
    not is none of its own; where most lines are indented, that says nothing."""
    sample = [m.group() for m in islice(LINE.finditer(text, start, end), SAMPLE_LINES)]
    whole = [line for line in sample if not line[0].isspace()]
    if sum(STAMP.match(line) is not None for line in whole) > LEAST_STAMPED * max(1, len(whole)):
        return lambda text, at, line_end: not STAMP.match(text, at, line_end)
    return (TRACE if len(whole) < len(sample) / 2 else CONTINUES).match
