"""What is counted as families of samples, under the names that `/metrics` and OTLP both tell (guarantee §9).

Prometheus' library is loaded when it is first asked.
"""

from collections.abc import Iterable
from typing import Any

from gateway.core.instrumentation.metrics import BucketHistogram, MetricCounts


def families(counts: MetricCounts) -> Iterable[Any]:
    """Each metric with its samples, as `prometheus_client` has them."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    yield GaugeMetricFamily("gateway_requests_in_flight", "Requests being answered now.", counts.in_flight)
    text = "Memory of conversations that are kept in the process."
    yield GaugeMetricFamily("gateway_kept_conversation_bytes", text, counts.kept_bytes)
    text = "Requests that began with the bytes of an earlier one."
    yield CounterMetricFamily("gateway_requests_recognised", text, counts.recognised)
    yield from _of_memory(counts)
    labels = ["endpoint", "method", "model", "stream", "status"]
    yield _counter("gateway_requests", "Requests answered; 499: the client left.", labels, counts.requests)
    text = "From a request's arrival to the end of its answer."
    yield _histogram("gateway_request_duration_seconds", text, ["endpoint", "model", "stream"], counts.durations)
    text = "From a request's arrival to the first chunk of its stream."
    yield _histogram("gateway_time_to_first_chunk_seconds", text, ["model"], counts.first_chunks)
    yield _counter("gateway_bills", "Rows of the ledger.", ["model", "status"], counts.bills)
    text = "Bills without a total: a model that was called for them, internal ones too, has no known price."
    yield _counter("gateway_unpriced_bills", text, ["model"], counts.unpriced)
    text = "Tokens by the model asked for, and for what."
    yield _counter("gateway_tokens", text, ["model", "purpose", "kind"], counts.tokens)
    text = "USD by the model asked for, and for what; calls without a known price are in none."
    yield _counter("gateway_cost_usd", text, ["model", "purpose"], counts.costs)
    text = "USD that requests cost less than without a gateway; less gateway_net_lost_usd it is the net saving."
    yield _counter("gateway_net_saved_usd", text, ["model"], counts.net_savings)
    text = "USD that requests cost more than without a gateway: planners, summaries, rewritten prompt caches."
    yield _counter("gateway_net_lost_usd", text, ["model"], counts.net_losses)
    text = "Tokens of tool results that were read again within a few steps of being cut."
    yield _counter("gateway_bounced_tokens", text, ["model"], counts.bounced_tokens)
    text = "USD of these; bills have it."
    yield _counter("gateway_bounced_usd", text, ["model"], counts.bounced_costs)
    text = "Bills of which nobody knows what they would have cost without a gateway."
    yield _counter("gateway_unmetered_bills", text, ["model"], counts.unmetered)
    text = "Errors that upstreams gave instead of an answer."
    yield _counter("gateway_upstream_errors", text, ["model", "code"], counts.upstream_errors)
    text = "Requests that came to a budget or limit, by whose it is: refused, or with budget_soft warned."
    yield _counter("gateway_limited", text, ["holder", "limit"], counts.limited)
    text = "Times that budgets or limits could not be checked."
    yield CounterMetricFamily("gateway_limits_unavailable", text, counts.limits_down)
    text = "Further tries before an answer began, by the error before."
    yield _counter("gateway_upstream_retries", text, ["reason"], counts.retries)
    text = "Models that were asked instead of another that failed, by kind."
    yield _counter("gateway_fallbacks", text, ["kind"], counts.other_models)
    yield from _of_windows(counts)
    yield from _of_planning(counts)
    yield from _of_deployments(counts)


def _of_memory(counts: MetricCounts) -> Iterable[Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    text = "Memory of search indexes, and of the cache's values where there is no Redis."
    yield _labelled(GaugeMetricFamily("gateway_cache_bytes", text, labels=["cache"]), counts.cache_bytes)
    text = "What was looked for in what the process and its cache keep: hit or miss."
    yield _counter("gateway_cache_reads", text, ["cache", "result"], counts.cache_reads)
    yield GaugeMetricFamily("gateway_turns_running", "Turns under way that will be stored.", counts.turns_running)
    yield GaugeMetricFamily("gateway_hook_events_waiting", "Events that wait for their hooks.", counts.hooks_waiting)
    text = "Events that no hook was told of, as too many were waiting."
    yield CounterMetricFamily("gateway_hook_events_lost", text, counts.hooks_lost)
    text = "Planners that are not asked for a while, as far as this process has noticed."
    yield GaugeMetricFamily("gateway_planners_resting", text, counts.planners_resting)


def _of_windows(counts: MetricCounts) -> Iterable[Any]:
    text = "Share of the model's window that prompts took, where it is known."
    yield _histogram("gateway_context_window_ratio", text, ["model"], counts.window_shares)
    text = "Messages of conversations that requests did not forward, as they left the window."
    yield _counter("gateway_messages_excluded", text, ["model"], counts.messages_excluded)
    text = "Warnings on bills, by kind."
    yield _counter("gateway_warnings", text, ["kind"], counts.warnings)
    text = "Requests that did not begin with what the one before in their conversation forwarded."
    yield _counter("gateway_prompt_cache_breaks", text, ["model", "reason"], counts.prefix_breaks)


def _of_planning(counts: MetricCounts) -> Iterable[Any]:
    text = "Calls of internal models, for what, and what came of them."
    yield _counter("gateway_internal_calls", text, ["purpose", "outcome"], counts.internal_calls)
    text = "Bills by why a plan was called for or not, and whether a planner's plan was used."
    yield _counter("gateway_planning_decisions", text, ["reason", "planned"], counts.decisions)
    text = "Bills by why there is no plan where one was called for, or not all of it."
    yield _counter("gateway_planning_fallbacks", text, ["reason"], counts.fallbacks)
    text = "Summaries that plans asked for: hit (paid for before, or by another request at once) or miss."
    yield _counter("gateway_summaries", text, ["result"], counts.summaries)
    text = "What answers named that were asked to cite: found, or dropped as nothing that was sent."
    yield _counter("gateway_citations", text, ["model", "result"], counts.citations)


def _of_deployments(counts: MetricCounts) -> Iterable[Any]:
    yield _gauge("gateway_deployment_in_flight", "Calls under way.", ["deployment"], counts.deployments_in_flight)
    text = "1 while a deployment rests since it failed, as far as this process has seen."
    yield _gauge("gateway_deployment_resting", text, ["deployment"], counts.deployments_resting)
    text = "Failures that count against a deployment."
    yield _counter("gateway_deployment_failures", text, ["deployment", "code"], counts.deployment_failures)


def _gauge(name: str, text: str, labels: list[str], values: dict[Any, Any]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return _labelled(GaugeMetricFamily(name, text, labels=labels), values)


def _counter(name: str, text: str, labels: list[str], values: dict[Any, Any]) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return _labelled(CounterMetricFamily(name, text, labels=labels), values)


def _labelled(family: Any, values: dict[Any, Any]) -> Any:
    for key, value in sorted(values.items()):
        family.add_metric(key, float(value))
    return family


def _histogram(name: str, text: str, labels: list[str], values: dict[Any, BucketHistogram]) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, text, labels=labels)
    for key, histogram in sorted(values.items()):
        counted, buckets = 0, []
        for bound, count in zip([*map(repr, histogram.bounds), "+Inf"], histogram.counts, strict=True):
            counted += count
            buckets.append((bound, float(counted)))
        family.add_metric(key, buckets, histogram.total)
    return family
