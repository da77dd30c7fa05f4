"""`gateway check` and `gateway migrate`: says of each thing that the configuration names whether it can be reached."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import httpx

from gateway.accounting.cost import price_internal
from gateway.base.clock import SystemClock
from gateway.config.exposure import refusal
from gateway.config.files import ConfigurationError
from gateway.config.litellm_names import GROUPS
from gateway.config.settings import ContextSettings, Settings
from gateway.errors import GatewayError, Unauthorized
from gateway.models.bill import InternalCall
from gateway.models.exchange import Caller, Deployment
from gateway.models.memory import EXTRACTS
from gateway.operations.actor import tell_trail
from gateway.planning.processor import DEFAULT_INTERNAL
from gateway.storage.database.engine import Transactions, open_transactions
from gateway.storage.database.finish import finish
from gateway.storage.database.migrate import SchemaState, migrate, require_own, schema_state, shown
from gateway.storage.keys import count_keys
from gateway.storage.turns.steps import results_apart
from gateway.telemetry.otel.opening import reach_collector
from gateway.upstream.http.client import new_client
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.openai.resources import ProbeResult, probed, reach
from gateway.upstream.openai.told_facts import ToldFacts, lacks
from gateway.upstream.routing.catalogue import Catalogue
from gateway.upstream.routing.providers import unsupported
from gateway.upstream.routing.router import ConfiguredRouter

CALLER = Caller("check")
MOST_NAMED = 5
"""Models named in one line of the report."""
SET = "set model_info.max_input_tokens"
WAYS = {"responses": "by Responses", "anthropic": "by Anthropic's Messages", "litellm": "through litellm"}
"""How a model is called, by its deployment's `protocol`, where that is not by chat completions."""
OWN_KEY = "the client's own key will be used"
WITHOUT = {
    "planner": "contexts are made without a plan (`no_planner`)",
    "summarizer": "nothing is summarized, extracts stand for it (`no_summarizer`)",
}


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report; a failed optional check is a warning."""

    name: str
    ok: bool
    text: str
    optional: bool = False


class Reaching:
    """Probes upstreams, each address with each key once."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._known: dict[tuple[str, str | None], ProbeResult] = {}
        self._told: set[tuple[str, str | None]] = set()

    def knows(self, deployment: Deployment) -> bool:
        """Whether it has been probed."""
        return (deployment.api_base, deployment.api_key) in self._known

    def told(self, deployment: Deployment) -> bool:
        """Whether the report has a line for it."""
        return (deployment.api_base, deployment.api_key) in self._told

    def tell(self, deployment: Deployment) -> None:
        """Notes that the report has one."""
        self._told.add((deployment.api_base, deployment.api_key))

    async def reached(self, deployment: Deployment) -> ProbeResult:
        """The result of the probe."""
        key = deployment.api_base, deployment.api_key
        if key not in self._known:
            self._known[key] = await reach(self._client, deployment)
        return self._known[key]


@dataclass(frozen=True, slots=True)
class _Internal:
    """An internal model and its roles. `chosen`: the configuration names it; it is not the default."""

    name: str
    roles: tuple[str, ...]
    chosen: bool

    @property
    def title(self) -> str:
        return f"{' and '.join(self.roles)} {self.name}"

    @property
    def without(self) -> str:
        return "; ".join(WITHOUT[role] for role in self.roles)


async def check_planning(settings: Settings, router: ConfiguredRouter, reaching: Reaching) -> AsyncIterator[Result]:
    """Whether planner and summarizer are served, and at what price (guarantee §5). A default model that is not served
    is a warning, one that the configuration names a failure. Defaults are not checked where nobody would ask them."""
    context = settings.context
    for internal in _internals(context):
        summarizes = context.memory != EXTRACTS and "summarizer" in internal.roles
        if not internal.chosen and (context.mode != "auto" or (context.planning == "never" and not summarizes)):
            continue
        async for result in _served(settings, router, reaching, internal):
            yield result


def _internals(context: ContextSettings) -> list[_Internal]:
    named = {"planner": context.planner_model, "summarizer": context.summarizer_model}
    names = dict.fromkeys(name or DEFAULT_INTERNAL for name in named.values())
    return [
        _Internal(
            name,
            tuple(role for role, model in named.items() if (model or DEFAULT_INTERNAL) == name),
            name in named.values(),
        )
        for name in names
    ]


