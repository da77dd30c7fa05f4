"""Which passages are worth a place in a model's space, and in which order they get it. Pure."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.models.relevance import Passage, Query, Source

MOST_WANTED = 256
"""Passages that one request has vectors made of: each costs time or money."""
MOST_LATER = 2000
"""Further ones, which are used if they are kept already, and may be made afterwards."""
BEST = 64
"""So many of the best by their words come first, with what stands beside them."""
LONGEST = 2000
QUESTION_CHARS = 1000
MARKS = re.compile(r"[{}\[\]\"<>|=;:_/\\\d\t]")
MOST_MARKS = 0.12
"""Share of signs beyond which a text is records or code, in which words say more than meaning does."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A text that is to get a vector: passage `number` of source `source`, or a query (-1). `digest` names the text,
    `held_by` the digest of the content that it is a part of (None: a part of the conversation)."""

    text: str
    digest: str
    held_by: str | None = None
    source: int = -1
    number: int = -1


def queries(query: Query) -> list[Wanted]:
    """The question first, then what else is sought."""
    texts = [query.question[-QUESTION_CHARS:], *(search[:QUESTION_CHARS] for search in query.searches)]
    return [Wanted(text, digest(text)) for text in texts if text.strip()]


def wanted(sources: Sequence[Source], found: Sequence[Sequence[Passage]]) -> list[Wanted]:
    """Passages of prose and chat: the best by their words with those beside them, then the others, latest first."""
    places = list(_prose(sources, found))
    at = {(s, n): i for i, (s, n) in enumerate(places)}
    best = sorted(range(len(places)), key=lambda i: (-found[places[i][0]][places[i][1]].score, i))[:BEST]
    order: dict[int, None] = {}
    for i in best:
        if found[places[i][0]][places[i][1]].score > 0:
            order[i] = None
            order |= dict.fromkeys(_beside(places, at, i))
    order |= dict.fromkeys(sorted(range(len(places)), key=lambda i: (-sources[places[i][0]].number, i)))
    held: dict[int, str] = {}
    made = []
    for i in list(order)[: MOST_WANTED + MOST_LATER]:
        s, n = places[i]
        source, passage = sources[s], found[s][n]
        if source.kind == "artifact" and s not in held:
            held[s] = digest(source.content)
        text = source.content[passage.start : passage.end].strip()[:LONGEST]
        made.append(Wanted(text, digest(text), held.get(s), s, n))
    return made


def digest(text: str) -> str:
    """Names a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def is_prose(text: str) -> bool:
    """Whether it is made of words, in sentences or lines of talk; not of records, code or figures."""
    return bool(text.strip()) and len(MARKS.findall(text)) <= max(3.0, MOST_MARKS * len(text))


def _prose(sources: Sequence[Source], found: Sequence[Sequence[Passage]]) -> Iterator[tuple[int, int]]:
    for s, (source, passages) in enumerate(zip(sources, found, strict=True)):
        for n, passage in enumerate(passages):
            if is_prose(source.content[passage.start : passage.end][:LONGEST]):
                yield s, n


def _beside(places: list[tuple[int, int]], at: dict[tuple[int, int], int], i: int) -> list[int]:
    """What stands next to a passage: in its source, or where its source is one passage, in the conversation."""
    s, n = places[i]
    near = [at[s, n + step] for step in (-1, 1) if (s, n + step) in at]
    return near or [i + step for step in (-1, 1) if 0 <= i + step < len(places)]
