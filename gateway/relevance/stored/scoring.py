"""Which regions of large documents a question needs, by the rows of their indexes that have its terms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gateway.relevance.question import borrowed_terms
from gateway.relevance.stored.postings import SEGMENT_REGIONS, Bucket, bucket_of
from gateway.relevance.terms import Lexicon

MOST_TERMS = 24
"""Terms that are looked up: the heaviest. Each is a row for every eight million characters."""
READ_CHARS = 400_000
"""Characters that are read of all large documents of a conversation: twice as many as a large window holds."""
HEAD_REGIONS = 4
"""Regions of the beginning that are read of a document whose index is not finished."""

NONE_NAMED: Mapping[int, Sequence[int]] = MappingProxyType({})
Scores = NDArray[np.float64]
Found = Mapping[tuple[int, int], Bucket]
"""The buckets of one document's index, by segment and bucket."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """One document: how many regions it has, how many of them are indexed, and what was read of its index."""

    regions: int
    indexed: int
    found: Found


def wanted_terms(question: str, recent: Sequence[str]) -> dict[str, float]:
    """The terms that are looked up, with their weights, as `relevance.large` looks for them."""
    lexicon = Lexicon()
    terms: dict[str, float] = dict(borrowed_terms(question, recent, lexicon))
    terms |= {term: 1.0 for term, _ in lexicon.question(question)}
    return dict(sorted(terms.items(), key=lambda each: -each[1])[:MOST_TERMS])


def buckets_of(terms: Iterable[str]) -> list[int]:
    """The buckets that say where these terms are."""
    return sorted({bucket_of(term) for term in terms})


def best_regions(
    terms: Mapping[str, float], documents: Sequence[Indexed], most: int, named: Mapping[int, Sequence[int]] = NONE_NAMED
) -> list[list[int]]:
    """For each document the numbers of the regions that are read, in order: of all documents together those that share
    most words with the question, `most` at most. The first and the last of each are always among them, those that the
    question names by their places, and more of the beginning of one whose index is not finished.

    Args:
        named: regions that are named, by the document's number.
    """
    chosen = [
        {0, max(0, each.regions - 1), *named.get(number, ())} if each.regions else set()
        for number, each in enumerate(documents)
    ]
    for own, each in zip(chosen, documents, strict=True):
        if each.indexed < each.regions:
            own.update(range(min(HEAD_REGIONS, each.regions)))
    begins = np.cumsum([0, *(each.regions for each in documents)])
    scores = _scores(terms, documents)
    left = most - sum(map(len, chosen))
    for place in np.argsort(-scores, kind="stable")[: most + len(documents) * HEAD_REGIONS].tolist():
        if left <= 0 or scores[place] <= 0:
            break
        document = int(np.searchsorted(begins, place, side="right")) - 1
        number = place - int(begins[document])
        if number not in chosen[document]:
            chosen[document].add(number)
            left -= 1
    return [sorted(own) for own in chosen]


def matching(terms: Mapping[str, float], document: Indexed, most: int) -> list[int]:
    """The regions of one document that share words with a question, those first that share most."""
    scores = _scores(terms, [document])
    return [number for number in np.argsort(-scores, kind="stable")[:most].tolist() if scores[number] > 0]


def _scores(terms: Mapping[str, float], documents: Sequence[Indexed]) -> Scores:
    """Of all regions, one document after the other: the rarer terms count more, and repeats of one less and less."""
    total = sum(each.regions for each in documents)
    scores = np.zeros(total)
    indexed = sum(each.indexed for each in documents)
    for term, weight in terms.items():
        places, counts = _where(term, documents)
        if len(places):
            rarity = np.log1p((indexed - len(places) + 0.5) / (len(places) + 0.5))
            scores[places] += weight * rarity * counts / (counts + 1.0)
    return scores


def _where(term: str, documents: Sequence[Indexed]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    places, counts, begin, bucket = [], [], 0, bucket_of(term)
    for each in documents:
        for (segment, number), data in each.found.items():
            if number == bucket:
                posting = data.of(term)
                places.append(posting.regions + begin + segment * SEGMENT_REGIONS)
                counts.append(posting.counts)
        begin += each.regions
    if not places:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(places), np.concatenate(counts)
