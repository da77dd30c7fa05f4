"""Cuts JSON: each element of an array and each member of a large object is a record, however deep. A record that is too
long is cut between its members. Cuts YAML by its indentation, without parsing: an item of a list is a record, like an
element of a JSON array. Cuts lines: entries of logs and listings, and rows of tables below their first row."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from json.decoder import scanstring  # type: ignore[attr-defined]  # what the decoder itself reads strings with
from typing import Any, NamedTuple

from gateway.retrieval.chunks.chunk import MAX_CHUNK_CHARS, TARGET_CHARS, Kind, Span, TextChunk, bounded, pieces_of

DECODER = json.JSONDecoder(strict=False)
JSON_WHITESPACE = re.compile(r"[ \t\r\n]*")
JSON_COMMA = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
JSON_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")


class RecordItem(NamedTuple):
    """An element or a member: `start` is where its name begins, `value` where its value begins."""

    start: int
    value: int
    end: int
    is_flat: bool


def items_of(text: str, item: RecordItem) -> tuple[list[RecordItem], int | None]:
    """Returns the complete elements or members of an array or object, and where it ends (None: it does not)."""
    found: list[RecordItem] = []
    is_object = text[item.value] == "{"
    if not is_object and text[item.value] != "[":
        return found, None
    at = JSON_WHITESPACE.match(text, item.value + 1).end()  # type: ignore[union-attr]
    while at < item.end and text[at] not in "]}":
        value = value_of_member(text, at) if is_object else at
        if value is None:
            return found, None
        try:
            decoded, until = DECODER.raw_decode(text, value)
        except (ValueError, RecursionError):
            return found, None
        found.append(RecordItem(at, value, until, not isinstance(decoded, dict | list)))
        at = JSON_WHITESPACE.match(text, until).end()  # type: ignore[union-attr]
        if at < item.end and text[at] not in ",]}":
            return found, None
        at = JSON_COMMA.match(text, at).end()  # type: ignore[union-attr]
    return found, at + 1 if at < item.end else None


def values_of(text: str, at: int, end: int) -> tuple[list[RecordItem], int]:
    """Returns consecutive arrays and objects, and where they end."""
    found: list[RecordItem] = []
    after = at
    while True:
        at = JSON_COMMA.match(text, at, end).end()  # type: ignore[union-attr]  # the pattern always matches
        if at >= end or text[at] not in "{[":
            return found, after
        try:
            _, after_value = DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found, after
        found.append(RecordItem(at, at, after_value, False))
        at = after = after_value


def value_of_member(text: str, at: int) -> int | None:
    """Returns where the value of the member at `at` begins; None if there is no member."""
    if text[at : at + 1] != '"':
        return None
    try:
        _, end = scanstring(text, at + 1, False)
    except ValueError:
        return None
    colon = JSON_COLON.match(text, end)
    return colon.end() if colon else None


def fields(text: str, origin: int) -> list[tuple[str, Any]]:
    """Returns the values of the record at `origin` by the keys that lead to them (`items price`), its own before nested
    ones. A name may occur several times."""
    try:
        value, _ = DECODER.raw_decode(text, origin)
    except (ValueError, RecursionError):
        return []
    found: list[tuple[str, Any]] = []
    level: list[tuple[str, Any]] = [("", value)]
    while level:
        below: list[tuple[str, Any]] = []
        for path, each in level:
            if isinstance(each, dict):
                below.extend((f"{path} {key}" if path else key, member) for key, member in each.items())
            elif isinstance(each, list):
                below.extend((path, member) for member in each)
            else:
                found.append((path, each))
        level = below
    return found


MAX_LEVELS = 8
"""Levels of nesting that are cut; anything deeper stays whole or is cut as text."""
HEAD_CHARS = 200
"""Characters of a long record's beginning that are the heading of its later pieces."""
SMALL_HEAD = 100
"""Up to so many characters before the first record belong to it."""
FLAT_CHARS = TARGET_CHARS // 4
TINY_CHARS = 12
"""Elements up to that length are gathered: numbers, words; `{}`."""
LONGEST_LINE = 1_000_000
MANY_MEMBERS = 4
MAJORITY = 0.5


