"""What `gateway check` says of upstreams, models, planner and summarizer."""

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx

from gateway.api.tokens import Issuer
from gateway.billing.cost import price_internal
from gateway.context.planning.processor import DEFAULT_INTERNAL
from gateway.core.clock import SystemClock
from gateway.core.config.settings import ContextSettings, Settings
from gateway.core.errors import GatewayError, Unauthorized
from gateway.core.printing import in_short
from gateway.core.types.bill import InternalCall
from gateway.core.types.chat import ModelDeployment, RequestCaller
from gateway.core.types.memory import EXTRACTS
from gateway.upstream.http.client import new_client
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.identity import HttpIdentityDocuments
from gateway.upstream.openai.model_info import DiscoveredModels, lacks
from gateway.upstream.openai.resources import ProbeResult, probed, reach
from gateway.upstream.routing.catalogue import ModelCatalogue, unsupported
from gateway.upstream.routing.router import ConfiguredRouter

CALLER = RequestCaller("check")
SET = "set model_info.max_input_tokens"
SET_PRICES = "set its prices in model_info"
WAYS = {"responses": "by Responses", "anthropic": "by Anthropic's Messages", "litellm": "through litellm"}
"""How a model is called, by its deployment's `protocol`, where that is not by chat completions."""
OWN_KEY = "the client's own key will be used"
WITHOUT = {
    "planner": "contexts are made without a plan (`no_planner`)",
    "summarizer": "nothing is summarized, extracts stand for it (`no_summarizer`)",
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the report; a failed optional check is a warning."""

    name: str
    ok: bool
    text: str
    optional: bool = False


class UpstreamProbes:
    """Probes upstreams, each address with each key once."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._known: dict[tuple[str, str | None], ProbeResult] = {}
        self._told: set[tuple[str, str | None]] = set()

    def knows(self, deployment: ModelDeployment) -> bool:
        """Whether it has been probed."""
        return (deployment.api_base, deployment.api_key) in self._known

    def told(self, deployment: ModelDeployment) -> bool:
        """Whether the report has a line for it."""
        return (deployment.api_base, deployment.api_key) in self._told

    def tell(self, deployment: ModelDeployment) -> None:
        """Notes that the report has one."""
        self._told.add((deployment.api_base, deployment.api_key))

    async def reached(self, deployment: ModelDeployment) -> ProbeResult:
        """The result of the probe."""
        key = deployment.api_base, deployment.api_key
        if key not in self._known:
            self._known[key] = await reach(self._client, deployment)
        return self._known[key]


@dataclass(frozen=True, slots=True)
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
    """Whether planner and summarizer are served, and at what price (guarantee §5). A default model that is not served
    is a warning, one that the configuration names a failure. Defaults are not checked where nobody would ask them."""
    context = settings.context
    for internal in _internals(context):
        summarizes = context.memory != EXTRACTS and "summarizer" in internal.roles
        if not internal.chosen and (context.mode != "auto" or (context.planning == "never" and not summarizes)):
            continue
        async for result in _served(settings, router, reaching, internal):
            yield result


def _internals(context: ContextSettings) -> list[_InternalModel]:
    named = {"planner": context.planner_model, "summarizer": context.summarizer_model}
    names = dict.fromkeys(name or DEFAULT_INTERNAL for name in named.values())
    return [
        _InternalModel(
            name,
            tuple(role for role, model in named.items() if (model or DEFAULT_INTERNAL) == name),
            name in named.values(),
        )
        for name in names
    ]


async def _served(
    settings: Settings, router: ConfiguredRouter, reaching: UpstreamProbes, internal: _InternalModel
) -> AsyncIterator[CheckResult]:
    try:
        where, places = _places(settings, router, internal)
    except Unauthorized:
        where, places = f"in model_list; {OWN_KEY}", []
    except GatewayError as error:
        text = f"{_clause(error.message)}: {internal.without}"
        yield CheckResult(internal.title, False, text, optional=not internal.chosen)
        return
    if not where:
        text = f"not in model_list, and not at the upstream of a model in it: {internal.without}"
        yield CheckResult(internal.title, False, text, optional=not internal.chosen)
        return
    for place in places:
        asked = probed(place)
        if asked is None:
            continue
        found = await reaching.reached(asked)
        if found.problem:
            # The upstream's own line fails the check already where a model that clients ask for is served there.
            text = f"{where}, which is not reached: {internal.without}"
            yield CheckResult(internal.title, False, text, optional=not internal.chosen or reaching.told(asked))
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
    """Where the model is served, in words, and its deployments there.
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
    return (f"at the upstream of {in_short(list(found))}" if found else ""), places


def _primaries(settings: Settings, router: ConfiguredRouter) -> Iterator[tuple[str, ModelDeployment]]:
    """The models that answer, as far as the configuration names them; the default upstream where it names none."""
    names = dict.fromkeys(entry.model_name for entry in settings.model_list if unsupported(entry) is None)
    for name in names or [""]:
        try:
            for each in router.all_of(name, CALLER) if name else [router.default(name, CALLER)]:
                yield name, each
        except GatewayError:  # named by the other checks
            continue


def _prices(context: ContextSettings, router: ConfiguredRouter, internal: _InternalModel) -> Iterator[str]:
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    call = InternalCall("planner", internal.name, usage, router.facts(internal.name).prices)
    if price_internal(call).total is not None:
        return
    if context.planning_max_cost is not None:
        yield f"never called: its price is not known, and `planning_max_cost` is set: {internal.without}"
    else:
        yield "its price is not known: what a request that it works for cost in all is not told (`total_cost` is null)"


async def check_issuers(settings: Settings) -> AsyncIterator[CheckResult]:
    """Whether those can be asked whose tokens count."""
    client = new_client(ConnectionPool(2))
    jwt, oidc = settings.auth.jwt, settings.auth.oidc
    files = {} if jwt is None else {"jwks_url": jwt.jwks_url, "jwks_file": jwt.jwks_file}
    try:
        for name, issuer, more in (("jwt", jwt, files), ("oidc", oidc, {})):
            if issuer is None:
                continue
            try:
                found = await Issuer(issuer, HttpIdentityDocuments(client), SystemClock(), **more).reach()
            except GatewayError as fault:
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
    names = dict.fromkeys(entry.model_name for entry in settings.model_list if unsupported(entry) is None)
    try:
        for name in names or [None]:
            try:
                deployments = router.all_of(name, CALLER) if name else [router.default("", CALLER)]
            except Unauthorized:
                yield CheckResult(f"model {name}", True, OWN_KEY)
                continue
            except GatewayError:
                yield CheckResult("models", False, "model_list is empty, and the default upstream has no key")
                continue
            for deployment in deployments:
                asked = probed(deployment)
                if asked is None:
                    text = f"not asked: {deployment.route} is called {WAYS[deployment.protocol]}"
                    yield CheckResult(f"model {name}", True, text)
                    continue
                if reaching.knows(asked):
                    continue
                problem = _clause((await reaching.reached(asked)).problem)
                reaching.tell(asked)
                text = problem or ("reached" if asked.api_key is not None else f"reached; {OWN_KEY}")
                yield CheckResult(f"upstream {_address(asked.api_base)}", not problem, text, optional=name is None)
        async for result in _facts(settings, router, reaching):
            yield result
        async for result in _planning(settings, router, reaching):
            yield result
    finally:
        await told.close()
        await client.aclose()


async def _facts(settings: Settings, router: ConfiguredRouter, reaching: UpstreamProbes) -> AsyncIterator[CheckResult]:
    """Models whose window or price is not configured and not in the price map: what their upstreams tell."""
    for name in router.names:
        try:
            deployments = router.all_of(name, CALLER)
        except GatewayError:  # named by the other checks
            continue
        for deployment in deployments:
            if not lacks(router.facts(name, deployment)) or settings.context.embedding_model == name:
                continue
            asked = probed(deployment)
            if asked is None or (reaching.knows(asked) and (await reaching.reached(asked)).problem):
                continue
            await router.learn(name, deployment)
            facts = router.facts(name, deployment)
            window, price = facts.context_window or facts.max_input_tokens, facts.prices
            texts = [f"window {window:,} tokens" if window else f"its window is not known, so it is not managed: {SET}"]
            texts.append("priced" if price else f"its price is not known, so no cost is told: {SET_PRICES}")
            where = f" at {_address(deployment.api_base)}" if len(deployments) > 1 else ""
            yield CheckResult(f"model {name}{where}", bool(window and price), "; ".join(texts), optional=True)


def _clause(sentence: str | None) -> str:
    """A sentence as a part of another."""
    return (sentence or "").rstrip(". ")


def _address(base: str) -> str:
    """A base URL without what may be a secret in it."""
    return re.sub(r"(?<=://)[^/@]*@", "***@", base.partition("?")[0])
