"""How many tokens a prompt may have (guarantee §4 I1)."""

from dataclasses import replace
from typing import Any

from gateway.core.config.settings import ContextSettings
from gateway.core.errors import ContextLengthExceeded, overflow_text
from gateway.core.frozen_records import record
from gateway.core.types.chat import ModelFacts
from gateway.core.types.upstreams import OUTPUT_LIMITS

WHOSE = ("The model's max_input_tokens", "The request's max_input_tokens", "The gateway's context.max_input_tokens")
"""Who limits a prompt beside the window."""
OUTPUT_DIVISOR = 4
"""If the request names no output limit, at most one fourth of the window is reserved for the answer."""
USABLE_SHARE = 0.99
"""Usable share of the budget where counts are estimates: calibrated ones were measured up to 0.8 % too low."""
REFIT_SHARE = 0.8
"""Share of a refused prompt to try next, if upstream did not say by how much it was too long."""
REFIT_SHARE_KNOWN = 0.95
"""The same at most, if upstream did say so."""
MIN_CACHED = 1024
"""Tokens of a prompt below which no provider caches it: there a pass costs nothing, so that it fills as many."""
REPORTED_SHARE = 0.98
"""Usable share of a limit that upstream reported: the ratio of two tokenizers differs a little by the text."""


@record
class TurnBound:
    """At most `most` turns, the current one counted, are forwarded as messages. Where there would be more, one pass
    leaves the latest `kept`, so that the next turns find room without another (guarantee §3.11)."""

    most: int
    kept: int

    @classmethod
    def of(cls, most: int | None, oldest_share: float) -> "TurnBound | None":
        """The bound of the settings; None where there is none. `oldest_share`: share of `most` that leaves at once."""
        return None if most is None else cls(most, most - int(oldest_share * most))


@record
class PromptBudget:
    """`tokens` for prompt, tools and schema; None if the window is unknown and no limit was named. `reserve_named`:
    the request names `reserved_output` itself; else it is this gateway's own choice. `turns` bounds the window beside
    tokens, also where these are not known. `max_input`: the least other limit of a prompt, and whose it is."""

    tokens: int | None
    context_window: int | None
    reserved_output: int = 0
    reserve_named: bool = False
    turns: TurnBound | None = None
    max_input: tuple[int, str] | None = None

    def overflow(self, tokens: int | None) -> str:
        """What a client is told whose messages take more than this: by the model's window, or by another limit that is
        less than what the answer leaves of it."""
        window, reserved = self.context_window, self.reserved_output
        if self.max_input is not None and (window is None or self.max_input[0] < window - reserved):
            limit, whose = self.max_input
            return f"{overflow_text(limit, tokens)} {whose} sets this limit."
        return overflow_text(self.tokens if window is None else window, tokens, reserved if window else 0)


@record
class SelectionLimits:
    """What a selection is fitted to.

    Attributes:
        tokens: the budget; None if the context is not managed.
        history_share: share of the room for old turns as messages, as long as passages compete for that room.
        low_water: tokens that a pass fills once something had to leave, so that nothing has to leave for several turns
            (guarantee §4 I7); None for the whole budget.
        fresh: tokens of documents and results that the model has not seen yet; a pass fills them on top.
        estimated: tokens are counted with another model's tokenizer, and corrected by what upstream reported.
        budget: whose `tokens` these are.
        is_economic: what leaves is cleared for its cost alone, so that little of it comes back.
        may_keep_more: what a pass keeps whole may take more than its part of what is filled.
    """

    tokens: int | None
    history_share: float
    low_water: int | None = None
    fresh: int = 0
    estimated: bool = False
    budget: PromptBudget | None = None
    is_economic: bool = False
    may_keep_more: bool = False

    @property
    def usable(self) -> int | None:
        """Tokens that a prompt is filled to: a little less than the budget if counts are estimates. Only what cannot
        be made shorter may take all of the budget."""
        if self.tokens is None or not self.estimated:
            return self.tokens
        return int(self.tokens * USABLE_SHARE)

    @property
    def goal(self) -> int:
        """Tokens to which the window is filled once something had to leave."""
        return min(self.old_goal + self.fresh, self.usable or 0)

    @property
    def old_goal(self) -> int:
        """The part of `goal` that is filled whether or not anything is fresh."""
        usable = self.usable or 0
        return usable if self.low_water is None else min(max(self.low_water, MIN_CACHED), usable)


def cleared_above(budget: PromptBudget, tokens: int | None) -> PromptBudget:
    """The budget if room is to be made above so many tokens already."""
    if tokens is None or (budget.tokens is not None and budget.tokens <= tokens):
        return budget
    return replace(budget, tokens=tokens)


def budget_for(
    facts: ModelFacts, forward: dict[str, Any], requested: int | None, settings: ContextSettings
) -> PromptBudget:
    """min(model's maximum input, window - reserved output, `max_input_tokens`).
    Raises ContextLengthExceeded: the output that the request reserves leaves nothing for a prompt."""
    window = facts.context_window or facts.max_input_tokens
    given = zip((facts.max_input_tokens, requested, settings.max_input_tokens), WHOSE, strict=True)
    max_input = min([(limit, whose) for limit, whose in given if limit], default=None)
    limits = [max_input[0]] if max_input is not None else []
    field, reserved = output_limit(forward)
    if window:
        if field is None:
            longest = facts.max_output_tokens or window
            reserved = min(longest, settings.reserved_output_tokens, window // OUTPUT_DIVISOR)
        if window - reserved <= 0:
            why = f"you requested more than {reserved} tokens ({field}), which leaves no room for your messages"
            text = f"This model's maximum context length is {window} tokens. However, {why}."
            raise ContextLengthExceeded(text, param=field)
        limits.append(window - reserved)
    tokens = min(limits) if limits else None
    return PromptBudget(tokens, window, reserved if window else 0, field is not None, max_input=max_input)


def output_limit(forward: dict[str, Any]) -> tuple[str | None, int]:
    """The field with which the request limits the answer, and its tokens; `(None, 0)` if there is none."""
    for name in OUTPUT_LIMITS:
        value = forward.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return name, value
    return None, 0


def writable(forward: dict[str, Any], facts: ModelFacts) -> dict[str, Any]:
    """The fields with an output limit that the model can keep. Messages requires one, so that its clients name what the
    models that they know can write: for others it is cut to what they can, and to a share of the window where it would
    leave no room for a prompt."""
    field, named = output_limit(forward)
    window = facts.context_window or facts.max_input_tokens
    limit = min(named, facts.max_output_tokens or named)
    if window and limit >= window:
        limit = window // OUTPUT_DIVISOR
    return forward if field is None or limit == named else {**forward, field: limit}


def tightened(budget: PromptBudget, counted: int, reported: int | None, limit: int | None) -> PromptBudget:
    """The budget for one refit after upstream said overflow (guarantee §4 I1).
    `counted`: tokens of the refused prompt as counted here; `reported`: tokens of the same prompt as counted upstream,
    if it said so; `limit`: tokens that upstream allows, prompt and answer together, if it said so."""
    refused = min(budget.tokens or counted, counted)
    tokens = int(refused * REFIT_SHARE)
    if reported and limit and reported > limit:
        reserved = budget.reserved_output
        if not budget.reserve_named:
            reserved = min(reserved, limit // OUTPUT_DIVISOR)
        allowed = max(1, limit - reserved) * counted / reported
        tokens = min(int(refused * REFIT_SHARE_KNOWN), int(allowed * REPORTED_SHARE))
    return replace(budget, tokens=max(1, tokens))
