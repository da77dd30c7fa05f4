"""Cuts JSON: each element of an array and each member of a large object is a record, however deep. A record that is too
long is cut between its members."""

import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # what the decoder itself reads strings with
from typing import Any, NamedTuple

from gateway.retrieval.chunks.chunk import MAX_CHARS, TARGET_CHARS, Kind, Span, TextChunk, bounded

DECODER = json.JSONDecoder(strict=False)
WHITE = re.compile(r"[ \t\r\n]*")
NEXT = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")


class RecordItem(NamedTuple):
    """An element or a member: `start` is where its name begins, `value` where its value does."""

    start: int
    value: int
    end: int
    is_flat: bool


def items_of(text: str, item: RecordItem) -> tuple[list[RecordItem], int | None]:
    """The elements or members of an array or object, as far as they are whole, and where it ends (None: nowhere)."""
    found: list[RecordItem] = []
    is_object = text[item.value] == "{"
    if not is_object and text[item.value] != "[":
        return found, None
    at = WHITE.match(text, item.value + 1).end()  # type: ignore[union-attr]
    while at < item.end and text[at] not in "]}":
        value = value_of_member(text, at) if is_object else at
        if value is None:
            return found, None
        try:
            decoded, until = DECODER.raw_decode(text, value)
        except (ValueError, RecursionError):
            return found, None
        found.append(RecordItem(at, value, until, not isinstance(decoded, dict | list)))
        at = WHITE.match(text, until).end()  # type: ignore[union-attr]
        if at < item.end and text[at] not in ",]}":
            return found, None
        at = NEXT.match(text, at).end()  # type: ignore[union-attr]
    return found, at + 1 if at < item.end else None


def values_of(text: str, at: int, end: int) -> tuple[list[RecordItem], int]:
    """Arrays and objects one after the other, and where they end."""
    found: list[RecordItem] = []
    after = at
    while True:
        at = NEXT.match(text, at, end).end()  # type: ignore[union-attr]  # it matches anywhere
        if at >= end or text[at] not in "{[":
            return found, after
        try:
            _, after_value = DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found, after
        found.append(RecordItem(at, at, after_value, False))
        at = after = after_value


def value_of_member(text: str, at: int) -> int | None:
    """Where the value of the member that begins there begins."""
    if text[at : at + 1] != '"':
        return None
    try:
        _, end = scanstring(text, at + 1, False)
    except ValueError:
        return None
    colon = COLON.match(text, end)
    return colon.end() if colon else None


