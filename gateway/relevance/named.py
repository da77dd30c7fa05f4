"""Passages of what a question names and few texts hold: the record with that identifier or name, all of its pieces."""

import numpy as np

from gateway.relevance.chunks.chunk import Chunk
from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.lexical import lexical, rarity
from gateway.relevance.words import IDENTIFIER, NAME, Terms

MOST_HOLDERS = 12
"""Chunks that may hold an identifier or a name for it to say which record is meant."""
OTHER_PIECE = 0.5
"""What a piece of a record counts that does not hold its identifier itself."""


def named(corpus: Corpus, terms: Terms, weights: dict[str, float]) -> Scores | None:
    """Scores of the chunks that hold a rare identifier or name of those sought, and of the other pieces of their
    records, those first that say the most of the rest; None if there is none.

    Args:
        weights: of terms, 1 for those that are not in it.
    """
    identifiers = list(dict.fromkeys(term for term, kind in terms if kind in (IDENTIFIER, NAME)))
    if not identifiers or not corpus.count:
        return None
    hits = corpus.seek(identifiers)
    cells = np.unique(hits.terms * corpus.count + hits.chunks)
    of, chunks = cells // corpus.count, cells % corpus.count
    held = np.bincount(of, minlength=len(identifiers))
    worth = rarity(held, corpus.count) * np.array([weights.get(term, 1.0) for term in identifiers])
    rare = held[of] <= MOST_HOLDERS
    of, chunks = of[rare], chunks[rare]
    if not len(chunks):
        return None
    scores = np.zeros(corpus.count)
    for term, chunk in zip(of.tolist(), chunks.tolist(), strict=True):
        scores[chunk] += worth[term]
        others = [other for other in record_pieces(corpus, chunk) if other != chunk]
        scores[others] = np.maximum(scores[others], OTHER_PIECE * worth[term])
    rest = [(term, kind) for term, kind in terms if term not in identifiers]
    about = np.where(scores > 0, lexical(corpus, rest), 0.0)
    total: Scores = scores + about
    return total


def record_pieces(corpus: Corpus, chunk: int) -> list[int]:
    """All chunks of the record that a chunk is a piece of; the chunk alone if it is of none."""
    source = int(corpus.source_of[chunk])
    begin, chunks = int(corpus.begins[source]), corpus.indexes[source].chunks
    at = chunk - begin
    mine = chunks[at]
    if mine.ordinal < 0:
        return [chunk]
    first = last = at
    while first > 0 and _same(chunks[first - 1], mine):
        first -= 1
    while last + 1 < len(chunks) and _same(chunks[last + 1], mine):
        last += 1
    return list(range(begin + first, begin + last + 1))


def _same(one: Chunk, other: Chunk) -> bool:
    return (one.ordinal, one.origin) == (other.ordinal, other.origin)