class _ChunkCut(NamedTuple):
    """A chunk begins at `start`; it ends where the next one begins."""

    start: int
    heading: str = ""
    kind: Kind = "prose"
    ordinal: int = -1
    origin: int = -1


def records(text: str, start: int, end: int) -> tuple[list[TextChunk], int]:
    """Returns the chunks of the consecutive JSON values from `start` on, and where they end.

    Of a value that does not end, as tools cut them off, the complete elements are records.
    """
    if _is_first_of_lines(text, start, end):
        values, after = values_of(text, start, end)
        return _joined(text, _elements(text, values, "", MAX_LEVELS), start, after), after
    first = RecordItem(start, start, end, False)
    items, closed = items_of(text, first)
    if closed is None:
        return _broken(text, first, items)
    others, after = values_of(text, closed, end)
    first = first._replace(end=closed)
    cuts = _elements(text, [first, *others], "", MAX_LEVELS) if others else _value(text, first, "", MAX_LEVELS, items)
    return _joined(text, cuts, start, after), after


def _is_first_of_lines(text: str, start: int, end: int) -> bool:
    """Returns whether the first line is a whole value and another begins below it, so that it need not be examined."""
    line_end = text.find("\n", start, min(end, start + LONGEST_LINE))
    if line_end < 0 or text[line_end + 1 : line_end + 2] not in ("{", "["):
        return False
    try:
        _, after = DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return False
    return text[after:line_end].isspace() or after == line_end


def _broken(text: str, opening: RecordItem, items: list[RecordItem]) -> tuple[list[TextChunk], int]:
    """Cuts the complete elements of an array or object that does not end; the array may be its last member."""
    at = opening.value
    for _ in range(MAX_LEVELS):
        if len(items) >= 2 and text[at] == "[":
            break
        after = JSON_COMMA.match(text, items[-1].end if items else at + 1).end()  # type: ignore[union-attr]
        inner = value_of_member(text, after) if text[at] == "{" else after
        if inner is None or text[inner : inner + 1] not in ("[", "{"):
            break
        at = inner
        items, _ = items_of(text, RecordItem(at, at, opening.end, False))
    if sum(not item.is_flat for item in items) < 2:
        return [], opening.start
    return _joined(text, _elements(text, items, "", MAX_LEVELS), opening.start, items[-1].end), items[-1].end


def _value(
    text: str, item: RecordItem, heading: str, levels: int, items: list[RecordItem] | None = None
) -> Iterator[_ChunkCut]:
    """Yields the cuts of one value: of its elements or members, if it is long."""
    if item.end - item.value <= MAX_CHUNK_CHARS or not levels:
        items = []
    elif items is None:
        items, _ = items_of(text, item)
    longest = max(items, key=lambda each: each.end - each.start, default=item)
    if len(items) < 2 and (longest is item or longest.end - longest.start <= MAX_CHUNK_CHARS):
        yield _ChunkCut(item.start, heading, "record", -1, item.value)
    elif text[item.value] == "[":
        yield _ChunkCut(item.start, heading)
        yield from _elements(text, items, heading, levels - 1)
    elif longest.end - longest.start > max(MAX_CHUNK_CHARS, MAJORITY * (item.end - item.value)):
        yield from _wrapper(text, item, items, longest, heading, levels)
    elif sum(not each.is_flat for each in items) > MAJORITY * len(items) and len(items) >= MANY_MEMBERS:
        yield _ChunkCut(item.start, heading)
        yield from _elements(text, items, heading, levels - 1)
    else:
        yield from _members(text, item, items, heading, -1, levels)


