"""A stretch of a text that is understood by itself, or with its heading above it."""

from typing import Literal, NamedTuple

TARGET_CHARS = 700
"""Prose is gathered up to this length."""
MAX_CHARS = 1400
"""Nothing is longer."""

Kind = Literal["record", "row", "line", "code", "prose"]


class Chunk(NamedTuple):
    """Characters `start` to `end` of a text.

    `heading` has to stand above it to be understood: a table's first row, the headings of a section, what a long record
    begins with. Records, rows and lines are numbered from 0 by `ordinal` (-1: is none of several), and pieces of one
    record have its number; `origin` is where that record begins.
    """

    start: int
    end: int
    heading: str = ""
    kind: Kind = "prose"
    ordinal: int = -1
    origin: int = -1
