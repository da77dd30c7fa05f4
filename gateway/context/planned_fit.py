"""Fits a draft anew as a plan says, and weighs whether the plan is worth what it cost (guarantee §5, ADR 16)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from gateway.accounting.cost import EXACT, ZERO, Rates, price_internal
from gateway.context.draft import Draft
from gateway.context.planner import PlanResult
from gateway.errors import ContextLengthExceeded
from gateway.models.artifacts import ProcessingStrategy
from gateway.models.bill import PICO, Comparison, InternalCall
from gateway.models.window import Fitted, Planned
from gateway.planning.decision import FORCED
from gateway.telemetry.logs import get_logger
from gateway.window.fit import fit

PLANNING = ("planner", "summarizer")
MIN_REQUESTS, MAX_REQUESTS = 3, 20
"""Bounds of how many requests are expected to forward what is decided now: artifacts are asked about more than once,
and however long a conversation was, no more than this is counted on."""
SAVES_TOO_LITTLE = "plan_saves_too_little"
CHANGES_NOTHING = "plan_changes_nothing"
DOES_NOT_FIT = "plan_does_not_fit"
NOT_FOLLOWED = "plan_not_followed"
log = get_logger("gateway.context")


@dataclass(frozen=True, slots=True)
class FinalFit:
    """What will be forwarded. `follows_plan`: as the plan says; else `fallback_reason` says why not, where a plan was
    called for. A plan that is followed may have a reason, too: why a summary is missing."""

    fitted: Fitted
    follows_plan: bool = False
    fallback_reason: str | None = None
    comparison: Comparison | None = None


def fit_as_planned(draft: Draft, result: PlanResult, spent: Sequence[InternalCall]) -> FinalFit:
    """The draft as the plan says; as it is where there is no plan, or it is faulty or not worth its price.

    Args:
        spent: the calls of internal models that this request has made.
    """
    if result.planned is None:
        return FinalFit(draft.fitted, fallback_reason=result.fallback_reason)
    try:
        return _followed(draft, result.planned, result.fallback_reason, spent)
    except ContextLengthExceeded:
        return FinalFit(draft.fitted, fallback_reason=DOES_NOT_FIT)
    except Exception as fault:  # noqa: BLE001 - a faulty plan costs quality, never the answer: the draft stands
        log.fault("plan_not_followed", fault, request_id=draft.source.request.request_id)
        return FinalFit(draft.fitted, fallback_reason=NOT_FOLLOWED)


def _followed(draft: Draft, planned: Planned, reason: str | None, spent: Sequence[InternalCall]) -> FinalFit:
    fitted = fit(draft.material, draft.limits, draft.counting, draft.tools, planned=planned, unreduced=draft.unreduced)
    compared = comparison(draft, fitted, spent)
    refusal = _why_not(draft, fitted, planned, compared)
    if refusal is None:
        return FinalFit(fitted, follows_plan=True, fallback_reason=reason, comparison=compared)
    if refusal == CHANGES_NOTHING:  # the same messages; its records say what a guard kept
        return FinalFit(fitted, fallback_reason=reason or refusal, comparison=compared)
    return FinalFit(draft.fitted, fallback_reason=refusal, comparison=compared)


def _why_not(draft: Draft, fitted: Fitted, planned: Planned, compared: Comparison) -> str | None:
    """Why a plan is not used; None if it is. Where something has to leave, the plan decides what, at any price."""
    if draft.fitted.new_pass:
        return None
    if fitted.forwarded.messages == draft.fitted.forwarded.messages:
        wants_less = any(d.strategy is not ProcessingStrategy.INCLUDE_FULL for d in planned.plan.artifacts)
        return CHANGES_NOTHING if wants_less else None
    return None if draft.decision.reason == FORCED or compared.pays is not False else SAVES_TOO_LITTLE


def comparison(draft: Draft, fitted: Fitted, spent: Sequence[InternalCall]) -> Comparison:
    """Compares the draft with a context fitted by a plan, over all requests that will forward it."""
    costs = [price_internal(call).total for call in spent if call.purpose in PLANNING]
    known = [cost for cost in costs if cost is not None]
    answers = draft.material.turns_before + sum(each.role == "assistant" for each in draft.material.messages)
    return compare(
        draft.source.facts.prices,
        candidate_tokens=draft.fitted.tokens,
        saved_tokens=draft.fitted.tokens - fitted.tokens,
        invalidated_tokens=_invalidated_tokens(draft, fitted),
        requests=expected_requests(answers),
        planning_cost=sum(known, Decimal(0)) if len(known) == len(costs) else None,
    )


def expected_requests(answers: int) -> int:
    """How many requests will forward what this one decides, itself included: a conversation that has had so many
    answers is expected to get as many again (the estimate that knows least of its end)."""
    return min(MAX_REQUESTS, max(MIN_REQUESTS, 1 + answers))


def compare(
    prices: Mapping[str, Decimal],
    *,
    candidate_tokens: int,
    saved_tokens: int,
    invalidated_tokens: int,
    requests: int,
    planning_cost: Decimal | None,
) -> Comparison:
    """What a smaller context saves over the requests that will forward it, beside what making it costs.

    The first request pays the full input price for what is left out, each further one the price of cached input, as the
    prefix would have been cached by then. Tokens of the frozen prefix that change are paid for in full once more.

    Args:
        prices: the primary model's, USD per token by LiteLLM's names.
        candidate_tokens: the context without the plan, which decides the context tier.
        saved_tokens: how many of these the plan leaves out.
        invalidated_tokens: how many were cached and will not be.
        planning_cost: of planner and summarizer, USD; None if unknown.
    """
    rates = Rates(prices, candidate_tokens, None)
    full = rates.find("input_cost_per_token")
    saving = invalidation = None
    if full is not None:
        cached = _cached_price(rates, full)
        saving = _rounded(EXACT.multiply(full + cached * (requests - 1), saved_tokens))
        invalidation = _rounded(EXACT.multiply(full - cached, invalidated_tokens))
    return Comparison(saved_tokens, requests, saving, planning_cost, invalidated_tokens, invalidation)


def _invalidated_tokens(draft: Draft, fitted: Fitted) -> int:
    """Tokens that an earlier request forwarded and a provider may have cached, from the first message on that is no
    longer forwarded the same."""
    before, stored = draft.unreduced.forwarded, draft.source.history.stored
    if not any(0 <= index < stored for index in before.indexes):
        return 0  # nothing but system messages was there before
    old = [message for index, message in zip(before.indexes, before.messages, strict=True) if index < stored]
    same = 0
    for one, other in zip(old, fitted.forwarded.messages, strict=False):
        if one != other:
            break
        same += 1
    return sum(map(draft.counting.message, old[same:]))


def _cached_price(rates: Rates, full: Decimal) -> Decimal:
    """The price of cached input; a model without one has no cache that would lower a bill."""
    price = rates.find("cache_read_input_token_cost")
    return full if price is None else min(price, full)


def _rounded(value: Decimal) -> Decimal:
    return max(ZERO, value).quantize(PICO, context=EXACT)
