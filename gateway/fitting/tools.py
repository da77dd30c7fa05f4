"""What fitting needs of other steps, passed in, and how a choice becomes a counted result."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.fitting.count import Count, Counting
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.relevance import Relevance
from gateway.models.selection import Fitted, Forwarded, Material, Rendering, Selection

Assemble = Callable[[Material, Selection], Forwarded]
Text = Callable[[str], str]


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
    nothing has to leave for some turns (contract §4 I7)."""

    tokens: int | None
    history_share: float
    target: int | None = None


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
