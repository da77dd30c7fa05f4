"""Passages that hold, letter for letter, what the question quotes."""

from collections.abc import Iterator, Sequence

import numpy as np

from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.lexical import rarity

MOST_PLACES = 200


def literal(corpus: Corpus, quotations: Sequence[str]) -> Scores:
    """For each chunk the rarity of the quotations that begin in it, longer ones counting more. Case does not matter
    where nothing is found with it."""
    scores = np.zeros(corpus.count)
    for quotation in quotations:
        chunks = sorted(set(_places(corpus, quotation, fold=False)) or set(_places(corpus, quotation, fold=True)))
        if chunks:
            worth = rarity(np.array([len(chunks)]), corpus.count)[0] * np.log2(2 + len(quotation.split()))
            scores[chunks] += worth
    return scores


def _places(corpus: Corpus, quotation: str, *, fold: bool) -> Iterator[int]:
    sought = quotation.lower() if fold else quotation
    for number, source in enumerate(corpus.sources):
        text = source.content.lower() if fold else source.content
        if len(text) != len(source.content) or not corpus.indexes[number].chunks:
            continue
        at = text.find(sought)
        for _ in range(MOST_PLACES):
            if at < 0:
                break
            yield corpus.chunk_at(number, at)
            at = text.find(sought, at + 1)