def _wrapper(
    text: str, item: RecordItem, items: list[RecordItem], longest: RecordItem, heading: str, levels: int
) -> Iterator[_ChunkCut]:
    """Yields the cuts of an object that one member nearly fills: that one is cut, the rest stays together."""
    yield _ChunkCut(item.start, heading)
    yield from _value(text, longest, heading, levels - 1)
    after = next((each for each in items if each.start > longest.start), None)
    if after:
        yield _ChunkCut(after.start, heading)


def _elements(text: str, items: list[RecordItem], heading: str, levels: int) -> Iterator[_ChunkCut]:
    """Yields each element as a record; elements that are no array or object are gathered."""
    gathered = -1
    for number, item in enumerate(items):
        if item.end - item.start <= (FLAT_CHARS if item.is_flat else TINY_CHARS):
            if gathered < 0 or item.end - gathered > TARGET_CHARS:
                gathered = item.start
                yield _ChunkCut(item.start, heading, "record", number, item.value)
            continue
        gathered = -1
        if item.end - item.start <= MAX_CHUNK_CHARS:
            yield _ChunkCut(item.start, heading, "record", number, item.value)
        else:
            yield from _long(text, item, heading, number, levels)


def _long(text: str, item: RecordItem, heading: str, number: int, levels: int) -> Iterator[_ChunkCut]:
    items = items_of(text, item)[0] if levels else []
    if len(items) < 2:
        yield _ChunkCut(item.start, heading, "record", number, item.value)
    else:
        yield from _members(text, item, items, heading, number, levels)


def _members(
    text: str, item: RecordItem, items: list[RecordItem], heading: str, number: int, levels: int
) -> Iterator[_ChunkCut]:
    """Yields the cuts of a long record between its members; every later piece has the record's beginning as heading."""
    yield _ChunkCut(item.start, heading, "record", number, item.value)
    below = f"{heading}\n{_head(text, item, items[0])}".strip("\n")
    begin, least = item.start, HEAD_CHARS
    for member in items:
        if member.end - member.start > MAX_CHUNK_CHARS and levels > 1 and not member.is_flat:
            above = f"{below} {_named(text, member)}".strip()
            for cut in _value(text, member, above, levels - 1):
                yield cut._replace(kind="record", ordinal=number, origin=item.value) if number >= 0 else cut
            begin = -1
        elif begin < 0 or (member.end - begin > TARGET_CHARS and member.start - begin > least):
            yield _ChunkCut(member.start, below, "record", number, item.value)
            begin, least = member.start, 0


def _head(text: str, item: RecordItem, first: RecordItem) -> str:
    """Returns the beginning of a record up to a comma, which holds its names and numbers."""
    if first.end - item.start > HEAD_CHARS and text[first.value] == "[":
        return ""
    head = text[item.start : item.start + HEAD_CHARS]
    return " ".join(head[: head.rfind(",") + 1 or HEAD_CHARS].split())


def _named(text: str, member: RecordItem) -> str:
    return " ".join(text[member.start : member.value].split())[:HEAD_CHARS]


def _joined(text: str, found_cuts: Iterator[_ChunkCut], start: int, end: int) -> list[TextChunk]:
    """Builds chunks from each cut to the next one; a short beginning belongs to the first record."""
    cuts = list(found_cuts)
    found: list[TextChunk] = []
    begin: int | None = start
    for number, cut in enumerate(cuts):
        at = cut.start if begin is None else begin
        until = cuts[number + 1].start if number + 1 < len(cuts) else end
        if cut.kind == "prose" and until - at <= SMALL_HEAD and number + 1 < len(cuts):
            begin = at
            continue
        begin = None
        if until - at <= MAX_CHUNK_CHARS:
            until = at + len(text[at:until].rstrip())
            if until > at:
                found.append(TextChunk(at, until, *cut[1:]))
        else:
            found.extend(pieces_of(text, at, until, *cut[1:]))
    return found