async def _served(
    settings: Settings, router: ConfiguredRouter, reaching: Reaching, internal: _Internal
) -> AsyncIterator[Result]:
    try:
        where, places = _places(settings, router, internal)
    except Unauthorized:
        where, places = f"in model_list; {OWN_KEY}", []
    except GatewayError as error:
        text = f"{_clause(error.message)}: {internal.without}"
        yield Result(internal.title, False, text, optional=not internal.chosen)
        return
    if not where:
        text = f"not in model_list, and not at the upstream of a model in it: {internal.without}"
        yield Result(internal.title, False, text, optional=not internal.chosen)
        return
    for place in places:
        asked = probed(place)
        if asked is None:
            continue
        found = await reaching.reached(asked)
        if found.problem:
            # The upstream's own line fails the check already where a model that clients ask for is served there.
            text = f"{where}, which is not reached: {internal.without}"
            yield Result(internal.title, False, text, optional=not internal.chosen or reaching.told(asked))
            return
        if found.lacks(place.provider_model):
            text = f"{where}, whose list of models does not have {place.provider_model}"
            yield Result(internal.title, False, text, optional=True)
            return
    keyless = any(place.api_key is None and not place.operator_key for place in places)
    yield Result(internal.title, True, f"{where}; {OWN_KEY}" if keyless else where)
    for warning in _prices(settings.context, router, internal):
        yield Result(internal.title, False, warning, optional=True)


def _places(settings: Settings, router: ConfiguredRouter, internal: _Internal) -> tuple[str, list[Deployment]]:
    """Where the model is served, in words, and its deployments there.

    Raises:
        Unauthorized: the client's key will be used.
        GatewayError: its entry cannot be served.
    """
    if router.lists(internal.name):
        return "in model_list", [router.deployment(internal.name, CALLER)]
    found = {}
    for model, primary in _primaries(settings, router):
        served = router.internal(internal.name, internal.chosen, primary, CALLER)
        if served is not None:
            found[model] = served
    if not settings.model_list:
        return ("at the default upstream" if found else ""), list(found.values())
    return (f"at the upstream of {_some(list(found))}" if found else ""), list(found.values())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _primaries(settings: Settings, router: ConfiguredRouter) -> Iterator[tuple[str, Deployment]]:
    """The models that answer, as far as the configuration names them; the default upstream where it names none."""
    for name in [entry.model_name for entry in settings.model_list if unsupported(entry) is None] or [""]:
        try:
            yield name, router.deployment(name, CALLER) if name else router.default(name, CALLER)
        except GatewayError:  # named by the other checks
            continue


def _prices(context: ContextSettings, router: ConfiguredRouter, internal: _Internal) -> Iterator[str]:
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    call = InternalCall("planner", internal.name, usage, router.facts(internal.name).prices)
    if price_internal(call).total is not None:
        return
    if context.planning_max_cost is not None:
        yield f"never called: its price is not known, and `planning_max_cost` is set: {internal.without}"
    else:
        yield "its price is not known: what a request that it works for cost in all is not told (`total_cost` is null)"


def check(settings: Settings) -> list[Result]:
    """All checks: settings, storage, cache, and each distinct upstream address."""
    return asyncio.run(_collect(_check, settings))


def migrate_now(settings: Settings, *, finishing: bool = False) -> list[Result]:
    """Upgrades the schema; safe from any number of processes at once.

    Args:
        finishing: also what has to wait until no older version runs any more.
    """
    return asyncio.run(_collect(_finish if finishing else _migrate, settings))


async def _collect(work: Callable[[Settings], AsyncIterator[Result]], settings: Settings) -> list[Result]:
    return [result async for result in work(settings)]


async def _migrate(settings: Settings) -> AsyncIterator[Result]:
    where = shown(settings.storage.url)
    transactions = open_transactions(settings.storage)
    try:
        before = await transactions.run(schema_state)
        await migrate(transactions, settings.storage.migration_timeout)
        after = await transactions.run(schema_state)
        if before != after:
            await tell_trail(transactions, "storage.migrated", str(after), before=str(before))
        text = f"{where}: already at {after}" if before == after else f"{where}: {before} -> {after}"
        yield Result("schema", after.serves, text)
    except GatewayError as error:
        yield Result("schema", False, f"{where}: {_reason(error)}")
    finally:
        await transactions.close()


async def _finish(settings: Settings) -> AsyncIterator[Result]:
    async for result in _migrate(settings):
        yield result
        if not result.ok:
            return
    transactions = open_transactions(settings.storage)
    try:
        moved = await finish(transactions)
        yield Result("tool steps", True, f"results moved to reasoning_events: {moved}; older versions may not run now")
    except GatewayError as error:
        yield Result("tool steps", False, f"{_reason(error)}: run it again, it goes on from there")
    finally:
        await transactions.close()


async def _check(settings: Settings) -> AsyncIterator[Result]:
    yield Result("configuration", True, f"{len(settings.model_list)} models")
    if (reason := refusal(settings)) is not None:
        yield Result("server", False, reason)
    for warning in settings.warnings:
        yield Result("configuration", False, warning, optional=True)
    for group in GROUPS:
        for fate in settings.moved:
            if fate.group == group:
                yield Result(
                    f"{fate.origin}, {group}", group != "not supported", f"{fate.path}: {fate.text}", optional=True
                )
    async for result in _check_storage(settings):
        yield result
    if settings.cache.url:
        from gateway.storage.cache.redis import reach_cache

        problem = await reach_cache(settings.cache.url, settings.cache.timeout)
        yield Result("cache", problem is None, problem or "reached", optional=True)
    if settings.telemetry.is_on:
        try:
            problem = await reach_collector(settings.telemetry)
            yield Result("telemetry", problem is None, problem or "reached", optional=True)
        except ConfigurationError as error:
            yield Result("telemetry", False, str(error))
    for entry in settings.model_list:
        problem = unsupported(entry)
        if problem:
            yield Result(f"model {entry.model_name}", False, problem)
    async for result in _check_upstreams(settings):
        yield result


