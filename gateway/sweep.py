"""What a running gateway does beside answering: deletes what has had its time (`conversation.retention_days`)."""

import asyncio

from gateway.clock import days_before
from gateway.errors import StorageUnavailable
from gateway.logs import get_logger
from gateway.ports import Clock, ExpiringStore

MOST_SECONDS = 300.0
LEAST_SECONDS = 1.0
log = get_logger("gateway.sweep")


def sweep_seconds(retention_days: float | None) -> float:
    """How often to sweep: a conversation outlives its time by a hundredth of that, or by five minutes."""
    if retention_days is None:
        return MOST_SECONDS
    return min(MOST_SECONDS, max(LEAST_SECONDS, 864 * retention_days))


async def sweep_for_ever(store: ExpiringStore, clock: Clock, retention_days: float | None, interval: float) -> None:
    """Sweeps each `interval` seconds until it is cancelled; whatever goes wrong, it tries again next time."""
    while True:
        await asyncio.sleep(interval)
        try:
            await sweep(store, clock, retention_days)
        except StorageUnavailable as error:
            log.warning("sweep_postponed", reason=error.message)
        except Exception as fault:  # noqa: BLE001 - one bad row must not end the sweeping for as long as the server runs
            log.fault("sweep_failed", fault)


async def sweep(store: ExpiringStore, clock: Clock, retention_days: float | None) -> None:
    """
    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    if retention_days is not None:
        deleted = await store.delete_unused(days_before(clock.now(), retention_days))
        if deleted:
            log.info("conversations_expired", deleted=deleted)
    await store.delete_leftovers()
