"""`gateway purge`: permanently deletes conversations without recent activity, or the messages of a user."""

import argparse
from collections.abc import Awaitable, Callable

from gateway.core import clock, ports
from gateway.core.instrumentation import logs
from gateway.core.scheduler import NextRun, Scheduler
from gateway.documents.files import FileService
from gateway.operations.actor import command_actor
from gateway.operations.progress import CommandProgress
from gateway.operations.screen import CommandCall
from gateway.operations.storage_reader import run_changing
from gateway.storage import Retention
from gateway.storage.cache import open_cache
from gateway.storage.conversations import UserPurge
from gateway.storage.database import DatabaseTransactions

Purging = Callable[[CommandCall, DatabaseTransactions, ports.CacheBackend, CommandProgress], Awaitable[str]]
"""Deletes data; returns a report of what was deleted."""
MAX_SWEEP_SECONDS = 300.0
MIN_SWEEP_SECONDS = 1.0
log = logs.get_logger("gateway.operations.purge")


def sweep_seconds(retention_days: float | None) -> float:
    """Returns the seconds between sweeps: a hundredth of the retention time, within one second and five minutes."""
    if retention_days is None:
        return MAX_SWEEP_SECONDS
    return min(MAX_SWEEP_SECONDS, max(MIN_SWEEP_SECONDS, 864 * retention_days))


def schedule_sweeps(
    jobs: Scheduler, retention: Retention, clock: ports.Clock, retention_days: float | None, interval: float
) -> None:
    """Schedules sweeps every `interval` seconds, more often if a key has a short retention time."""

    async def job() -> NextRun:
        return NextRun(min(interval, sweep_seconds(await sweep(retention, clock, retention_days))))

    jobs.every(interval, job, name="sweep", postponed="sweep_postponed", failed="sweep_failed")


async def sweep(retention: Retention, wall_clock: ports.Clock, retention_days: float | None) -> float | None:
    """Deletes expired data; returns the shortest retention, in days, of a key with stored conversations, or None.
    Raises StorageUnavailable: the storage cannot be reached."""
    if retention_days is not None:
        deleted = await retention.expire_conversations(clock.days_before(wall_clock.now(), retention_days))
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
    """Schedules a job every `MAX_SWEEP_SECONDS` that deletes expired files and orphaned contents, and calls `look` for
    files that are still to be read."""

    async def job() -> None:
        look()
        if deleted := await files.upkeep():
            log.info("files_expired", deleted=deleted)

    jobs.every(MAX_SWEEP_SECONDS, job, name="files", postponed="files_upkeep_postponed", failed="files_upkeep_failed")


def purge(call: CommandCall) -> int:
    """Deletes and reports what was deleted, or with `--dry-run` would be; returns 1 if the storage cannot be used.
    Raises ValueError: `--older-than` is no past time, or missing without `conversation.retention_days`; `--user` is
    empty, or combined with `--older-than`; `--whole` is given without `--user`."""
    work = _purge_user if _names_user(call.options) else _purge_old(call)

    async def told(transactions: DatabaseTransactions) -> int:
        cache = open_cache(call.settings.cache, call.clock)
        try:
            with CommandProgress(call.err, "purging", "conversations") as progress:
                text = await work(call, transactions, cache, progress)
        finally:
            await cache.close()
        call.out.write(text)
        return 0

    return run_changing(call, told)


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


def _purge_old(call: CommandCall) -> Purging:
    options, days, now = call.options, call.settings.conversation.retention_days, call.clock.now()
    before = clock.parse_when("--older-than", options.older_than, now)
    if before is None:
        if days is None:
            raise ValueError("--older-than is needed, as conversation.retention_days is not set")
        before = clock.days_before(now, days)
    if before > now:
        raise ValueError("--older-than: lies in the future, where all conversations are older")

    async def work(
        call: CommandCall, transactions: DatabaseTransactions, cache: ports.CacheBackend, told: CommandProgress
    ) -> str:
        retention = Retention(transactions, call.clock, cache)
        if options.dry_run:
            count = await retention.count_expired(before, options.tenant)
        else:
            count = await retention.expire_conversations(before, options.tenant, command_actor(), told)
        done, since = "would be deleted" if options.dry_run else "deleted", before.isoformat(timespec="seconds")
        return f"{_count(count, 'conversation')} without additions since {since}: {done}\n"

    return work


async def _purge_user(
    call: CommandCall, transactions: DatabaseTransactions, cache: ports.CacheBackend, told: CommandProgress
) -> str:
    options = call.options
    purging = UserPurge(transactions, call.clock, cache, command_actor())
    found = await purging.run(options.user, options.tenant, whole=options.whole, dry_run=options.dry_run, told=told)
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
