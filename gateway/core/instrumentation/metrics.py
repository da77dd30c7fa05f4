"""Counts of what happened, for `GET /metrics` and OTLP, as families of samples (guarantee §9). No count names a tenant.

Plain dicts and lists, written on the event loop's thread alone: counting takes a few microseconds a request and needs
neither locks nor Prometheus' library, which is loaded when metrics are first requested. With several workers, each
writes its counts to a file that only they can read; the worker that is asked adds them up.
"""

import contextlib
import fcntl
import os
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple

from gateway.core import errors, jsons
from gateway.core.clock import SystemClock
from gateway.core.instrumentation.logs import get_logger
from gateway.core.types.bill import CallCost, Purpose, usage_of
from gateway.core.types.turn import LedgerEntry

SECONDS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
SHARE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
OTHER = "other"
REFUSED_ALL = (401, 403, 408, 429)
"""Statuses with which an upstream refuses every request for now."""
MAX_UNLISTED = 100
"""Models outside `model_list` that have a label of their own."""
LONGEST_NAME = 128
"""Maximum characters of an unlisted model's label."""
MAX_REASONS = 50
"""Labels for reasons of a fallback, and for kinds of warnings; there are about half as many."""
MAX_RECENT = 100
"""Requests whose windows are summarized for health."""
COUNTED_ENDPOINTS = (
    "/health/live",
    "/health/ready",
    "/metrics",
    "/mcp",
    "/v1/chat/completions",
    "/v1/models",
    "/api/v1/chat",
    "/api/v1/chat/stream",
)
PAGE_LABEL = "/ui"
"""The web UI, with all paths below it."""
RELAYED_PATH_LABELS = frozenset(
    {
        *("audio", "batches", "completions", "compress", "conversations", "embeddings", "files", "fine_tuning"),
        *("images", "messages", "moderations", "responses", "uploads", "vector_stores"),
    }
)
"""First segments of paths below `/v1/`: each is a label of its own."""
CLOCK = SystemClock()
COUNTED_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))