UNFINISHED = (
    "older versions may run beside this one, so results of tool steps stay in their messages: "
    "run `gateway migrate --finish` once none does any more"
)


async def _check_storage(settings: Settings) -> AsyncIterator[Result]:
    where = shown(settings.storage.url)
    transactions = open_transactions(settings.storage)
    try:
        state = await transactions.run(schema_state)
        if state.revision is None:
            await transactions.run(require_own)
        missing = "" if state.serves else f": {_missing(state)}"
        can_be = settings.storage.auto_migrate and state.older
        yield Result(f"storage {where}", state.serves or can_be, f"reached, schema {state}{missing}")
        if state.serves and not await transactions.run(results_apart):
            yield Result("schema", False, UNFINISHED, optional=True)
        if state.serves:
            yield await _counted_keys(settings, transactions)
    except GatewayError as error:
        yield Result(f"storage {where}", False, _reason(error))
    finally:
        await transactions.close()


async def _counted_keys(settings: Settings, transactions: Transactions) -> Result:
    now = SystemClock().now()
    made = await transactions.run(lambda connection: count_keys(connection, now))
    text = f"{len(settings.auth.keys)} in auth.keys, {made} made at runtime"
    if made and not settings.auth.wants_keys:
        return Result("keys", False, f"{text}; who has none is served, too: set auth.mode: keys", optional=True)
    return Result("keys", True, text)


def _missing(state: SchemaState) -> str:
    if state.older:
        return "run `gateway migrate`, or let `gateway serve` do it at its start"
    return "newer than this version, which may not run on it"


async def _check_upstreams(settings: Settings) -> AsyncIterator[Result]:
    client = new_client(ConnectionPool(10))
    told = ToldFacts(client, SystemClock())
    router, reaching = ConfiguredRouter(settings, Catalogue(), told), Reaching(client)
    names: list[str | None] = [entry.model_name for entry in settings.model_list if unsupported(entry) is None]
    try:
        for name in names or [None]:
            try:
                deployment = router.deployment(name, CALLER) if name else router.default("", CALLER)
            except Unauthorized:
                yield Result(f"model {name}", True, OWN_KEY)
                continue
            except GatewayError:
                yield Result("models", False, "model_list is empty, and the default upstream has no key")
                continue
            asked = probed(deployment)
            if asked is None:
                yield Result(
                    f"model {name}", True, f"not asked: {deployment.route} is called {WAYS[deployment.protocol]}"
                )
                continue
            if reaching.knows(asked):
                continue
            problem = _clause((await reaching.reached(asked)).problem)
            reaching.tell(asked)
            text = problem or ("reached" if asked.api_key is not None else f"reached; {OWN_KEY}")
            yield Result(f"upstream {_address(asked.api_base)}", not problem, text, optional=name is None)
        async for result in _check_facts(settings, router, reaching):
            yield result
        async for result in check_planning(settings, router, reaching):
            yield result
    finally:
        await told.close()
        await client.aclose()


async def _check_facts(settings: Settings, router: ConfiguredRouter, reaching: Reaching) -> AsyncIterator[Result]:
    """Models whose window or price is not configured and not in the price map: what their upstreams tell."""
    for name in router.names:
        if not lacks(router.facts(name)) or settings.context.embedding_model == name:
            continue
        try:
            deployment = router.deployment(name, CALLER)
        except GatewayError:  # named by the other checks
            continue
        asked = probed(deployment)
        if asked is None or (reaching.knows(asked) and (await reaching.reached(asked)).problem):
            continue
        await router.learn(name, deployment)
        facts = router.facts(name, deployment)
        window, price = facts.context_window or facts.max_input_tokens, facts.prices
        texts = [f"window {window:,} tokens" if window else f"its window is not known, so it is not managed: {SET}"]
        texts.append("priced" if price else "its price is not known, so no cost is told: set its prices in model_info")
        yield Result(f"model {name}", bool(window and price), "; ".join(texts), optional=True)


def _clause(sentence: str | None) -> str:
    """A sentence as a part of another."""
    return (sentence or "").rstrip(". ")


def _address(base: str) -> str:
    """A base URL without what may be a secret in it."""
    return re.sub(r"(?<=://)[^/@]*@", "***@", base.partition("?")[0])


def _reason(error: GatewayError) -> str:
    cause = error.__cause__
    return f"{error.message} ({type(cause).__name__})" if cause else error.message
