"""Follows what the best passages name to other passages: an order's customer, a film's director."""

import numpy as np

from gateway.relevance.bm25 import Ranking, lexical, rarity
from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.term_ids import Numbers, numbers_of
from gateway.relevance.terms import IDENTIFIER, NAME, Terms

MOST_HOLDERS = 12
"""Chunks that may hold an identifier or a name for it to say which record is meant."""
OTHER_PIECE = 0.5
"""Weight of a piece of a record that does not hold its identifier, as a fraction of the one that does."""


def named_records(corpus: Corpus, terms: Terms, weights: dict[str, float]) -> Scores | None:
    """Scores of the chunks that hold a rare identifier or name of the question, and of the other pieces of their
    records: those first that hold the most of its other terms. None if there is no such chunk.

    Args:
        weights: of terms; 1 for those that are not in it.
    """
    identifiers = list(dict.fromkeys(term for term, kind in terms if kind in (IDENTIFIER, NAME)))
    if not identifiers or not corpus.count:
        return None
    of, chunks, held = _holders(corpus, identifiers)
    worth = rarity(held, corpus.count) * np.array([weights.get(term, 1.0) for term in identifiers])
    rare = held[of] <= MOST_HOLDERS
    scores = np.zeros(corpus.count)
    for term, chunk in zip(of[rare].tolist(), chunks[rare].tolist(), strict=True):
        scores[chunk] += worth[term]
        others = [other for other in _record_pieces(corpus, chunk) if other != chunk]
        scores[others] = np.maximum(scores[others], OTHER_PIECE * worth[term])
    if not scores.any():
        return None
    rest = [(term, kind) for term, kind in terms if term not in identifiers]
    total: Scores = scores + np.where(scores > 0, lexical(corpus, rest), 0.0)
    return total


def _record_pieces(corpus: Corpus, number: int) -> list[int]:
    """All chunks of the record that a chunk is a piece of; the chunk alone if it is of none."""
    mine = corpus.chunk(number)
    source = corpus.source_of[number]
    first, last = number, number + 1
    if mine.ordinal >= 0:
        while first > corpus.begins[source] and corpus.chunk(first - 1).record == mine.record:
            first -= 1
        while last < corpus.begins[source + 1] and corpus.chunk(last).record == mine.record:
            last += 1
    return list(range(first, last))


BEST = 3
"""Passages of the first round that are followed."""
NEARLY = 0.5
"""Minimum score of a passage that is followed, as a fraction of the best."""
MOST_LINKS = 16
"""Identifiers and names that are followed: the rarest."""
MOST_LINKED = 40
"""Chunks that may hold an identifier or a name for it to lead from one passage to another."""
LINK_WORTH = {IDENTIFIER: 1.0, NAME: 0.5}
"""An identifier means one thing; several people share a name."""
LINKED_WEIGHT, CHAIN_WEIGHT = 0.4, 0.8
"""Weights of the rankings, as fractions of the question's own. Tuned (ADR 11)."""
IN_CONVERSATION = 0.4
"""Fraction of these weights where the best passage is a turn: people name the same few people all the time."""
CHAINED = 3
"""Passages that hold what the best one lacks and are ranked beside the first ones."""


def linked(corpus: Corpus, question: Terms, scores: Scores) -> list[Ranking]:
    """Two rankings of chunks that share rare identifiers and names with the best ones: all of them, and the few that
    also hold a term of the question that the best one lacks. Empty if the best ones lead nowhere."""
    least = NEARLY * scores.max(initial=0.0)
    best = [int(i) for i in np.argsort(-scores, kind="stable")[:BEST] if scores[i] > least]
    asked = {term for term, _ in question}
    worth: dict[str, float] = {}
    kinds: dict[str, int] = {}
    for rank, chunk in enumerate(best, 1):
        for term, kind in corpus.lexicon.question(corpus.text_of(chunk)):
            if kind in LINK_WORTH and term not in asked:
                kinds[term] = kind
                worth[term] = max(worth.get(term, 0.0), LINK_WORTH[kind] / rank)
    links = _useful(corpus, worth, kinds) if worth else []
    if not links:
        return []
    first_terms = corpus.terms[corpus.firsts[best[0]] : corpus.firsts[best[0] + 1]]
    lacking = [each for each, number in zip(question, numbers_of(question), strict=True) if number not in first_terms]
    found = lexical(corpus, links, worth)
    found[best] = 0
    missing = np.where(found > 0, lexical(corpus, lacking), 0.0)
    strict = lexical(corpus, [(term, kind) for term, kind in links if kind == IDENTIFIER], worth)
    chain = np.where((strict > 0) & (missing > 0), strict + missing, 0.0)
    chain[np.argsort(-chain, kind="stable")[CHAINED:]] = 0.0
    weight = IN_CONVERSATION if corpus.is_turn[best[0]] else 1.0
    return [Ranking(found + missing, weight * LINKED_WEIGHT), Ranking(chain, weight * CHAIN_WEIGHT)]


def _useful(corpus: Corpus, worth: dict[str, float], kinds: dict[str, int]) -> Terms:
    """The terms that stand in more chunks than one but not in many, the rarest first."""
    terms = list(kinds.items())
    _, _, held = _holders(corpus, list(kinds))
    value = rarity(held, corpus.count) * np.array([worth[term] for term in kinds])
    useful = [i for i in np.argsort(-value, kind="stable") if 2 <= held[i] <= MOST_LINKED]
    return [terms[i] for i in useful[:MOST_LINKS]]


def _holders(corpus: Corpus, terms: list[str]) -> tuple[Numbers, Numbers, Numbers]:
    """Pairs of a term (its index) and a chunk that holds it, and how many chunks hold each term."""
    hits = corpus.seek(terms)
    cells = np.unique(hits.terms * corpus.count + hits.chunks)
    of = cells // corpus.count
    return of, cells % corpus.count, np.bincount(of, minlength=len(terms))
