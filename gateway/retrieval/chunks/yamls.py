"""Cuts YAML by its indentation: an item of a list is a record, as an element of a JSON array is. It is not parsed."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gateway.retrieval.chunks.chunk import MAX_CHARS, TARGET_CHARS, TextChunk, bounded

LINE = re.compile(r"^([ ]*+)(\S[^\n]*+)", re.MULTILINE)
KEY = r"(?:\"[^\"\n]{1,80}\"|'[^'\n]{1,80}'|[\w./$@-]{1,60}):(?:\s|$)"
MEMBER = re.compile(KEY)
ITEM = re.compile(r"-(?:\s|$)")
ITEM_WITH_KEY = re.compile(rf"-[ ]+{KEY}")
SAMPLE_LINES = 200
MIN_YAML = 0.9
"""Fraction of the lines that must be members, items or comments."""
MIN_ITEMS = 2
"""Items with a key in them, or documents, of which a text must have some: other lines are prose or settings."""
MAX_LEVELS = 8
HEAD_CHARS = 200
FLAT_CHARS = TARGET_CHARS // 4
"""Items of one line that are no longer are gathered."""
SCALAR = re.compile(r":[ ]+[|>][+-]?\Z")
DOCUMENT = re.compile(r"---(?:\s|$)")


class YamlLine(NamedTuple):
    """Characters `start` to `end` of a text, its indentation and its words."""

    start: int
    end: int
    indent: int
    words: str


def is_yaml(text: str, start: int, end: int) -> bool:
    """Whether a text looks like YAML that holds a list of objects, or several documents."""
    sample = list(_without_scalars(islice(_lines(text, start, end), SAMPLE_LINES)))
    if len(sample) < 2 * MIN_ITEMS:
        return False
    members = sum(MEMBER.match(line.words) is not None for line in sample)
    items = [line for line in sample if ITEM.match(line.words)]
    comments = sum(line.words.startswith("#") for line in sample)
    dividers = sum(DOCUMENT.match(line.words) is not None for line in sample)
    with_key = sum(ITEM_WITH_KEY.match(line.words) is not None for line in items)
    if with_key < MIN_ITEMS and not (dividers >= 1 and members > len(sample) / 2):
        return False
    return members + len(items) + comments + dividers >= MIN_YAML * len(sample)


def _without_scalars(lines: Iterator[YamlLine]) -> Iterator[YamlLine]:
    """The lines without those of texts (`notes: |`), which may say anything."""
    deeper = -1
    for line in lines:
        if 0 <= deeper < line.indent:
            continue
        deeper = line.indent if SCALAR.search(line.words) else -1
        yield line


def blocks(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """A chunk for each item of a list and each document, or for the pieces of a long one, which have its beginning as
    heading; what stands around them is gathered."""
    lines = list(_lines(text, start, end))
    documents = _divided(lines)
    for number, document in enumerate(documents):
        single = len(documents) == 1
        if not single and document[-1].end - document[0].start <= MAX_CHARS:
            yield from _pieces(text, document, "", number)
        else:
            yield from _value(text, document, "", MAX_LEVELS)


def _lines(text: str, start: int, end: int) -> Iterator[YamlLine]:
    for match in LINE.finditer(text, start, end):
        yield YamlLine(match.start(), match.end(), len(match[1]), match[2].rstrip())


def _divided(lines: Sequence[YamlLine]) -> list[list[YamlLine]]:
    """The lines of each document; a divider belongs to what follows it."""
    found: list[list[YamlLine]] = []
    for line in lines:
        if not found or (line.indent == 0 and DOCUMENT.match(line.words)):
            found.append([])
        found[-1].append(line)
    return found


def _value(text: str, lines: list[YamlLine], heading: str, levels: int) -> Iterator[TextChunk]:
    """Items are records; members are gathered, and cut where they are long."""
    run: list[YamlLine] = []
    run_is_record, ordinal, number = False, -1, -1
    for block in _blocks(lines):
        is_item = ITEM.match(block[0].words) is not None
        number += is_item
        size = block[-1].end - block[0].start
        joins = not is_item or (len(block) == 1 and size <= FLAT_CHARS)
        if run and (not joins or is_item != run_is_record or block[-1].end - run[0].start > TARGET_CHARS):
            yield from _pieces(text, run, heading, ordinal)
            run = []
        if size > MAX_CHARS and len(block) > 1 and levels:
            yield from _long(text, block, heading, number if is_item else -1, levels)
        elif joins:
            if not run:
                run_is_record, ordinal = is_item, number if is_item else -1
            run += block
        else:
            yield from _pieces(text, block, heading, number)
    if run:
        yield from _pieces(text, run, heading, ordinal)


def _blocks(lines: Sequence[YamlLine]) -> Iterator[list[YamlLine]]:
    """Each of the outermost lines with what belongs to it: deeper lines, and a key's items that are no deeper."""
    level = min((line.indent for line in lines if not line.words.startswith("#")), default=0)
    block: list[YamlLine] = []
    holds_items = False
    comments: list[YamlLine] = []
    for line in lines:
        if line.words.startswith("#") and line.indent <= level:
            comments.append(line)  # it belongs to what follows
            continue
        is_item = ITEM.match(line.words) is not None
        if block and line.indent <= level and not (is_item and holds_items):
            yield block
            block = []
        if not block:
            holds_items = not is_item and line.words.endswith(":")
        block += [*comments, line]
        comments = []
    block += comments
    if block:
        yield block


def _long(text: str, block: list[YamlLine], heading: str, number: int, levels: int) -> Iterator[TextChunk]:
    """A long item or member between what it holds. Its first line stands above all but the first piece."""
    at = next((n for n, line in enumerate(block) if not line.words.startswith("#")), 0)
    head, rest = block[at], block[at + 1 :]
    below = f"{heading}\n{head.words[:HEAD_CHARS]}".strip("\n")
    inner = list(_value(text, rest, below, levels - 1)) if rest else []
    if inner and inner[0].end - block[0].start <= MAX_CHARS:
        inner[0] = inner[0]._replace(start=block[0].start, heading=heading)
    else:
        inner = [*_pieces(text, block[: at + 1], heading, -1), *inner]
    if number >= 0:
        inner = [chunk._replace(kind="record", ordinal=number, origin=block[0].start) for chunk in inner]
    yield from inner


def _pieces(text: str, lines: Sequence[YamlLine], heading: str, number: int) -> Iterator[TextChunk]:
    """The lines as one chunk, or as pieces of one; a record where it has a number."""
    begin, until = lines[0].start, lines[-1].end
    above = heading
    whole = until - begin <= MAX_CHARS  # it keeps its indentation
    for start, end in [(begin, until)] if whole else bounded(text, begin, until):
        if number >= 0:
            yield TextChunk(start, end, above, "record", number, begin)
        else:
            yield TextChunk(start, end, above)
        above = f"{heading}\n{lines[0].words[:HEAD_CHARS]}".strip("\n")
