"""`gateway check` and `gateway migrate`: says of each thing that the configuration names whether it can be reached."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial

from gateway.core.clock import SystemClock
from gateway.core.config.config_file import ConfigurationError
from gateway.core.config.exposure import refusal
from gateway.core.config.litellm_draft import GROUPS
from gateway.core.config.settings import Settings
from gateway.core.errors import GatewayError
from gateway.core.printing import in_short
from gateway.documents.document import UnreadableDocument
from gateway.documents.files.factory import are_relayed, folder_of, store_of
from gateway.operations.actor import tell_trail
from gateway.operations.checked_upstreams import CheckResult, check_issuers, check_upstreams
from gateway.operations.encrypting import check_content
from gateway.operations.otel.factory import reach_collector
from gateway.operations.progress import CommandProgress
from gateway.pipeline.guards.factory import guards_are_on
from gateway.storage.database.finish import finish
from gateway.storage.database.migrate import SchemaState, migrate, require_own, schema_state, shown
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions, sqlite_file
from gateway.storage.stored_keys import count_keys
from gateway.storage.turns.steps import results_apart
from gateway.upstream.routing.catalogue import unsupported

EVERY_MODEL = "no model_list: every name goes to the default upstream"


def _guards(settings: Settings) -> CheckResult:
    from gateway.pipeline.guards.wiring import what_guards

    try:
        return CheckResult("guards", True, what_guards(settings))
    except ConfigurationError as error:
        return CheckResult("guards", False, str(error))


def check(settings: Settings) -> list[CheckResult]:
    """All checks: settings, storage, cache, and each distinct upstream address."""
    return asyncio.run(_collect(_check, settings))


def migrate_now(settings: Settings, *, finishing: bool = False) -> list[CheckResult]:
    """Upgrades the schema; safe from any number of processes at once.
    `finishing`: also what has to wait until no older version runs any more."""
    with CommandProgress(sys.stderr, "migrating", "results moved" if finishing else "") as told:
        return asyncio.run(_collect(partial(_finish, told=told) if finishing else _migrate, settings))


async def _collect(work: Callable[[Settings], AsyncIterator[CheckResult]], settings: Settings) -> list[CheckResult]:
    return [result async for result in work(settings)]


async def _migrate(settings: Settings) -> AsyncIterator[CheckResult]:
    where = shown(settings.storage.url)
    transactions = open_transactions(settings.storage)
    try:
        before = await transactions.run(schema_state)
        await migrate(transactions, settings.storage.migration_timeout)
        after = await transactions.run(schema_state)
        if before != after:
            await tell_trail(transactions, "storage.migrated", str(after), before=str(before))
        text = f"{where}: already at {after}" if before == after else f"{where}: {before} -> {after}"
        yield CheckResult("schema", after.serves, text)
    except GatewayError as error:
        yield CheckResult("schema", False, f"{where}: {_reason(error)}")
    finally:
        await transactions.close()


async def _finish(settings: Settings, told: CommandProgress) -> AsyncIterator[CheckResult]:
    async for result in _migrate(settings):
        yield result
        if not result.ok:
            return
    transactions = open_transactions(settings.storage)
    try:
        moved = await finish(transactions, told)
        yield CheckResult(
            "tool steps", True, f"results moved to reasoning_events: {moved}; older versions may not run now"
        )
    except GatewayError as error:
        yield CheckResult("tool steps", False, f"{_reason(error)}: run it again, it goes on from there")
    finally:
        await transactions.close()


async def _documents() -> CheckResult:
    """How far the kernel confines the processes that read documents."""
    from gateway.documents.process import confinement

    try:
        confined = await confinement()
    except (UnreadableDocument, OSError) as error:
        return CheckResult("documents", False, f"no process can be started that reads one: {error}", optional=True)
    missing = [name for name, is_so in confined.items() if not is_so]
    what = "no namespaces of the kernel; time, memory and files are limited all the same"
    text = f"read apart, without {' and '.join(f'limits of {name}' for name in missing)} ({what})"
    return CheckResult("documents", True, text if missing else "read apart, without a network, processes counted")


def _scans(settings: Settings) -> CheckResult:
    """Whether pages that are pictures can be read."""
    if settings.documents.ocr == "off":
        return CheckResult("scanned pages", True, "not recognized: documents.ocr is off")
    if shutil.which("tesseract") is None:
        return CheckResult("scanned pages", True, "not recognized: no tesseract in the PATH")
    return CheckResult("scanned pages", True, f"recognized by tesseract, {settings.documents.ocr_languages}")


def _files(settings: Settings) -> CheckResult:
    """Whose files are kept where: a client's own token takes them to the default upstream, whoever serves its model."""
    bucket, mode = f"bucket {settings.files.s3.bucket}", settings.files.serve
    where = {"disk": str(folder_of(settings)), "database": "the database"}.get(store_of(settings), bucket)
    if mode == "on":
        return CheckResult("files", True, f"all here, in {where}")
    if mode == "off" or are_relayed(settings):
        return CheckResult("files", True, "all at the default upstream")
    if settings.auth.wants_keys:
        return CheckResult("files", True, f"here, in {where}")
    text = f"at the default upstream if it keeps files, else here, in {where} (files.serve)"
    return CheckResult("files", True, text)


