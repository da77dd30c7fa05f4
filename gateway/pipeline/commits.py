"""Writes turns and bills. Those that the storage did not take at once wait in memory until it does (guarantee §6)."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from gateway.billing.quota.call_costs import billed, owed
from gateway.core.errors import StorageUnavailable
from gateway.core.instrumentation.logs import get_logger
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.ports import Spans
from gateway.core.tasks import BackgroundTasks
from gateway.core.types.keys import HeldAdmission
from gateway.core.types.turn import LedgerEntry, TurnCommit
from gateway.storage.store import ConversationStore

log = get_logger("gateway.pipeline.settlement")
MAX_WAITING = 10_000
"""Bills; the oldest are dropped beyond that, a few kilobytes each."""
RETRY_SECONDS = 5.0
"""Between two tries while no other turn is committed."""


class TurnCommits:
    """Each in one transaction; then all are told that are to know."""

    def __init__(
        self,
        store: ConversationStore,
        metrics: GatewayMetrics,
        hooks: TelemetryHooks,
        spans: Spans = contextlib.nullcontext,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._hooks = hooks
        self._spans = spans
        self._tasks = BackgroundTasks()
        self._late = _LateBills(store)
        self._writing: dict[str, LedgerEntry] = {}

    async def commit(self, commit: TurnCommit, admission: HeldAdmission | None, lost: str | None = None) -> None:
        """Writes a turn and its bill. A bill waits where the storage does not take it.
        `admission`: what the request holds of budgets and limits; `lost`: the error code of a bill whose turn could not
        be stored, where it has none.
        Raises StorageUnavailable: the turn is not stored; its bill waits."""
        entry = commit.ledger
        self._writing[entry.request_id] = entry
        try:
            with self._spans("commit"):
                await self._store.commit(commit)
            if admission is not None:
                billed(admission, entry)
            if self._hooks.is_listening:
                self._hooks.settled(commit)
        except StorageUnavailable:
            alone = replace(entry, error_code=entry.error_code or lost)
            claim = commit.claim if commit.turn is None else None
            late = TurnCommit(alone, chains=commit.chains, claim=claim, again=True)
            self._late.add(late, owed(admission, entry) if admission is not None else None)
            self._metrics.billed(entry)
            if commit.turn is not None:
                raise
            log.warning("bill_not_recorded_yet", request_id=entry.request_id, waiting=len(self._late))
            return
        finally:
            del self._writing[entry.request_id]
        self._metrics.billed(entry)
        if self._late:
            self._tasks.start(self._late.record())

    async def drain(self, seconds: float, others: BackgroundTasks) -> set[str]:
        """Waits at shutdown for what is still being recorded, by `others` too. Bills that the storage does not take by
        then go to the log; returns the ids of requests whose bills are being written."""
        await self._late.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await others.finish()
                await self._tasks.finish()
                await self._late.record()
        for entry in (*self._writing.values(), *self._late):
            log.warning("bill_not_recorded", **named(entry))
        return set(self._writing)


class _LateBills:
    """Bills of turns whose content is lost: their clients were told that they were not stored."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self._waiting: deque[TurnCommit] = deque(maxlen=MAX_WAITING)
        self._then: dict[str, Callable[[], None]] = {}
        self._retrying: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[LedgerEntry]:
        return (commit.ledger for commit in self._waiting)

    def add(self, commit: TurnCommit, then: Callable[[], None] | None = None) -> None:
        """Keeps a bill. It is written with the next commit, or after `RETRY_SECONDS`; `then` is called when it is."""
        self._waiting.append(commit)
        if then is not None:
            self._then[commit.ledger.request_id] = then
        if self._retrying is None or self._retrying.done():
            self._retrying = asyncio.ensure_future(self._retry())

    async def record(self) -> None:
        """Writes the waiting bills, until the storage fails again."""
        while self._waiting:
            commit = self._waiting.popleft()
            try:
                await self._store.commit(commit)
                self._then.pop(commit.ledger.request_id, _nothing)()
            except StorageUnavailable:
                self._waiting.appendleft(commit)
                log.warning("bills_not_recorded_yet", waiting=len(self._waiting))
                return
            except asyncio.CancelledError:
                self._waiting.appendleft(commit)
                raise
            except Exception as fault:  # noqa: BLE001 - a bill that cannot be written must not keep back the others
                log.fault("bill_not_recorded", fault, **named(commit.ledger))

    async def _retry(self) -> None:
        while self._waiting:
            await asyncio.sleep(RETRY_SECONDS)
            await self.record()

    async def stop(self) -> None:
        """Ends the retries by time."""
        if self._retrying is not None:
            self._retrying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._retrying


def _nothing() -> None:
    pass


def named(entry: LedgerEntry) -> dict[str, object]:
    """The log's fields for a bill that is lost: its request, model and figures."""
    figures = {name: entry.metadata.get(name) for name in ("usage", "cost")}
    return {"request_id": entry.request_id, "model": entry.model, **figures}
