"""`response_metadata` and the extended `usage` of an answer (guarantee §6)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import Any

from gateway.billing.cost import (
    ledger_figures,
    meter_of,
    planning_usage,
    price_internal,
    primary_usage,
    total_cost,
    usd_of,
)
from gateway.billing.ledger_verification import repriced
from gateway.core.types import bill, turn
from gateway.core.types.omitted_records import UNLISTED, OmittedRecords

Sums = tuple[bill.CostMetadata, bill.ContextPlanningCost]
FEW = 10
"""An answer lists new artifacts that nothing was done to if there are no more than these; else it counts them."""
MAX_LISTED_CALLS = 50
"""An answer lists all artifacts that its request decided on if there are no more than these; else only the largest: a
stream has the list twice (guarantee §6.2)."""

OPTIONAL_IN_RECORDS = ("guarded", "standing", "reason", *bill.CLIENTS_WORDS)
NONE_WHERE_UNTOLD = ("economics", "profile", "recall", "memory", "workflow_spec_tokens")
EMPTY_WHERE_UNTOLD = ("things", "pages", "left_by", "compacted", "cleared")
FIELDS_ONLY_WHERE_THEY_SAY_SOMETHING = frozenset(
    (
        *(*OPTIONAL_IN_RECORDS, *NONE_WHERE_UNTOLD, *EMPTY_WHERE_UNTOLD),
        *("embedder", "embedder_cost", "guard", "guard_cost", "agent"),
    )
)
"""Fields of a bill that are left out where they are empty."""


def response_metadata(known: bill.ResponseMetadata, unlisted: OmittedRecords | None = None) -> dict[str, Any]:
    """Renders a bill as JSON-ready values, without what is unknown yet. By hand: `dataclasses.asdict` copies each leaf.
    `unlisted`: records that the list can do without, as stored messages reproduce them (ADR 19)."""
    data: dict[str, Any] = {
        "request_id": known.request_id,
        "conversation_id": known.conversation_id,
        "upstream_id": known.upstream_id,
        "model": known.model,
        "routing_path": known.routing_path,
    }
    if known.agent is not None:
        data["agent"] = known.agent
    if known.usage is not None:
        data["usage"] = _fields(known.usage)
    if known.cost is not None:
        data["cost"] = _fields(known.cost)
    if known.economics is not None:
        data["economics"] = known.economics
    if known.context_utilization is not None:
        used = known.context_utilization
        listed, counted = _told(used.artifacts_processed, unlisted, lists_standing=known.conversation_id is not None)
        data["context_utilization"] = utilization = {
            **_fields(used),
            "artifacts_processed": listed,
            "planning_usage": _fields(used.planning_usage),
            "planning_cost": _fields(used.planning_cost),
            "warnings": list(used.warnings),
        }
        utilization["artifacts_standing"] = counted
        if unlisted is not None:
            utilization[UNLISTED] = unlisted.as_json()
        for name in NONE_WHERE_UNTOLD:
            if utilization[name] is None:
                del utilization[name]
        for name in EMPTY_WHERE_UNTOLD:
            if not utilization[name]:
                del utilization[name]
        _without_unpaid(utilization)
    data["timings_ms"] = known.timings_ms
    return data


def in_answer(metadata: dict[str, Any]) -> dict[str, Any]:
    """Shortens a bill for an answer: lists what the request decided, changed or brought back, counts what stands.
    `metadata`: the bill from `response_metadata`, whole or not; it is not changed."""
    utilization = metadata.get("context_utilization") or {}
    if UNLISTED in utilization:
        utilization = {name: value for name, value in utilization.items() if name != UNLISTED}
        metadata = {**metadata, "context_utilization": utilization}
    processed = utilization.get("artifacts_processed")
    if not processed:
        return metadata
    fresh = [record for record in processed if not record.get("standing")]
    listed = fresh
    if len(fresh) > MAX_LISTED_CALLS:
        listed = [max(fresh, key=lambda record: record["original_size_chars"])]
    if len(listed) == len(processed):
        return metadata
    short = {**utilization, "artifacts_processed": listed}
    if len(listed) < len(fresh):
        kept = {id(record) for record in listed}
        short["artifacts_omitted"] = _counted([record for record in fresh if id(record) not in kept])
    return {**metadata, "context_utilization": short}


def begun(metadata: dict[str, Any]) -> dict[str, Any]:
    """Shortens a bill for the first chunk of a stream: what is known by then, without the list in the last chunk."""
    utilization = metadata.get("context_utilization")
    if not utilization:
        return metadata
    known = {name: value for name, value in utilization.items() if name not in ("artifacts_processed", "plan")}
    return {**metadata, "context_utilization": known}


def with_plan(metadata: dict[str, Any], plan: Any) -> dict[str, Any]:
    """Adds the planner's answer to a bill, for those who look the bill up; never in an answer (guarantee §6). The
    planner's prompt is left out: it quotes documents at length."""
    utilization = metadata.get("context_utilization")
    if plan is None or not isinstance(utilization, dict):
        return metadata
    if isinstance(plan, dict):
        plan = {name: value for name, value in plan.items() if name != "prompt"}
    return {**metadata, "context_utilization": {**utilization, "plan": plan}}


