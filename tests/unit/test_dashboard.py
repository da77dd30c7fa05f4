"""The dashboard in `deploy/grafana` shows what `/metrics` tells, under its real names (guarantee §9)."""

import json
import re
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.api.operations import render
from gateway.core.instrumentation.metrics import SHARE_BUCKETS, BucketHistogram, MetricCounts
from tests.support.container import DEPLOY

DASHBOARD: Any = json.loads((DEPLOY / "grafana/context-gateway.json").read_text())
PANELS: list[Any] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES: list[tuple[str, str, str]] = [
    (panel["title"], target["expr"], target["legendFormat"]) for panel in PANELS for target in panel["targets"]
]
METRIC = re.compile(r"\b((?:gateway|process)_[a-z_]+)")
SELECTED = re.compile(r"(?:\{|,)\s*(\w+)\s*(?:=~|!=|!~|=)")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
OF_PROMETHEUS = {"instance", "le"}
WANTED = {
    "gateway_requests_total",
    "gateway_request_duration_seconds_bucket",
    "gateway_time_to_first_chunk_seconds_bucket",
    "gateway_tokens_total",
    "gateway_cost_usd_total",
    "gateway_planning_decisions_total",
    "gateway_planning_fallbacks_total",
    "gateway_cache_reads_total",
    "gateway_upstream_errors_total",
    "gateway_context_window_ratio_bucket",
    "gateway_messages_excluded_total",
    "gateway_warnings_total",
    "gateway_prompt_cache_breaks_total",
}


def told() -> dict[str, set[str]]:
    """The names of all samples of a page on which everything was counted once, and the labels that they have."""
    counts = MetricCounts()
    counts.requests["/v1/chat/completions", "POST", "m", "true", "200"] += 1
    counts.durations["/v1/chat/completions", "m", "true"] = counts.first_chunks[("m",)] = BucketHistogram()
    counts.window_shares[("m",)] = BucketHistogram(SHARE_BUCKETS)
    counts.messages_excluded[("m",)] = counts.warnings[("w",)] = counts.prefix_breaks["m", "branched"] = 1
    counts.cache_bytes[("indexes",)] = counts.unpriced[("m",)] = 1
    counts.cache_reads["indexes", "hit"] = counts.bills["m", "complete"] = 1
    counts.tokens["m", "primary", "prompt"] = counts.upstream_errors["m", "upstream_500"] = 1
    counts.costs["m", "primary"] = Decimal(1)
    counts.internal_calls["planner", "ok"] = counts.decisions["fits", "true"] = 1
    counts.fallbacks[("no_planner",)] = counts.summaries[("hit",)] = 1
    page, _ = render(counts, "")
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


TOLD = told()


@pytest.mark.parametrize(("title", "query", "legend"), QUERIES, ids=[f"{t}: {n}" for t, _, n in QUERIES])
def test_every_metric_and_label_of_a_panel_is_told(title: str, query: str, legend: str) -> None:
    metrics = set(METRIC.findall(query))
    assert metrics, title
    assert metrics <= TOLD.keys()
    known = set.union(OF_PROMETHEUS, *(TOLD[name] for name in metrics))
    grouped = {label.strip() for group in GROUPED.findall(query) for label in group.split(",")}
    shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
    assert {*SELECTED.findall(query), *grouped, *shown} <= known
    assert shown <= grouped | {"instance"}
    assert query.count("(") == query.count(")")


def test_what_an_operator_looks_for_is_shown() -> None:
    assert {name for _, query, _ in QUERIES for name in METRIC.findall(query)} >= WANTED


def test_it_reads_the_chosen_data_source_and_models() -> None:
    chosen, model = DASHBOARD["templating"]["list"]
    assert (chosen["name"], chosen["type"], chosen["query"]) == ("datasource", "datasource", "prometheus")
    (metric, label) = re.findall(r"\w+", model["definition"].removeprefix("label_values"))
    assert label in TOLD[metric]
    for panel in PANELS:
        sources = [panel["datasource"], *(each["datasource"] for each in panel["targets"])]
        assert {source["uid"] for source in sources} == {"${datasource}"}


def test_panels_stand_beside_each_other() -> None:
    """Each with an id of its own, in a grid of 24 columns."""
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above
