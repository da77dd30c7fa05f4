"""What a process does for its storage beside requests: brings the schema up to date at the start, and adds to the sums
what an older version wrote (guarantee §13.1)."""

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
"""Between two batches: requests go first."""
LATER_SECONDS = 5.0
"""After a storage that could not be reached, or that is not on this schema yet."""
REACH_RETRY_SECONDS = 1.0
"""Between two tries to reach the storage at the start."""
log = logs.get_logger("gateway.operations.storage_upkeep")


async def begin_preparing(settings: Settings, transactions: DatabaseTransactions) -> "asyncio.Task[None]":
    """Prepares the storage, in the background after `storage.timeout`. A process that cannot read what is stored ends,
    whenever that is found (guarantee §12.11).
    Raises ContentUnreadable: it was found at once."""
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
    """Brings the schema up to date, and notes the key of content; a storage that cannot be reached yet is tried again
    until it can.
    Raises ContentUnreadable: content in it is under a key that is not configured."""
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
            log.warning("storage_unavailable_at_start", reason=error.message)
        await asyncio.sleep(REACH_RETRY_SECONDS)


def schedule_older_bills(
    jobs: Scheduler, transactions: DatabaseTransactions, interval: float, pause: float = BATCH_PAUSE_SECONDS
) -> None:
    """Adds all there are, then looks again each `interval` seconds: during a rolling upgrade processes of the version
    before go on writing."""
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
