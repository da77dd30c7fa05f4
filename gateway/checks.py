"""`gateway check` and `gateway migrate`: says of each thing that the configuration names whether it can be reached."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable

from gateway.check_planning import check_planning
from gateway.checked import Reaching, Result
from gateway.errors import GatewayError, Unauthorized
from gateway.models.exchange import Caller
from gateway.settings import Settings
from gateway.storage.engine import open_transactions
from gateway.storage.migrate import migrate
from gateway.storage.probe import SchemaState, reach_cache, schema_state, shown
from gateway.upstream.client import new_client
from gateway.upstream.pool import ConnectionPool
from gateway.upstream.probe import probed
from gateway.upstream.routing import unsupported


def check(settings: Settings) -> list[Result]:
    """All checks: settings, storage, cache, and each distinct upstream address."""
    return asyncio.run(_collect(_check, settings))


def migrate_now(settings: Settings) -> list[Result]:
    """Upgrades the schema; safe from any number of processes at once."""
    return asyncio.run(_collect(_migrate, settings))


async def _collect(work: Callable[[Settings], AsyncIterator[Result]], settings: Settings) -> list[Result]:
    return [result async for result in work(settings)]


async def _migrate(settings: Settings) -> AsyncIterator[Result]:
    where = shown(settings.storage.url)
    transactions = open_transactions(settings.storage)
    try:
        before = await transactions.run(schema_state)
        await migrate(transactions, settings.storage.migration_timeout)
        after = await transactions.run(schema_state)
        text = f"{where}: already at {after}" if before == after else f"{where}: {before} -> {after}"
        yield Result("schema", after.serves, text)
    except GatewayError as error:
        yield Result("schema", False, f"{where}: {_reason(error)}")
    finally:
        await transactions.close()


async def _check(settings: Settings) -> AsyncIterator[Result]:
    yield Result("configuration", True, f"{len(settings.model_list)} models")
    for warning in settings.warnings:
        yield Result("configuration", False, warning, optional=True)
    async for result in _check_storage(settings):
        yield result
    if settings.cache.url:
        problem = await reach_cache(settings.cache.url, settings.cache.timeout)
        yield Result("cache", problem is None, problem or "reached", optional=True)
    for entry in settings.model_list:
        problem = unsupported(entry)
        if problem:
            yield Result(f"model {entry.model_name}", False, problem)
    async for result in _check_upstreams(settings):
        yield result


async def _check_storage(settings: Settings) -> AsyncIterator[Result]:
    where = shown(settings.storage.url)
    transactions = open_transactions(settings.storage)
    try:
        state = await transactions.run(schema_state)
        missing = "" if state.serves else f": {_missing(state)}"
        can_be = settings.storage.auto_migrate and state.older
        yield Result(f"storage {where}", state.serves or can_be, f"reached, schema {state}{missing}")
    except GatewayError as error:
        yield Result(f"storage {where}", False, _reason(error))
    finally:
        await transactions.close()


def _missing(state: SchemaState) -> str:
    if state.older:
        return "run `gateway migrate`, or let `gateway serve` do it at its start"
    return "newer than this version, which may not run on it"


async def _check_upstreams(settings: Settings) -> AsyncIterator[Result]:
    from gateway.upstream.catalogue import Catalogue
    from gateway.upstream.routing import ConfiguredRouter

    client = new_client(ConnectionPool(10))
    router, reaching = ConfiguredRouter(settings, Catalogue()), Reaching(client)
    caller = Caller("check")
    names: list[str | None] = [entry.model_name for entry in settings.model_list if unsupported(entry) is None]
    try:
        for name in names or [None]:
            try:
                deployment = router.deployment(name, caller) if name else router.default("", caller)
            except Unauthorized:
                yield Result(f"model {name}", True, "the client's own key will be used")
                continue
            except GatewayError:
                yield Result("models", False, "model_list is empty, and the default upstream has no key")
                continue
            asked = probed(deployment)
            if asked is None:
                yield Result(f"model {name}", True, f"not asked: {deployment.route} is called through litellm")
                continue
            if reaching.knows(asked):
                continue
            problem = (await reaching.reached(asked)).problem
            keyless = asked.api_key is None
            text = problem or ("reached" if not keyless else "reached; the client's own key will be used")
            yield Result(f"upstream {_address(asked.api_base)}", problem is None, text, optional=name is None)
        async for result in check_planning(settings, router, reaching):
            yield result
    finally:
        await client.aclose()


def _address(base: str) -> str:
    """A base URL without what may be a secret in it."""
    return re.sub(r"(?<=://)[^/@]*@", "***@", base.partition("?")[0])


def _reason(error: GatewayError) -> str:
    cause = error.__cause__
    return f"{error.message} ({type(cause).__name__})" if cause else error.message
