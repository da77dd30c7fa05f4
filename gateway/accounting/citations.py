"""What an answer cites, read out of its text. What names no artifact that the model was sent, or no place of it, is
none: nothing is made up (guarantee §14.8)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.models.places import Places

CITED = re.compile(r"\[(art_[0-9a-f]{16}(?:-\d{1,4})?|step_\d{1,4}:[^\[\],\n]{1,120})(?:, ([^\[\]\n]{1,300}))?\]")
"""`[art_0123456789abcdef]`, or with a place: `[art_0123456789abcdef, page 12]`; or `[step_2:weather]` for a result of a
tool step of the turn."""
PASSAGE_CHARS = 500
"""Characters of a passage at most."""
MOST_PASSAGES = 8
"""Passages of one citation at most."""
MOST_CITATIONS = 200
"""Different citations of one answer at most: each costs a look at its artifact's places."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sent:
    """An artifact of which the model was sent the characters `spans` of the content.

    Attributes:
        summarized: it was sent a summary of it, in other words.
        original: the content is the original one, so that its characters can be told.
        excerpt: the content is parts of a large document (`models.regions`).
    """

    artifact_id: str
    source: str
    title: str | None
    content: str
    spans: Sequence[Span]
    summarized: bool = False
    original: bool = True
    excerpt: bool = False


@dataclass(frozen=True, slots=True)
class Citations:
    """The citations of an answer in its order, each once, as JSON-ready values; how many others were dropped."""

    found: list[dict[str, Any]]
    dropped: int


def citations_of(answer: str, sent: Callable[[str], Sequence[Sent]]) -> Citations:
    """The citations in a text.

    Args:
        sent: the artifacts of an id, or of a tool's name in a step, that stood in what was forwarded. Calls at once of
            one tool share a name: it stands for the results of all.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    places: dict[str, Places] = {}
    dropped = 0
    named = dict.fromkeys((match[1], (match[2] or "").strip()) for match in CITED.finditer(answer))
    for number, (name, place) in enumerate(named):
        before = len(found)
        known = False
        for artifact in sent(name) if number < MOST_CITATIONS else ():
            key = (artifact.artifact_id, place)
            known = known or key in found
            if key in found:
                continue
            if place and artifact.artifact_id not in places:
                places[artifact.artifact_id] = Places(artifact.content, excerpt=artifact.excerpt)
            within = places[artifact.artifact_id].find(place) if place else [(0, len(artifact.content))]
            citation = _citation(artifact, place, within) if within else None
            if citation is not None:
                found[key] = citation
        dropped += len(found) == before and not known
    return Citations(list(found.values()), dropped)


def _citation(artifact: Sent, place: str, within: Sequence[Span]) -> dict[str, Any] | None:
    """None if the model was sent nothing of that place."""
    passages = []
    for begin, until in ((max(s, low), min(e, high)) for s, e in artifact.spans for low, high in within):
        if begin >= until or not artifact.content[begin:until].strip():
            continue
        until = min(until, begin + PASSAGE_CHARS)
        at = (begin, until) if artifact.original else (None, None)
        passages.append({"start": at[0], "end": at[1], "text": artifact.content[begin:until]})
        if len(passages) == MOST_PASSAGES:
            break
    if not passages and not artifact.summarized:
        return None
    return {
        "artifact_id": artifact.artifact_id,
        "source": artifact.source,
        "title": artifact.title,
        "place": place or None,
        "passages": passages,
    }