YAML_LINE = re.compile(r"^([ ]*+)(\S[^\n]*+)", re.MULTILINE)
STRUCTURED_KEY = r"(?:\"[^\"\n]{1,80}\"|'[^'\n]{1,80}'|[\w./$@-]{1,60}):(?:\s|$)"
STRUCTURED_MEMBER = re.compile(STRUCTURED_KEY)
STRUCTURED_ITEM = re.compile(r"-(?:\s|$)")
ITEM_WITH_KEY = re.compile(rf"-[ ]+{STRUCTURED_KEY}")
YAML_SAMPLE_LINES = 200
MIN_YAML = 0.9
"""Fraction of the lines that must be members, items or comments."""
MIN_ITEMS = 2
"""Items with a key, or documents, that a text must have at least: otherwise it is prose or settings."""
SCALAR = re.compile(r":[ ]+[|>][+-]?\Z")
DOCUMENT = re.compile(r"---(?:\s|$)")


class YamlLine(NamedTuple):
    """Characters `start` to `end` of a text, its indentation and its text."""

    start: int
    end: int
    indent: int
    words: str


def is_yaml(text: str, start: int, end: int) -> bool:
    """Returns whether a text looks like YAML that holds a list of objects, or several documents."""
    sample = list(_without_scalars(islice(_lines(text, start, end), YAML_SAMPLE_LINES)))
    if len(sample) < 2 * MIN_ITEMS:
        return False
    members = sum(STRUCTURED_MEMBER.match(line.words) is not None for line in sample)
    items = [line for line in sample if STRUCTURED_ITEM.match(line.words)]
    comments = sum(line.words.startswith("#") for line in sample)
    dividers = sum(DOCUMENT.match(line.words) is not None for line in sample)
    with_key = sum(ITEM_WITH_KEY.match(line.words) is not None for line in items)
    if with_key < MIN_ITEMS and not (dividers >= 1 and members > len(sample) / 2):
        return False
    return members + len(items) + comments + dividers >= MIN_YAML * len(sample)


def _without_scalars(lines: Iterator[YamlLine]) -> Iterator[YamlLine]:
    """Yields the lines without those of block scalars (`notes: |`), which may hold any text."""
    deeper = -1
    for line in lines:
        if 0 <= deeper < line.indent:
            continue
        deeper = line.indent if SCALAR.search(line.words) else -1
        yield line