async def _check(settings: Settings) -> AsyncIterator[CheckResult]:
    served = (
        f"models: {in_short([each.model_name for each in settings.model_list])}" if settings.model_list else EVERY_MODEL
    )
    yield CheckResult("configuration", True, served)
    if (reason := refusal(settings)) is not None:
        yield CheckResult("server", False, reason)
    for warning in settings.warnings:
        yield CheckResult("configuration", False, warning, optional=True)
    yield await _documents()
    yield _scans(settings)
    for group in GROUPS:
        for fate in settings.moved:
            if fate.group == group:
                yield CheckResult(
                    f"{fate.origin}, {group}", group != "not supported", f"{fate.path}: {fate.text}", optional=True
                )
    async for result in _check_storage(settings):
        yield result
    if settings.cache.url:
        from gateway.storage.cache.redis import reach_cache

        problem = await reach_cache(settings.cache.url, settings.cache.timeout)
        yield CheckResult("cache", problem is None, problem or "reached", optional=True)
    if settings.auth.jwt is not None or settings.auth.oidc is not None:
        async for result in check_issuers(settings):
            yield result
    yield _files(settings)
    if settings.files.s3.bucket:
        from gateway.upstream.s3 import reach_bucket

        problem = await reach_bucket(settings.files.s3)
        yield CheckResult(f"bucket {settings.files.s3.bucket}", problem is None, problem or "reached")
    if guards_are_on(settings):
        yield _guards(settings)
    if settings.telemetry.is_on:
        try:
            problem = await reach_collector(settings.telemetry)
            yield CheckResult("telemetry", problem is None, problem or "reached", optional=True)
        except ConfigurationError as error:
            yield CheckResult("telemetry", False, str(error))
    for entry in settings.model_list:
        problem = unsupported(entry)
        if problem:
            yield CheckResult(f"model {entry.model_name}", False, problem)
    async for result in check_upstreams(settings):
        yield result


UNFINISHED = (
    "older versions may run beside this one, so results of tool steps stay in their messages: "
    "run `gateway migrate --finish` once none does any more"
)


async def _check_storage(settings: Settings) -> AsyncIterator[CheckResult]:
    where = shown(settings.storage.url)
    if (unmade := _missing_file(settings)) is not None:
        yield unmade
        return
    transactions = open_transactions(settings.storage)
    try:
        state = await transactions.run(schema_state)
        if state.revision is None:
            await transactions.run(require_own)
        missing = "" if state.serves else f": {_missing(state)}"
        can_be = settings.storage.auto_migrate and state.older
        yield CheckResult(f"storage {where}", state.serves or can_be, f"reached, schema {state}{missing}")
        if state.serves and not await transactions.run(results_apart):
            yield CheckResult("schema", False, UNFINISHED, optional=True)
        if state.serves:
            async for ok, text, optional in check_content(settings, transactions):
                yield CheckResult("content", ok, text, optional=optional)
            yield await _counted_keys(settings, transactions)
    except GatewayError as error:
        yield CheckResult(f"storage {where}", False, _reason(error))
    finally:
        await transactions.close()


def _missing_file(settings: Settings) -> CheckResult | None:
    """What is said of an SQLite file that is not there yet: to open it would make it."""
    file = sqlite_file(settings.storage.url)
    if file is None or file.exists():
        return None
    name = f"storage {shown(settings.storage.url)}"
    if not os.access(file.parent, os.W_OK | os.X_OK):
        return CheckResult(name, False, f"{file.parent} is no folder that can be written to")
    maker = "serve" if settings.storage.auto_migrate else "migrate"
    return CheckResult(name, True, f"not there yet: `gateway {maker}` makes it")


async def _counted_keys(settings: Settings, transactions: DatabaseTransactions) -> CheckResult:
    now = SystemClock().now()
    made = await transactions.run(lambda connection: count_keys(connection, now))
    text = f"{len(settings.auth.keys)} in auth.keys, {made} made at runtime"
    if made and not settings.auth.wants_keys:
        return CheckResult("keys", False, f"{text}; who has none is served, too: set auth.mode: keys", optional=True)
    return CheckResult("keys", True, text)


def _missing(state: SchemaState) -> str:
    if state.older:
        return "run `gateway migrate`, or let `gateway serve` do it at its start"
    return "newer than this version, which may not run on it"


def _reason(error: GatewayError) -> str:
    cause = error.__cause__
    return f"{error.message} ({type(cause).__name__})" if cause else error.message
