"""Scores chunks by the terms they share with a text: BM25, with the sources' labels, and terms that stand together."""

import numpy as np
from numpy.typing import NDArray

from gateway.relevance.corpus import Corpus, Hits, Scores
from gateway.relevance.numbering import Numbers, numbers_of
from gateway.relevance.words import PIECE_OF, Terms

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
    sought = numbers_of([(term, 0) for term in order])
    wanted, first = np.unique(sought, return_index=True)
    weight = np.array([(weights or {}).get(order[i], 1.0) for i in first])
    hits = corpus.find(wanted)
    share = np.where(corpus.kinds[hits.places] == PIECE_OF, PIECE_SHARE, 1.0)
    cells = hits.chunks * len(wanted) + hits.terms
    counts = np.bincount(cells, share, corpus.count * len(wanted)).reshape(corpus.count, len(wanted))
    held = counts > 0
    worth = rarity(held.sum(0), corpus.count) * weight
    length = np.maximum(1, corpus.lengths / max(1.0, float(corpus.lengths.mean())))
    scores = (counts * (K1 + 1) / (counts + (K1 * (1 - B + B * length))[:, None])) @ worth
    scores *= 1 - COVERAGE + COVERAGE * (held @ worth) / max(1e-9, float(worth.sum()))
    scores += TOGETHER_SHARE * _together(corpus, hits, worth, _follows(order, sought, wanted))
    in_labels = corpus.labels(wanted)
    of_labels = LABEL_SHARE * (in_labels @ (rarity(in_labels.sum(0), len(corpus.sources)) * weight))
    total: Scores = scores + of_labels[corpus.source_of]
    return total


def rarity(held: Numbers, of: int) -> NDArray[np.float64]:
    """What a term is worth that `held` of so many chunks hold (BM25's idf); 0 if none does."""
    return np.where(held > 0, np.log(1 + (of - held + 0.5) / (held + 0.5)), 0.0)


def _follows(order: list[str], sought: Numbers, wanted: Numbers) -> Numbers:
    """For each of the wanted terms, which of them follows it in the question (-1: none)."""
    rank = np.searchsorted(wanted, sought)
    follows = np.full(len(wanted), -1)
    follows[rank[:-1]] = rank[1:]
    return follows


def _together(corpus: Corpus, hits: Hits, worth: NDArray[np.float64], follows: Numbers) -> Scores:
    """What a chunk gains by terms that stand in it as they do in the question: names, phrases."""
    if len(hits.places) < 2:
        return np.zeros(corpus.count)
    a, b = slice(None, -1), slice(1, None)
    near = (hits.chunks[a] == hits.chunks[b]) & (hits.places[b] - hits.places[a] <= NEAR)
    near &= follows[hits.terms[a]] == hits.terms[b]
    pairs = np.unique(hits.chunks[a][near] * len(worth) + hits.terms[a][near])
    chunks, terms = pairs // len(worth), pairs % len(worth)
    return np.bincount(chunks, worth[terms] + worth[follows[terms]], corpus.count).astype(np.float64)
