"""Several rankings become one by reciprocal rank: what any of them puts first comes early, whatever its scores mean."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gateway.relevance.corpus import Scores

DAMPING = 6
"""How slowly worth falls with rank: what one ranking puts first and no other names stands beside the eighth of two."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Scores of all chunks by one way of looking, 0 for those that it says nothing of, and what it counts."""

    scores: Scores
    weight: float = 1.0


def fused(rankings: Sequence[Ranking], count: int) -> Scores:
    """Sum of weight / (DAMPING + rank) over the rankings that name a chunk, 0 for chunks that none names; equal scores
    have equal ranks."""
    total = np.zeros(count)
    for ranking in rankings:
        named = ranking.scores > 0
        better = -np.sort(-ranking.scores[named])
        rank = 1 + np.searchsorted(-better, -ranking.scores[named], "left")
        total[named] += ranking.weight / (DAMPING + rank)
    return total
