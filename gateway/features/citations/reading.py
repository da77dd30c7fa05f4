"""What an answer cites, read out of its text. What names no artifact that the model was sent, or no place of it, is
none: nothing is made up (guarantee §14.8)."""

import re
from collections import Counter
from collections.abc import Callable, Sequence, Set
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
STATEMENT_CHARS = 300
"""Characters before a citation that may be what rests on it."""
WORD = re.compile(r"\w{2,40}")
EQUAL = 1e-9
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
    named: dict[tuple[str, str], set[str]] = {}
    begin = 0
    for match in CITED.finditer(answer):
        said = _words(answer[max(begin, match.start() - STATEMENT_CHARS) : match.start()])
        named.setdefault((match[1], (match[2] or "").strip()), set()).update(said)
        begin = match.end() if said else begin
    for number, ((name, place), said) in enumerate(named.items()):
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
            citation = _citation(artifact, place, within, said) if within else None
            if citation is not None:
                found[key] = citation
        dropped += len(found) == before and not known
    return Citations(list(found.values()), dropped)


def _words(statement: str) -> set[str]:
    """The words that a statement may share with what it rests on: those of its last sentences."""
    return set(WORD.findall(statement.lower()))


def _citation(artifact: Sent, place: str, within: Sequence[Span], said: Set[str]) -> dict[str, Any] | None:
    """None if the model was sent nothing of that place.

    Args:
        said: words of what is said to rest on it.
    """
    passages = []
    for begin, until in ((max(s, low), min(e, high)) for s, e in artifact.spans for low, high in within):
        if begin >= until or not artifact.content[begin:until].strip():
            continue
        begin, until = _around(artifact.content, begin, until, said)
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


def _around(content: str, begin: int, until: int, said: Set[str]) -> Span:
    """The stretch of at most `PASSAGE_CHARS` that has most of the words, rare ones before others; the first one where
    none is there. It begins with a line, or with a word, if one begins near."""
    if until - begin <= PASSAGE_CHARS or not said:
        return begin, min(until, begin + PASSAGE_CHARS)
    found = [(m.start(), m[0].lower()) for m in WORD.finditer(content, begin, until) if m[0].lower() in said]
    worth = {word: 1 / count for word, count in Counter(word for _, word in found).items()}
    best, score, first = (begin, begin), 0.0, 0
    inside: Counter[str] = Counter()
    value = 0.0
    for last, (at, word) in enumerate(found):
        value += 0 if inside[word] else worth[word]
        inside[word] += 1
        while at + len(word) - found[first][0] > PASSAGE_CHARS:
            gone = found[first][1]
            inside[gone] -= 1
            value -= 0 if inside[gone] else worth[gone]
            first += 1
        if value > score + EQUAL:
            best, score = (found[first][0], found[last][0] + len(word)), value
    spare = PASSAGE_CHARS - (best[1] - best[0])
    start = max(begin, min(best[0] - spare // 2, until - PASSAGE_CHARS))
    line, gap = content.find("\n", start, best[0]), content.find(" ", start, best[0])
    start = start if start == begin else line + 1 if line >= 0 else gap + 1 if gap >= 0 else start
    return start, min(until, start + PASSAGE_CHARS)
