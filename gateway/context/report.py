"""How the window was used, as the bill tells it: references and figures only (guarantee §6)."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from decimal import Decimal

from gateway.accounting.cost import EXACT, ZERO, Rates
from gateway.models.artifacts import ProcessingStrategy
from gateway.models.bill import PICO, ArtifactUsageRecord, Comparison, ContextUtilizationMetadata
from gateway.models.exchange import ChatRequest
from gateway.models.window import Fitted, Material
from gateway.planning.record import holds_reduced, records_of
from gateway.window.budget import Budget

# Whether a plan saves more than it costs: estimates in exact decimals, told beside the bill (`models.economics`).


LEAST_REQUESTS, MOST_REQUESTS = 3, 20
"""What artifacts come into is asked about more than once; however long a conversation was, no more is counted on."""


def expected_requests(answers: int) -> int:
    """How many requests will forward what this one decides, itself included: a conversation that has had so many
    answers is taken to get as many again (the estimate that knows least of its end)."""
    return min(MOST_REQUESTS, max(LEAST_REQUESTS, 1 + answers))


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
        prices: the primary model's, by LiteLLM's names.
        candidate_tokens: the context without the plan, which decides the context tier.
        saved_tokens: how many of these the plan leaves out.
        invalidated_tokens: how many were cached and will not be.
        planning_cost: of planner and summarizer, USD; None if unknown.
    """
    rates = Rates(prices, candidate_tokens, None)
    full = rates.find("input_cost_per_token")
    saving = invalidation = None
    if full is not None:
        cached = _cached(rates, full)
        saving = _told(EXACT.multiply(full + cached * (requests - 1), saved_tokens))
        invalidation = _told(EXACT.multiply(full - cached, invalidated_tokens))
    return Comparison(saved_tokens, requests, saving, planning_cost, invalidated_tokens, invalidation)


def _cached(rates: Rates, full: Decimal) -> Decimal:
    """The price of cached input; a model without one has no cache that would lower a bill."""
    price = rates.find("cache_read_input_token_cost")
    return full if price is None else min(price, full)


def _told(value: Decimal) -> Decimal:
    return max(ZERO, value).quantize(PICO, context=EXACT)


def measured_utilization(
    request: ChatRequest, budget: Budget, fitted: Fitted, included: int, warning_threshold: float
) -> ContextUtilizationMetadata:
    """The figures of a context, and a warning where they call for one.

    Args:
        included: messages that are forwarded.
        warning_threshold: share of the budget.
    """
    tokens = budget.tokens
    utilization = ContextUtilizationMetadata(
        model_name=request.model,
        goal=request.options.goal.value,
        context_window=budget.context_window,
        budget_tokens=tokens,
        tokens_used=fitted.tokens,
        utilization=round(fitted.tokens / tokens, 4) if tokens else None,
        breakdown=fitted.breakdown,
        messages_included=included,
    )
    if tokens is None:
        utilization.warnings.append("context_window_unknown")
    elif fitted.tokens > warning_threshold * tokens:
        utilization.warnings.append(f"context_window_above_{warning_threshold:.0%}"[:-1] + "_percent")
    return utilization


def utilization_of(
    request: ChatRequest, material: Material, fitted: Fitted, budget: Budget, warning_threshold: float
) -> ContextUtilizationMetadata:
    """The same with what became of messages and artifacts."""
    included = len(set(fitted.forwarded.indexes) - {-1})
    whole = included + len(material.instructions)
    utilization = measured_utilization(request, budget, fitted, whole, warning_threshold)
    utilization.strategy = _strategy(material, fitted)
    utilization.messages_excluded = len(material.messages) - included
    utilization.artifacts_processed = records_of(material, fitted, named=request.store)
    return utilization


def with_hits(records: list[ArtifactUsageRecord], hits: Collection[str]) -> list[ArtifactUsageRecord]:
    """The records; summaries that came from the cache are told as such."""
    summarize = ProcessingStrategy.SUMMARIZE.value
    return [
        replace(record, cache_hit=True) if record.strategy == summarize and record.artifact_id in hits else record
        for record in records
    ]


def _strategy(material: Material, fitted: Fitted) -> str:
    """`heuristic` if an artifact was decided on, `simple` if only turns left, else `passthrough` (guarantee §6). A tool
    result told in full was restored, not decided on."""
    told = {a.artifact_id: a.content for a in material.restored}
    decided = any(told.get(key) != r.text for key, r in fitted.selection.renderings.items())
    if material.artifacts and (decided or holds_reduced(material, fitted)):
        return "heuristic"
    if fitted.selection.first > 0 or fitted.selection.left_out:
        return "simple"
    return "passthrough"
