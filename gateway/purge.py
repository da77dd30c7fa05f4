"""`gateway purge`: deletes, for good, conversations that nothing was added to for long."""

import argparse
import asyncio
from datetime import datetime
from typing import TextIO

from gateway.clock import days_before, parse_when
from gateway.errors import StorageUnavailable
from gateway.ports import Clock
from gateway.settings import Settings
from gateway.storage.cache import open_cache
from gateway.storage.probe import open_current, shown
from gateway.storage.retention import Retention


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
        run = retention.count_unused if options.dry_run else retention.delete_unused
        return await run(before, options.tenant)
    finally:
        await transactions.close()
        await cache.close()
