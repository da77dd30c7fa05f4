"""What stands beside a hit often holds the answer: the turn that replies, the paragraph that goes on."""

import numpy as np

from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.index import Numbers

TALK_SHARE, PROSE_SHARE = 0.5, 0.25
PROSE_CHARS = 350
"""Average characters of chunks from which a text is prose; records and lines say nothing of their neighbours."""


def with_neighbours(corpus: Corpus, scores: Scores) -> Scores:
    """Each turn gets a share of the better of the turns beside it, a chunk of prose a smaller one of the better of the
    chunks beside it in the same text."""
    result = scores.copy()
    talk = [i for i, source in enumerate(corpus.sources) if source.kind == "turn"]
    talk.sort(key=lambda i: corpus.sources[i].number)
    order = np.concatenate([np.arange(corpus.begins[i], corpus.begins[i + 1]) for i in talk] or [np.empty(0, int)])
    result[order] += TALK_SHARE * _beside(scores[order], np.zeros(len(order), np.int64))
    prose = _is_prose(corpus)[corpus.source_of]
    result[prose] += PROSE_SHARE * _beside(scores[prose], corpus.source_of[prose])
    return result


def _is_prose(corpus: Corpus) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    found = np.zeros(len(corpus.sources), bool)
    for at, (source, index) in enumerate(zip(corpus.sources, corpus.indexes, strict=True)):
        found[at] = source.kind == "artifact" and len(source.content) > PROSE_CHARS * max(1, len(index.chunks))
    return found


def _beside(scores: Scores, groups: Numbers) -> Scores:
    """The better score of the two beside each, of the same group."""
    best = np.zeros(len(scores))
    same = groups[1:] == groups[:-1]
    best[1:] = np.where(same, scores[:-1], 0.0)
    best[:-1] = np.maximum(best[:-1], np.where(same, scores[1:], 0.0))
    return best
