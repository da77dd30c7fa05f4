"""`gateway check` and `gateway migrate`: reports whether each service that the configuration names can be reached.

Each upstream is probed once with each key; planner and summarizer are reported with missing prices.
"""

import asyncio
import os
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial

import httpx

from gateway.api import Issuer
from gateway.billing import cost
from gateway.context import decision
from gateway.core import errors, printing
from gateway.core.clock import SystemClock
from gateway.core.config import exposure, litellm_draft
from gateway.core.config.config_file import ConfigurationError
from gateway.core.config.settings import ContextSettings, Settings
from gateway.core.frozen_records import record
from gateway.core.types import bill, memory
from gateway.core.types.chat import ModelDeployment, RequestCaller
from gateway.documents import UnreadableDocument, process
from gateway.documents.files import are_relayed, folder_of, store_of
from gateway.inspection import settings_in_force
from gateway.operations.actor import tell_trail
from gateway.operations.otel.factory import reach_collector
from gateway.operations.progress import CommandProgress
from gateway.operations.screen import CommandCall
from gateway.pipeline.guards import guards_are_on, what_guards
from gateway.storage import ConversationStore, results_apart, stored_keys
from gateway.storage.database import DatabaseTransactions, SchemaState, finish, migrate, sqlite
from gateway.storage.encryption import rewrite
from gateway.upstream import (
    ConnectionPool,
    DiscoveredModels,
    HttpIdentityDocuments,
    lacks,
    new_client,
    reach_bucket,
    resources,
)
from gateway.upstream.routing import ConfiguredRouter, ModelCatalogue, catalogue

CALLER = RequestCaller("check")
Address = tuple[str, str | None]
"""The base URL of an upstream, and the key that is sent to it."""
SET = "set model_info.max_input_tokens"
SET_PRICES = "set its prices in model_info"
WAYS = {"responses": "by Responses", "anthropic": "by Anthropic's Messages", "litellm": "through litellm"}
"""How a model is called, by its deployment's `protocol`, other than by chat completions."""
OWN_KEY = "the client's own key will be used"
WITHOUT = {
    "planner": "contexts are made without a plan (`no_planner`)",
    "summarizer": "nothing is summarized, extracts stand for it (`no_summarizer`)",
}


@record
class CheckResult:
    """One line of the report; a failed optional check is a warning."""

    name: str
    ok: bool
    text: str
    optional: bool = False


class UpstreamProbes:
    """Probes upstreams, each address with each key once. `told`: the addresses that the report already lists."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._known: dict[Address, resources.ProbeResult] = {}
        self.told: set[Address] = set()

    async def reached(self, deployment: ModelDeployment) -> resources.ProbeResult:
        """Probes the upstream of a deployment, or returns the result of its earlier probe."""
        key = _address(deployment)
        if key not in self._known:
            self._known[key] = await resources.reach(self._client, deployment)
        return self._known[key]


def _address(deployment: ModelDeployment) -> Address:
    return deployment.api_base, deployment.api_key


@record
class _InternalModel:
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


async def _planning(
    settings: Settings, router: ConfiguredRouter, reaching: UpstreamProbes
) -> AsyncIterator[CheckResult]:
    """Checks whether planner and summarizer are served and priced (guarantee §5). An unserved default model is a
    warning; an unserved model that the configuration names is a failure. Unused defaults are not checked."""
    context = settings.context
    for internal in _internals(context):
        summarizes = context.memory != memory.EXTRACTS and "summarizer" in internal.roles
        if not internal.chosen and (context.mode != "auto" or (context.planning == "never" and not summarizes)):
            continue
        async for result in _served(settings, router, reaching, internal):
            yield result


def _internals(context: ContextSettings) -> list[_InternalModel]:
    named = {"planner": context.planner_model, "summarizer": context.summarizer_model}
    names = dict.fromkeys(name or decision.DEFAULT_INTERNAL for name in named.values())
    return [
        _InternalModel(
            name,
            tuple(role for role, model in named.items() if (model or decision.DEFAULT_INTERNAL) == name),
            name in named.values(),
        )
        for name in names
    ]


async def _served(
    settings: Settings, router: ConfiguredRouter, reaching: UpstreamProbes, internal: _InternalModel
) -> AsyncIterator[CheckResult]:
    try:
        where, places = _places(settings, router, internal)
    except errors.Unauthorized:
        where, places = f"in model_list; {OWN_KEY}", []
    except errors.GatewayError as error:
        text = f"{_clause(error.message)}: {internal.without}"
        yield CheckResult(internal.title, False, text, optional=not internal.chosen)
        return
    if not where:
        text = f"not in model_list, and not at the upstream of a model in it: {internal.without}"
        yield CheckResult(internal.title, False, text, optional=not internal.chosen)
        return
    for place in places:
        asked = resources.probed(place)
        if asked is None:
            continue
        found = await reaching.reached(asked)
        if found.problem:
            # If the upstream also serves a model of clients, its own line has already failed the check.
            text = f"{where}, which is not reached: {internal.without}"
            yield CheckResult(
                internal.title, False, text, optional=not internal.chosen or _address(asked) in reaching.told
            )
            return
        if found.lacks(place.provider_model):
            text = f"{where}, whose list of models does not have {place.provider_model}"
            yield CheckResult(internal.title, False, text, optional=True)
            return
    keyless = any(place.api_key is None and not place.operator_key for place in places)
    yield CheckResult(internal.title, True, f"{where}; {OWN_KEY}" if keyless else where)
    for warning in _prices(settings.context, router, internal):
        yield CheckResult(internal.title, False, warning, optional=True)


def _places(
    settings: Settings, router: ConfiguredRouter, internal: _InternalModel
) -> tuple[str, list[ModelDeployment]]:
    """Returns where the model is served, in words, and its deployments there.
    Raises Unauthorized: the client's key will be used; GatewayError: its entry cannot be served."""
    if router.lists(internal.name):
        return "in model_list", router.all_of(internal.name, CALLER)
    found: dict[str, list[ModelDeployment]] = {}
    for model, primary in _primaries(settings, router):
        served = router.internal(internal.name, internal.chosen, primary, CALLER)
        if served is not None:
            found.setdefault(model, []).append(served)
    places = [each for served in found.values() for each in served]
    if not settings.model_list:
        return ("at the default upstream" if found else ""), places
    return (f"at the upstream of {printing.in_short(list(found))}" if found else ""), places