class BucketHistogram:
    """Counts values by bucket: within each of `bounds`, and last, beyond them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS_BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts a value, such as a time in seconds."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> "BucketHistogram":
        copied = BucketHistogram(self.bounds)
        copied.counts, copied.total = self.counts.copy(), self.total
        return copied


def _histograms(bounds: Sequence[float] = SECONDS_BUCKETS) -> dict[Any, BucketHistogram]:
    return defaultdict(partial(BucketHistogram, bounds))


def _sums() -> dict[Any, Decimal]:
    return defaultdict(Decimal)


def _metric(kind: str, name: str, labels: str, text: str, make: Callable[[], Any] | None = None) -> Any:
    """Returns a field of `MetricCounts`, with how it is exported: see `MetricRow`. `make`: its value before anything is
    counted, unless that is 0 or an empty `Counter`."""
    about = {"kind": kind, "name": name, "labels": labels, "text": text}
    return field(default_factory=make or (Counter if labels else int), metadata=about)


_gauge, _counter = partial(_metric, "gauge"), partial(_metric, "counter")
_histogram = partial(_metric, "histogram", make=_histograms)


@dataclass(slots=True)
class MetricCounts:
    """Everything counted since the process began; the keys are the values of the labels."""

    # fmt: off
    in_flight: int = _gauge("gateway_requests_in_flight", "", "Requests being answered now.")
    kept_bytes: int = _gauge("gateway_kept_conversation_bytes", "",
        "Memory of conversations that are kept in the process.")
    recognised: int = _counter("gateway_requests_recognised", "",
        "Requests that began with the bytes of an earlier one.")
    cache_bytes: Counter[tuple[str]] = _gauge("gateway_cache_bytes", "cache",
        "Memory of search indexes, and of the cache's values where there is no Redis.")
    """By `indexes` and `values`."""
    cache_reads: Counter[tuple[str, str]] = _counter("gateway_cache_reads", "cache result",
        "What was looked for in what the process and its cache keep: hit or miss.")
    """By `paths` of conversations, search `indexes`, `documents`; and `hit` or `miss`."""
    turns_running: int = _gauge("gateway_turns_running", "", "Turns under way that will be stored.")
    hooks_waiting: int = _gauge("gateway_hook_events_waiting", "", "Events that wait for their hooks.")
    hooks_lost: int = _counter("gateway_hook_events_lost", "",
        "Events that no hook was told of, as too many were waiting.")
    planners_resting: int = _gauge("gateway_planners_resting", "",
        "Planners that are not asked for a while, as far as this process has noticed.")
    """By planner and tenant."""
    requests: Counter[tuple[str, str, str, str, str]] = _counter("gateway_requests",
        "endpoint method model stream status", "Requests answered; 499: the client left.")
    durations: dict[tuple[str, str, str], BucketHistogram] = _histogram("gateway_request_duration_seconds",
        "endpoint model stream", "From a request's arrival to the end of its answer.")
    first_chunks: dict[tuple[str], BucketHistogram] = _histogram("gateway_time_to_first_chunk_seconds", "model",
        "From a request's arrival to the first chunk of its stream.")
    bills: Counter[tuple[str, str]] = _counter("gateway_bills", "model status", "Rows of the ledger.")
    unpriced: Counter[tuple[str]] = _counter("gateway_unpriced_bills", "model",
        "Bills without a total: a model that was called for them, internal ones too, has no known price.")
    tokens: Counter[tuple[str, str, str]] = _counter("gateway_tokens", "model purpose kind",
        "Tokens by the model asked for, and for what.")
    """By purpose (`primary`, `failed_try`, `planner`, `summarizer`, `embedder`, `guard`), `prompt` or `completion`."""
    costs: dict[tuple[str, str], Decimal] = _counter("gateway_cost_usd", "model purpose",
        "USD by the model asked for, and for what; calls without a known price are in none.", _sums)
    net_savings: dict[tuple[str], Decimal] = _counter("gateway_net_saved_usd", "model",
        "USD that requests cost less than without a gateway; less gateway_net_lost_usd it is the net saving.", _sums)
    net_losses: dict[tuple[str], Decimal] = _counter("gateway_net_lost_usd", "model",
        "USD that requests cost more than without a gateway: planners, summaries, rewritten prompt caches.", _sums)
    bounced_tokens: Counter[tuple[str]] = _counter("gateway_bounced_tokens", "model",
        "Tokens of tool results that were read again within a few steps of being cut.")
    bounced_costs: dict[tuple[str], Decimal] = _counter("gateway_bounced_usd", "model",
        "USD of these; bills have it.", _sums)
    unmetered: Counter[tuple[str]] = _counter("gateway_unmetered_bills", "model",
        "Bills of which nobody knows what they would have cost without a gateway.")
    upstream_errors: Counter[tuple[str, str]] = _counter("gateway_upstream_errors", "model code",
        "Errors that upstreams gave instead of an answer.")
    limited: Counter[tuple[str, str]] = _counter("gateway_limited", "holder limit",
        "Requests that came to a budget or limit, by whose it is: refused, or with budget_soft warned.")
    """By `all`, `key`, `user`, `model`, `project`; and `budget`, `budget_soft`, `requests`, `tokens`, `concurrent`."""
    limits_down: int = _counter("gateway_limits_unavailable", "", "Times that budgets or limits could not be checked.")
    retries: Counter[tuple[str]] = _counter("gateway_upstream_retries", "reason",
        "Further tries before an answer began, by the error before.")
    other_models: Counter[tuple[str]] = _counter("gateway_fallbacks", "kind",
        "Models that were asked instead of another that failed, by kind.")
    """By `general`, `context_window`, `content_policy`."""
    window_shares: dict[tuple[str], BucketHistogram] = _histogram("gateway_context_window_ratio", "model",
        "Share of the model's window that prompts took, where it is known.", make=partial(_histograms, SHARE_BUCKETS))
    messages_excluded: Counter[tuple[str]] = _counter("gateway_messages_excluded", "model",
        "Messages of conversations that requests did not forward, as they left the window.")
    warnings: Counter[tuple[str]] = _counter("gateway_warnings", "kind", "Warnings on bills, by kind.")
    """By the text before the colon."""
    prefix_breaks: Counter[tuple[str, str]] = _counter("gateway_prompt_cache_breaks", "model reason",
        "Requests that did not begin with what the one before in their conversation forwarded.")
    internal_calls: Counter[tuple[str, str]] = _counter("gateway_internal_calls", "purpose outcome",
        "Calls of internal models, for what, and what came of them.")
    """By `planner` or `summarizer`; and `ok`, `cut`, `rubbish`, `cancelled`, else as `fallback_reason`."""
    decisions: Counter[tuple[str, str]] = _counter("gateway_planning_decisions", "reason planned",
        "Bills by why a plan was called for or not, and whether a planner's plan was used.")
    fallbacks: Counter[tuple[str]] = _counter("gateway_planning_fallbacks", "reason",
        "Bills by why there is no plan where one was called for, or not all of it.")
    summaries: Counter[tuple[str]] = _counter("gateway_summaries", "result",
        "Summaries that plans asked for: hit (paid for before, or by another request at once) or miss.")
    citations: Counter[tuple[str, str]] = _counter("gateway_citations", "model result",
        "What answers named that were asked to cite: found, or dropped as nothing that was sent.")
    deployments_in_flight: Counter[tuple[str]] = _gauge("gateway_deployment_in_flight", "deployment",
        "Calls under way.")
    deployments_resting: Counter[tuple[str]] = _gauge("gateway_deployment_resting", "deployment",
        "1 while a deployment rests since it failed, as far as this process has seen.")
    deployment_failures: Counter[tuple[str, str]] = _counter("gateway_deployment_failures", "deployment code",
        "Failures that count against a deployment.")
    # fmt: on


class MetricRow(NamedTuple):
    """How a field of `MetricCounts` is exported; gauges end with their process. `labels` are separated by blanks."""

    field: str
    kind: Literal["counter", "gauge", "histogram"]
    name: str
    labels: str
    text: str


METRICS = tuple(MetricRow(each.name, **each.metadata) for each in fields(MetricCounts))
"""In the order in which they are exported."""


class WindowUse(NamedTuple):
    """How a request used its model's window: tokens of its system messages, of its history, of workflow specifications,
    and of all; their share of the window in per cent (None: unknown)."""

    system_prompt_tokens: int
    history_tokens: int
    workflow_spec_tokens: int
    total_tokens: int
    percent_of_window: float | None


@dataclass(slots=True)
class UpstreamTrouble:
    """Errors of a model's upstream since its last answer, except those that blame the request. `code` is that of the
    latest."""

    since: datetime
    latest: datetime
    code: str
    errors: int = 1


class GatewayMetrics:
    """Counts requests, bills, calls and faults."""

    def __init__(self, listed: Iterable[str], now: Callable[[], datetime] = CLOCK.now) -> None:
        """`listed` are the names of `model_list`. Other names come from clients: they are counted under their own
        name once an upstream has answered for them, and no more than `MAX_UNLISTED` of them."""
        self._counts = MetricCounts()
        self._labels = {name: name for name in listed}
        self._most_labels = len(self._labels) + MAX_UNLISTED
        self._now = now
        self._recent: deque[WindowUse] = deque(maxlen=MAX_RECENT)
        self._troubles: dict[str, UpstreamTrouble] = {}
        self._last_troubles: dict[str, UpstreamTrouble] = {}

    def began(self) -> None:
        self._counts.in_flight += 1

    def ended(self, method: str, path: str, status: int, seconds: float, facts: dict[str, object]) -> None:
        """Counts an answered request; `facts` are the edge's, if there are any (`model`, `stream`, `citations` …)."""
        counts = self._counts
        counts.in_flight -= 1
        endpoint, model = endpoint_of(path), facts.get("model")
        label = self._labels.get(model, OTHER) if isinstance(model, str) else ""
        stream = "true" if facts.get("stream") else "false"
        method = method if method in COUNTED_METHODS else OTHER
        counts.requests[endpoint, method, label, stream, str(status)] += 1
        for name, result in (("citations", "found"), ("citations_dropped", "dropped")):
            if isinstance(many := facts.get(name), int):
                counts.citations[label, result] += many
        counts.durations[endpoint, label, stream].observe(seconds)

    def first_chunk(self, model: str, seconds: float) -> None:
        """Counts the first chunk of a stream, so many seconds after its request arrived."""
        self._counts.first_chunks[(self._labels.get(model, OTHER),)].observe(seconds)

    def billed(self, entry: LedgerEntry) -> None:
        if entry.status == "complete" and entry.model not in self._labels:
            self._name(entry.model)
        counts, label = self._counts, self._labels.get(entry.model, OTHER)
        counts.bills[label, entry.status] += 1
        if self._troubles and entry.status == "complete":
            self._troubles.pop(label, None)
        for call in entry.calls:
            self._count_call(label, call)
        counts.unpriced[(label,)] += any(call.total is None for call in entry.calls)
        self._count_net(label, _net_saving(entry))
        if entry.figures is not None and entry.figures.bounced_tokens:
            counts.bounced_tokens[(label,)] += entry.figures.bounced_tokens
            counts.bounced_costs[(label,)] += entry.figures.bounced_cost
        used = entry.metadata.get("context_utilization")
        if used is not None:
            self._count_planning(used)
            self._count_window(label, used)

    def prefix_broken(self, model: str, reason: str) -> None:
        """Counts a request that did not begin with what the previous one of its conversation forwarded (§4 I7)."""
        self._counts.prefix_breaks[self._labels.get(model, OTHER), reason] += 1

    def windows(self) -> dict[str, Any]:
        """Summarizes how the latest requests, at most `MAX_RECENT`, used their windows: `average` and `max` of each
        figure of `WindowUse`, null if nothing is known; and all warnings and breaks since the process began."""
        counts, names = self._counts, WindowUse._fields
        columns = zip(*self._recent, strict=True) if self._recent else [()] * len(names)
        return {
            "requests": len(self._recent),
            **{name: _summed_up(values) for name, values in zip(names, columns, strict=True)},
            "warnings": counts.warnings.total(),
            "prompt_cache_breaks": counts.prefix_breaks.total(),
        }

    def amended(
        self, model: str, calls: Iterable[CallCost], before: LedgerEntry | None, now: LedgerEntry | None
    ) -> None:
        """Counts internal calls that a bill gained after the answer, and replaces its net saving `before` by that of
        `now`. None: there is no bill."""
        label = self._labels.get(model, OTHER)
        for call in calls:
            self._count_call(label, call)
        was, net = _net_saving(before), _net_saving(now)
        if was is not None:
            self._count_net(label, (net or Decimal(0)) - was)
            self._counts.unmetered[(label,)] += net is None

    def internal_call_ended(self, purpose: Purpose, outcome: str) -> None:
        """Counts a call of an internal model by its outcome, also one that was not made for lack of budget."""
        self._counts.internal_calls[purpose, outcome] += 1

    def upstream_failed(self, model: str, error: Exception) -> None:
        """Counts an upstream's error in place of an answer, even one that the client never sees because the request was
        repaired. Ignores any other error."""
        if isinstance(error, errors.UpstreamError):
            label, code = self._labels.get(model, OTHER), _code(error)
            self._counts.upstream_errors[label, code] += 1
            is_refused = isinstance(error, errors.UpstreamRefused)
            if not is_refused or error.status >= 500 or error.status in REFUSED_ALL:  # it blames the upstream
                self._note(label, code, self._now())

    def limited(self, whose: str, what: str) -> None:
        """Counts a request that reached a budget or limit."""
        self._counts.limited[whose, what] += 1

    def limits_down(self) -> None:
        self._counts.limits_down += 1

    def retried(self, error: Exception) -> None:
        """Counts another try of a call, after this error."""
        self._counts.retries[(_code(error) if isinstance(error, errors.UpstreamError) else OTHER,)] += 1

    def fell_back(self, kind: str) -> None:
        self._counts.other_models[(kind,)] += 1

    def troubles(self) -> dict[str, UpstreamTrouble]:
        """Returns the errors of upstreams that have not answered since, by model."""
        return {label: replace(each) for label, each in self._troubles.items()}

    def last_troubles(self) -> dict[str, UpstreamTrouble]:
        """Returns the latest errors of each model's upstream, even if answers followed."""
        return {label: replace(each) for label, each in self._last_troubles.items()}

    def label(self, model: str) -> str:
        """Returns the label of a model: its name, or `other`."""
        return self._labels.get(model, OTHER)

    def snapshot(self) -> MetricCounts:
        """Copies the counts, for another thread."""
        return MetricCounts(**{each.name: _copied(getattr(self._counts, each.name)) for each in fields(MetricCounts)})

    def _note(self, label: str, code: str, now: datetime) -> None:
        known = self._troubles.get(label)
        if known is None:
            known = self._troubles[label] = self._last_troubles[label] = UpstreamTrouble(now, now, code)
        else:
            known.latest, known.code, known.errors = now, code, known.errors + 1

    def _name(self, model: str) -> None:
        if len(self._labels) < self._most_labels and len(model) <= LONGEST_NAME and model.isprintable():
            self._labels[model] = model

    def _count_call(self, label: str, call: CallCost) -> None:
        counts, purpose, usage = self._counts, call.purpose, usage_of(call.usage)
        counts.tokens[label, purpose, "prompt"] += usage.prompt_tokens
        counts.tokens[label, purpose, "completion"] += usage.completion_tokens
        if (total := call.total) is not None:
            counts.costs[label, purpose] += total

    def _count_net(self, label: str, net: Decimal | None) -> None:
        counts = self._counts
        if net is None:
            counts.unmetered[(label,)] += 1
        elif net:
            (counts.net_savings if net > 0 else counts.net_losses)[(label,)] += abs(net)

    def _count_planning(self, used: dict[str, Any]) -> None:
        """Counts what a bill reports about planning. Its reasons are the gateway's own, so they are few."""
        counts, reason, fallback = self._counts, used["planning_reason"], used["fallback_reason"]
        if reason is not None:
            counts.decisions[reason, "true" if used["llm_planning_used"] else "false"] += 1
        if fallback is not None:
            _count_few(counts.fallbacks, fallback)
        for result, number in (("hit", used["cache_stats"]["hits"]), ("miss", used["cache_stats"]["misses"])):
            if number:
                counts.summaries[(result,)] += number

    def _count_window(self, label: str, used: dict[str, Any]) -> None:
        """Counts how a request used its window. In mode `off`, only warnings are counted."""
        counts, tokens, share = self._counts, used.get("tokens_used"), share_of_window(used)
        for warning in used.get("warnings") or ():
            _count_few(counts.warnings, warning.partition(":")[0])
        if excluded := used.get("messages_excluded"):
            counts.messages_excluded[(label,)] += excluded
        if tokens is None:
            return
        if share is not None:
            counts.window_shares[(label,)].observe(share)
        parts, specs = used.get("breakdown") or {}, used.get("workflow_spec_tokens") or 0
        percent = round(100 * share, 2) if share is not None else None
        self._recent.append(WindowUse(parts.get("system", 0), parts.get("history", 0), specs, tokens, percent))


