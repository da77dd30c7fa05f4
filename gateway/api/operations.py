"""The gateway's reports on itself: `/health/*`, `/v1/models`, and `/metrics` in Prometheus' format (guarantee §9)."""

import asyncio
import contextlib
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

from gateway import __version__
from gateway.api.auth import KeyAuthenticator
from gateway.api.pagination import parameters
from gateway.api.server.asgi import Receive, Scope, Send, header, send_json, send_start
from gateway.api.server.middleware import ShutdownState
from gateway.api.shapes import Unix, many, shape
from gateway.api.statistics import Statistics, StatisticsEndpoint
from gateway.core import errors, ports
from gateway.core.instrumentation import metrics
from gateway.core.instrumentation.metrics import MetricCounts, SharedCounts
from gateway.storage import ConversationStore
from gateway.storage.database import REVISION
from gateway.upstream import resources

DETAILED = ("1", "true")
"""Values of `details` that ask for the statistics."""


Model = shape(
    "Model",
    "OpenAI's model object.",
    {"id": str, "object": Literal["model"], "created?": Unix, "owned_by?": str},
    is_open=True,
)
Models = shape("Models", "What may be asked for.", {"object": Literal["list"], "data": many(Model)})
Health = shape("Health", "Whether it serves.", {"status reason?": str, "details?": Statistics})


class LiveEndpoint:
    """Reports that the process answers."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, {"status": "ok"})


@dataclass(slots=True)
class ReadyEndpoint:
    """503 while the storage cannot be reached or is not on the current schema, and while shutting down
    (guarantee §9). With `details=1` also the statistics of memory and caches, for whoever may see them (§11.9)."""

    _store: ConversationStore
    _draining: ShutdownState
    _clock: ports.Clock
    _statistics: StatisticsEndpoint | None = None
    _unready: tuple[str, datetime] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = parameters(scope["query_string"].decode("latin-1")) if scope.get("query_string") else {}
        details = {}
        if self._statistics is not None and wanted.get("details") in DETAILED:
            await self._statistics.admit(scope)
            details = {"details": {"schema": await self._schema(), **self._statistics.as_json()}}
        status, said = await self.state()
        await send_json(send, status, {**said, **details})

    async def _schema(self) -> str | None:
        with contextlib.suppress(errors.StorageUnavailable):
            return await self._store.schema()
        return None

    @property
    def unready_since(self) -> datetime | None:
        """When a check first found that requests cannot be served; None if the last check found that they can."""
        return self._unready[1] if self._unready is not None else None

    async def state(self) -> tuple[int, dict[str, Any]]:
        """Returns status and body without details."""
        try:
            ready = await self._store.ready()
            reason = "storage_schema_not_current"
        except errors.StorageReadOnly:
            ready, reason = False, "storage_cannot_be_written"
        except errors.StorageUnavailable:
            ready, reason = False, "storage_unavailable"
        if self._draining.begun:
            ready, reason = False, "shutting_down"
        if ready:
            self._unready = None
        elif self._unready is None or self._unready[0] != reason:
            self._unready = (reason, self._clock.now())
        return (200, {"status": "ok"}) if ready else (503, {"status": "unavailable", "reason": reason})


class ModelsEndpoint:
    """The configured models; without any, those of the default upstream."""

    def __init__(self, directory: resources.UpstreamModels, auth: KeyAuthenticator) -> None:
        self._directory = directory
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send_json(send, 200, await self.found(scope))

    async def found(self, scope: Scope) -> dict[str, Any]:
        """Returns the list of models, or the model that the path names, in OpenAI's form."""
        caller = await self._auth.caller(scope)
        wanted = scope["path_params"].get("model")
        if wanted is None:
            found = await self._directory.models(caller)
            if caller.key is not None:
                found = [model for model in found if caller.key.may_ask(str(model.get("id")))]
            return {"object": "list", "data": found}
        model = await self._directory.model(wanted, caller)
        caller.check_model(wanted)
        return model


@dataclass(eq=False, slots=True)
class MetricsPage:
    """Serves metrics to anyone who reaches the port, or with `server.metrics: key` to holders of a key."""

    snapshot: Callable[[], MetricCounts]
    auth: KeyAuthenticator
    open_to_all: bool
    shared: SharedCounts | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.open_to_all:
            await self.auth.caller(scope)
        # In a thread: loading the library and writing thousands of lines would hold up running streams.
        content, kind = await asyncio.to_thread(self._page, self.snapshot(), header(scope, b"accept") or "")
        await send_start(send, 200, {"content-type": kind, "content-length": str(len(content))})
        await send({"type": "http.response.body", "body": content})

    def _page(self, own: MetricCounts, accept: str) -> tuple[bytes, str]:
        if self.shared is None:
            return render(own, accept)
        return render(self.shared.sum(own), accept, self.shared.pids())


def render(counts: MetricCounts, accept: str, pids: Sequence[int] = ()) -> tuple[bytes, str]:
    """Renders the counts as text, and returns its media type: Prometheus' or OpenMetrics', as `accept` asks.
    `pids`: the processes whose memory, processor time and files are reported; without any, this one alone."""
    from prometheus_client import core, exposition, process_collector, registry

    class ModelPage(registry.Collector):
        def collect(self) -> Iterable[Any]:
            about = {"version": __version__, "python": platform.python_version(), "schema": REVISION}
            yield core.InfoMetricFamily("gateway_build", "What is running.", about)
            yield from metrics.families(counts)
            if pids:
                yield from _of_processes(pids, process_collector.ProcessCollector)

    page = registry.CollectorRegistry(auto_describe=False)
    page.register(ModelPage())
    if not pids:
        process_collector.ProcessCollector(registry=page)
    encode, kind = exposition.choose_encoder(accept)
    return encode(page), kind


def _of_processes(pids: Sequence[int], collector: Callable[..., Any]) -> Iterable[Any]:
    """Yields the figures of Prometheus' library for several processes: sums, and when the first began."""
    found: dict[str, Any] = {}
    for pid in pids:
        for family in collector(pid=partial(int, pid), registry=None).collect():
            known = found.setdefault(family.name, family)
            if known is family:
                continue
            pick = min if family.name.endswith("start_time_seconds") else float.__add__
            known.samples = [
                one._replace(value=pick(float(one.value), float(other.value)))
                for one, other in zip(known.samples, family.samples, strict=True)
            ]
    return found.values()
