"""Cuts programs by indentation: a line and the deeper lines below it are one block, whatever the language.

Listings with line numbers (`cat -n`, `grep -n`) are cut likewise.
"""

import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from gateway.retrieval.chunks.chunk import MAX_CHARS, TARGET_CHARS, TextChunk, bounded

LINE = re.compile(r"^([^\S\n]*+)(\S[^\n]*+)", re.MULTILINE)
NUMBERED_LINE = re.compile(r"^[ \t]*+\d{1,7}(?:\t|→|: |:(?!\d)|[|] |[|]|[ ]{2}|$)([^\S\n]*+)([^\n]*+)", re.MULTILINE)
NUMBER = re.compile(r"[ \t]*(\d{1,7})(?:\t|→|:(?!\d)|[|]|[ ]{2}|\r?$)")
MIN_NUMBERED, SAMPLE_NUMBERED = 3, 20
"""Lines that have to be numbered for a listing, and how many at its beginning are looked at."""
MAX_STEP = 5
"""Difference of two line numbers that follow each other: empty lines may be left out."""
MIN_LISTED = 6
"""Lines of a numbered listing that is surely code; a shorter one has to look like code."""

DEFINES = re.compile(
    r"(?:[a-z]+(?:\([\w:]+\))? ){0,3}(?:def|class|function|interface|enum|trait|impl|struct|union|namespace|module"
    r"|protocol|extension|object|fn|mod|func|fun|type|macro_rules!)\b"
    r"|create (?:or replace )?(?:table|view|function|procedure|trigger|index)\b",
    re.IGNORECASE,
)
CLASS = re.compile(r"\b(?:class|interface|struct|trait|impl|namespace|module|object|enum|extension|protocol)\b")
"""What holds definitions: each of its blocks is a chunk. Statements of a function are gathered instead."""
STATEMENT = re.compile(
    r"(?:import|from|use|using|include|require|package|return|if|for|while|else|elif|try|except|const|let|var)\b"
    r"|(?:self|this)\.|@\w|#include"
)
ABOVE = re.compile(r"@\w|#\[|//|/\*|\*|#(?!!)|--|\[\w+[\](]|template\s*<")
"""Decorators and comments belong to the block below them."""
CLOSES = re.compile(
    r"[\])}>{]|#\s*(?:if|ifdef|ifndef|else|elif|endif|define)\b|(?:public|private|protected)\s*:"
    r"|(?:end|else|elif|except|finally|catch|rescue|fi|done|esac)\b|\*/|\"\"\"|'''"
)
"""Lines that belong to the block above them although they are no deeper."""
COMMENT = re.compile(r"(?:#|//).*")
ENDS = tuple(";{}([,:=)")
"""What lines of code end with."""
TAGGED = re.compile(r"\s*<(?:!doctype|[a-z!?])", re.IGNORECASE)
SAMPLE_LINES = 200
MIN_CODE = 0.45
"""Fraction of the lines that must look like code; comments do not count."""
SHORT_LINES = 40
"""Lines up to which one definition makes a program; a longer text needs two."""
HEADING_CHARS = 200
MAX_HEADINGS = 8
"""Blocks around a chunk that are named above it; what is nested deeper is cut as it comes."""
TAB_COLUMNS = 4


class CodeLine(NamedTuple):
    """Characters `start` to `end` of a text; its indentation in columns, its words, and whether it belongs to the block
    above it."""

    start: int
    end: int
    indent: int
    words: str
    closes: bool


def is_code(text: str, start: int, end: int) -> bool:
    """Whether a text looks like a program: it has definitions, and most lines look like code; or it is a listing."""
    if TAGGED.match(text, start, end):
        return False
    numbered = _is_numbered(text, start, end)
    sample = list(islice(_lines(text, start, end, numbered), SAMPLE_LINES))
    if numbered and len(sample) >= MIN_LISTED:
        return True
    lines = [line.words for line in sample if not ABOVE.match(line.words)]
    opened = sum(words.endswith("{") or DEFINES.match(words) is not None for words in lines)
    if text.startswith("```", start) or text.find("\n```", start, end) >= 0 or not opened:
        return False
    if opened == 1 and len(lines) >= SHORT_LINES:
        return False
    code = sum(STATEMENT.match(words) is not None or _ends_like_code(words) for words in lines)
    return code > MIN_CODE * len(lines)