def share_of_window(used: Mapping[str, Any]) -> float | None:
    """Returns a prompt's share of its model's window, by its bill's `context_utilization`; None: not known."""
    tokens, window = used.get("tokens_used"), used.get("context_window")
    return tokens / window if tokens is not None and window else None


def _summed_up(values: Iterable[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    return {"average": round(sum(known) / len(known), 2), "max": max(known)} if known else None


def _net_saving(entry: LedgerEntry | None) -> Decimal | None:
    return entry.figures.net_saving if entry is not None and entry.figures is not None else None


def _count_few(counter: Counter[tuple[str]], reason: str) -> None:
    """Counts a reason; beyond `MAX_REASONS` reasons, under `other`."""
    known = (reason,) in counter or len(counter) < MAX_REASONS
    counter[(reason if known else OTHER,)] += 1


def _copied(counts: Any) -> Any:
    """Copies a number, a counter or histograms."""
    if isinstance(counts, dict) and any(isinstance(each, BucketHistogram) for each in counts.values()):
        return {key: each.copy() for key, each in counts.items()}
    return counts.copy() if isinstance(counts, dict) else counts


def endpoint_of(path: str) -> str:
    """Returns the label of a path, with `{id}` for ids and names, so that labels are few."""
    if path in COUNTED_ENDPOINTS:
        return path
    if path == PAGE_LABEL or path.startswith(PAGE_LABEL + "/"):
        return PAGE_LABEL
    for endpoint in COUNTED_ENDPOINTS[4:]:
        if path.startswith(endpoint + "/"):
            return endpoint + "/{id}"
    first = path[4:].partition("/")[0] if path.startswith("/v1/") else ""
    return f"/v1/{first}" if first in RELAYED_PATH_LABELS else OTHER


def _code(error: errors.UpstreamError) -> str:
    """Returns a label for the error. An upstream's own codes are not used: they are unbounded."""
    if isinstance(error, errors.UpstreamOverflow):
        return "context_length_exceeded"
    if isinstance(error, errors.UpstreamRefused):
        return f"upstream_{error.status}"
    return type(error).code or OTHER


def families(counts: MetricCounts) -> Iterable[Any]:
    """Yields each metric with its samples, as a family of `prometheus_client`."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    for metric in METRICS:
        family = kinds[metric.kind](metric.name, metric.text, labels=metric.labels.split())
        values = getattr(counts, metric.field)
        for key, value in sorted(values.items()) if metric.labels else [((), values)]:
            if isinstance(value, BucketHistogram):
                bounds = [*map(repr, value.bounds), "+Inf"]
                family.add_metric(key, [*zip(bounds, map(float, accumulate(value.counts)), strict=True)], value.total)
            else:
                family.add_metric(key, float(value))
        yield family


SERVED = "served"
"""The file that records that a worker has accepted connections."""
DEAD = "dead"
"""The file with the counts of all workers that have ended: a sum must not decrease."""
log = get_logger("gateway.core.instrumentation.metrics")
COUNTS_WRITE_SECONDS = 1.0
"""Interval at which a worker writes its counts: the others' may be this old."""


class SharedCounts:
    """The counts of one of several workers. `folder`: theirs alone; `name`: that of this worker's file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._last = b""
        self._writing = Lock()

    def write(self, counts: MetricCounts) -> None:
        """Writes the counts for the other workers, if they have changed."""
        content = _written(counts)
        with self._writing:
            if content != self._last:
                _replace(self._folder, self._name, content)
                self._last = content

    def serves(self) -> None:
        """Records, for the process that started this worker, that it accepts connections."""
        with _not_written():
            self._folder.mkdir(mode=0o700, exist_ok=True)
            (self._folder / SERVED).touch()

    def sum(self, own: MetricCounts) -> MetricCounts:
        self.write(own)
        with _locked(self._folder, fcntl.LOCK_SH):
            others = [path for path in self._folder.glob("*.json") if path.stem != self._name]
            return added([own, *(found for path in others if (found := _read(path)) is not None)])

    def pids(self) -> list[int]:
        """Returns the ids of the live processes that have written counts, or this one's."""
        return [int(path.stem.split("-")[1]) for path in self._folder.glob("*-*.json")] or [os.getpid()]


def bury(folder: Path, name: str) -> None:
    """Adds the counts of a worker that has ended to those of all such workers. One process calls this."""
    with _not_written(), _locked(folder, fcntl.LOCK_EX):
        path = folder / f"{name}.json"
        last = _read(path)
        if last is None:
            return
        for each in METRICS:
            if each.kind == "gauge":
                setattr(last, each.field, getattr(MetricCounts(), each.field))
        dead = _read(folder / f"{DEAD}.json")
        _replace(folder, DEAD, _written(added([last] if dead is None else [dead, last])))
        path.unlink()


def _replace(folder: Path, name: str, content: bytes) -> None:
    """Replaces a file as a whole: nobody reads half of it."""
    with _not_written():
        folder.mkdir(mode=0o700, exist_ok=True)  # the folder may have been cleaned up
        new = folder / f"{name}.new"
        new.write_bytes(content)
        os.replace(new, folder / f"{name}.json")


def has_served(folder: Path) -> bool:
    """Returns whether any of the workers has ever accepted connections."""
    return (folder / SERVED).exists()


@contextlib.contextmanager
def _not_written() -> Iterator[None]:
    """Logs counts that cannot be written and goes on: they are not worth a worker."""
    try:
        yield
    except OSError as error:
        log.warning("counts_not_shared", reason=error.strerror or str(error))


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Locks the folder: nobody adds up while counts move between files. Without the folder, there is nothing to add."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield
        return
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)


def added(all_counts: Iterable[MetricCounts]) -> MetricCounts:
    total = MetricCounts()
    for counts in all_counts:
        for each in fields(MetricCounts):
            value = getattr(counts, each.name)
            if isinstance(value, dict):
                _add(getattr(total, each.name), value)
            else:
                setattr(total, each.name, getattr(total, each.name) + value)
    return total


def _add(total: dict[Any, Any], more: dict[Any, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, BucketHistogram):
            sums = total.setdefault(key, BucketHistogram(value.bounds))
            sums.counts = [one + other for one, other in zip(sums.counts, value.counts, strict=True)]
            sums.total += value.total
        else:
            total[key] = total.get(key, 0) + value


def _written(counts: MetricCounts) -> bytes:
    found: dict[str, Any] = {}
    for each in fields(MetricCounts):
        value = getattr(counts, each.name)
        found[each.name] = [[key, _value(one)] for key, one in value.items()] if isinstance(value, dict) else value
    return jsons.dumps(found)


def _value(value: Any) -> Any:
    if isinstance(value, BucketHistogram):
        return {"bounds": value.bounds, "counts": value.counts, "total": value.total}
    return str(value) if isinstance(value, Decimal) else value


def _read(path: Path) -> MetricCounts | None:
    """Reads the counts in a file; None if it is gone by now."""
    with contextlib.suppress(FileNotFoundError):
        counts = MetricCounts()
        found = jsons.loads(path.read_bytes())
        for each in fields(MetricCounts):
            known = getattr(counts, each.name)
            if isinstance(known, dict):
                known.update({tuple(key): _read_value(value) for key, value in found[each.name]})
            else:
                setattr(counts, each.name, found[each.name])
        return counts
    return None


def _read_value(value: Any) -> Any:
    if isinstance(value, dict):
        made = BucketHistogram(value["bounds"])
        made.counts, made.total = value["counts"], value["total"]
        return made
    return Decimal(value) if isinstance(value, str) else value
