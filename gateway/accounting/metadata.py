"""`response_metadata` and the extended `usage` of an answer (guarantee §6)."""

from collections.abc import Sequence
from typing import Any

from gateway.accounting.cost import planning_usage, price_internal, total_cost, usage_of
from gateway.models.bill import (
    ArtifactUsageRecord,
    CallCost,
    ContextPlanningCost,
    CostMetadata,
    InternalCall,
    ResponseMetadata,
)

Sums = tuple[CostMetadata, ContextPlanningCost]


def response_metadata(known: ResponseMetadata) -> dict[str, Any]:
    """As JSON-ready values; what is not known yet is left out. Written out: `dataclasses.asdict` copies every leaf."""
    data: dict[str, Any] = {
        "request_id": known.request_id,
        "conversation_id": known.conversation_id,
        "upstream_id": known.upstream_id,
        "model": known.model,
        "routing_path": known.routing_path,
    }
    if known.usage is not None:
        data["usage"] = _fields(known.usage)
    if known.cost is not None:
        data["cost"] = _fields(known.cost)
    if known.context_utilization is not None:
        used = known.context_utilization
        data["context_utilization"] = utilization = {
            **_fields(used),
            "artifacts_processed": [_record(record) for record in used.artifacts_processed],
            "planning_usage": _fields(used.planning_usage),
            "planning_cost": _fields(used.planning_cost),
            "warnings": list(used.warnings),
        }
        if used.economics is None:
            del utilization["economics"]
        if not used.planning_usage.embedder:
            del utilization["planning_usage"]["embedder"], utilization["planning_cost"]["embedder_cost"]
    data["timings_ms"] = known.timings_ms
    return data


def _record(record: ArtifactUsageRecord) -> dict[str, Any]:
    fields = _fields(record)
    if not record.guarded:
        del fields["guarded"]
    return fields


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a flat dataclass with slots."""
    return {name: getattr(value, name) for name in value.__slots__}


def add_planning(known: ResponseMetadata, made: Sequence[InternalCall]) -> None:
    """Adds, in place, what the calls of internal models took, before the primary model is called."""
    if known.context_utilization is not None and made:
        calls = tuple(map(price_internal, made))
        known.context_utilization.planning_usage = planning_usage(calls)
        known.context_utilization.planning_cost = total_cost(calls)[1]


def add_bill(known: ResponseMetadata, calls: tuple[CallCost, ...], sums: Sums) -> None:
    """Adds, in place, usage and cost of these calls; `usage` is the primary model's alone.

    The utilization that changes is the one of the `BuiltContext`, where there is one.
    """
    primary = next((call for call in calls if call.purpose == "primary"), None)
    known.usage = usage_of(primary.usage) if primary else usage_of({})
    known.cost, planning = sums
    if known.context_utilization is not None:
        known.context_utilization.planning_cost = planning
        known.context_utilization.planning_usage = planning_usage(calls)


def extended_usage(usage: dict[str, Any], calls: tuple[CallCost, ...], sums: Sums | None = None) -> dict[str, Any]:
    """Upstream's usage with `cost`, everything this request cost in USD, and its parts."""
    cost, planning = sums or total_cost(calls)
    inference = None
    if cost.prompt_cost is not None and cost.completion_cost is not None:
        inference = cost.prompt_cost + cost.completion_cost
    details = {
        "upstream_inference_cost": inference,
        "planner_cost": planning.planner_cost,
        "summarizer_cost": planning.summarizer_cost,
    }
    if any(call.purpose == "embedder" for call in calls):
        details["embedder_cost"] = planning.embedder_cost
    return {**usage, "cost": cost.total_cost, "cost_details": details}