def _served_names(settings: Settings) -> list[str]:
    """Lists the models of `model_list` that can be served; without a list, an empty name: the default upstream."""
    names = [entry.model_name for entry in settings.model_list if catalogue.unsupported(entry) is None]
    return list(dict.fromkeys(names)) if settings.model_list else [""]


def _primaries(settings: Settings, router: ConfiguredRouter) -> Iterator[tuple[str, ModelDeployment]]:
    """Yields the primary models that the configuration names, each with its deployments; else the default upstream."""
    for name in _served_names(settings):
        try:
            for each in router.all_of(name, CALLER) if name else [router.default(name, CALLER)]:
                yield name, each
        except errors.GatewayError:  # named by the other checks
            continue


def _prices(context: ContextSettings, router: ConfiguredRouter, internal: _InternalModel) -> Iterator[str]:
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    call = bill.InternalCall("planner", internal.name, usage, router.facts(internal.name).prices)
    if cost.price_internal(call).total is not None:
        return
    if context.planning_max_cost is not None:
        yield f"never called: its price is not known, and `planning_max_cost` is set: {internal.without}"
    else:
        yield "its price is not known: what a request that it works for cost in all is not told (`total_cost` is null)"


async def check_issuers(settings: Settings) -> AsyncIterator[CheckResult]:
    """Checks whether the configured token issuers publish signature keys."""
    client = new_client(ConnectionPool(2))
    jwt, oidc = settings.auth.jwt, settings.auth.oidc
    files = {} if jwt is None else {"jwks_url": jwt.jwks_url, "jwks_file": jwt.jwks_file}
    try:
        for name, issuer, more in (("jwt", jwt, files), ("oidc", oidc, {})):
            if issuer is None:
                continue
            try:
                found = await Issuer(issuer, HttpIdentityDocuments(client), SystemClock(), **more).reach()
            except errors.GatewayError as fault:
                yield CheckResult(f"auth.{name}", False, fault.message)
            else:
                yield CheckResult(
                    f"auth.{name}",
                    found > 0,
                    f"{issuer.issuer} publishes {found} {'key' if found == 1 else 'keys'} for signatures",
                )
    finally:
        await client.aclose()


