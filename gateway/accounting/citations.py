"""What an answer cites, read out of its text. What names no artifact that the model was sent, or no place of it, is
none: nothing is made up (guarantee §14.8)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.models.places import Places

CITED = re.compile(r"\[(art_[0-9a-f]{16}(?:-\d{1,4})?)(?:, ([^\[\]\n]{1,300}))?\]")
"""`[art_0123456789abcdef]`, or with a place: `[art_0123456789abcdef, page 12]`."""
PASSAGE_CHARS = 500
"""Characters of a passage at most."""
MOST_PASSAGES = 8
"""Passages of one citation at most."""
MOST_CITATIONS = 200
"""Different citations of one answer at most: each costs a look at its artifact's places."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sent:
    """An artifact of which the model was sent the characters `spans` of the content."""

    artifact_id: str
    source: str
    title: str | None
    content: str
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class Citations:
    """The citations of an answer in its order, each once, as JSON-ready values; how many others were dropped."""

    found: list[dict[str, Any]]
    dropped: int


def citations_of(answer: str, sent: Mapping[str, Sent]) -> Citations:
    """The citations in a text.

    Args:
        sent: by id, the artifacts that stood in what was forwarded.
    """
    found: list[dict[str, Any]] = []
    places: dict[str, Places] = {}
    dropped = 0
    named = dict.fromkeys((match[1], (match[2] or "").strip()) for match in CITED.finditer(answer))
    for number, (name, place) in enumerate(named):
        artifact = sent.get(name)
        citation = None
        if artifact is not None and number < MOST_CITATIONS:
            if place and name not in places:
                places[name] = Places(artifact.content)
            span = places[name].find(place) if place else (0, len(artifact.content))
            citation = _citation(artifact, place, span) if span is not None else None
        if citation is None:
            dropped += 1
        else:
            found.append(citation)
    return Citations(found, dropped)


def _citation(artifact: Sent, place: str, span: Span) -> dict[str, Any] | None:
    """None if the model was sent nothing of that place."""
    passages = []
    for start, end in artifact.spans:
        begin, until = max(start, span[0]), min(end, span[1])
        if begin >= until or not artifact.content[begin:until].strip():
            continue
        until = min(until, begin + PASSAGE_CHARS)
        passages.append({"start": begin, "end": until, "text": artifact.content[begin:until]})
        if len(passages) == MOST_PASSAGES:
            break
    if not passages:
        return None
    return {
        "artifact_id": artifact.artifact_id,
        "source": artifact.source,
        "title": artifact.title,
        "place": place or None,
        "passages": passages,
    }