def yaml_blocks(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """Yields a chunk for each item of a list and each document, or for the pieces of a long one, which have its
    beginning as heading; everything around them is gathered."""
    lines = list(_lines(text, start, end))
    documents = _divided(lines)
    for number, document in enumerate(documents):
        single = len(documents) == 1
        if not single and document[-1].end - document[0].start <= MAX_CHUNK_CHARS:
            yield from _pieces(text, document, "", number)
        else:
            yield from _yamls_value(text, document, "", MAX_LEVELS)


def _lines(text: str, start: int, end: int) -> Iterator[YamlLine]:
    for match in YAML_LINE.finditer(text, start, end):
        yield YamlLine(match.start(), match.end(), len(match[1]), match[2].rstrip())


def _divided(lines: Sequence[YamlLine]) -> list[list[YamlLine]]:
    """Returns the lines of each document; a divider belongs to the document that follows it."""
    found: list[list[YamlLine]] = []
    for line in lines:
        if not found or (line.indent == 0 and DOCUMENT.match(line.words)):
            found.append([])
        found[-1].append(line)
    return found


def _yamls_value(text: str, lines: list[YamlLine], heading: str, levels: int) -> Iterator[TextChunk]:
    """Yields items as records; members are gathered, and cut if they are long."""
    run: list[YamlLine] = []
    run_is_record, ordinal, number = False, -1, -1
    for block in _blocks(lines):
        is_item = STRUCTURED_ITEM.match(block[0].words) is not None
        number += is_item
        size = block[-1].end - block[0].start
        joins = not is_item or (len(block) == 1 and size <= FLAT_CHARS)
        if run and (not joins or is_item != run_is_record or block[-1].end - run[0].start > TARGET_CHARS):
            yield from _pieces(text, run, heading, ordinal)
            run = []
        if size > MAX_CHUNK_CHARS and len(block) > 1 and levels:
            yield from _yamls_long(text, block, heading, number if is_item else -1, levels)
        elif joins:
            if not run:
                run_is_record, ordinal = is_item, number if is_item else -1
            run += block
        else:
            yield from _pieces(text, block, heading, number)
    if run:
        yield from _pieces(text, run, heading, ordinal)


def _blocks(lines: Sequence[YamlLine]) -> Iterator[list[YamlLine]]:
    """Yields each of the outermost lines with those that belong to it: deeper ones, and a key's items beside it."""
    level = min((line.indent for line in lines if not line.words.startswith("#")), default=0)
    block: list[YamlLine] = []
    holds_items = False
    comments: list[YamlLine] = []
    for line in lines:
        if line.words.startswith("#") and line.indent <= level:
            comments.append(line)  # a comment belongs to the following line
            continue
        is_item = STRUCTURED_ITEM.match(line.words) is not None
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


def _yamls_long(text: str, block: list[YamlLine], heading: str, number: int, levels: int) -> Iterator[TextChunk]:
    """Yields a long item or member, cut between its contents, with its first line as heading of later pieces."""
    at = next((n for n, line in enumerate(block) if not line.words.startswith("#")), 0)
    head, rest = block[at], block[at + 1 :]
    below = f"{heading}\n{head.words[:HEAD_CHARS]}".strip("\n")
    inner = list(_yamls_value(text, rest, below, levels - 1)) if rest else []
    if inner and inner[0].end - block[0].start <= MAX_CHUNK_CHARS:
        inner[0] = inner[0]._replace(start=block[0].start, heading=heading)
    else:
        inner = [*_pieces(text, block[: at + 1], heading, -1), *inner]
    if number >= 0:
        inner = [chunk._replace(kind="record", ordinal=number, origin=block[0].start) for chunk in inner]
    yield from inner


def _pieces(text: str, lines: Sequence[YamlLine], heading: str, number: int) -> Iterator[TextChunk]:
    """Yields the lines as one chunk, or as pieces of one; as a record if they have a number."""
    begin, until = lines[0].start, lines[-1].end
    above = heading
    whole = until - begin <= MAX_CHUNK_CHARS  # it keeps its indentation
    for start, end in [(begin, until)] if whole else bounded(text, begin, until):
        if number >= 0:
            yield TextChunk(start, end, above, "record", number, begin)
        else:
            yield TextChunk(start, end, above)
        above = f"{heading}\n{lines[0].words[:HEAD_CHARS]}".strip("\n")


ROW_LINE = re.compile(r"[^\n]+")
SAMPLE_ENTRIES = 200
STAMP = re.compile(
    r"""[\[(<"']?(?: \d{4}[-/.]\d\d[-/.]\d\d | \d\d[-/.]\d\d[-/.]\d\d(?:\d\d)? | \d\d?[-/.]\d\d?[ T]\d\d?:\d\d
    | \d{6,8}[ -]\d\d:?\d\d | \d\d?:\d\d:\d\d | \d{10,19}\b | <\d{1,3}> | [IWEF]\d{4}[ ]
    | (?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?[ ])?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[ ]{1,2}\d\d?[ ]
    | (?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\b)""",
    re.VERBOSE,
)
"""Beginning of an entry of a log: a time, a date or a level."""
MIN_STAMPED = 0.25
"""Fraction of the lines that must begin with a stamp; the others continue an entry."""
TRACE = re.compile(r"[ \t]*+(?:at\s|\.\.\. \d+ more|Caused by:|[\])}]+[,;]?\s*$)")
CONTINUES = re.compile(rf"{TRACE.pattern}|[ \t]+\S")
LINES_RULE = re.compile(r"([=_#*-])\1{2,}+[ \t]++(\S[^\n]{0,300}?)[ \t]+\1{3,}\s*$")
"""A title in the middle of a line of signs, as test runners write it."""
MIN_LINES = 4
MIN_AVERAGE, MAX_AVERAGE = 8, 400
"""Characters of a line on average; longer lines are paragraphs, shorter ones numbers or single words."""


def is_lines(text: str, start: int, end: int) -> bool:
    """Returns whether a text consists of independent lines, not of paragraphs."""
    lines = text.count("\n", start, end) + 1
    if lines < MIN_LINES or not MIN_AVERAGE <= (end - start) / lines <= MAX_AVERAGE:
        return False
    empty = text.count("\n\n", start, end) + text.count("\n\r\n", start, end)
    return empty <= lines / 8


def line_blocks(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """Yields lines with the lines that continue them; the title of a report's section is the heading of its lines."""
    goes_on = _continuation(text, start, end)
    title = heading = ""
    is_section = False
    begin = until = -1
    number = 0
    for match in ROW_LINE.finditer(text, start, end):
        at, line_end = match.span()
        rule = LINES_RULE.match(text, at, line_end) if text[at] in "=_#*-" else None
        fits = begin >= 0 and line_end - begin <= MAX_CHUNK_CHARS
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


def _entry(text: str, begin: int, until: int, title: str, number: int) -> Sequence[TextChunk]:
    if until - begin <= MAX_CHUNK_CHARS:
        return () if text[begin:until].isspace() else (TextChunk(begin, until, title, "line", number, begin),)
    return list(pieces_of(text, begin, until, title, "line", number, begin))


def _continuation(text: str, start: int, end: int) -> Callable[[str, int, int], object]:
    """Returns the test whether a line continues the previous one. If many lines begin with a time or a level, all
    others continue; if most lines are indented, indentation does not count."""
    sample = [m.group() for m in islice(ROW_LINE.finditer(text, start, end), SAMPLE_ENTRIES)]
    whole = [line for line in sample if not line[0].isspace()]
    if sum(STAMP.match(line) is not None for line in whole) > MIN_STAMPED * max(1, len(whole)):
        return lambda text, at, line_end: not STAMP.match(text, at, line_end)
    return (TRACE if len(whole) < len(sample) / 2 else CONTINUES).match


TABLE_SEPARATORS = ("\t", ",", ";", "|")
HEADER_CHARS = 1000
SAMPLE_ROWS = 30
MIN_ROWS = 3
MIN_EVEN = 0.9
"""Fraction of a table's rows that must have as many cells as the first."""
NUMBERED_ROW = re.compile(r"[\s\"|]*[\d.,-]+[\s\"]*(?:[,;|\t→:]|$)")
"""A row that begins with a number, as in data and listings: it names no columns."""
QUOTED_CELL = re.compile(r'"[^"]*"')
TABLE_RULE = re.compile(r"[\s|:+=-]+\Z")
"""The line between header and rows of a table that is drawn with signs."""


def separator_of(text: str, start: int, end: int) -> str | None:
    """Returns the separator of a table's cells; None if the text is no table: in a table the first row names columns,
    and the other rows have as many cells."""
    sample = [m.group().rstrip("\r") for m in islice(ROW_LINE.finditer(text, start, end), SAMPLE_ROWS)]
    if len(sample) < MIN_ROWS or len(sample[0]) > HEADER_CHARS:
        return None
    if NUMBERED_ROW.match(sample[0]) or STAMP.match(sample[0]) or not any(c.isalpha() for c in sample[0]):
        return None
    for separator in TABLE_SEPARATORS:
        columns = sample[0].count(separator)
        if columns == 0:
            continue
        if separator == "|" and sample[0].lstrip().startswith("|") and TABLE_RULE.match(sample[1]):
            return separator if all(row.count("|") >= columns for row in sample[2:5]) else None
        if _is_even(sample, separator):
            return separator
    return None


def rows_below(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """Yields the rows of what surely is a table: its first line names the columns, whatever it looks like. With only
    one column it yields lines."""
    stop = text.find("\n", start, end)
    first = text[start : stop if stop >= 0 else end]
    separator = separator_of(text, start, end) or max(TABLE_SEPARATORS, key=first.count)
    if separator not in first or len(first) > HEADER_CHARS:
        return line_blocks(text, start, end)
    return rows(text, start, end, separator)


def rows(text: str, start: int, end: int, separator: str) -> Iterator[TextChunk]:
    """Yields the rows of a table, in which quoted cells may hold line ends; the header is the first chunk."""
    spans = list(_quoted(text, start, end, separator)) if text.find('"', start, end) >= 0 else []
    spans = spans or [m.span() for m in ROW_LINE.finditer(text, start, end)]
    header = text[slice(*spans[0])].strip("\r\n")
    first = 2 if len(spans) > 1 and TABLE_RULE.match(text[slice(*spans[1])]) else 1
    yield TextChunk(spans[0][0], spans[first - 1][1])
    for number, (begin, until) in enumerate(spans[first:]):
        if until - begin <= MAX_CHUNK_CHARS:
            yield TextChunk(begin, until, header, "row", number, begin)
        else:
            yield from pieces_of(text, begin, until, header, "row", number, begin)


def cells(header: str, row: str) -> list[tuple[str, str]]:
    """Returns the values of a row by the names of their columns."""
    separator, names = _columns(header)
    return list(zip(names, _cells(row, separator), strict=False))


@lru_cache(16)
def _columns(header: str) -> tuple[str, list[str]]:
    """Returns the separator of a table's first row and the names in it."""
    separator = max(TABLE_SEPARATORS, key=header.count)
    return separator, _cells(header, separator)


def _cells(line: str, separator: str) -> list[str]:
    line = line.strip()
    if separator == "|" and line.startswith("|"):
        line = line.strip("|")
    if '"' in line:
        with suppress(csv.Error):
            return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
    return [cell.strip() for cell in line.split(separator)]


def _is_even(sample: Sequence[str], separator: str) -> bool:
    """Returns whether rows have as many cells as the first, quoted or not, and no name in it is a sentence."""
    plain = [row.count(separator) for row in sample]
    if sum(count == plain[0] for count in plain) < MIN_EVEN * len(plain):
        try:
            widths = [len(row) for row in csv.reader(sample, delimiter=separator)][:-1]
        except csv.Error:
            return False
        if len(widths) < MIN_ROWS - 1 or sum(width == widths[0] for width in widths) < MIN_EVEN * len(widths):
            return False
    names = _cells(sample[0], separator)
    if separator == ",":
        named = sum(bool(name) and len(name) <= 40 and not name.endswith((":", "{", "(", ".")) for name in names)
        spaced = sum(", " in QUOTED_CELL.sub("", row) for row in sample)
        return named == len(names) and (spaced < len(sample) / 2 or len(names) > 3)
    return sum(bool(name) for name in names) >= 2


def _quoted(text: str, start: int, end: int, separator: str) -> Iterator[Span]:
    """Yields rows as a CSV reader sees them; none if they do not make a table."""
    lines = text[start:end].splitlines(keepends=True)
    offsets = [start]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    found, widths, before = [], [], 0
    reader = csv.reader(lines, delimiter=separator)
    try:
        for row in reader:
            if row:
                found.append((offsets[before], offsets[reader.line_num]))
                widths.append(len(row))
            before = reader.line_num
    except csv.Error:
        return
    if found and sum(width == widths[0] for width in widths) >= MIN_EVEN * len(widths):
        for begin, until in found:
            while until > begin and text[until - 1] in "\r\n":
                until -= 1
            yield begin, until
