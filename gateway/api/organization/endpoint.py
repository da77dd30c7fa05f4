"""`GET /v1/organization/costs` and `/v1/organization/usage/…`, as openai-python's admin resources read them (§13.4).

Any key sees its own tenant, one of role `admin` all tenants. A body has OpenAI's fields and no other, so headers carry
the rest: how many of these requests have a call without a price, how many bills are in no sums yet, the net savings,
and for how many requests they are not known. With `include` for savings, each result has them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from starlette.routing import Route

from gateway.api.api_call import received
from gateway.api.auth import KeyAuthenticator, check_apart, seen_tenant
from gateway.api.organization.parameters import (
    COMPLETIONS,
    COSTS,
    EMBEDDINGS,
    USAGE_GROUPS,
    ReportParameters,
    ReportRequest,
    asked,
)
from gateway.api.server.asgi import Receive, Scope, Send, send_json
from gateway.api.shapes import Unix, many, shape
from gateway.core import ports
from gateway.core.frozen_records import record
from gateway.core.types import audit_log, bill
from gateway.storage import audit_events
from gateway.storage.database import DatabaseTransactions
from gateway.storage.reports import CostReports

UNPRICED, MISSING = "x-gateway-unpriced-requests", "x-gateway-missing-bills"
NET_SAVING, UNMETERED = "x-gateway-net-saving-usd", "x-gateway-unmetered-requests"
CONVERSATION = "conversation_id"
"""A group of costs that OpenAI does not have; a result has it if the request asks for it."""
GROUPS = {
    "project_id": "project_id",
    "user_id": "user",
    "api_key_id": "key",
    "model": "model",
    "line_item": "model",
    CONVERSATION: "conversation",
}
"""OpenAI's groups, by those of `core.types.bill`; bills do not have OpenAI's others."""
PLANNING = "context planning"
SIDES = ("input", "input_cached", "output")
Named = Mapping[str, str | None]
Results = Callable[[ReportRequest, bill.CostRow, Named], Iterable[dict[str, Any]]]


GROUPED = " ".join(USAGE_GROUPS)
COUNTED_APART = " ".join(f"{side}_{kind}_tokens" for side in SIDES for kind in ("text", "audio", "image"))
CompletionsUsage = shape(
    "CompletionsUsage",
    "Tokens of primary models; what is not counted apart is null.",
    {
        "object": Literal["organization.usage.completions.result"],
        "input_tokens output_tokens input_cached_tokens input_cache_write_tokens input_uncached_tokens": int,
        "num_model_requests": int,
        f"{GROUPED} service_tier": str | None,
        COUNTED_APART: int | None,
        "batch": bool | None,
    },
)
EmbeddingsUsage = shape(
    "EmbeddingsUsage",
    "Tokens that were embedded.",
    {
        "object": Literal["organization.usage.embeddings.result"],
        "input_tokens num_model_requests": int,
        GROUPED: str | None,
    },
)
Amount = shape("CostAmount", "USD, with all their digits.", {"value": Decimal, "currency": Literal["usd"]})
OrganizationCost = shape(
    "OrganizationCost",
    "What requests cost, as far as prices are known; null where it was not grouped by. With `include=net_saving` "
    "also what they would have cost without a gateway.",
    {
        "object": Literal["organization.costs.result"],
        "amount": Amount,
        "quantity": float | None,
        "project_id api_key_id line_item conversation_id?": str | None,
        "net_saving? direct_cost?": Amount | None,
        "unmetered_requests?": int,
    },
)


def reports_of(result: Any) -> Any:
    """Makes the type of a page of buckets, whose results are of the type `result`."""
    bucket = shape(
        f"{result.__name__}Bucket",
        "A day, an hour or a minute (UTC), from `start_time` on and before `end_time`; empty where nobody asked.",
        {"object": Literal["bucket"], "start_time end_time": Unix, "results": many(result)},
    )
    name = {OrganizationCost: "Costs", CompletionsUsage: "Completions", EmbeddingsUsage: "Embeddings"}[result]
    about = "A page of buckets; the next one is `page=` its `next_page`."
    fields = {"object": Literal["page"], "data": many(bucket), "has_more": bool, "next_page": str | None}
    return shape(f"Organization{name}", about, fields)


@dataclass(eq=False, slots=True)
class OrganizationEndpoint:
    """One of the endpoints."""

    reports: CostReports
    auth: KeyAuthenticator
    clock: ports.Clock
    trail: audit_events.AuditLog
    what: "ReportKind"
    path: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = (await received(scope, receive, self.auth, None)).caller
        check_apart(scope, caller, "usage and costs")
        request = asked(scope["query_string"].decode("latin-1"), self.what.kind, self.clock.now())
        tenant = seen_tenant(caller)
        body, headers = await self._page(request, tenant)
        if tenant is None:
            await self.trail.saw(audit_log.NewEvent(audit_log.actor_of(caller), "organization.seen", self.path))
        await send_json(send, 200, body, headers)

    async def _page(self, request: ReportRequest, tenant: str | None) -> tuple[dict[str, Any], dict[str, str]]:
        buckets = request.buckets.on_page()
        groups = [name for name in request.group_by if name in GROUPS]
        found = bill.CostReport(())
        if buckets and not request.batch:  # no batch job goes by the gateway
            by = (request.buckets.width.unit, *(GROUPS[name] for name in groups))
            since, until = _time(buckets[0].start), _time(buckets[-1].end)
            query = bill.CostQuery(
                by,
                since,
                until,
                tenant,
                models=request.models,
                users=request.user_ids,
                keys=request.api_key_ids,
                projects=request.project_ids,
                endpoints=self.what.endpoints,
            )
            found = await self.reports.report(query)
        results: dict[str | None, list[dict[str, Any]]] = {}
        for row in found.rows:
            named = dict(zip(groups, row.names[1:], strict=True))
            results.setdefault(row.names[0], []).extend(self.what.results(request, row, named))
        data = [
            {"object": "bucket", "start_time": each.start, "end_time": each.end, "results": results.get(each.key, [])}
            for each in buckets
        ]
        next_page = request.buckets.next_page(buckets)
        body = {"object": "page", "data": data, "has_more": next_page is not None, "next_page": next_page}
        counts = {UNPRICED: found.total.unpriced, MISSING: found.missing}
        if self.what.kind is COSTS:
            counts[UNMETERED] = found.total.unmetered
        headers = {name: str(count) for name, count in counts.items() if count}
        if self.what.kind is COSTS and found.total.net_saving is not None:
            headers[NET_SAVING] = f"{found.total.net_saving:f}"
        return body, headers


@record
class ReportKind:
    """What an endpoint reports, and how."""

    kind: ReportParameters
    endpoints: tuple[str | None, ...]
    results: Results


def _completions(request: ReportRequest, row: bill.CostRow, named: Named) -> Iterable[dict[str, Any]]:
    """Yields the result for completions. Text, audio and images, which are not counted apart, are null."""
    sums = row.sums
    yield {
        "object": "organization.usage.completions.result",
        "input_tokens": sums.prompt_tokens,
        "output_tokens": sums.completion_tokens,
        "input_cached_tokens": sums.cached_tokens,
        "input_cache_write_tokens": sums.cache_write_tokens,
        "input_uncached_tokens": max(0, sums.prompt_tokens - sums.cached_tokens - sums.cache_write_tokens),
        "num_model_requests": sums.requests,
        **_named(named, "project_id", "user_id", "api_key_id", "model"),
        "batch": False if "batch" in request.group_by else None,
        "service_tier": None,
        **dict.fromkeys(COUNTED_APART.split()),
    }


def _embeddings(_request: ReportRequest, row: bill.CostRow, named: Named) -> Iterable[dict[str, Any]]:
    yield {
        "object": "organization.usage.embeddings.result",
        "input_tokens": row.sums.prompt_tokens,
        "num_model_requests": row.sums.requests,
        **_named(named, "project_id", "user_id", "api_key_id", "model"),
    }


def _costs(request: ReportRequest, row: bill.CostRow, named: Named) -> Iterable[dict[str, Any]]:
    """Yields the line of a model, and one for the planning of its requests: together they are the whole cost."""
    lines: list[tuple[str | None, Decimal]] = [(None, row.sums.cost)]
    if "line_item" in request.group_by:
        model = named["line_item"]
        lines = [(model, row.sums.cost - row.sums.planning)]
        if row.sums.planning_cost_picousd:
            lines.append((f"{model}, {PLANNING}", row.sums.planning))
    for number, (line_item, cost) in enumerate(lines):
        yield {
            "object": "organization.costs.result",
            "amount": {"value": cost, "currency": "usd"},
            "line_item": line_item,
            **_named(named, "project_id", "api_key_id"),
            "quantity": None,
            **({} if number or not request.with_savings else _savings(row.sums)),
            **({CONVERSATION: named[CONVERSATION]} if CONVERSATION in named else {}),
        }


def _savings(sums: bill.CostSums) -> dict[str, Any]:
    """Returns the cost of a result's requests without a gateway, and the net savings; in the first line of a model
    alone, so that all lines add up."""
    amounts = {"net_saving": sums.net_saving, "direct_cost": sums.direct}
    told = {name: None if usd is None else {"value": usd, "currency": "usd"} for name, usd in amounts.items()}
    return {**told, "unmetered_requests": sums.unmetered}


def _named(named: Named, *names: str) -> dict[str, str | None]:
    return {name: named.get(name) for name in names}


def _time(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


USAGE_OF_COMPLETIONS = ReportKind(COMPLETIONS, (None, "completions", "responses", "messages"), _completions)
USAGE_OF_EMBEDDINGS = ReportKind(EMBEDDINGS, ("embeddings",), _embeddings)
ALL_COSTS = ReportKind(COSTS, (), _costs)


def organization_routes(
    transactions: DatabaseTransactions, auth: KeyAuthenticator, clock: ports.Clock, trail: audit_events.AuditLog
) -> list[Route]:
    reports = CostReports(transactions)
    usage = (("usage/completions", USAGE_OF_COMPLETIONS), ("usage/embeddings", USAGE_OF_EMBEDDINGS))
    return [
        Route(
            f"/v1/organization/{path}", OrganizationEndpoint(reports, auth, clock, trail, what, path), methods=["GET"]
        )
        for path, what in (("costs", ALL_COSTS), *usage)
    ]
