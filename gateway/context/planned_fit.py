"""Fits a draft anew as a plan says, and weighs whether the plan is worth what it cost (guarantee §5, ADR 16)."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from gateway.accounting.cost import price_internal
from gateway.accounting.economics import compare, expected_requests
from gateway.context.draft import Draft
from gateway.context.left_out import frozen_prefix, spared_tokens
from gateway.context.planner import PlanResult
from gateway.errors import ContextLengthExceeded
from gateway.models.artifacts import ProcessingStrategy
from gateway.models.bill import Comparison, InternalCall
from gateway.models.window import Fitted, Planned
from gateway.planning.decision import FORCED
from gateway.telemetry.logs import get_logger
from gateway.window.fit import fit

PLANNING = ("planner", "summarizer")
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
    return compare(
        draft.source.facts.prices,
        candidate_tokens=draft.fitted.tokens,
        saved_tokens=spared_tokens(draft, fitted),
        invalidated_tokens=sum(map(draft.counting.message, frozen_prefix(draft, fitted)[1])),
        requests=expected_requests(draft.answers),
        planning_cost=sum(known, Decimal(0)) if len(known) == len(costs) else None,
    )
