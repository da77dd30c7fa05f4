"""A question's words widened to those in which people answer it: who is asked for a pet tells of a puppy."""

import numpy as np

from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.lexical import K1, B, rarity
from gateway.relevance.numbering import Numbers, numbers_of
from gateway.relevance.topics import topics
from gateway.relevance.words import Terms


def widened(corpus: Corpus, question: Terms) -> Scores | None:
    """What turns of a talk score by the topics that the question names: all words of a topic together are as one term
    (BM25), for it is one thing that they speak of. None if there is no talk, or nothing in it of such a topic.

    Only for talk: records name what they hold by fields, and in a document the topic's own name stands in the text.
    """
    talk = np.array([source.kind == "turn" for source in corpus.sources], bool)
    asked = numbers_of(question)
    wide = topics()
    groups = [np.setdiff1d(wide[n], asked) for n in dict.fromkeys(asked.tolist()) if n in wide]
    if not groups or not talk.any():
        return None
    wanted = np.unique(np.concatenate(groups))
    hits = corpus.find(wanted)
    of_talk = talk[corpus.source_of]
    count = int(of_talk.sum())
    length = np.maximum(1, corpus.lengths / max(1.0, float(corpus.lengths[of_talk].mean())))
    scores = np.zeros(corpus.count)
    for group in groups:
        counts = np.where(of_talk, _counts(corpus.count, hits.chunks[np.isin(hits.terms, _places(wanted, group))]), 0)
        worth = float(rarity((counts > 0).sum(keepdims=True), count)[0])
        scores += worth * counts * (K1 + 1) / (counts + K1 * (1 - B + B * length))
    return scores if scores.any() else None


def _places(wanted: Numbers, group: Numbers) -> Numbers:
    found: Numbers = np.searchsorted(wanted, group)
    return found


def _counts(count: int, chunks: Numbers) -> Scores:
    return np.bincount(chunks, minlength=count).astype(np.float64)
