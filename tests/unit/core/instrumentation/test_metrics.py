"""What is counted, under which labels, and at what price (guarantee §9)."""

from dataclasses import fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.api.operations import render
from gateway.billing.cost import price_call
from gateway.core.errors import InvalidRequest, UpstreamError, UpstreamOverflow, UpstreamRefused, UpstreamTimeout
from gateway.core.instrumentation.metrics import MAX_REASONS, MAX_UNLISTED, GatewayMetrics, WindowUse, endpoint_of
from gateway.core.types.bill import Purpose
from gateway.core.types.turn import LedgerEntry, LedgerFigures, TurnStatus

PRICES = {"input_cost_per_token": Decimal("1e-06"), "output_cost_per_token": Decimal("2e-06")}
USAGE = {"prompt_tokens": 10, "completion_tokens": 5}


def entry(model: str, status: TurnStatus = "complete", prices: Any = PRICES, **purposes: Any) -> LedgerEntry:
    """A bill with a primary call, and further ones by purpose."""
    calls = (price_call("primary", "m", USAGE, prices), *(price_call(p, "m", u, PRICES) for p, u in purposes.items()))
    return LedgerEntry("req_1", "tenant-7", None, None, model, status, False, datetime.now(UTC), {}, calls)


def samples(metrics: GatewayMetrics) -> dict[tuple[str, ...], float]:
    """What a scrape says: name and label values, sorted by label name, to value."""
    text = render(metrics.snapshot(), "")[0].decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_bill() -> None:
    """Tokens and USD by the model asked for and by purpose; what has no price is in no sum."""
    metrics = GatewayMetrics(["a"])
    metrics.billed(entry("a", planner={"prompt_tokens": 3, "completion_tokens": 1}))
    metrics.billed(entry("a", "partial", prices={}, summarizer={"prompt_tokens": 2}))
    found = samples(metrics)
    assert found["gateway_tokens_total", "prompt", "a", "primary"] == 20
    assert found["gateway_tokens_total", "completion", "a", "planner"] == 1
    assert found["gateway_cost_usd_total", "a", "primary"] == 0.00002
    assert found["gateway_cost_usd_total", "a", "planner"] == 0.000005
    assert found["gateway_unpriced_bills_total", "a"] == 1
    assert (found["gateway_bills_total", "a", "complete"], found["gateway_bills_total", "a", "partial"]) == (1, 1)


def test_s13_13_savings_and_losses_are_counters_each() -> None:
    """Their difference is the net saving; what is paid behind an answer is a loss, where its bill is in it."""

    def saved(net: str | None) -> LedgerEntry:
        return replace(entry("a"), figures=LedgerFigures(net_saving=None if net is None else Decimal(net)))

    metrics = GatewayMetrics(["a"])
    for net in ("0.75", "-0.25", "0", "0.5", None):
        metrics.billed(saved(net))
    summary = price_call("summarizer", "s", USAGE, PRICES)
    metrics.amended("a", [summary], saved("0.5"), saved("0.125"))
    metrics.amended("a", [summary], saved(None), saved(None))
    metrics.amended("a", [summary], None, None)
    found = samples(metrics)
    assert (found["gateway_net_saved_usd_total", "a"], found["gateway_net_lost_usd_total", "a"]) == (1.25, 0.625)
    assert found["gateway_unmetered_bills_total", "a"] == 1
    metrics.amended("a", [summary], saved("0.5"), saved(None))
    found = samples(metrics)
    assert (found["gateway_net_saved_usd_total", "a"], found["gateway_net_lost_usd_total", "a"]) == (1.25, 1.125)
    assert found["gateway_unmetered_bills_total", "a"] == 2


@pytest.mark.parametrize("purpose", ["planner", "summarizer", "embedder"])
def test_a_bill_without_a_total_is_counted_whichever_call_has_no_price(purpose: Purpose) -> None:
    metrics = GatewayMetrics(["a"])
    priced = entry("a")
    call = price_call(purpose, "nobodys", USAGE, {})
    metrics.billed(replace(priced, calls=(*priced.calls, call, call)))
    metrics.billed(priced)
    assert samples(metrics)["gateway_unpriced_bills_total", "a"] == 1


