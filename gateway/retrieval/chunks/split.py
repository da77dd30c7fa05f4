"""Cuts a text into chunks along its own structure: records, rows, lines, blocks of code, paragraphs."""

import re
from collections.abc import Iterator
from typing import Any

from gateway.core.types.places import is_marked
from gateway.retrieval.chunks import code, marked, prose, tables, yamls
from gateway.retrieval.chunks import json_records as records
from gateway.retrieval.chunks.chunk import MAX_CHUNKS, TextChunk, gathered, trimmed

FIRST_OF_TEXT = re.compile(r"[ \t]*[\[{]")
FIRST_OF_LINE = re.compile(r"\n[ \t]*[\[{]")
BEFORE_VALUE = re.compile(r"[\[{](?=[ \t\r\n]*[\"\[{])")
MIN_JSON = 800
"""Characters of JSON between other text from which it is cut as records."""
MAX_TRIES = 6
"""Places in one text at which JSON is tried: each costs a look at the rest of the text."""


def passages(text: str) -> list[TextChunk]:
    """Chunks in order, without overlap, none longer than `MAX_CHARS`; only white space is in none of them. The time is
    linear in the text, whatever it holds (guarantee §7). Very many tiny chunks are joined (`gathered`). None crosses
    a place's marker (guarantee §14.2)."""
    if is_marked(text):
        return list(_of_sections(text))
    return gathered(list(_chunks(text, 0, len(text))))


def _chunks(text: str, start: int, end: int) -> Iterator[TextChunk]:
    for begin, until, cut in _stretches(text, start, end):
        yield from cut if cut is not None else _of_one_kind(text, begin, until)


def _of_sections(text: str) -> Iterator[TextChunk]:
    """The chunks between markers, each cut as what it is."""
    for section in marked.sections(text):
        begin, until = trimmed(text, section.body, section.end)
        begin = max(section.body, text.rfind("\n", section.body, begin) + 1)
        most = max(1, MAX_CHUNKS * (section.end - section.start) // len(text))
        cut = list(_of_section(text, begin, until, section)) if begin < until else []
        yield from marked.placed(section, gathered(cut, most) if most < len(cut) else cut)


def _of_section(text: str, start: int, end: int, section: marked.MarkedSection) -> Iterator[TextChunk]:
    if section.kind in marked.ROWS:
        return tables.rows_below(text, start, end)
    if section.kind == "file" and section.ending in marked.CODE:
        return code.blocks(text, start, end)
    if section.kind == "file" and section.ending in marked.YAML:
        return yamls.blocks(text, start, end)
    if section.kind == "page" and marked.is_wrapped(text, start, end):
        return prose.prose(text, start, end)
    return _chunks(text, start, end)


def fields_of(content: str, chunk: TextChunk) -> list[tuple[str, Any]]:
    """The values of a record or row by the names of their fields (nested ones: `items price`); empty for any other."""
    if chunk.kind == "row":
        return list(tables.cells(marked.split_heading(chunk.heading)[1], content[chunk.start : chunk.end]))
    return records.fields(content, chunk.origin) if chunk.kind == "record" and chunk.origin >= 0 else []


def _stretches(text: str, start: int, end: int) -> Iterator[tuple[int, int, list[TextChunk] | None]]:
    """JSON, with the chunks that it was cut into, and what stands before and after it."""
    first, end = trimmed(text, start, end)
    if first < end and text[first] in "{[":
        cut, after = records.records(text, first, end)
        if cut:
            yield first, after, cut
            start = after
    at = start
    for _ in range(MAX_TRIES):
        opening = _opening(text, at, end)
        if opening is None or end - opening <= MIN_JSON:
            break
        at = opening + 1
        cut, after = records.records(text, opening, end)
        if cut and after - opening > MIN_JSON:
            yield *trimmed(text, start, opening), None
            yield opening, after, cut
            start = at = after
    begin, until = trimmed(text, start, end)
    if begin < until:
        yield max(start, text.rfind("\n", 0, begin) + 1), until, None  # its first line is indented as others are


def _opening(text: str, start: int, end: int) -> int | None:
    """Where JSON may begin: at a bracket that begins a line or stands before a value. Two searches are far faster here
    than one for either."""
    if text.find("{", start, end) < 0 and text.find("[", start, end) < 0:
        return None  # most logs and prose
    before = BEFORE_VALUE.search(text, start, end)
    until = before.start() if before else end
    if start == 0 and (first := FIRST_OF_TEXT.match(text, 0, until)):
        return first.end() - 1
    first = FIRST_OF_LINE.search(text, max(0, start - 1), until)
    return first.end() - 1 if first else before.start() if before else None


def _of_one_kind(text: str, start: int, end: int) -> Iterator[TextChunk]:
    if start >= end:
        return iter(())
    if prose.is_hypertext(text, start, end):
        return prose.blocks(text, start, end)
    separator = tables.separator_of(text, start, end)
    if separator is not None:
        return tables.rows(text, start, end, separator)
    if (text.find("- ", start, end) >= 0 or text.startswith("---", start)) and yamls.is_yaml(text, start, end):
        return yamls.blocks(text, start, end)
    if code.is_code(text, start, end):
        return code.blocks(text, start, end)
    if tables.is_lines(text, start, end):
        return tables.blocks(text, start, end)
    return prose.prose(text, start, end)