async def check_upstreams(settings: Settings) -> AsyncIterator[CheckResult]:
    client = new_client(ConnectionPool(10))
    told = DiscoveredModels(client, SystemClock())
    router, reaching = ConfiguredRouter(settings, ModelCatalogue(), told), UpstreamProbes(client)
    try:
        for result in _fallbacks(settings, router):
            yield result
        for name in _served_names(settings):
            try:
                deployments = router.all_of(name, CALLER) if name else [router.default("", CALLER)]
            except errors.Unauthorized:
                yield CheckResult(f"model {name}", True, OWN_KEY)
                continue
            except errors.GatewayError:
                yield CheckResult("models", False, "model_list is empty, and the default upstream has no key")
                continue
            for deployment in deployments:
                asked = resources.probed(deployment)
                if asked is None:
                    text = f"not asked: {deployment.route} is called {WAYS[deployment.protocol]}"
                    yield CheckResult(f"model {name}", True, text)
                    continue
                found = await reaching.reached(asked)
                where = settings_in_force.address(asked.api_base)
                if _address(asked) not in reaching.told:
                    reaching.told.add(_address(asked))
                    title = f"upstream {where}" if where else "upstream.api_base"
                    yield _upstream(title, asked, found, is_named=bool(name))
                if name and "*" not in name and found.lacks(deployment.provider_model):
                    text = f"the list of models of {where} does not have {deployment.provider_model}"
                    yield CheckResult(f"model {name}", False, text, optional=True)
        async for result in _facts(settings, router, reaching):
            yield result
        async for result in _planning(settings, router, reaching):
            yield result
    finally:
        await told.close()
        await client.aclose()


def _upstream(title: str, asked: ModelDeployment, found: resources.ProbeResult, *, is_named: bool) -> CheckResult:
    if found.problem:
        # the default upstream may be reached later; what is no address never is
        return CheckResult(title, False, _clause(found.problem), optional=not is_named and found.is_address)
    if found.doubt:
        return CheckResult(title, False, f"reached, but {found.doubt}", optional=True)
    return CheckResult(title, True, "reached" if asked.api_key is not None else f"reached; {OWN_KEY}")


def _fallbacks(settings: Settings, router: ConfiguredRouter) -> Iterator[CheckResult]:
    """Names the models of fallbacks that are not served: requests skip them without a word."""
    routing = settings.routing
    for setting in ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "default_fallbacks"):
        value = getattr(routing, setting)
        named = [*value, *(each for others in value.values() for each in others)] if isinstance(value, dict) else value
        if lost := [each for each in dict.fromkeys(named) if not (router.serves_unlisted or router.lists(each))]:
            text = f"model_list does not have {printing.in_short(lost)}"
            yield CheckResult(f"routing.{setting}", False, text, optional=True)


async def _facts(settings: Settings, router: ConfiguredRouter, reaching: UpstreamProbes) -> AsyncIterator[CheckResult]:
    """Asks upstreams about models whose window or price is neither configured nor in the price map."""
    for name in router.names:
        try:
            deployments = router.all_of(name, CALLER)
        except errors.GatewayError:  # named by the other checks
            continue
        for deployment in deployments:
            if not lacks(router.facts(name, deployment)) or settings.context.embedding_model == name:
                continue
            asked = resources.probed(deployment)
            if asked is None or (_address(asked) in reaching.told and (await reaching.reached(asked)).problem):
                continue
            facts = await router.learn(name, deployment)
            window, price = facts.context_window or facts.max_input_tokens, facts.prices
            texts = [f"window {window:,} tokens" if window else f"its window is not known, so it is not managed: {SET}"]
            texts.append("priced" if price else f"its price is not known, so no cost is told: {SET_PRICES}")
            where = f" at {settings_in_force.address(deployment.api_base)}" if len(deployments) > 1 else ""
            yield CheckResult(f"model {name}{where}", bool(window and price), "; ".join(texts), optional=True)


def _clause(sentence: str | None) -> str:
    """Returns a sentence without its full stop, to be part of another."""
    return (sentence or "").rstrip(". ")


EVERY_MODEL = "no model_list: every name goes to the default upstream"


def _guards(settings: Settings) -> CheckResult:
    try:
        return CheckResult("guards", True, what_guards(settings))
    except ConfigurationError as error:
        return CheckResult("guards", False, str(error))


def check_command(call: CommandCall) -> int:
    """Writes the results of `check`; returns 1 if a check failed that is not optional."""
    if call.options.output:
        raise ValueError("--output is for --from-litellm")
    return _report(call, check(call.settings))


def migrate_command(call: CommandCall) -> int:
    """Upgrades the schema and reports the result; returns 1 if the upgrade failed."""
    return _report(call, migrate_now(call.settings, finishing=call.options.finish))


