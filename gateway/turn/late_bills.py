"""Bills that the storage did not take when their request ended. They wait in memory until it does (guarantee §6)."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator

from gateway.errors import StorageUnavailable
from gateway.models.turn import LedgerEntry, TurnCommit
from gateway.storage.store import ConversationStore
from gateway.telemetry.logs import get_logger

log = get_logger("gateway.turn.settlement")
MOST_WAITING = 10_000
"""Bills; the oldest are dropped beyond that, a few kilobytes each."""
RETRY_SECONDS = 5.0
"""Between two tries while no other turn is committed."""


class LateBills:
    """Bills of turns whose content is lost: their clients were told that they were not stored."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self._waiting: deque[TurnCommit] = deque(maxlen=MOST_WAITING)
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