def test_requests_and_times() -> None:
    """In-flight goes up and down; each time falls into every bucket from its own on."""
    metrics = GatewayMetrics(["a"])
    metrics.began()
    metrics.began()
    metrics.ended("POST", "/v1/chat/completions", 200, 0.3, {"model": "a", "stream": True})
    metrics.first_chunk("a", 0.07)
    found = samples(metrics)
    chat = "/v1/chat/completions"
    assert found["gateway_requests_in_flight",] == 1
    assert found["gateway_requests_total", chat, "POST", "a", "200", "true"] == 1
    assert found["gateway_request_duration_seconds_bucket", chat, "0.25", "a", "true"] == 0
    assert found["gateway_request_duration_seconds_bucket", chat, "0.5", "a", "true"] == 1
    assert found["gateway_request_duration_seconds_bucket", chat, "+Inf", "a", "true"] == 1
    assert found["gateway_request_duration_seconds_sum", chat, "a", "true"] == 0.3
    assert found["gateway_time_to_first_chunk_seconds_count", "a"] == 1


def test_names_that_clients_make_up_do_not_pile_up() -> None:
    """A name that no model answered to is `other`; of those that did, no more than a bounded number have a label."""
    metrics = GatewayMetrics(["listed"])
    for number in range(3 * MAX_UNLISTED):
        metrics.billed(entry(f"failed-{number}", "failed"))
    for name in ("x" * 500, "new\nline", "\udcff", "\x1b[2J"):
        metrics.billed(entry(name))
    assert {key[1] for key in samples(metrics) if key[0] == "gateway_bills_total"} == {"other"}
    for number in range(3 * MAX_UNLISTED):
        metrics.billed(entry(f"answered-{number}"))
    metrics.billed(entry("listed"))
    found = {key[1] for key in samples(metrics) if key[0] == "gateway_bills_total"}
    assert len(found) == MAX_UNLISTED + 2
    assert {"other", "listed", "answered-0"} <= found


def planning_told(
    reason: str | None, fallback: str | None, *, used: bool, hits: int = 0, misses: int = 0
) -> LedgerEntry:
    """A bill that tells of planning."""
    stats = {"hits": hits, "misses": misses}
    told = {"planning_reason": reason, "fallback_reason": fallback, "llm_planning_used": used, "cache_stats": stats}
    return replace(entry("a"), metadata={"context_utilization": told})


def test_s5_what_came_of_planning() -> None:
    """Decisions by reason, fallbacks by theirs, summaries that were paid for before, calls by outcome."""
    metrics = GatewayMetrics(["a"])
    metrics.billed(planning_told("near_limit", None, used=True, hits=2, misses=1))
    metrics.billed(planning_told("near_limit", "planner_timeout", used=False))
    metrics.billed(planning_told("no_artifacts", None, used=False))
    metrics.billed(entry("a"))
    metrics.internal_call_ended("planner", "timeout")
    found = samples(metrics)
    assert found["gateway_planning_decisions_total", "true", "near_limit"] == 1
    assert found["gateway_planning_decisions_total", "false", "near_limit"] == 1
    assert found["gateway_planning_decisions_total", "false", "no_artifacts"] == 1
    assert (found["gateway_summaries_total", "hit"], found["gateway_summaries_total", "miss"]) == (2, 1)
    assert found["gateway_internal_calls_total", "timeout", "planner"] == 1
    fallbacks = {key: value for key, value in found.items() if key[0] == "gateway_planning_fallbacks_total"}
    assert fallbacks == {("gateway_planning_fallbacks_total", "planner_timeout"): 1}


def test_reasons_for_a_fallback_do_not_pile_up() -> None:
    metrics = GatewayMetrics(["a"])
    for number in range(3 * MAX_REASONS):
        metrics.billed(planning_told("near_limit", f"reason_{number}", used=False))
    found = [key[1] for key in samples(metrics) if key[0] == "gateway_planning_fallbacks_total"]
    assert len(found) == MAX_REASONS + 1
    assert "other" in found