def _report(call: CommandCall, results: Sequence[CheckResult]) -> int:
    for result in results:
        mark = "ok  " if result.ok else ("warn" if result.optional else "FAIL")
        call.out.write(f"{mark}  {result.name}: {result.text}\n")
    return 1 if any(not (result.ok or result.optional) for result in results) else 0


def check(settings: Settings) -> list[CheckResult]:
    """Runs all checks: settings, storage, cache, and each distinct upstream address."""
    return asyncio.run(_collect(_check, settings))


def migrate_now(settings: Settings, *, finishing: bool = False) -> list[CheckResult]:
    """Upgrades the schema; safe from any number of processes at once.
    `finishing`: also runs the steps that have to wait until no older version runs."""
    with CommandProgress(sys.stderr, "migrating", "results moved" if finishing else "") as told:
        return asyncio.run(_collect(partial(_finish, told=told) if finishing else _migrate, settings))


async def _collect(work: Callable[[Settings], AsyncIterator[CheckResult]], settings: Settings) -> list[CheckResult]:
    return [result async for result in work(settings)]


async def _migrate(settings: Settings) -> AsyncIterator[CheckResult]:
    where = migrate.shown(settings.storage.url)
    transactions = sqlite.open_transactions(settings.storage)
    try:
        before = await transactions.run(migrate.schema_state)
        await migrate.migrate(transactions, settings.storage.migration_timeout)
        after = await transactions.run(migrate.schema_state)
        if before != after:
            await tell_trail(transactions, "storage.migrated", str(after), before=str(before))
        changed = f"already at {after}" if before == after else f"{before} -> {after}"
        text = f"{where}: {changed}{'' if after.serves else f': {_missing(after)}'}"
        yield CheckResult("schema", after.serves, text)
    except errors.GatewayError as error:
        yield CheckResult("schema", False, f"{where}: {_reason(error)}")
    finally:
        await transactions.close()


async def _finish(settings: Settings, told: CommandProgress) -> AsyncIterator[CheckResult]:
    async for result in _migrate(settings):
        yield result
        if not result.ok:
            return
    transactions = sqlite.open_transactions(settings.storage)
    try:
        moved = await finish.finish(transactions, told)
        yield CheckResult(
            "tool steps", True, f"results moved to reasoning_events: {moved}; older versions may not run now"
        )
    except errors.GatewayError as error:
        yield CheckResult("tool steps", False, f"{_reason(error)}: run it again, it goes on from there")
    finally:
        await transactions.close()


async def _documents() -> CheckResult:
    """Checks how far the kernel sandboxes the processes that read documents."""
    try:
        confined = await process.confinement()
    except (UnreadableDocument, OSError) as error:
        return CheckResult("documents", False, f"no process can be started that reads one: {error}", optional=True)
    missing = [name for name, is_so in confined.items() if not is_so]
    what = "no namespaces of the kernel; time, memory and files are limited all the same"
    text = f"read apart, without {' and '.join(f'limits of {name}' for name in missing)} ({what})"
    return CheckResult("documents", True, text if missing else "read apart, without a network, processes counted")


def _scans(settings: Settings) -> CheckResult:
    """Checks whether scanned pages can be read."""
    if settings.documents.ocr == "off":
        return CheckResult("scanned pages", True, "not recognized: documents.ocr is off")
    if shutil.which("tesseract") is None:
        return CheckResult("scanned pages", True, "not recognized: no tesseract in the PATH")
    return CheckResult("scanned pages", True, f"recognized by tesseract, {settings.documents.ocr_languages}")


def _files(settings: Settings) -> CheckResult:
    """Reports where files are stored: with a client's own token at the default upstream, whoever serves its model."""
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


async def _cache(url: str, timeout_seconds: float) -> CheckResult:
    from gateway.storage.cache import reach_cache

    try:
        problem = await reach_cache(url, timeout_seconds)
    except ValueError:  # whose text may hold a part of the password
        return CheckResult("cache", False, "cache.url is no address such as redis://HOST:PORT")
    return CheckResult("cache", problem is None, problem or "reached", optional=True)


