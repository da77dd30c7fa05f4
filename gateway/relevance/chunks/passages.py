"""Cuts a text into passages that respect its structure: records, rows, log lines, headings, paragraphs."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

TARGET_CHARS = 700
MAX_CHARS = 1400
BLANK = re.compile(r"\n[ \t]*\n")
SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n")
DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Characters `start` to `end` of a text. `heading` (a table's first row) has to stand above it to be understood."""

    start: int
    end: int
    heading: str = ""


def passages(text: str) -> list[Chunk]:
    """Chunks in order, without overlap; together they are the whole text but for white space between them."""
    spans = _json_records(text) or _lines(text) or _paragraphs(text)
    heading = header_of(text)
    return [Chunk(start, end, heading) for start, end in _bounded(text, spans) if text[start:end].strip()]


def header_of(text: str) -> str:
    """The first row of a text that looks like a table of separated values: no row is understood without it."""
    first, newline, rest = text.partition("\n")
    for separator in (",", "\t", ";", "|"):
        columns = first.count(separator)
        if newline and columns >= 1 and len(first) < 1000:
            rows = [row for row in rest.split("\n", 12)[:12] if row.strip()]
            if len(rows) >= 3 and all(row.count(separator) >= columns for row in rows[:-1]):
                return first
    return ""


def _json_records(text: str) -> list[tuple[int, int]]:
    """Elements of the outermost array, or of the first array that is a member of the outermost object."""
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] not in ("[", "{"):
        return []
    opening = start
    if text[start] == "{":
        match = re.compile(r'"[^"\n]*"\s*:\s*\[').search(text, start)
        if match is None or match.start() > start + 2000:
            return _lines(text) if "\n" in text else []
        opening = match.end() - 1
    spans, at = [], opening + 1
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text) or text[at] == "]":
            break
        try:
            _, end = DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        spans.append((at, end))
        at = end
    if len(spans) < 2:
        return []
    starts = [start for start, _ in spans]
    if opening < 400:
        starts[0] = 0
    # What stands between two records, a comma, belongs to the first of them; what closes the array to the last.
    records = [(start, start + len(text[start:end].rstrip())) for start, end in pairwise([*starts, len(text)])]
    return records if opening < 400 else [*_paragraphs(text[: starts[0]]), *records]


def _lines(text: str) -> list[tuple[int, int]]:
    """Tables and logs: one line each, lines that are indented belong to the one before."""
    lines = [(m.start(), m.end()) for m in re.finditer(r"[^\n]+", text)]
    if len(lines) < 8:
        return []
    average = sum(end - start for start, end in lines) / len(lines)
    blanks = len(BLANK.findall(text))
    if average > 400 or blanks > len(lines) / 8:
        return []
    spans: list[tuple[int, int]] = []
    for start, end in lines:
        if spans and text[start] in " \t" and end - spans[-1][0] < MAX_CHARS:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans if len(spans) >= 4 else []


def _paragraphs(text: str) -> list[tuple[int, int]]:
    """Paragraphs gathered up to the target size; a heading begins a new passage."""
    spans: list[tuple[int, int]] = []
    for start, end in _split(text, BLANK):
        heading = text[start : start + 6].lstrip().startswith("#")
        small = spans and end - spans[-1][0] <= TARGET_CHARS
        if spans and small and not heading:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def _split(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    at = 0
    for match in pattern.finditer(text):
        if text[at : match.start()].strip():
            yield at, match.start()
        at = match.end()
    if text[at:].strip():
        yield at, len(text)


def _bounded(text: str, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Splits passages that are too long at sentences, and a sentence that still is at the limit."""
    for start, end in spans:
        if end - start <= MAX_CHARS:
            yield start, end
            continue
        piece: tuple[int, int] | None = None
        for sentence_start, sentence_end in _split(text[start:end], SENTENCE):
            for at in range(start + sentence_start, start + sentence_end, MAX_CHARS):
                until = min(at + MAX_CHARS, start + sentence_end)
                if piece and until - piece[0] <= TARGET_CHARS:
                    piece = (piece[0], until)
                    continue
                if piece:
                    yield piece
                piece = (at, until)
        if piece:
            yield piece
