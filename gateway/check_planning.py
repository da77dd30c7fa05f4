"""What `gateway check` says of planner and summarizer: whether anybody serves them, and at what price (contract §5)."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from gateway.accounting.cost import price_internal
from gateway.checked import Reaching, Result
from gateway.errors import GatewayError, Unauthorized
from gateway.models.exchange import Caller, Deployment
from gateway.models.spending import InternalCall
from gateway.planning.models import DEFAULT_INTERNAL
from gateway.settings import ContextSettings, Settings
from gateway.upstream.probe import probed
from gateway.upstream.routing import ConfiguredRouter, unsupported

CALLER = Caller("check")
MOST_NAMED = 5
WITH_ITS_OWN = "; the client's own key will be used"
WITHOUT = {
    "planner": "contexts are made without a plan (`no_planner`)",
    "summarizer": "what a plan wants summarized is extracted instead (`no_summarizer`)",
}


@dataclass(frozen=True, slots=True)
class _Internal:
    """A model by its name, and what for; `chosen`: the configuration names it, it is no default."""

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
    """Default models that nobody can ask are a warning; one that the configuration names has to be there. Nothing is
    said of defaults where no request is planned unless it wants to be."""
    context = settings.context
    for internal in _internals(context):
        if not internal.chosen and (context.planning == "never" or context.mode != "auto"):
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
        where, places = "in model_list" + WITH_ITS_OWN, []
    except GatewayError as error:
        yield Result(internal.title, False, f"{error.message} {internal.without}", optional=not internal.chosen)
        return
    if not where:
        text = f"not in model_list, and not at the upstream of a model in it: {internal.without}"
        yield Result(internal.title, False, text, optional=not internal.chosen)
        return
    for place in places:
        asked = probed(place)
        found = await reaching.reached(asked) if asked else None
        if found and found.problem:
            text = f"{where}: {found.problem}: {internal.without}"
            yield Result(internal.title, False, text, optional=not internal.chosen)
            return
        if found and found.lacks(place.provider_model):
            text = f"{where}, whose list of models does not have {place.provider_model}"
            yield Result(internal.title, False, text, optional=True)
            return
    keyless = any(place.api_key is None and not place.operator_key for place in places)
    yield Result(internal.title, True, where + WITH_ITS_OWN * keyless)
    for warning in _prices(settings.context, router, internal):
        yield Result(internal.title, False, warning, optional=True)


def _places(settings: Settings, router: ConfiguredRouter, internal: _Internal) -> tuple[str, list[Deployment]]:
    """Where it is served, in words, and its deployments there.

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
