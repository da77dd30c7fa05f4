"""`gateway purge`: deletes, for good, conversations that nothing was added to for long, or what a user said."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import TextIO, TypeVar

from gateway.core.clock import days_before, parse_when
from gateway.core.config.settings import Settings
from gateway.core.errors import StorageUnavailable
from gateway.core.instrumentation.logs import get_logger
from gateway.core.ports import CacheBackend, Clock
from gateway.core.scheduler import NextRun, Scheduler
from gateway.documents.files.file_service import FileService
from gateway.operations.actor import command_actor
from gateway.operations.progress import CommandProgress
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.conversations.purge_user import PurgedUser, UserPurge
from gateway.storage.database.migrate import open_current, shown
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.retention import Retention

T = TypeVar("T")
MAX_SECONDS = 300.0
MIN_SECONDS = 1.0
log = get_logger("gateway.operations.purge")


def sweep_seconds(retention_days: float | None) -> float:
    """How often to sweep: a conversation outlives its time by a hundredth of that, or by five minutes."""
    if retention_days is None:
        return MAX_SECONDS
    return min(MAX_SECONDS, max(MIN_SECONDS, 864 * retention_days))


def schedule_sweeps(
    jobs: Scheduler, retention: Retention, clock: Clock, retention_days: float | None, interval: float
) -> None:
    """Sweeps each `interval` seconds, more often where a key keeps its conversations shortly."""

    async def job() -> NextRun:
        return NextRun(min(interval, sweep_seconds(await sweep(retention, clock, retention_days))))

    jobs.every(interval, job, name="sweep", postponed="sweep_postponed", failed="sweep_failed")


async def sweep(retention: Retention, clock: Clock, retention_days: float | None) -> float | None:
    """Returns the fewest days for which a key keeps a conversation that is there.
    Raises StorageUnavailable: the storage cannot be reached."""
    if retention_days is not None:
        deleted = await retention.expire_conversations(days_before(clock.now(), retention_days))
        if deleted:
            log.info("conversations_expired", deleted=deleted)
    by_keys, shortest = await retention.expire_by_keys()
    if by_keys:
        log.info("conversations_of_keys_expired", deleted=by_keys)
    if things := await retention.expire_things():
        log.info("things_expired", deleted=things)
    if texts := await retention.expire_texts():
        log.info("texts_without_a_turn_expired", deleted=texts)
    await retention.expire_claims()
    return shortest


def schedule_files(jobs: Scheduler, files: FileService, look: Callable[[], None]) -> None:
    """Deletes files whose time is over and contents that were left behind, and has looked for those that are still to
    be read, each `MAX_SECONDS`."""

    async def job() -> None:
        look()
        if deleted := await files.upkeep():
            log.info("files_expired", deleted=deleted)

    jobs.every(MAX_SECONDS, job, name="files", postponed="files_upkeep_postponed", failed="files_upkeep_failed")


def purge(settings: Settings, options: argparse.Namespace, clock: Clock, out: TextIO, err: TextIO) -> int:
    """Says what was deleted, or with `--dry-run` would be; returns 1 if the storage cannot be used.
    Raises ValueError: `--older-than` is no time, or missing where no `conversation.retention_days` is set; `--user` is
    empty, or stands beside `--older-than`; `--whole` stands without it."""
    try:
        work = _purge_user if _names_user(options) else _purge_old
        with CommandProgress(err, "purging", "conversations") as told:
            text = work(settings, options, clock, told)
    except StorageUnavailable as error:
        err.write(f"{shown(settings.storage.url)}: {error.message}\n")
        return 1
    out.write(text)
    return 0


def _names_user(options: argparse.Namespace) -> bool:
    if options.user is None:
        if options.whole:
            raise ValueError("--whole is for --user")
        return False
    if not options.user.strip():
        raise ValueError("--user names nobody")
    if options.older_than is not None:
        raise ValueError("--user and --older-than: say one of them")
    return True


def _purge_old(settings: Settings, options: argparse.Namespace, clock: Clock, told: CommandProgress) -> str:
    now = clock.now()
    before = parse_when("--older-than", options.older_than, now)
    if before is None:
        if settings.conversation.retention_days is None:
            raise ValueError("--older-than is needed, as conversation.retention_days is not set")
        before = days_before(now, settings.conversation.retention_days)

    async def work(transactions: DatabaseTransactions, cache: CacheBackend) -> int:
        retention = Retention(transactions, clock, cache)
        if options.dry_run:
            return await retention.count_expired(before, options.tenant)
        return await retention.expire_conversations(before, options.tenant, command_actor(), told)

    count = asyncio.run(_with_storage(settings, clock, work))
    done = "would be deleted" if options.dry_run else "deleted"
    since = before.isoformat(timespec="seconds")
    return f"{_count(count, 'conversation')} without additions since {since}: {done}\n"


def _purge_user(settings: Settings, options: argparse.Namespace, clock: Clock, told: CommandProgress) -> str:
    async def work(transactions: DatabaseTransactions, cache: CacheBackend) -> PurgedUser:
        purging = UserPurge(transactions, clock, cache, command_actor())
        return await purging.run(options.user, options.tenant, whole=options.whole, dry_run=options.dry_run, told=told)

    found = asyncio.run(_with_storage(settings, clock, work))
    done = "would be deleted" if options.dry_run else "deleted"
    lines = [f"{_count(found.conversations, 'conversation')}: {done}"]
    if found.shared:
        parts = f"{_count(found.messages, 'message')} and {_count(found.documents, 'document')}"
        lines.append(f"{parts} in {_count(found.shared, 'conversation')} with others: {done}")
    lines.append(f"{_count(found.things, 'remembered thing')}: {done}")
    stays = "would stay" if options.dry_run else "stay"
    lines.append(f"{_count(found.bills, 'bill')}: {stays}, of {found.digest}")
    return "".join(f"{line}\n" for line in lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what if number == 1 else f'{what}s'}"


async def _with_storage(
    settings: Settings, clock: Clock, work: Callable[[DatabaseTransactions, CacheBackend], Awaitable[T]]
) -> T:
    cache = open_cache(settings.cache, clock)
    transactions = await open_current(settings.storage)
    try:
        return await work(transactions, cache)
    finally:
        await transactions.close()
        await cache.close()
