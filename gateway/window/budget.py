"""How many tokens a prompt may have (guarantee §4 I1)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gateway.config.settings import ContextSettings
from gateway.errors import ContextLengthExceeded
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.exchange import ModelFacts
from gateway.models.relevance import Relevance
from gateway.models.window import Fitted, Forwarded, Material, Rendering, Selection
from gateway.window.counting import PromptCount, PromptCounter

# What fitting needs of other steps, passed in, and how a choice becomes a counted result.


Assemble = Callable[[Material, Selection], Forwarded]
Text = Callable[[str], str]
ESTIMATED_SHARE = 0.99
"""Estimates that were learned from reports were up to 0.8 % too low (guarantee §4 I1)."""


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
    nothing has to leave for turns (guarantee §4 I7). `estimated`: the model's tokenizer is another, so that a count
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
    selection: Selection, forwarded: Forwarded, count: Callable[[Forwarded], PromptCount], counting: PromptCounter
) -> Fitted:
    """The selection with its tokens, counted by `count`."""
    result = count(forwarded)
    return Fitted(selection, forwarded, result.total, count == counting.exact, result.breakdown)


def counted(selection: Selection, forwarded: Forwarded, tokens: int, counting: PromptCounter) -> Fitted | None:
    """The selection if it fits. What cannot exceed the budget by its bytes alone is only estimated."""
    if counting.upper_bound(forwarded) <= tokens:
        return fitted_as(selection, forwarded, counting.estimate, counting)
    if counting.fits(forwarded, tokens):
        return fitted_as(selection, forwarded, counting.exact, counting)
    return None


def in_full(artifact: Artifact, text: str) -> Rendering:
    """An artifact shown in full, as it is or compacted to `text`."""
    return Rendering(artifact, ProcessingStrategy.INCLUDE_FULL, text)


FIFTH_LESS = 0.8
LESS = 0.95
NEARLY = 0.98
UNNAMED_PART = 4
"""An answer of which nobody named the length has no more than this part of the window kept for it."""
OUTPUT_LIMITS = ("max_completion_tokens", "max_tokens")


@dataclass(frozen=True, slots=True)
class Budget:
    """`tokens` for prompt, tools and schema; None if the window is unknown and nobody named a limit. `reserve_named`:
    the request itself says how long the answer may be; else `reserved_output` is this gateway's own idea."""

    tokens: int | None
    context_window: int | None
    reserved_output: int = 0
    reserve_named: bool = False


def budget_for(facts: ModelFacts, forward: dict[str, Any], requested: int | None, settings: ContextSettings) -> Budget:
    """min(model's maximum input, window - reserved output, `max_input_tokens`).

    Raises:
        ContextLengthExceeded: the output that the request reserves leaves nothing for a prompt.
    """
    window = facts.context_window or facts.max_input_tokens
    limits = [limit for limit in (facts.max_input_tokens, requested, settings.max_input_tokens) if limit]
    reserved = 0
    if window:
        reserved = _reserved(forward, facts, settings, window)
        if window - reserved <= 0:
            field = next(name for name in OUTPUT_LIMITS if forward.get(name))
            text = f"{field} = {reserved} leaves no room for a prompt in the model's window of {window} tokens."
            raise ContextLengthExceeded(text, param=field)
        limits.append(window - reserved)
    return Budget(min(limits) if limits else None, window, reserved, _named(forward) is not None)


def _reserved(forward: dict[str, Any], facts: ModelFacts, settings: ContextSettings, window: int) -> int:
    named = _named(forward)
    if named is not None:
        return named
    return min(facts.max_output_tokens or window, settings.reserved_output_tokens, window // UNNAMED_PART)


def _named(forward: dict[str, Any]) -> int | None:
    """Tokens that the request itself keeps for the answer."""
    for name in OUTPUT_LIMITS:
        value = forward.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def tightened(budget: Budget, counted: int, reported: int | None, limit: int | None) -> Budget:
    """The budget after upstream said overflow: by what it reported if it did, else by a fifth (guarantee §4 I1).

    Args:
        counted: tokens as counted here.
        reported: tokens of the same prompt as counted upstream.
        limit: tokens that upstream allows, prompt and answer together.
    """
    refused = min(budget.tokens or counted, counted)
    tokens = int(refused * FIFTH_LESS)
    if reported and limit and reported > limit:
        reserved = (
            budget.reserved_output if budget.reserve_named else min(budget.reserved_output, limit // UNNAMED_PART)
        )
        allowed = max(1, limit - reserved)
        tokens = min(int(refused * LESS), int(allowed * counted / reported * NEARLY))
    return replace(budget, tokens=max(1, tokens))