def with_citations(metadata: dict[str, Any], cited: dict[str, Any] | None) -> dict[str, Any]:
    """Adds to a bill what its answer cites, and how many cited names were unknown (`turn.CITED_FIELDS`), for the client
    and for those who look the answer up; never in the ledger, since it is content (guarantee §14.8)."""
    return metadata if cited is None else {**metadata, **cited}


def _told(
    records: Sequence[bill.ArtifactUsageRecord], unlisted: OmittedRecords | None, *, lists_standing: bool
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Renders the records, and counts those that stand; untouched new ones do where they are more than an answer lists.
    `lists_standing`: those are listed, too, but for `unlisted`. Where no conversation is stored, results that were
    forwarded as they came are only counted: nothing is there that their list would explain."""
    count, chars = (len(unlisted.gone), unlisted.chars) if unlisted is not None else (0, 0)
    many = sum(record.untouched and not record.standing for record in records) > FEW
    found = []
    for record in records:
        if unlisted is not None and id(record) in unlisted.gone:
            continue
        standing = record.standing or (many and record.untouched)
        if standing:
            count, chars = count + 1, chars + record.processed_size_chars
        if lists_standing or not (standing and record.untouched and record.message is not None):
            found.append(_record(record, standing=standing))
    return found, {"count": count, "chars": chars}


def _counted(records: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Counts these artifacts, and the characters of them that were forwarded."""
    return {"count": len(records), "chars": sum(record["processed_size_chars"] for record in records)}


def _record(record: bill.ArtifactUsageRecord, *, standing: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "artifact_id": record.artifact_id,
        "source": record.source,
        "artifact_type": record.artifact_type,
        "strategy": record.strategy,
        "original_size_chars": record.original_size_chars,
        "processed_size_chars": record.processed_size_chars,
        "cache_hit": record.cache_hit,
    }
    for name in OPTIONAL_IN_RECORDS:
        if value := standing if name == "standing" else getattr(record, name):
            fields[name] = value
    return fields


def _fields(value: Any) -> dict[str, Any]:
    """Returns the fields of a flat dataclass with slots."""
    return dict(zip(value.__slots__, _getter(value.__slots__)(value), strict=True))


@cache
def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*names)


def add_planning(known: bill.ResponseMetadata, made: Sequence[bill.InternalCall]) -> None:
    """Adds, in place, the usage and cost of internal models, before the primary model is called."""
    if known.context_utilization is not None and made:
        calls = tuple(map(price_internal, made))
        known.context_utilization.planning_usage = planning_usage(calls)
        known.context_utilization.planning_cost = total_cost(calls)[1]


def add_bill(known: bill.ResponseMetadata, calls: tuple[bill.CallCost, ...], sums: Sums) -> None:
    """Adds, in place, usage and cost of these calls; `usage` is the primary model's alone.

    Changes the utilization of the `BuiltContext`, where there is one.
    """
    known.usage = bill.usage_of(primary_usage(calls))
    known.cost, planning = sums
    if known.context_utilization is not None:
        known.context_utilization.planning_cost = planning
        known.context_utilization.planning_usage = planning_usage(calls)


