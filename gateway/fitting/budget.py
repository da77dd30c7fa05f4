"""How many tokens a prompt may have (contract §4 I1)."""

from dataclasses import dataclass, replace
from typing import Any

from gateway.errors import ContextLengthExceeded
from gateway.models.exchange import ModelFacts
from gateway.settings import ContextSettings

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
    """The budget after upstream said overflow: by what it reported if it did, else by a fifth (contract §4 I1).

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
