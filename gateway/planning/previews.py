"""What a planner sees of an artifact: its head, its tail, and how it is built."""

import re
from collections.abc import Iterator

from gateway import jsons
from gateway.models.artifacts import Artifact

HEAD_SHARE = 0.65
GAP = "\n[…]\n"
PARSED_CHARS = 400_000
LOOKED_AT = 60_000
MOST_NAMES = 16
MOST_COLUMN_WORDS = 6
HEADING = re.compile(r"^(?:#{1,4} +(?P<markdown>\S.{0,70})|<h[1-4][^>]*>(?P<html>[^<]{1,70}))", re.MULTILINE)
DEFINITION = re.compile(
    r"^[ \t]*(?:export +|public +|private +|async +|static +)*(?:def|class|function|func|fn|interface|struct|impl)"
    r"\s+\(?(\w{1,60})",
    re.MULTILINE,
)
STAMP = re.compile(
    r"^\W{0,2}\d{2,4}[-/.]\d{2}[-/.]\d{2}[T ]\d{2}:\d{2}|^\w{3} +\d{1,2} \d{2}:\d{2}:\d{2}", re.MULTILINE
)


def preview(artifact: Artifact, chars: int) -> str:
    """At most about `chars` characters: the whole text if it is that short, else its head and its tail."""
    text = artifact.content
    if len(text) <= chars:
        return text
    head = int(chars * HEAD_SHARE)
    return text[:head] + GAP + text[len(text) - (chars - head) :]


def outline(text: str) -> str:
    """One line on how a text is built: records and their fields, columns, headings, definitions; empty for prose."""
    return _json(text) or _table(text) or _named(text) or _log(text)


def _json(text: str) -> str:
    if text.lstrip()[:1] not in ("{", "[") or len(text) > PARSED_CHARS:
        return ""
    try:
        value = jsons.loads(text)
    except jsons.JSONDecodeError:
        return ""
    if isinstance(value, list):
        first = next((item for item in value if isinstance(item, dict)), {})
        return f"JSON array of {len(value):,} elements" + _names(", each with", first)
    if isinstance(value, dict):
        lists = [f"{key} ({len(item):,} elements)" for key, item in value.items() if isinstance(item, list)]
        return "JSON object" + _names(" with", value) + _names("; lists:", lists)
    return ""


def _table(text: str) -> str:
    first, newline, rest = text[:LOOKED_AT].partition("\n")
    for separator, name in ((",", "CSV"), ("\t", "TSV"), ("|", "table"), (";", "CSV")):
        columns = first.count(separator)
        rows = [row for row in rest.split("\n", 6)[:6] if row.strip()]
        is_table = newline and columns >= 2 and len(first) < 1000 and len(rows) >= 3
        if is_table and all(row.count(separator) >= columns for row in rows[:-1]):
            names = [part.strip(' "') for part in first.split(separator)]
            if first.rstrip().endswith(".") or max(len(name.split()) for name in names) > MOST_COLUMN_WORDS:
                continue  # sentences with commas
            return f"{name}, about {text.count(chr(10)):,} rows" + _names("; columns:", filter(None, names))
    return ""


def _named(text: str) -> str:
    looked = text[:LOOKED_AT]
    headings = [(m["markdown"] or m["html"]).strip() for m in HEADING.finditer(looked)]
    if len(headings) >= 2:
        return "headings:" + _names("", headings)
    definitions = DEFINITION.findall(looked)
    return "code that defines" + _names("", definitions) if len(definitions) >= 2 else ""


def _log(text: str) -> str:
    looked = text[:LOOKED_AT]
    stamps = len(STAMP.findall(looked))
    return f"log, about {text.count(chr(10)) + 1:,} lines" if stamps >= 3 and stamps > looked.count("\n") / 4 else ""


def _names(before: str, names: Iterator[str] | list[str] | dict[str, object]) -> str:
    found = [" ".join(str(name).split())[:70] for name in names]
    if not found:
        return ""
    more = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
    return f"{before} {', '.join(found[:MOST_NAMES])}{more}"
