"""`response_metadata` and the extended `usage` of an answer (contract §6)."""

from dataclasses import asdict
from typing import Any

from gateway.accounting.cost import total_cost, usage_of
from gateway.models.metadata import CallCost, ResponseMetadata


def response_metadata(known: ResponseMetadata) -> dict[str, Any]:
    """As JSON-ready values; what is not known yet is left out."""
    data = asdict(known)
    for name in ("usage", "cost", "context_utilization"):
        if data[name] is None:
            del data[name]
    return data


def billed(known: ResponseMetadata, calls: tuple[CallCost, ...]) -> ResponseMetadata:
    """The metadata with usage and cost of these calls; `usage` is the primary model's alone."""
    cost, planning = total_cost(calls)
    primary = next((call for call in calls if call.purpose == "primary"), None)
    known.usage = usage_of(primary.usage) if primary else usage_of({})
    known.cost = cost
    if known.context_utilization is not None:
        known.context_utilization.planning_cost = planning
    return known


def extended_usage(usage: dict[str, Any], calls: tuple[CallCost, ...]) -> dict[str, Any]:
    """Upstream's usage with `cost`, everything this request cost in USD, and its parts."""
    cost, planning = total_cost(calls)
    primary = [call for call in calls if call.purpose == "primary"]
    inference = sum(call.total or 0 for call in primary) if cost.priced else None
    details = {
        "upstream_inference_cost": inference,
        "planner_cost": planning.planner_cost,
        "summarizer_cost": planning.summarizer_cost,
    }
    return {**usage, "cost": cost.total_cost, "cost_details": details}