def blocks(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """A chunk for each block and for what stands between blocks. The heading of a nested one, and of a later piece of a
    long one, are the first lines of the blocks around it."""
    lines = list(_lines(text, start, end, _is_numbered(text, start, end)))
    return _chunks(text, lines, ())


def _is_numbered(text: str, start: int, end: int) -> bool:
    sample = [m.group() for m in islice(re.compile(r"[^\n]+").finditer(text, start, end), SAMPLE_NUMBERED)]
    numbers = [int(found[1]) for line in sample if (found := NUMBER.match(line))]
    if len(numbers) < max(MIN_NUMBERED, len(sample)):
        return False
    return all(0 < b - a <= MAX_STEP for a, b in pairwise(numbers))


def _lines(text: str, start: int, end: int, numbered: bool) -> Iterator[CodeLine]:
    """The lines that are not empty; a number at the beginning is no part of what they say."""
    if start and text[start - 1] != "\n":  # it begins behind something else on its line
        after = text.find("\n", start, end)
        until = end if after < 0 else after
        yield CodeLine(start, until, 0, text[start:until].strip(), False)
        start = until
    last: CodeLine | None = None
    for match in (NUMBERED_LINE if numbered else LINE).finditer(text, start, end):
        white, words = match[1], match[2].rstrip()
        if last and not words:  # empty but for its number
            last = last._replace(end=match.end())
            continue
        if last:
            yield last
        indent = len(white) + (TAB_COLUMNS - 1) * white.count("\t")
        last = CodeLine(match.start(), match.end(), indent, words, CLOSES.match(words) is not None)
    if last:
        yield last


def _ends_like_code(words: str) -> bool:
    return words.endswith(ENDS) or COMMENT.sub("", words, count=1).rstrip().endswith(ENDS)


def _chunks(text: str, lines: list[CodeLine], headings: tuple[str, ...]) -> Iterator[TextChunk]:
    gathers = bool(headings) and not CLASS.search(headings[-1])
    run: list[CodeLine] = []
    for block in _blocks(lines):
        name = next((line.words for line in block if not ABOVE.match(line.words)), "")
        holds_blocks = CLASS.search(name) and len({line.indent for line in block if not line.closes}) > 2
        is_long = block[-1].end - block[0].start > (TARGET_CHARS if holds_blocks else MAX_CHARS)
        is_alone = is_long or (len(block) > 1 and not gathers)
        while is_alone and run and ABOVE.match(run[-1].words):
            block.insert(0, run.pop())
        if run and (is_alone or block[-1].end - run[0].start > TARGET_CHARS):
            yield from _pieces(text, run, headings)
            run = []
        if is_long and len(block) > 1 and len(headings) < MAX_HEADINGS:
            yield from _long(text, block, headings)
        elif is_alone:
            yield from _pieces(text, block, headings)
        else:
            run += block
    if run:
        yield from _pieces(text, run, headings)


def _blocks(lines: list[CodeLine]) -> Iterator[list[CodeLine]]:
    """Each of the outermost lines with the deeper ones below it."""
    level = min((line.indent for line in lines if not line.closes), default=0)
    block: list[CodeLine] = []
    for line in lines:
        if block and line.indent <= level and not line.closes:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _long(text: str, block: list[CodeLine], headings: tuple[str, ...]) -> Iterator[TextChunk]:
    """The blocks within a block; its first lines stand with the first of them."""
    head = next((n for n, line in enumerate(block) if not ABOVE.match(line.words)), 0)
    name = block[head].words[:HEADING_CHARS]
    inner = _chunks(text, block[head + 1 :], (*headings, name))
    first = next(inner, None)
    if first is not None and first.end - block[0].start <= MAX_CHARS:
        yield TextChunk(block[0].start, first.end, "\n".join(headings), "code")
    else:
        yield from _pieces(text, block[: head + 1], headings)
        if first is not None:
            yield first
    yield from inner


def _pieces(text: str, lines: list[CodeLine], headings: tuple[str, ...]) -> Iterator[TextChunk]:
    for start, end in bounded(text, lines[0].start, lines[-1].end):
        yield TextChunk(start, end, "\n".join(headings), "code")