def amended(entry: turn.LedgerEntry, further: Sequence[bill.CallCost]) -> turn.LedgerEntry:
    """Adds later calls of internal models to a stored bill, and computes every sum again."""
    calls = (*entry.calls, *further)
    priced = tuple(map(repriced, calls))  # exact where a cost is more than its column holds
    cost, planning = total_cost(priced)
    metadata = {**entry.metadata, "cost": _fields(cost)}
    metadata |= _metered_anew(metadata, cost.total_cost)
    used = metadata.get("context_utilization")
    if isinstance(used, dict):
        parts = {"planning_usage": _fields(planning_usage(priced)), "planning_cost": _fields(planning)}
        metadata["context_utilization"] = {**used, **_without_unpaid(parts)}
    is_metered = entry.figures is None or entry.figures.net_saving is not None
    figures = ledger_figures(metadata, calls, is_metered=is_metered)
    return replace(entry, calls=calls, metadata=metadata, document=None, figures=figures)


def _metered_anew(metadata: dict[str, Any], billed: Decimal | None) -> dict[str, Any]:
    """Returns the `economics` of a bill with the cost that is billed now."""
    known = meter_of(metadata)
    direct = usd_of(known.get("direct_cost"))
    if direct is None:
        return {}
    if billed is None:
        return {"economics": {name: each for name, each in known.items() if name not in ("billed_cost", "net_saving")}}
    return {"economics": {**known, "billed_cost": f"{billed:f}", "net_saving": f"{direct - billed:f}"}}


def amended_once(entry: turn.LedgerEntry, further: Sequence[bill.CallCost]) -> turn.LedgerEntry:
    """Adds later calls of internal models to a stored bill, unless it ends with them: nobody knows if it was stored."""
    known = entry.calls[max(0, len(entry.calls) - len(further)) :]
    return entry if list(map(_paid, known)) == list(map(_paid, further)) else amended(entry, further)


def _paid(call: bill.CallCost) -> tuple[object, ...]:
    return call.purpose, call.model, bill.usage_of(call.usage), call.prompt_cost, call.completion_cost


def _without_unpaid(utilization: dict[str, Any]) -> dict[str, Any]:
    """Removes, in place, tokens and cost of an embedder or a guard where none was called."""
    for purpose in ("embedder", "guard"):
        if not utilization["planning_usage"][purpose]:
            del utilization["planning_usage"][purpose], utilization["planning_cost"][f"{purpose}_cost"]
    return utilization


def figures(bill: bill.ResponseMetadata) -> dict[str, Any]:
    """Returns what is logged of a bill: tokens of the primary model, the whole cost in USD, and the strategy."""
    return {
        "prompt_tokens": bill.usage.prompt_tokens if bill.usage else None,
        "completion_tokens": bill.usage.completion_tokens if bill.usage else None,
        "cost": bill.cost.total_cost if bill.cost else None,
        "strategy": bill.context_utilization.strategy if bill.context_utilization else None,
    }


def extended_usage(usage: dict[str, Any], calls: tuple[bill.CallCost, ...], sums: Sums | None = None) -> dict[str, Any]:
    """Returns upstream's usage with `cost`, everything that this request cost in USD, and its parts."""
    cost, planning = sums or total_cost(calls)
    inference = None
    if cost.prompt_cost is not None and cost.completion_cost is not None:
        inference = cost.prompt_cost + cost.completion_cost
    details = {
        "upstream_inference_cost": inference,
        "planner_cost": planning.planner_cost,
        "summarizer_cost": planning.summarizer_cost,
    }
    made = {call.purpose for call in calls}
    if "embedder" in made:
        details["embedder_cost"] = planning.embedder_cost
    if "guard" in made:
        details["guard_cost"] = planning.guard_cost
    return {**usage, "cost": cost.total_cost, "cost_details": details}
