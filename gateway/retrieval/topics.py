"""Finds talk about a topic that the question names: a question about pets is answered by "we have a puppy"."""

from functools import cache
from pathlib import Path

import numpy as np

from gateway.retrieval.bm25 import rarity, saturated
from gateway.retrieval.corpus import Scores, SourceCorpus
from gateway.retrieval.term_ids import Numbers, numbers_of
from gateway.retrieval.terms import TermLexicon, Terms

FILE = Path(__file__).with_name("topics.txt")
"""One topic a line: `words that name it | words in which people speak of it`."""


@cache
def topics() -> dict[int, Numbers]:
    """For each term that names a topic, the terms in which people speak of it, as sorted numbers."""
    lexicon = TermLexicon()
    found: dict[int, set[int]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            names, members = (numbers_of(lexicon.question(side)).tolist() for side in line.split("|"))
            for name in names:
                found.setdefault(name, set()).update(members)
    return {name: np.array(sorted(members), np.int64) for name, members in found.items()}


def topic_scores(corpus: SourceCorpus, question: Terms) -> Scores | None:
    """A BM25 score for each turn of a conversation, in which all words of a topic count as one term.

    Only turns are scored: records name what they hold by fields, and a document mostly holds the topic's own name.

    Returns:
        None if the question names no topic or no turn speaks of it.
    """
    asked = numbers_of(question)
    groups = [np.setdiff1d(topics()[n], asked) for n in dict.fromkeys(asked.tolist()) if n in topics()]
    is_turn = corpus.is_turn
    if not groups or not is_turn.any():
        return None
    members = np.unique(np.concatenate(groups))
    hits = corpus.find(members)
    scores = np.zeros(corpus.count)
    for group in groups:
        chunks = hits.chunks[np.isin(hits.terms, np.searchsorted(members, group))]
        counts = np.where(is_turn, np.bincount(chunks, minlength=corpus.count), 0.0)
        worth = rarity((counts > 0).sum(keepdims=True), int(is_turn.sum()))
        scores += worth * saturated(counts, corpus.lengths / max(1.0, float(corpus.lengths[is_turn].mean())))
    return scores if scores.any() else None
