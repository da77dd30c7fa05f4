"""Composition root: wires the packages, and starts what runs beside requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from gateway import operations
from gateway.api import App, BodyCache, ShutdownState, WiredApi
from gateway.context.tokens import CounterRegistry, ModelMargins, keep_calibrated
from gateway.core import clock, errors, ports
from gateway.core.clock import AgreedClock
from gateway.core.config.settings import Settings
from gateway.core.instrumentation import logs, metrics
from gateway.core.instrumentation.metrics import SharedCounts
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.scheduler import Scheduler
from gateway.documents import process
from gateway.documents.files import WiredDocuments
from gateway.operations import (
    CommandCall,
    DocumentIndexing,
    WarmUp,
    WarmUpPiece,
    open_telemetry,
    purge,
    serve,
    storage_upkeep,
    warm_up_pieces,
)
from gateway.pipeline import BEAT_SECONDS, HEARTBEAT_SECONDS, Instruments, WiredPipeline
from gateway.pipeline.guards import open_guards, refuses_files
from gateway.retrieval import ContentIndexes, MiniLM
from gateway.storage import PROBE_SECONDS, WiredStorage
from gateway.upstream import WiredUpstreams, resources
from gateway.upstream.routing import catalogue

log = logs.get_logger("gateway.app")
EXPIRE_SECONDS = 60.0
"""Between two removals of what has expired in memory."""
HOOKS_SECONDS = 5.0
"""Longest wait at shutdown for events that hooks have not received yet."""
JOBS_SECONDS = 1.0
"""Longest wait at shutdown for cancelled jobs to end."""
CALIBRATED_WITHIN = 1.0
"""Seconds that startup waits for the calibrations of models; requests that arrive earlier are estimated without."""


class Gateway:
    """Holds all packages of one process, wired from the storage up. `create_app` makes it for a server, `gateway
    savings --replay` to replay sessions."""

    def __init__(
        self,
        settings: Settings,
        shared: SharedCounts | None = None,
        *,
        clock: ports.Clock | None = None,
        upstream: ports.Upstream | None = None,
    ) -> None:
        """`shared`: where one of several workers shares its counts; `clock`: replaces the system's; `upstream`: answers
        in place of every upstream, so that nothing reaches the network.
        Raises ConfigurationError: a guard, the embedder or OpenTelemetry cannot be used."""
        self.shared = shared
        self.settings = settings
        self.clock = clock = clock or AgreedClock()
        self.hooks = TelemetryHooks()
        self.telemetry = telemetry = open_telemetry(settings.telemetry)
        names = (entry.model_name for entry in settings.model_list)
        counts = telemetry.metrics(names, clock.now)
        instruments = Instruments(clock=clock, metrics=counts, hooks=self.hooks, spans=telemetry.spans)
        cached = settings.cache
        indexes = ContentIndexes(cached.index_bytes, cached.document_ttl, clock)
        self.resends = BodyCache(cached.half_of_conversations, clock, cached.conversation_ttl)
        self.storage = WiredStorage(settings, clock, on_evict=indexes.evict, also_forget=self.resends.forget)
        guards = open_guards(settings, self.storage.store.secret, clock)
        self.margins = ModelMargins(clock)
        self.upstreams = WiredUpstreams(
            settings,
            clock,
            windows=self.margins,
            make_http=telemetry.http,
            wrap=lambda adapter: guards.upstream(telemetry.upstream(adapter)),
            scripted=upstream,
        )
        self.counters = CounterRegistry(self.margins)
        self.documents = WiredDocuments(
            settings, clock, self.storage, self.upstreams, are_masked=refuses_files(settings)
        )
        self.requests = WiredPipeline(
            settings, instruments, self.documents, counters=self.counters, indexes=indexes, guards=guards
        )
        passthrough = guards.passthrough(telemetry.passthrough(self.upstreams.pool))
        self.api = WiredApi(settings, self.requests, resends=self.resends, passthrough=passthrough, shared=shared)
        self.warm_up = WarmUp(self.warm_up_pieces(), clock)

    def warm_up_pieces(self) -> list[WarmUpPiece]:
        """Lists what is loaded after the gateway begins to serve."""
        upstreams, embedder = self.upstreams, self.requests.embedder
        return warm_up_pieces(
            self.settings,
            upstreams.router,
            models=upstreams.catalogue,
            counters=self.counters,
            pool=upstreams.pool,
            library=upstreams.library,
            load_embedder=embedder.load if isinstance(embedder, MiniLM) else None,
            clock=self.clock,
        )

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """Starts what runs beside requests; at the end waits for pending writes."""
        settings = self.settings
        for entry in settings.model_list:
            if problem := catalogue.unsupported(entry):
                log.warning("model_cannot_be_served", model=entry.model_name, reason=problem)
        preparing = await storage_upkeep.begin_preparing(settings, self.storage.transactions)
        running = [preparing]
        if preparing.done():  # else each look at open calls tries again
            with suppress(errors.StorageUnavailable):
                await self.storage.agree_on_time()
        jobs = Scheduler()
        try:
            running += map(
                asyncio.ensure_future,
                (
                    self.warm_up.run(),
                    DocumentIndexing(self.storage.large, self.storage.texts_arrived).run(),
                    keep_calibrated(self.margins, self.storage.calibrations),
                ),
            )
            self._schedule(jobs)
            self.documents.start()
            self.hooks.start()
            self.telemetry.start(self.api.observed.snapshot)
            await self.margins.looked_up(CALIBRATED_WITHIN)
            yield
        finally:
            for task in running:
                task.cancel()
            await jobs.close(JOBS_SECONDS)
            if self.shared is not None:
                await self._share(self.shared)
            await self.close()

    def _schedule(self, jobs: Scheduler) -> None:
        """Schedules the recurring jobs."""
        settings = self.settings
        days = settings.conversation.retention_days
        often = purge.sweep_seconds(clock.fewest_days(days, *(key.retention_days for key in settings.auth.keys)))
        purge.schedule_sweeps(jobs, self.storage.retention, self.clock, days, often)
        storage_upkeep.schedule_older_bills(jobs, self.storage.transactions, purge.sweep_seconds(days))
        purge.schedule_files(jobs, self.documents.service, self.documents.reading.look)
        jobs.every(process.SWEEP_SECONDS, process.clear_left_behind, name="document_folders", at_once=True)
        jobs.every(
            HEARTBEAT_SECONDS,
            self.requests.idempotency.beat,
            name="claims",
            postponed="claims_not_confirmed",
            failed="beat_failed",
        )
        jobs.every(PROBE_SECONDS, self.storage.store.probe_if_refused, name="storage_probe")
        jobs.every(
            BEAT_SECONDS, self._look_at_open_calls, name="open_calls", at_once=True, failed="open_calls_not_looked_at"
        )
        jobs.every(EXPIRE_SECONDS, self._expire, name="expiry")
        if (seconds := settings.routing.probe) is not None:
            look = partial(
                resources.probe, self.upstreams.router.health, partial(resources.reach, self.upstreams.client), seconds
            )
            jobs.every(seconds, look, name="deployment_probes")
        if self.shared is not None:
            jobs.every(metrics.COUNTS_WRITE_SECONDS, partial(self._share, self.shared), name="shared_counts")

    async def _look_at_open_calls(self) -> None:
        await self.storage.agree_on_time()
        await self.requests.settlement.open_calls.look()

    async def _share(self, shared: SharedCounts) -> None:
        shared.write(self.api.observed.snapshot())

    async def _expire(self) -> None:
        """Drops expired conversations from memory, in an idle process too."""
        self.storage.paths.expire()
        self.resends.expire()

    async def close(self) -> None:
        """Ends what is under way and closes all that is open. An error is raised only after everything was tried: the
        storage may have writes that nobody awaits."""
        ends = (
            self.api.answering.close,
            self.documents.reading.close,
            self.api.mcp.close,
            self.requests.close,
            partial(asyncio.to_thread, self.hooks.close, HOOKS_SECONDS),
            self._keep_margins,
            self.upstreams.close,
            self.storage.cache.close,
            self.storage.transactions.close,
            self.telemetry.close,
        )
        async with AsyncExitStack() as stack:
            for end in reversed(ends):
                stack.push_async_callback(end)

    async def _keep_margins(self) -> None:
        if self.margins.is_worth_writing:
            await self.margins.try_to_keep(self.storage.calibrations)


def create_app(settings: Settings, draining: ShutdownState | None = None, shared: SharedCounts | None = None) -> App:
    """Builds the gateway as an ASGI application, which connects to nothing before its lifespan begins.
    `shared`: where one of several workers shares its counts.
    Raises ConfigurationError: as `Gateway` does."""
    gateway = Gateway(settings, shared)
    return gateway.api.app(draining or ShutdownState(), gateway.lifespan, gateway.telemetry.app)


def serve_command(call: CommandCall) -> int:
    """Serves until the process is told to end. The log is coloured unless `NO_COLOR` or a dumb terminal forbids it."""
    environ = call.environ
    return serve(call.settings, create_app, colour=not environ.get("NO_COLOR") and environ.get("TERM") != "dumb")


def replay_command(call: CommandCall) -> int:
    """Plays recorded sessions through a gateway."""
    return operations.savings_by_replay(call, Gateway)
