"""What stands near a hit often holds the answer where people talk: the turn that replies, and the few after it."""

import numpy as np

from gateway.relevance.corpus import Corpus, Scores

SHARES = (0.3, 0.21, 0.15, 0.09)
"""Of the score of a turn that is one, two, three and four turns away. Records, lines and paragraphs of documents say
nothing of their neighbours: measured, a share for them only takes room from better ones."""


def with_neighbours(corpus: Corpus, scores: Scores) -> Scores:
    """Each turn gets, for every distance, a share of the better of the two turns so far away."""
    talk = [i for i, source in enumerate(corpus.sources) if source.kind == "turn"]
    if not talk:
        return scores
    result = scores.copy()
    talk.sort(key=lambda i: corpus.sources[i].number)
    order = np.concatenate([np.arange(corpus.begins[i], corpus.begins[i + 1]) for i in talk])
    own = scores[order]
    for distance, share in enumerate(SHARES, 1):
        if distance < len(own):
            before, after = np.zeros(len(own)), np.zeros(len(own))
            before[distance:], after[:-distance] = own[:-distance], own[distance:]
            result[order] += share * np.maximum(before, after)
    return result
