"""Finds the marked parts of a page and makes them anew."""

import re
from pathlib import Path

from tests.reference import tables

DOCS = Path(__file__).parents[2] / "docs"
MARKED = re.compile(r"(<!-- made by make docs: (\w+) ?([\w./ -]*?) -->\n).*?(<!-- end -->)", re.DOTALL)
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PAGES = sorted(page for page in DOCS.glob("*.md") if MARKED.search(page.read_text()))
"""Pages that have such parts."""


def made_anew(text: str) -> str:
    """A page with its marked parts as the code gives them. Raises AttributeError: a mark names no table."""
    return MARKED.sub(lambda part: f"{part[1]}{getattr(tables, part[2])(*part[3].split())}\n{part[4]}", text)


def words_by_hand(text: str) -> int:
    """The words of a page outside its marked parts and its blocks of code."""
    return len(CODE.sub("", MARKED.sub("", text)).split())
