"""`/ui/health`: what works, what does not, and since when. Figures are those of the process that answers, without
tenants and content; those of the storage are of all processes. A viewer of one tenant sees listed models alone: other
names come from clients."""

import importlib.metadata
import platform
from collections.abc import Iterator, Mapping, Set
from datetime import datetime
from pathlib import Path
from typing import Any

from gateway import __version__
from gateway.api.ui.dependencies import PageParts
from gateway.api.ui.page import PageAnswer, PageRequest
from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.core.instrumentation.metrics import GatewayMetrics, MetricCounts, UpstreamTrouble
from gateway.storage.reports import StorageHealth, storage_health
from gateway.upstream.routing import health

PROBE = "ui:health"
"""A key that the cache does not have: reading it shows whether the cache answers."""
HEALTH_REASONS = {
    "storage_schema_not_current": "the storage has the schema of another version: run gateway migrate",
    "storage_cannot_be_written": "the storage is read-only",
    "storage_unavailable": "the storage cannot be reached",
    "shutting_down": "the gateway is shutting down",
}
"""Texts for the reasons of `/health/ready` why the gateway is not ready."""
LIBRARIES = ("litellm", "starlette", "uvicorn", "sqlalchemy", "pydantic", "jinja2")
RESIDENT = Path("/proc/self/status")


@record
class DegradedPart:
    """A part that does not work as it should. `since`: when that was noticed; None: not known."""

    what: str
    why: str
    since: datetime | None
    kind: str = "bad"


@record
class UpstreamState:
    """The outcome of a model's calls."""

    model: str
    answered: int
    failed: int
    errors: int
    trouble: UpstreamTrouble | None
    last: UpstreamTrouble | None


@record
class DeploymentState:
    """A deployment that this process has called. `since`: it rests since then, or has not answered since its rest."""

    name: str
    rests: bool
    since: datetime | None
    in_flight: int
    failures: int
    last: tuple[str, datetime] | None


class HealthPage:
    """`GET /ui/health`"""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts

    async def show(self, page: PageRequest) -> PageAnswer:
        """Shows the page. It works while the storage does not, where it can be opened without a login."""
        parts = self._parts
        status, said = await parts.ready.state()
        await parts.cache.get(PROBE)
        try:
            storage = await storage_health.read_health(parts.transactions, parts.clock.now())
        except errors.StorageUnavailable:
            storage = None
        counts = parts.observed.snapshot()
        told = None if page.tenant is None else {entry.model_name for entry in parts.settings.model_list}
        reason = None if status == 200 else unready_text(said)
        return await page.render(
            "health.html",
            degraded=list(self._degraded(reason, storage, counts, told)),
            storage=storage,
            configured=parts.settings,
            cache_down=_down_since(parts.cache),
            figures=parts.statistics.as_json(),
            counts=counts,
            upstreams=_upstreams(counts, parts.observed.metrics, told),
            deployments=_deployments(parts.router.health) if told is None else [],
            started=parts.started,
            resident=_resident(),
            versions=_versions(),
        )

    def _degraded(
        self, reason: str | None, storage: StorageHealth | None, counts: MetricCounts, told: Set[str] | None
    ) -> Iterator[DegradedPart]:
        parts = self._parts
        if reason is not None:
            yield DegradedPart("Not serving requests", reason, parts.ready.unready_since)
        if (since := _down_since(parts.cache)) is not None:
            yield DegradedPart(
                "Cache not responding", "every read is a miss: slower, not more expensive", since, "warn"
            )
        for model, trouble in sorted(parts.observed.metrics.troubles().items()):
            if told is not None and model not in told:
                continue
            yield DegradedPart(*trouble_text(model, trouble, sees_all=told is None), trouble.since)
        if counts.planners_resting:
            text = f"{counts.planners_resting}, by planner and tenant: their last answers could not be used"
            yield DegradedPart("Planners in cooldown", text, None, "warn")
        if storage is not None and storage.not_added:
            text = f"{storage.not_added} written by an older version; they are being added"
            yield DegradedPart("Bills missing from totals", text, None, "warn")
        if counts.hooks_lost:
            yield DegradedPart("Hook events dropped", f"{counts.hooks_lost}: the queue was full", None, "warn")


def trouble_text(model: str, trouble: UpstreamTrouble, *, sees_all: bool) -> tuple[str, str]:
    """Describes a failing model and its fault; the number of faults only for a viewer of all tenants."""
    times = "once" if trouble.errors == 1 else f"{trouble.errors:,} times"
    return f"{model} is failing", f"{trouble.code}, {times} since its last answer" if sees_all else trouble.code


def unready_text(said: Mapping[str, Any]) -> str:
    reason = str(said.get("reason"))
    return HEALTH_REASONS.get(reason, reason.replace("_", " "))


def _upstreams(counts: MetricCounts, metrics: GatewayMetrics, told: Set[str] | None) -> list[UpstreamState]:
    """Returns the state of models. `told`: names that a viewer may see; None: all. Another tenant may use others."""
    models = {model for model, _ in counts.bills} | {model for model, _ in counts.upstream_errors}
    models = models if told is None else models & told
    troubles, latest = metrics.troubles(), metrics.last_troubles()
    found = []
    for model in sorted(models):
        answered = counts.bills[model, "complete"]
        failed = sum(number for (of, status), number in counts.bills.items() if of == model and status != "complete")
        failures = sum(number for (of, _), number in counts.upstream_errors.items() if of == model)
        found.append(UpstreamState(model, answered, failed, failures, troubles.get(model), latest.get(model)))
    return found


def _deployments(health: health.HealthWatch) -> list[DeploymentState]:
    """Returns deployments by name. Names disclose an operator's hosts: only for a viewer of all tenants."""
    found = [
        DeploymentState(each.deployment.id, rests, each.resting_since, each.in_flight, each.failures.total(), each.last)
        for each, rests in health.watched()
    ]
    return sorted(found, key=lambda state: state.name)


def _down_since(cache: Any) -> datetime | None:
    """Returns since when Redis is down; the process's own memory is never down."""
    since = getattr(cache, "down_since", None)
    return since if isinstance(since, datetime) else None


def _resident() -> int | None:
    """Returns the bytes of memory that the process holds; None where the system does not report them."""
    try:
        lines = RESIDENT.read_text("utf-8").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")]
    return found[0] if found else None


def _versions() -> dict[str, str]:
    found = {"context-gateway": __version__, "Python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in LIBRARIES}