def fields(text: str, origin: int) -> list[tuple[str, Any]]:
    """The values of the record that begins at `origin` by the keys that lead to them (`items price`), its own before
    nested ones. A name may come several times."""
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
"""Characters of a long record's beginning that stand above its later pieces."""
SMALL_HEAD = 100
"""Characters before the first record up to which they belong to it."""
FLAT_CHARS = TARGET_CHARS // 4
TINY_CHARS = 12
"""Elements that are no longer are gathered: numbers, words; `{}`."""
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
    """The chunks of the JSON values that stand one after the other from `start` on, and where what is none begins.

    Of a value that does not end, as tools cut them off, the elements that are whole are records.
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
    """Whether the first line is a whole value and another begins below it: then there is no need to look into it."""
    line_end = text.find("\n", start, min(end, start + LONGEST_LINE))
    if line_end < 0 or text[line_end + 1 : line_end + 2] not in ("{", "["):
        return False
    try:
        _, after = DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return False
    return text[after:line_end].isspace() or after == line_end


def _broken(text: str, opening: RecordItem, items: list[RecordItem]) -> tuple[list[TextChunk], int]:
    """The whole elements of an array or object that does not end; the array may be its last member."""
    at = opening.value
    for _ in range(MAX_LEVELS):
        if len(items) >= 2 and text[at] == "[":
            break
        after = NEXT.match(text, items[-1].end if items else at + 1).end()  # type: ignore[union-attr]
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
    """One value: its elements or members, if it is long."""
    if item.end - item.value <= MAX_CHARS or not levels:
        items = []
    elif items is None:
        items, _ = items_of(text, item)
    longest = max(items, key=lambda each: each.end - each.start, default=item)
    if len(items) < 2 and (longest is item or longest.end - longest.start <= MAX_CHARS):
        yield _ChunkCut(item.start, heading, "record", -1, item.value)
    elif text[item.value] == "[":
        yield _ChunkCut(item.start, heading)
        yield from _elements(text, items, heading, levels - 1)
    elif longest.end - longest.start > max(MAX_CHARS, MAJORITY * (item.end - item.value)):
        yield from _wrapper(text, item, items, longest, heading, levels)
    elif sum(not each.is_flat for each in items) > MAJORITY * len(items) and len(items) >= MANY_MEMBERS:
        yield _ChunkCut(item.start, heading)
        yield from _elements(text, items, heading, levels - 1)
    else:
        yield from _members(text, item, items, heading, -1, levels)


def _wrapper(
    text: str, item: RecordItem, items: list[RecordItem], longest: RecordItem, heading: str, levels: int
) -> Iterator[_ChunkCut]:
    """An object of which one member is nearly all: that one is cut, what stands around it stays together."""
    yield _ChunkCut(item.start, heading)
    yield from _value(text, longest, heading, levels - 1)
    after = next((each for each in items if each.start > longest.start), None)
    if after:
        yield _ChunkCut(after.start, heading)


def _elements(text: str, items: list[RecordItem], heading: str, levels: int) -> Iterator[_ChunkCut]:
    """Each element is a record; what is no array or object is gathered."""
    gathered = -1
    for number, item in enumerate(items):
        if item.end - item.start <= (FLAT_CHARS if item.is_flat else TINY_CHARS):
            if gathered < 0 or item.end - gathered > TARGET_CHARS:
                gathered = item.start
                yield _ChunkCut(item.start, heading, "record", number, item.value)
            continue
        gathered = -1
        if item.end - item.start <= MAX_CHARS:
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
    """A long record between its members; every later piece has what the record begins with above it."""
    yield _ChunkCut(item.start, heading, "record", number, item.value)
    below = f"{heading}\n{_head(text, item, items[0])}".strip("\n")
    begin, least = item.start, HEAD_CHARS
    for member in items:
        if member.end - member.start > MAX_CHARS and levels > 1 and not member.is_flat:
            above = f"{below} {_named(text, member)}".strip()
            for cut in _value(text, member, above, levels - 1):
                yield cut._replace(kind="record", ordinal=number, origin=item.value) if number >= 0 else cut
            begin = -1
        elif begin < 0 or (member.end - begin > TARGET_CHARS and member.start - begin > least):
            yield _ChunkCut(member.start, below, "record", number, item.value)
            begin, least = member.start, 0


def _head(text: str, item: RecordItem, first: RecordItem) -> str:
    """What a record begins with, up to a comma: there its names and numbers stand."""
    if first.end - item.start > HEAD_CHARS and text[first.value] == "[":
        return ""
    head = text[item.start : item.start + HEAD_CHARS]
    return " ".join(head[: head.rfind(",") + 1 or HEAD_CHARS].split())


def _named(text: str, member: RecordItem) -> str:
    return " ".join(text[member.start : member.value].split())[:HEAD_CHARS]


def _joined(text: str, found_cuts: Iterator[_ChunkCut], start: int, end: int) -> list[TextChunk]:
    """Chunks from where each begins to where the next one does; a short beginning belongs to the first record."""
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
        if until - at <= MAX_CHARS:
            until = at + len(text[at:until].rstrip())
            if until > at:
                found.append(_chunk((at, until), cut))
        else:
            found.extend(_chunk(piece, cut) for piece in bounded(text, at, until))
    return found


def _chunk(span: Span, cut: _ChunkCut) -> TextChunk:
    return TextChunk(*span, cut.heading, cut.kind, cut.ordinal, cut.origin)
