"""The second round: what the best passages name, sought elsewhere (an order's customer, a film's director)."""

import numpy as np

from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.fusion import Ranking
from gateway.relevance.lexical import lexical, rarity
from gateway.relevance.numbering import numbers_of
from gateway.relevance.words import IDENTIFIER, NAME, Terms

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
