"""Scores chunks by the terms they share with a text: BM25, with the sources' labels, and terms that stand together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.relevance.corpus import Corpus, Hits, Scores
from gateway.relevance.term_ids import Numbers
from gateway.relevance.terms import PIECE_OF, Terms

# Several rankings become one by reciprocal rank: what any of them puts first comes early, whatever its scores mean.


DAMPING = 6
"""How slowly worth falls with rank: what one ranking puts first and no other names stands beside the eighth of two."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Scores of all chunks by one way of looking, 0 for those that it says nothing of, and what it counts."""

    scores: Scores
    weight: float = 1.0


def fused(rankings: Sequence[Ranking], count: int) -> Scores:
    """Sum of weight / (DAMPING + rank) over the rankings that name a chunk, 0 for chunks that none names; equal scores
    have equal ranks."""
    total = np.zeros(count)
    for ranking in rankings:
        named = ranking.scores > 0
        better = -np.sort(-ranking.scores[named])
        rank = 1 + np.searchsorted(-better, -ranking.scores[named], "left")
        total[named] += ranking.weight / (DAMPING + rank)
    return total


K1, B = 1.2, 0.6
MOST_TERMS = 64
LABEL_SHARE = 0.3
PIECE_SHARE = 0.6
TOGETHER_SHARE = 0.5
NEAR = 4
"""Terms within which two terms that stand side by side in the question stand together in a chunk."""
COVERAGE = 0.5


def lexical(corpus: Corpus, terms: Terms, weights: dict[str, float] | None = None) -> Scores:
    """A score for each chunk, 0 where neither it nor its source's label holds any of the terms.

    Args:
        terms: those sought, in order; only the first `MOST_TERMS` different ones count.
        weights: of terms, 1 for those that are not in it.
    """
    scores = np.zeros(corpus.count)
    order = list(dict.fromkeys(term for term, _ in terms))[:MOST_TERMS]
    if not order or not corpus.count:
        return scores
    weight = np.array([(weights or {}).get(term, 1.0) for term in order])
    hits = corpus.seek(order)
    share = np.where(corpus.kinds[hits.places] == PIECE_OF, PIECE_SHARE, 1.0)
    cells = hits.chunks * len(order) + hits.terms
    counts = np.bincount(cells, share, corpus.count * len(order)).reshape(corpus.count, len(order))
    held = counts > 0
    worth = rarity(held.sum(0), corpus.count) * weight
    length = np.maximum(1, corpus.lengths / max(1.0, float(corpus.lengths.mean())))
    scores = _product(counts * (K1 + 1) / (counts + (K1 * (1 - B + B * length))[:, None]), worth)
    scores *= 1 - COVERAGE + COVERAGE * _product(held, worth) / max(1e-9, float(worth.sum()))
    scores += TOGETHER_SHARE * _together(corpus, hits, worth)
    in_labels = corpus.labels(order)
    of_labels = LABEL_SHARE * _product(in_labels, rarity(in_labels.sum(0), len(corpus.sources)) * weight)
    total: Scores = scores + of_labels[corpus.source_of]
    return total


def _product(matrix: NDArray[Any], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrix times vector. Libraries of linear algebra add in an order that depends on where memory happens to lie: the
    same request would then be answered otherwise in another process."""
    found: NDArray[np.float64] = np.add.reduce(matrix * vector, axis=1)
    return found


def rarity(held: Numbers, of: int) -> NDArray[np.float64]:
    """What a term is worth that `held` of so many chunks hold (BM25's idf); 0 if none does."""
    return np.where(held > 0, np.log(1 + (of - held + 0.5) / (held + 0.5)), 0.0)


def _together(corpus: Corpus, hits: Hits, worth: NDArray[np.float64]) -> Scores:
    """What a chunk gains by terms that stand in it side by side as they do in the question: names, phrases."""
    if len(hits.places) < 2:
        return np.zeros(corpus.count)
    a, b = slice(None, -1), slice(1, None)
    near = (hits.chunks[a] == hits.chunks[b]) & (hits.places[b] - hits.places[a] <= NEAR)
    near &= hits.terms[a] + 1 == hits.terms[b]
    pairs = np.unique(hits.chunks[a][near] * len(worth) + hits.terms[a][near])
    chunks, terms = pairs // len(worth), pairs % len(worth)
    return np.bincount(chunks, worth[terms] + worth[terms + 1], corpus.count).astype(np.float64)
