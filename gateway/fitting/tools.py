"""What fitting needs of other steps, passed in, and how a choice becomes a counted result."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.fitting.count import Count, Counting
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.relevance import Relevance
from gateway.models.selection import Fitted, Forwarded, Material, Rendering, Selection

Assemble = Callable[[Material, Selection], Forwarded]
Text = Callable[[str], str]
ESTIMATED_SHARE = 0.99
"""Estimates that were learned from reports were up to 0.8 % too low (contract §4 I1)."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What the choice needs of other steps: wording, the passages that bear on a question, and compaction."""

    assemble: Assemble
    relevance: Relevance
    compact: Text


@dataclass(frozen=True, slots=True)
class Limits:
    """`tokens` is the budget (None: not managed), `history_share` the part of it for old turns as messages while
    passages compete for it. Once something has to leave, no more than `target` is filled (None: all of it), so that
    nothing has to leave for some turns (contract §4 I7). `estimated`: the model's tokenizer is another, so that a count
    is as good as what was learned of it."""

    tokens: int | None
    history_share: float
    target: int | None = None
    estimated: bool = False

    @property
    def filled(self) -> int | None:
        """Tokens up to which a prompt is filled: a little less than the budget where a count may be wrong. What cannot
        be made shorter may take all of the budget."""
        if self.tokens is None or not self.estimated:
            return self.tokens
        return int(self.tokens * ESTIMATED_SHARE)

    @property
    def aim(self) -> int:
        """Tokens up to which it is filled once something had to leave."""
        filled = self.filled or 0
        return min(self.target or filled, filled)


def fitted_as(
    selection: Selection, forwarded: Forwarded, count: Callable[[Forwarded], Count], counting: Counting
) -> Fitted:
    """The selection with its tokens, counted by `count`."""
    result = count(forwarded)
    return Fitted(selection, forwarded, result.total, count == counting.exact, result.breakdown)


def counted(selection: Selection, forwarded: Forwarded, tokens: int, counting: Counting) -> Fitted | None:
    """The selection if it fits. What cannot exceed the budget by its bytes alone is only estimated."""
    if counting.upper_bound(forwarded) <= tokens:
        return fitted_as(selection, forwarded, counting.estimate, counting)
    if counting.fits(forwarded, tokens):
        return fitted_as(selection, forwarded, counting.exact, counting)
    return None


def in_full(artifact: Artifact, text: str) -> Rendering:
    """An artifact shown in full, as it is or compacted to `text`."""
    return Rendering(artifact, ProcessingStrategy.INCLUDE_FULL, text)
