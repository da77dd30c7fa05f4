"""The second round: what the best passages name, sought elsewhere (an order's customer, a film's director)."""

import numpy as np

from gateway.relevance.bm25 import Ranking, lexical, rarity
from gateway.relevance.chunks.chunk import Chunk
from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.term_ids import numbers_of
from gateway.relevance.terms import IDENTIFIER, NAME, Terms

# Passages of what a question names and few texts hold: the record with that identifier or name, all of its pieces.


NAMED_MOST_HOLDERS = 12
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
    rare = held[of] <= NAMED_MOST_HOLDERS
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


BEST, NEARLY = 3, 0.5
LINKED_WEIGHT, CHAIN_WEIGHT = 0.4, 0.8
IN_TALK = 0.4
"""What it counts where the best passage is a turn of a talk: everybody in it names the same few people and places."""
CHAINED = 3
"""How many passages that hold what the best one lacks stand beside the first ones."""
MOST_BRIDGES = 16
MOST_HOLDERS = 40
"""Chunks that may hold a term for it to lead anywhere."""
BRIDGE_WEIGHT = {IDENTIFIER: 1.0, NAME: 0.5}


def second_round(corpus: Corpus, question: Terms, scores: Scores) -> list[Ranking]:
    """Chunks that share rare identifiers and names with the best ones, those first that hold what of the question the
    best one lacks; these count as much as what was found at first. Empty where the best ones lead nowhere."""
    least = NEARLY * scores.max(initial=0.0)
    best = [int(i) for i in np.argsort(-scores, kind="stable")[:BEST] if scores[i] > least]
    asked = {term for term, _ in question}
    bridges: dict[str, float] = {}
    kinds: dict[str, int] = {}
    for rank, chunk in enumerate(best):
        for term, kind in corpus.lexicon.question(corpus.text_of(chunk)):
            if kind in BRIDGE_WEIGHT and term not in asked:
                kinds[term] = kind
                bridges[term] = max(bridges.get(term, 0.0), BRIDGE_WEIGHT[kind] / (1 + rank))
    names = _leading(corpus, bridges, kinds) if bridges else []
    if not names:
        return []
    lacking = [(term, kind) for term, kind in question if not _holds(corpus, best[0], term)]
    linked = lexical(corpus, names, bridges)
    linked[best] = 0
    missing = np.where(linked > 0, lexical(corpus, lacking), 0.0)
    strict = lexical(corpus, [(term, kind) for term, kind in names if kind == IDENTIFIER], bridges)
    chain = np.where((strict > 0) & (missing > 0), strict + missing, 0.0)
    weight = IN_TALK if corpus.is_talk(best[0]) else 1.0
    linked_ranking = Ranking(linked + missing, weight * LINKED_WEIGHT)
    return [linked_ranking, Ranking(_first(chain, CHAINED), weight * CHAIN_WEIGHT)]


def _first(scores: Scores, most: int) -> Scores:
    """Only the best of them."""
    kept = np.zeros(len(scores))
    best = np.argsort(-scores, kind="stable")[:most]
    kept[best] = scores[best]
    return kept


def _leading(corpus: Corpus, bridges: dict[str, float], kinds: dict[str, int]) -> Terms:
    """Those that stand in more chunks than one but not in many, the rarest first."""
    terms = list(kinds.items())
    hits = corpus.seek([term for term, _ in terms])
    cells = np.unique(hits.terms * corpus.count + hits.chunks)
    held = np.bincount(cells // corpus.count, minlength=len(terms))
    worth = rarity(held, corpus.count) * np.array([bridges[term] for term, _ in terms])
    useful = [i for i in np.argsort(-worth, kind="stable") if 2 <= held[i] <= MOST_HOLDERS]
    return [terms[i] for i in useful[:MOST_BRIDGES]]


def _holds(corpus: Corpus, chunk: int, term: str) -> bool:
    return bool(np.any(corpus.terms[corpus.chunk_terms(chunk)] == numbers_of([(term, 0)])[0]))
