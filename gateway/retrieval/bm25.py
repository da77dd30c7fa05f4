"""Scores chunks by the terms they share with a question (BM25), and fuses several such rankings into one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.retrieval.corpus import Scores, SourceCorpus, TermHits
from gateway.retrieval.term_ids import Numbers
from gateway.retrieval.terms import PIECE_OF, PLAIN, Terms

K1, B = 1.2, 0.6
"""BM25's saturation and length normalisation, in the range that its authors recommend (Robertson and Zaragoza, 2009: k1
1.2 to 2, b 0.5 to 0.8)."""
MAX_TERMS = 64
"""Different terms of a question that are looked up; bounds the time of a question that is itself a document."""
LABEL_SHARE = 0.3
"""Weight of a term in the label of a source (a tool's arguments, a title), as a fraction of one in the text. Tuned (ADR
11)."""
PIECE_SHARE = 0.6
"""Weight of `user` in `user_id`, as a fraction of the word `user` alone. Tuned (ADR 11)."""
TOGETHER_SHARE = 0.5
"""Weight of two terms that stand side by side in question and chunk, as a fraction of the two alone. Tuned (ADR 11)."""
OTHER_WORDS = 0.5
"""What an ordinary word of a question that no chunk holds says, as a fraction of one that a single chunk would hold."""
NEAR = 4
"""Terms within which two terms of a chunk stand side by side: a word or two may come between them."""
COVERAGE = 0.5
"""Fraction of a score that grows with how many of the question's terms the chunk holds. Tuned (ADR 11)."""


def lexical(corpus: SourceCorpus, terms: Terms, weights: Mapping[str, float] | None = None) -> Scores:
    """A score for each chunk, 0 where neither it nor its source's label holds any of the terms.

    Args:
        terms: the terms to look up, in order; only the first `MAX_TERMS` different ones count.
        weights: of terms; 1 for those that are not in it.
    """
    order = list(dict.fromkeys(term for term, _ in terms))[:MAX_TERMS]
    if not order or not corpus.count:
        return np.zeros(corpus.count)
    weight = np.array([(weights or {}).get(term, 1.0) for term in order])
    hits = corpus.seek(order)
    share = np.where(corpus.kinds[hits.places] == PIECE_OF, PIECE_SHARE, 1.0)
    cells = hits.chunks * len(order) + hits.terms
    counts = np.bincount(cells, share, corpus.count * len(order)).reshape(corpus.count, len(order))
    held = counts > 0
    worth = rarity(held.sum(0), corpus.count) * weight
    length = corpus.lengths / max(1.0, float(corpus.lengths.mean()))
    scores = _product(saturated(counts, length[:, None]), worth)
    scores *= 1 - COVERAGE + COVERAGE * _product(held, worth) / max(1e-9, float(worth.sum()))
    scores += TOGETHER_SHARE * _together(corpus, hits, worth)
    in_labels = corpus.labels(order)
    of_labels = LABEL_SHARE * _product(in_labels, rarity(in_labels.sum(0), len(corpus.sources)) * weight)
    total: Scores = scores + of_labels[corpus.source_of]
    return total


def share_held(corpus: SourceCorpus, terms: Terms, *, labels: bool = True) -> Scores:
    """For each chunk how much of what the terms say it or its source's label holds, from 0 to 1: a rare term says more
    than a common one. What no chunk holds says the most if it names something; an ordinary word may stand there as
    another."""
    kinds = dict(reversed(terms))
    order = list(dict.fromkeys(term for term, _ in terms))[:MAX_TERMS]
    if not order or not corpus.count:
        return np.zeros(corpus.count)
    hits = corpus.seek(order)
    held = np.zeros((corpus.count, len(order)), bool)
    held[hits.chunks, hits.terms] = True
    holders = held.sum(0)
    worth = np.log(1 + (corpus.count - holders + 0.5) / (holders + 0.5))
    ordinary = np.array([kinds[term] in (PLAIN, PIECE_OF) for term in order])
    worth[(holders == 0) & ordinary] *= OTHER_WORDS
    if labels:
        held |= corpus.labels(order)[corpus.source_of]
    return _product(held, worth) / float(worth.sum())


def saturated(counts: NDArray[Any], length: NDArray[np.float64]) -> NDArray[np.float64]:
    """BM25's term frequency. `length` is the chunk's, as a multiple of the mean; short chunks have no advantage."""
    result: NDArray[np.float64] = counts * (K1 + 1) / (counts + K1 * (1 - B + B * np.maximum(1, length)))
    return result


def rarity(held: Numbers, of: int) -> NDArray[np.float64]:
    """BM25's inverse document frequency of terms that `held` of so many chunks hold; 0 if none does."""
    return np.where(held > 0, np.log(1 + (of - held + 0.5) / (held + 0.5)), 0.0)


def _product(matrix: NDArray[Any], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrix times vector. A linear algebra library adds in an order that depends on where memory happens to lie, and
    the same request would be answered differently in another process."""
    result: NDArray[np.float64] = np.add.reduce(matrix * vector, axis=1)
    return result


def _together(corpus: SourceCorpus, hits: TermHits, worth: NDArray[np.float64]) -> Scores:
    """For each chunk the worth of the pairs of terms that stand side by side in it as they do in the question."""
    if len(hits.places) < 2:
        return np.zeros(corpus.count)
    a, b = slice(None, -1), slice(1, None)
    near = (hits.chunks[a] == hits.chunks[b]) & (hits.places[b] - hits.places[a] <= NEAR)
    near &= hits.terms[a] + 1 == hits.terms[b]
    pairs = np.unique(hits.chunks[a][near] * len(worth) + hits.terms[a][near])
    chunks, terms = pairs // len(worth), pairs % len(worth)
    return np.bincount(chunks, worth[terms] + worth[terms + 1], corpus.count).astype(np.float64)


DAMPING = 6
"""Constant of reciprocal rank fusion, in ranks: the best chunk of one ranking alone equals the eighth of two. The usual
60 is meant for lists of documents; here a few chunks fill the budget. Tuned (ADR 11)."""


@dataclass(frozen=True, slots=True, eq=False)
class TermRanking:
    """Scores of all chunks by one criterion, 0 for those that it does not rank, and the weight of the criterion."""

    scores: Scores
    weight: float = 1.0
    calls: bool = False
    """What is ranked is what the question asks for: it holds what is named there, or stands where it points."""


def fuse(rankings: Sequence[TermRanking], count: int) -> Scores:
    """Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): the sum of weight / (DAMPING + rank) over the
    rankings that rank a chunk. Equal scores have equal ranks."""
    total = np.zeros(count)
    for ranking in rankings:
        ranked = ranking.scores > 0
        better = np.sort(-ranking.scores[ranked])
        rank = 1 + np.searchsorted(better, -ranking.scores[ranked], "left")
        total[ranked] += ranking.weight / (DAMPING + rank)
    return total
