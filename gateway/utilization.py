"""How the window was used, as the bill tells it: references and figures only (contract §6)."""

from collections.abc import Collection
from dataclasses import replace

from gateway.fitting.budget import Budget
from gateway.models.artifacts import ProcessingStrategy
from gateway.models.exchange import ChatRequest
from gateway.models.metadata import ArtifactUsageRecord, ContextUtilizationMetadata
from gateway.models.selection import Fitted, Material
from gateway.planning.record import plan_of, records_of, stand_reduced


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
    """`heuristic` if an artifact was decided on, `simple` if only turns left, else `passthrough` (contract §6). A tool
    result told in full was restored, not decided on."""
    told = {a.artifact_id: a.content for a in material.restored}
    decided = any(told.get(key) != r.text for key, r in fitted.selection.renderings.items())
    if (decided or stand_reduced(material, fitted)) and plan_of(material, fitted).artifacts:
        return "heuristic"
    if fitted.selection.first > 0 or fitted.selection.left_out:
        return "simple"
    return "passthrough"
