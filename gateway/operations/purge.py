"""`gateway purge`: deletes, for good, conversations that nothing was added to for long."""

import argparse
import asyncio
from datetime import datetime
from typing import TextIO

from gateway.base.clock import days_before, parse_when
from gateway.config.settings import Settings
from gateway.errors import StorageUnavailable
from gateway.ports import Clock
from gateway.storage.cache.memory import open_cache
from gateway.storage.database.migrate import open_current, shown
from gateway.storage.retention import Retention
from gateway.telemetry.logs import get_logger

MOST_SECONDS = 300.0
LEAST_SECONDS = 1.0
log = get_logger("gateway.operations.purge")


def sweep_seconds(retention_days: float | None) -> float:
    """How often to sweep: a conversation outlives its time by a hundredth of that, or by five minutes."""
    if retention_days is None:
        return MOST_SECONDS
    return min(MOST_SECONDS, max(LEAST_SECONDS, 864 * retention_days))


async def sweep_for_ever(retention: Retention, clock: Clock, retention_days: float | None, interval: float) -> None:
    """Sweeps each `interval` seconds until it is cancelled; whatever goes wrong, it tries again next time."""
    while True:
        await asyncio.sleep(interval)
        try:
            await sweep(retention, clock, retention_days)
        except StorageUnavailable as error:
            log.warning("sweep_postponed", reason=error.message)
        except Exception as fault:  # noqa: BLE001 - one bad row must not end the sweeping for as long as the server runs
            log.fault("sweep_failed", fault)


async def sweep(retention: Retention, clock: Clock, retention_days: float | None) -> None:
    """
    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    if retention_days is not None:
        deleted = await retention.expire_conversations(days_before(clock.now(), retention_days))
        if deleted:
            log.info("conversations_expired", deleted=deleted)
    if things := await retention.expire_things():
        log.info("things_expired", deleted=things)
    await retention.expire_claims()


def purge(settings: Settings, options: argparse.Namespace, clock: Clock, out: TextIO, err: TextIO) -> int:
    """Says how many were deleted, or with `--dry-run` would be; returns 1 if the storage cannot be used.

    Raises:
        ValueError: `--older-than` is no time, or missing where no `conversation.retention_days` is set.
    """
    now = clock.now()
    before = parse_when("--older-than", options.older_than, now)
    if before is None:
        if settings.conversation.retention_days is None:
            raise ValueError("--older-than is needed, as conversation.retention_days is not set")
        before = days_before(now, settings.conversation.retention_days)
    try:
        count = asyncio.run(_purge(settings, options, clock, before))
    except StorageUnavailable as error:
        err.write(f"{shown(settings.storage.url)}: {error.message}\n")
        return 1
    done = "would be deleted" if options.dry_run else "deleted"
    since = before.isoformat(timespec="seconds")
    out.write(f"{count} {'conversation' if count == 1 else 'conversations'} without additions since {since}: {done}\n")
    return 0


async def _purge(settings: Settings, options: argparse.Namespace, clock: Clock, before: datetime) -> int:
    cache = open_cache(settings.cache, clock)
    transactions = await open_current(settings.storage)
    try:
        retention = Retention(transactions, clock, cache)
        run = retention.count_expired if options.dry_run else retention.expire_conversations
        return await run(before, options.tenant)
    finally:
        await transactions.close()
        await cache.close()
