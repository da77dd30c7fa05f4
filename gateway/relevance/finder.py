"""Relevance as it is handed to fitting; numpy and the stemmers are loaded when something has to be ranked."""

from collections.abc import Sequence

from gateway.models.relevance import Passage, Query, Source


def find_passages(query: Query, sources: Sequence[Source]) -> list[list[Passage]]:
    """See `models.relevance.Relevance`."""
    from gateway.relevance.relevance import relevance

    return relevance(query, sources)
