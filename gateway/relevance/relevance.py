"""Scores the passages of texts by how they bear on a question."""

from collections.abc import Sequence

from gateway.models.relevance import Passage, Query, Source
from gateway.relevance.chunks.passages import passages
from gateway.relevance.ranking import rank


def relevance(query: Query, sources: Sequence[Source]) -> list[list[Passage]]:
    """For each source its passages in document order, scored as one corpus (see `models.relevance.Relevance`)."""
    cut = [passages(source.content) for source in sources]
    texts = [s.content[c.start : c.end] for s, chunks in zip(sources, cut, strict=True) for c in chunks]
    scores = iter(rank(query.question, texts))
    return [[Passage(c.start, c.end, next(scores), c.heading) for c in chunks] for chunks in cut]