def test_what_is_told_of_windows_when_nothing_is_known() -> None:
    """Of no request, of a window that nobody knows, and in mode `off`; kinds of warnings do not pile up."""
    metrics = GatewayMetrics(["a"])
    names = set(WindowUse._fields)
    assert {name: metrics.windows()[name] for name in names} == dict.fromkeys(names)
    told = planning_told(None, None, used=False)
    for number in range(3 * MAX_REASONS):
        used = told.metadata["context_utilization"] | {"warnings": [f"kind_{number}: more", "same"]}
        metrics.billed(replace(told, metadata={"context_utilization": used}))
    assert metrics.windows()["requests"] == 0
    used = used | {"tokens_used": 40, "breakdown": {"system": 9, "history": 3}, "warnings": []}
    metrics.billed(replace(told, metadata={"context_utilization": used}))
    assert metrics.windows()["total_tokens"] == {"average": 40, "max": 40}
    assert metrics.windows()["percent_of_window"] is None
    found = samples(metrics)
    kinds = {key[1] for key in found if key[0] == "gateway_warnings_total"}
    assert len(kinds) == MAX_REASONS + 1
    assert {"other", "same", "kind_0"} <= kinds
    assert not [key for key in found if key[0] == "gateway_context_window_ratio_count"]


def test_labels_are_escaped_and_name_no_tenant() -> None:
    metrics = GatewayMetrics(['a"} 1\\'])
    metrics.billed(entry('a"} 1\\'))
    assert samples(metrics)["gateway_bills_total", 'a"} 1\\', "complete"] == 1
    assert b"tenant-7" not in render(metrics.snapshot(), "")[0]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UpstreamRefused(429, {"error": {"code": "whatever an upstream says"}}, {}), "upstream_429"),
        (UpstreamOverflow({}, {}, None, None), "context_length_exceeded"),
        (UpstreamTimeout("late"), "upstream_timeout"),
        (UpstreamError("odd", code="made up"), "upstream_error"),
    ],
)
def test_upstream_errors(error: UpstreamError, code: str) -> None:
    metrics = GatewayMetrics(["a"])
    metrics.upstream_failed("a", error)
    metrics.upstream_failed("a", InvalidRequest("not the upstream's"))
    found = {key: value for key, value in samples(metrics).items() if key[0] == "gateway_upstream_errors_total"}
    assert found == {("gateway_upstream_errors_total", code, "a"): 1}


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/chatcmpl-1", "/v1/chat/completions/{id}"),
        ("/v1/models/a/b", "/v1/models/{id}"),
        ("/v1/audio/speech", "/v1/audio"),
        ("/v1/embeddings", "/v1/embeddings"),
        ("/v1/made-up", "other"),
        ("/.env", "other"),
        ("", "other"),
    ],
)
def test_endpoints_are_few(path: str, endpoint: str) -> None:
    assert endpoint_of(path) == endpoint


def test_a_snapshot_stays_as_it_is() -> None:
    """Another thread writes it out while requests go on."""
    metrics = GatewayMetrics(["a"])
    metrics.billed(entry("a"))
    metrics.upstream_failed("a", UpstreamTimeout("late"))
    metrics.first_chunk("a", 1)
    metrics.began()
    metrics.ended("GET", "/metrics", 200, 1, {})
    before = metrics.snapshot()
    text = render(before, "")[0].split(b"# HELP process")[0]
    metrics.billed(entry("a", prices={}))
    metrics.upstream_failed("a", UpstreamTimeout("late"))
    metrics.first_chunk("a", 1)
    metrics.began()
    metrics.ended("GET", "/metrics", 200, 1, {})
    metrics.began()
    assert render(before, "")[0].split(b"# HELP process")[0] == text
    after = metrics.snapshot()
    kept = [each.name for each in fields(before) if not isinstance(getattr(before, each.name), int)]
    assert len(kept) > 10
    assert all(getattr(before, name) is not getattr(after, name) for name in kept)
