"""Lossless compaction: JSON and CSV lose what no reader of them sees, nothing else is touched (contract §4 I5)."""

from gateway.artifacts.compact_csv import compact_csv
from gateway.artifacts.compact_json import compact_json


def compact(text: str) -> str:
    """The same value in fewer characters, or the text itself: equal when parsed as JSON, as JSON lines, or as a table
    of separated values. White space around it stays: a fence closes on a line of its own."""
    core = text.strip(" \t\r\n")
    if not core:
        return text
    shorter = compact_json(core) if core[0] in "{[" else compact_csv(core)
    if shorter is None or len(shorter) >= len(core):
        return text
    start = text.index(core[0])
    return f"{text[:start]}{shorter}{text[start + len(core) :]}"
