"""What a process holds in memory, how often that was used, what is in progress (§11.9): without tenants and content."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gateway.api.auth import KeyAuthenticator
from gateway.api.request.body_cache import BodyCache
from gateway.api.server.asgi import Receive, Scope, Send, send_json
from gateway.api.server.middleware import is_local
from gateway.api.shapes import Json, shape
from gateway.context import decision
from gateway.core import errors, ports
from gateway.core.config import exposure
from gateway.core.config.settings import Settings
from gateway.core.frozen_records import record
from gateway.core.instrumentation import refusals
from gateway.core.instrumentation.metrics import GatewayMetrics, MetricCounts
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.documents import file_reader
from gateway.pipeline import RunningTurns
from gateway.retrieval import ContentIndexes
from gateway.storage import PathCache
from gateway.storage.cache import MemoryCache
from gateway.upstream.routing import health

Statistics = shape(
    "Statistics",
    "What the process keeps, how often that was of use, and what is under way.",
    {"memory caches hooks?": Json},
    is_open=True,
)


@record
class ObservedParts:
    """The parts of the gateway that statistics report."""

    metrics: GatewayMetrics
    paths: PathCache
    resends: BodyCache
    indexes: ContentIndexes
    cache: ports.ClaimingCache
    documents: file_reader.FileReader
    running: RunningTurns
    hooks: TelemetryHooks
    resting: decision.PlannerCooldown
    deployments: health.HealthWatch
    refused: refusals.RefusedRequests

    def snapshot(self) -> MetricCounts:
        """Copies the counts, for another thread, with those that the parts count themselves."""
        return replace(self.metrics.snapshot(), **self._counts())

    def _counts(self) -> Mapping[str, Any]:
        reads = {
            ("paths", "hit"): self.paths.hits,
            ("paths", "miss"): self.paths.misses,
            ("indexes", "hit"): self.indexes.hits,
            ("indexes", "miss"): self.indexes.misses,
            ("documents", "hit"): self.documents.hits,
            ("documents", "miss"): self.documents.misses,
        }
        kept = {("indexes",): self.indexes.size}
        if isinstance(self.cache, MemoryCache):
            kept["values",] = self.cache.size
        watched = list(self.deployments.watched())
        return {
            "kept_bytes": self.paths.size + self.resends.size,
            "recognised": self.resends.recognised,
            "cache_bytes": Counter(kept),
            "cache_reads": Counter(reads),
            "turns_running": len(self.running),
            "hooks_waiting": self.hooks.waiting,
            "hooks_lost": self.hooks.lost,
            "planners_resting": len(self.resting),
            "deployments_in_flight": Counter({(watch.deployment.id,): watch.in_flight for watch, _ in watched}),
            "deployments_resting": Counter({(watch.deployment.id,): int(rests) for watch, rests in watched}),
            "deployment_failures": Counter(
                {(watch.deployment.id, code): number for watch, _ in watched for code, number in watch.failures.items()}
            ),
        }


class StatisticsEndpoint:
    """Decides who may see the statistics, and reports those of this process (of several workers: the one asked)."""

    def __init__(self, observed: ObservedParts, auth: KeyAuthenticator, settings: Settings) -> None:
        self._observed = observed
        self._auth = auth
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers `GET /api/v1/memory/stats`."""
        await self.admit(scope)
        await send_json(send, 200, self.as_json())

    async def admit(self, scope: Scope) -> None:
        """Admits any holder of a key of the gateway; where no key is required, also callers on this machine, if the
        server listens on loopback. Raises Unauthorized: the caller is neither."""
        caller = await self._auth.caller(scope)
        is_here = exposure.is_loopback(self._settings.server.host) and is_local(scope)
        if caller.key is None and not is_here:
            raise errors.Unauthorized("Details are for holders of a key of the gateway's own.")

    def as_json(self) -> dict[str, Any]:
        seen, counts, cache = self._observed, self._observed.snapshot(), self._settings.cache
        summaries = {kind: counts.summaries[(kind,)] for kind in ("hit", "miss")}
        half = cache.half_of_conversations
        return {
            "process": os.getpid(),
            "requests_in_flight": counts.in_flight,
            "turns_running": counts.turns_running,
            "memory": {
                "paths": {
                    **_used(len(seen.paths), seen.paths.size, half),
                    **_reads(seen.paths.hits, seen.paths.misses),
                },
                "requests": {
                    **_used(len(seen.resends), seen.resends.size, half),
                    "recognised": seen.resends.recognised,
                },
            },
            "caches": {
                "kind": "redis" if cache.url else "memory",
                "bytes": counts.cache_bytes.get(("values",)),
                "max_bytes": None if cache.url else cache.max_bytes,
                "indexes": {
                    "bytes": seen.indexes.size,
                    "max_bytes": cache.index_bytes,
                    **_reads(seen.indexes.hits, seen.indexes.misses),
                },
                "documents": _reads(seen.documents.hits, seen.documents.misses),
                "summaries": _reads(summaries["hit"], summaries["miss"]),
            },
            "hooks": {"listening": seen.hooks.is_listening, "waiting": seen.hooks.waiting, "lost": seen.hooks.lost},
            "planners_resting": counts.planners_resting,
            "windows": self._observed.metrics.windows(),
        }


def _used(count: int, size: int, most: int) -> dict[str, int]:
    return {"kept": count, "bytes": size, "max_bytes": most}


def _reads(hits: int, misses: int) -> dict[str, Any]:
    """Returns the figures of a cache; `hit_rate` is null where nothing was looked up."""
    return {"hits": hits, "misses": misses, "hit_rate": round(hits / (hits + misses), 4) if hits + misses else None}
