"""Storage work of a process beside requests: upgrades the schema at the start, and adds the bills that an older version
wrote to the sums (guarantee §13.1)."""

import asyncio
import signal

from gateway.billing import cost
from gateway.core import errors
from gateway.core.config.settings import Settings
from gateway.core.instrumentation import logs
from gateway.core.scheduler import NextRun, Scheduler
from gateway.storage import bills
from gateway.storage.database import DatabaseTransactions, migrate
from gateway.storage.encryption import rewrite

BATCH_PAUSE_SECONDS = 0.1
"""Between two batches, so that requests go first."""
LATER_SECONDS = 5.0
"""Before the next attempt, after the storage could not be reached or did not have this schema yet."""
REACH_RETRY_SECONDS = 1.0
"""Between two attempts to reach the storage at the start."""
log = logs.get_logger("gateway.operations.storage_upkeep")


async def begin_preparing(settings: Settings, transactions: DatabaseTransactions) -> "asyncio.Task[None]":
    """Prepares the storage; after `storage.timeout` seconds, preparation goes on in the background. The process ends as
    soon as it finds that it cannot read the stored content (guarantee §12.11).
    Raises ContentUnreadable: it found that before `storage.timeout`."""
    preparing = asyncio.create_task(prepare_storage(settings, transactions))
    await asyncio.wait({preparing}, timeout=settings.storage.timeout)
    preparing.add_done_callback(_end_without_keys)
    if preparing.done():
        preparing.result()
    return preparing


def _end_without_keys(preparing: "asyncio.Task[None]") -> None:
    if not preparing.cancelled() and isinstance(fault := preparing.exception(), errors.ContentUnreadable):
        log.warning("content_unreadable", reason=fault.message)
        signal.raise_signal(signal.SIGTERM)


async def prepare_storage(settings: Settings, transactions: DatabaseTransactions) -> None:
    """Upgrades the schema if `storage.auto_migrate` is set, and records the content key; retries until the storage can
    be reached.
    Raises ContentUnreadable: stored content is under a key that is not configured."""
    while True:
        try:
            if settings.storage.auto_migrate:
                await migrate.migrate(transactions, settings.storage.migration_timeout)
            state = await transactions.run(migrate.schema_state)
            if not state.serves:
                log.warning("storage_schema_not_current", reason=state.fault)
            if state.revision is not None:
                await rewrite.require_keys(transactions)
                await rewrite.note_key(transactions)
            return
        except errors.ContentUnreadable:
            raise
        except errors.StorageUnavailable as error:
            log.warning("storage_unavailable_at_start", reason=error.message, cause=errors.cause_of(error))
        await asyncio.sleep(REACH_RETRY_SECONDS)


def schedule_older_bills(
    jobs: Scheduler, transactions: DatabaseTransactions, interval: float, pause: float = BATCH_PAUSE_SECONDS
) -> None:
    """Schedules a job that adds the bills of older versions to the sums, in batches `pause` seconds apart, then looks
    again every `interval` seconds: during a rolling upgrade, processes of the older version keep writing."""
    added = 0

    async def job() -> NextRun:
        nonlocal added
        batch = await bills.add_older(transactions, cost.with_figures)
        added += batch
        if not batch and added:
            log.info("older_bills_added", bills=added)
            added = 0
        return NextRun(pause if batch else interval)

    jobs.every(
        interval,
        job,
        name="older_bills",
        at_once=True,
        retry=min(interval, LATER_SECONDS),
        postponed="older_bills_postponed",
        failed="older_bills_failed",
    )
