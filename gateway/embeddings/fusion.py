"""Ranks by words and by meaning, fused by reciprocal rank (contract §5). Pure."""

from collections.abc import Sequence
from dataclasses import replace

from gateway.embeddings.wanted import Wanted
from gateway.models.embedding import Vector, similarities
from gateway.models.relevance import Passage

K = 60.0
"""Reciprocal rank fusion's usual constant: how little the very first ranks differ."""
MOST_BY_MEANING = 16
"""How many passages bear on a question that shares no word with any of them."""
Ranked = list[list[Passage]]


def fused(found: Ranked, places: Sequence[Wanted], vectors: Sequence[Vector], sought: Sequence[Vector]) -> Ranked:
    """The passages with new scores for those that have a vector.

    These share out among themselves the scores that their words earned them, in the order of the fused ranks: so they
    stay comparable with all passages that have none. One whose words earn nothing may so come before one with few.

    Args:
        places, vectors: the passages that have a vector, and it.
        sought: the question's, then those of further searches, which together weigh no more than it.
    """
    if len(places) < 2 or not sought:
        return found
    scores = [found[place.source][place.number].score for place in places]
    total = [1.0 / (K + rank) for rank in ranks(scores)]
    share = 1.0 / max(1, len(sought) - 1)
    for number, query in enumerate(sought):
        weight = 1.0 if number == 0 else share
        for at, rank in enumerate(ranks(similarities(query, vectors))):
            total[at] += weight / (K + rank)
    order = sorted(range(len(places)), key=lambda at: (-total[at], -scores[at], at))
    result = [list(passages) for passages in found]
    for at, score in zip(order, _worths(scores), strict=True):
        place = places[at]
        result[place.source][place.number] = replace(found[place.source][place.number], score=score)
    return result


def _worths(scores: Sequence[float]) -> list[float]:
    """The scores, best first. Where no passage's words earned anything, nearness of meaning earns a little."""
    if any(scores):
        return sorted(scores, reverse=True)
    return [1.0 / (K + place) if place < MOST_BY_MEANING else 0.0 for place in range(len(scores))]


def ranks(scores: Sequence[float]) -> list[int]:
    """The place of each score among all, best first; equal ones share the last of their places, so that those whose
    words say nothing are all last."""
    order = sorted(range(len(scores)), key=lambda at: -scores[at])
    found = [0] * len(scores)
    last = len(order)
    for position in range(len(order) - 1, -1, -1):
        at = order[position]
        if position + 1 < len(order) and scores[at] != scores[order[position + 1]]:
            last = position + 1
        found[at] = last
    return found