async def _check(settings: Settings) -> AsyncIterator[CheckResult]:
    models = [each.model_name for each in settings.model_list]
    served = f"models: {printing.in_short(models)}" if models else EVERY_MODEL
    yield CheckResult("configuration", True, served)
    if (reason := exposure.refusal(settings)) is not None:
        yield CheckResult("server", False, reason)
    for warning in settings.warnings:
        yield CheckResult("configuration", False, warning, optional=True)
    yield await _documents()
    yield _scans(settings)
    for group in litellm_draft.FATE_GROUPS:
        for fate in settings.moved:
            if fate.group == group:
                yield CheckResult(
                    f"{fate.origin}, {group}", group != "not supported", f"{fate.path}: {fate.text}", optional=True
                )
    async for result in _check_storage(settings):
        yield result
    if settings.cache.url:
        yield await _cache(settings.cache.url, settings.cache.timeout)
    if settings.auth.jwt is not None or settings.auth.oidc is not None:
        async for result in check_issuers(settings):
            yield result
    yield _files(settings)
    if settings.files.s3.bucket:
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
        problem = catalogue.unsupported(entry)
        if problem:
            yield CheckResult(f"model {entry.model_name}", False, problem)
    async for result in check_upstreams(settings):
        yield result


UNFINISHED = (
    "older versions may run beside this one, so results of tool steps stay in their messages: "
    "run `gateway migrate --finish` once none does any more"
)


async def _check_storage(settings: Settings) -> AsyncIterator[CheckResult]:
    where = migrate.shown(settings.storage.url)
    if (unmade := _missing_file(settings)) is not None:
        yield unmade
        return
    transactions = sqlite.open_transactions(settings.storage)
    try:
        state = await transactions.run(migrate.schema_state)
        if state.revision is None:
            await transactions.run(migrate.require_own)
        missing = "" if state.serves else f": {_missing(state)}"
        can_be = settings.storage.auto_migrate and state.older
        if state.serves:  # a full disk, or a database that only reads, shows nowhere else
            await ConversationStore(transactions, SystemClock()).probe()
        yield CheckResult(f"storage {where}", state.serves or can_be, f"reached, schema {state}{missing}")
        if state.serves and not await transactions.run(results_apart):
            yield CheckResult("schema", False, UNFINISHED, optional=True)
        if state.serves:
            if (content := await _content(settings, transactions)) is not None:
                yield content
            yield await _counted_keys(settings, transactions)
    except errors.GatewayError as error:
        yield CheckResult(f"storage {where}", False, _reason(error))
    finally:
        await transactions.close()


async def _content(settings: Settings, transactions: DatabaseTransactions) -> CheckResult | None:
    """Checks whether all content is under the current key; None if no key is set and none is missing."""
    try:
        await rewrite.require_keys(transactions)
    except errors.StorageUnavailable as error:
        return CheckResult("content", False, error.message)
    if settings.storage.encryption_key is None:
        return None
    stale: Counter[str] = Counter()
    async for found in rewrite.find_others(transactions):
        stale += found.rows
    if stale:
        return CheckResult("content", False, f"{rewrite.in_words(stale)}: run `gateway encrypt`", optional=True)
    return CheckResult("content", True, "all of it is under storage.encryption_key")


def _missing_file(settings: Settings) -> CheckResult | None:
    """Reports a missing SQLite file without opening it, which would create it; None if there is nothing to report."""
    file = sqlite.sqlite_file(settings.storage.url)
    if file is None or file.exists():
        return None
    name = f"storage {migrate.shown(settings.storage.url)}"
    folder = next(each for each in file.parents if each.exists())  # folders below it are made with the file
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        return CheckResult(name, False, f"{folder} is no folder that can be written to")
    maker = "serve" if settings.storage.auto_migrate else "migrate"
    return CheckResult(name, True, f"not there yet: `gateway {maker}` makes it")


async def _counted_keys(settings: Settings, transactions: DatabaseTransactions) -> CheckResult:
    now = SystemClock().now()
    made = await transactions.run(lambda connection: stored_keys.count_keys(connection, now))
    text = f"{len(settings.auth.keys)} in auth.keys, {made} made at runtime"
    if made and not settings.auth.wants_keys:
        return CheckResult("keys", False, f"{text}; who has none is served, too: set auth.mode: keys", optional=True)
    lasting = any(each.expires_at is None or each.expires_at > now for each in settings.auth.keys)
    by_keys_alone = settings.auth.wants_keys and settings.auth.jwt is None and settings.auth.oidc is None
    if by_keys_alone and not (made or lasting):
        return CheckResult("keys", False, f"{text}; none is in force, so nobody is served", optional=True)
    return CheckResult("keys", True, text)


def _missing(state: SchemaState) -> str:
    if state.older:
        return "run `gateway migrate`, or let `gateway serve` do it at its start"
    return "newer than this version, which may not run on it"


def _reason(error: errors.GatewayError) -> str:
    return f"{error.message} ({cause})" if (cause := errors.cause_of(error)) else error.message
