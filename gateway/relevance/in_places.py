"""Answers questions that name a place of a document: `on page 12`, `slide 3`, `the sheet Sales`, `a.py, line 40`
(guarantee §14.2)."""

import re

import numpy as np

from gateway.models.places import MARKER, NUMBERED, SHEET, after_markers, is_marked
from gateway.relevance.chunks.marked import split_heading
from gateway.relevance.corpus import Corpus, Scores

NUMBER = re.compile(rf"\b({'|'.join(sorted(NUMBERED))})s?\s+(?:number\s+|no\.?\s*|#\s*)?(\d{{1,6}})\b", re.IGNORECASE)
LEAST_NAME = 3
"""Characters of a name below which it may stand in a question by chance."""
MOST_NUMBERS = 20
"""Numbers of places in one question that are looked for."""


def place_scores(corpus: Corpus, question: str) -> Scores | None:
    """For each chunk how many of the places that the question names it is of; None if there is none."""
    numbered = {(kind.lower(), int(number)) for kind, number in NUMBER.findall(question)[:MOST_NUMBERS]}
    asked = question.lower()
    scores = np.zeros(corpus.count)
    for source, index in enumerate(corpus.indexes):
        content = corpus.sources[source].content
        if corpus.sources[source].kind == "turn" or not is_marked(content):
            continue
        known: dict[str, int] = {}
        above: dict[str, str] = {"": ""}
        for number, chunk in enumerate(index.chunks, int(corpus.begins[source])):
            if chunk.heading not in above:
                above[chunk.heading] = f"{split_heading(chunk.heading)[0]}\n"
            markers = above[chunk.heading]
            if content[chunk.start] == "[":
                markers += content[chunk.start : after_markers(content, chunk.start, chunk.end)]
            if markers and markers not in known:
                known[markers] = sum(_is_named(m[1], m[2], asked, numbered) for m in MARKER.finditer(markers))
            scores[number] = known.get(markers, 0)
    return scores if scores.any() else None


def _is_named(kind: str, name: str, asked: str, numbered: set[tuple[str, int]]) -> bool:
    if kind in NUMBERED:
        return name.isdigit() and (kind, int(name)) in numbered
    sheet = SHEET.match(name) if kind == "sheet" else None
    own = (sheet[1] if sheet else name.rpartition("/")[2]).lower()
    if len(own) < LEAST_NAME:
        return f"{kind} {own}" in asked
    return _holds_word(asked, own)


def _holds_word(text: str, word: str) -> bool:
    """Whether it stands there by itself. Ten thousand names are no ten thousand patterns."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return True
        at = text.find(word, end)
    return False
