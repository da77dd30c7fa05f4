"""Which deployments serve a model, with whose key (guarantee §1, §8), and which of them is called (§12.5).

Also translates tools other than functions for upstreams that may not accept them (guarantee §1.11).
"""

import hashlib
import random
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from gateway.core import errors, ids, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.clock import SystemClock
from gateway.core.config.model_list import ModelEntry
from gateway.core.config.settings import Settings
from gateway.core.formats import tool_calls
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types import chat, items, upstreams
from gateway.core.types.chat import (
    ChatRequest,
    ChunkStream,
    JsonAnswer,
    ModelDeployment,
    ModelFacts,
    RequestCaller,
    StreamAround,
    StreamOpener,
)
from gateway.core.types.content_parts import content_text
from gateway.upstream.http.model_info import DiscoveredModels, completed, is_direct, lacks, tokens
from gateway.upstream.routing.catalogue import (
    OPENAI_COMPATIBLE,
    THROUGH_LITELLM,
    ModelCatalogue,
    named_base,
    origin_of,
    provider_of,
    unsupported,
)
from gateway.upstream.routing.deployments import (
    MAX_REMEMBERED_MODELS,
    RESPONSES,
    DeploymentAccess,
    DeploymentRank,
    Draw,
    Group,
    GroupMember,
    ModelGroups,
    Strategy,
    by_responses,
    deployment_of,
    ranked,
)
from gateway.upstream.routing.health import HealthWatch, WatchedAttempt
from gateway.upstream.routing.protocols import ANTHROPIC_BASE, is_mistrals, is_openais, takes_freeform

# A conversation stays at one deployment, so that the provider's prompt cache is of use (guarantee §12.5).
#
# By weights nothing is stored: a digest of the conversation and the deployment decides where it belongs, on each
# replica alike (rendezvous hashing). Choices that depend on the moment, or follow a completion, each process remembers
# for itself.

MAX_PLACED = 20_000
"""Limit of conversations and completions whose deployment is remembered."""
PLACED_SECONDS = 3600.0
"""Providers cache prompts for an hour at most, if nobody pays for more."""


MAX_NAMES = 100
"""Ids that are made for a new conversation to find one that leads to its deployment."""
CACHE_KEY = "prompt_cache_key"
"""The field by which OpenAI's clients mark requests with a common prompt. Some set one per conversation, others one for
all requests, which would send all to one deployment: so it counts only together with the first user message."""


@record
class RouteHint:
    """What a request reveals of its conversation, so that it is sent where the request before was.

    `name` is the client's name for the conversation, an id or a session; `behind` the completion that it continues;
    `messages` are those of the request.
    """

    tenant: str
    name: str | None = None
    behind: str | None = None
    messages: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    cache_key: str = ""

    def key(self) -> str | None:
        """Returns a digest that all requests of a conversation share: of its name, else of its first user message and
        cache key; behind a completion, of that one's id, which leads to the same deployment. None where none of them
        is known."""
        name = self.name if self.name is not None else self.behind
        if name is not None:
            return ids.content_digest(f"{self.tenant}\n{name}")
        first = next((message for message in self.messages if message.get("role") == "user"), None)
        if first is None:
            return None
        content = first.get("content")
        text = content_text(content)
        said = repr(content) if text is None else text.strip()
        return ids.content_digest(f"{self.tenant}\n{self.cache_key}\n{said}")


NO_HINT = RouteHint("")


def hint_of(request: ChatRequest) -> RouteHint:
    """Returns what a request reveals of its conversation. Cheap: only a choice of deployments computes the digest."""
    ref, named = request.conversation, request.forward.get(CACHE_KEY)
    behind = None if ref.behind is None else ids.completion_of(ref.behind)
    cache_key = named if isinstance(named, str) else ""
    return RouteHint(request.caller.tenant, ref.conversation_id or ref.session, behind, request.messages, cache_key)


def sticks(setting: Literal["auto", "always", "never"], models: Iterable[ModelFacts]) -> bool:
    """Returns whether conversations stay at a deployment of these models: `auto` is where any of them may cache
    prompts. An unknown model may: most servers do."""
    if setting == "auto":
        return any(facts.supports_prompt_caching is not False for facts in models)
    return setting == "always"


def draws_of(key: str) -> Draw:
    """Returns a function that draws numbers that are constant for a conversation."""

    def draw(name: str) -> float:
        raw = hashlib.blake2b(f"{key}\n{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return ((int.from_bytes(raw) >> 11) + 0.5) / 2**53

    return draw


def draws_by_chance(chance: random.Random) -> Draw:
    """Returns a function that draws random numbers."""
    return lambda _: 1.0 - chance.random()  # never 0


ConversationPlacements = BoundedCache[str, str]
"""Ids of the deployments that answered conversations last, by the conversation's key or completion id."""


def open_placements(clock: ports.Clock) -> ConversationPlacements:
    """Creates the placements of a process; one is forgotten after an hour without a request."""
    return ConversationPlacements(MAX_PLACED, now=clock.monotonic, ttl=PLACED_SECONDS)


# The deployments that may serve one request (guarantee §12.5).


class SingleDeployment:
    """The one deployment of a model. It is called whatever its health: there is no other. It holds nothing of a
    request, so requests share it."""

    __slots__ = ("_health", "began", "first")

    several = False

    def __init__(self, first: ModelDeployment, health: HealthWatch) -> None:
        self.first = first
        self._health = health
        self.began = health.began

    @property
    def exhausted(self) -> bool:
        """Whether the deployment rests; its upstream enforces its limits."""
        return self._health.rests(self.first.id)

    def next(self, after: ModelDeployment, error: errors.GatewayError) -> ModelDeployment | None:
        """Returns None: there is no other deployment."""
        return None

    def rests(self, deployment: ModelDeployment) -> bool:
        """Returns whether the deployment rests."""
        return self._health.rests(deployment.id)

    def named(self, make: Callable[[], str]) -> str:
        """Returns any id."""
        return make()

    def remember(self, completion_id: str, deployment: ModelDeployment) -> None:
        """Remembers nothing: there is no choice."""


class DeploymentGroup:
    """The deployments of a group, ranked again for each try: what the last try has shown counts for the next. `first`:
    the first to call; facts, budget and context are made for it. `exhausted`: it is only a last resort, as all rest or
    are at their limits; a fallback model may then be called without calling it."""

    several = True

    def __init__(
        self,
        deployments: Mapping[str, ModelDeployment],
        rank: Callable[[Sequence[str]], list[DeploymentRank]],
        health: HealthWatch,
        placements: ConversationPlacements | None,
        leads: Callable[[str, str], bool],
    ) -> None:
        """`rank`: returns the states of the deployments of these ids, best first; `placements`: stores where
        completions were made; None: conversations do not stay; `leads`: whether a conversation's id leads to a
        deployment's."""
        self._left = dict(deployments)
        self._rank = rank
        self._health = health
        self._placements = placements
        self._leads = leads
        best = rank(list(self._left))[0]
        self.exhausted = best.tier > 0
        self.first = self._left.pop(best.id)

    def next(self, after: ModelDeployment, error: errors.GatewayError) -> ModelDeployment | None:
        """Returns the currently best deployment that was not tried yet; None if all were. A resting one is returned if
        nothing else is left: the caller decides whether to call it (`rests`)."""
        if not self._left:
            return None
        return self._left.pop(self._rank(list(self._left))[0].id)

    def rests(self, deployment: ModelDeployment) -> bool:
        """Returns whether the deployment rests or is at one of its limits."""
        return self._rank([deployment.id])[0].tier > 0

    def began(self, deployment: ModelDeployment, tokens: int = 0) -> WatchedAttempt:
        """Begins a try. `tokens`: those counted in the prompt, if the deployment has a token limit."""
        return self._health.began(deployment, tokens)

    def named(self, make: Callable[[], str]) -> str:
        """Returns an id for a new conversation, or for a completion, that leads later requests to `first` on every
        replica: the first such that `make` makes; after many that do not, the last one."""
        name = make()
        for _ in range(MAX_NAMES if self._placements is not None else 0):
            if self._leads(name, self.first.id):
                break
            name = make()
        return name

    def remember(self, completion_id: str, deployment: ModelDeployment) -> None:
        """Remembers the deployment of a completion: a request that continues the completion is sent there."""
        if self._placements is not None:
            self._placements.put(completion_id, deployment.id)


RoutingCandidates = SingleDeployment | DeploymentGroup
"""The deployments that may serve one request, best first."""


class DeploymentChooser:
    """Chooses for each request among the deployments of its model."""

    def __init__(
        self, strategy: Strategy, health: HealthWatch, placements: ConversationPlacements, chance: random.Random
    ) -> None:
        self._strategy = strategy
        self._health = health
        self._placements = placements
        self._by_chance = draws_by_chance(chance)

    def choose(
        self, group: Group, deployments: Mapping[str, ModelDeployment], hint: RouteHint | None
    ) -> DeploymentGroup:
        """Ranks the deployments of a group for a request. `deployments`: those for this caller, by their ids; `hint`:
        what identifies the conversation, if conversations stay where they are."""
        key, placed, draw = None, None, self._by_chance
        if hint is not None:
            key = hint.key()
            name = hint.behind if hint.name is None and hint.behind is not None else key
            placed = None if name is None else self._placements.peek(name)
            draw = draw if key is None else draws_of(key)
        members = {member.id: member for member in group}

        def rank(ids: Sequence[str]) -> list[DeploymentRank]:
            states = [self._health.state(members[each]) for each in ids]
            return ranked(states, self._strategy, draw, placed)

        def leads(name: str, chosen: str) -> bool:
            return self._leads(hint.tenant if hint is not None else "", members, name, chosen)

        found = DeploymentGroup(deployments, rank, self._health, None if hint is None else self._placements, leads)
        if key is not None and self._strategy != "weighted":  # the other strategies depend on the moment
            self._placements.put(key, found.first.id)
        return found

    def _leads(self, tenant: str, members: Mapping[str, GroupMember], name: str, chosen: str) -> bool:
        """Returns whether later requests of the conversation of that id go to the chosen deployment while its equals
        in order are as well as it is; where nothing but the moment decides, they do from now on. `name` may be a
        completion's, which is remembered once it is answered."""
        key = RouteHint(tenant, name).key()
        if key is None:
            return False
        if self._strategy != "weighted":
            if not name.startswith(ids.COMPLETION):
                self._placements.put(key, chosen)
            return True
        states = [replace(self._health.state(each), rest=0.0, full=False) for each in members.values()]
        order = next(each.order for each in states if each.id == chosen)
        equals = [each for each in states if each.order == order]
        return ranked(equals, self._strategy, draws_of(key))[0].id == chosen


ACCOUNT = ("openai-organization", "openai-project")
NO_CALLER = RequestCaller("")
"""A caller without a key of their own."""
CLAUDE_NAMES = "claude-"
"""Prefix of the names of Anthropic's models."""


class ConfiguredRouter:
    """Routes models of `model_list`; all others, where they may be requested, to the default upstream."""

    def __init__(
        self,
        settings: Settings,
        catalogue: ModelCatalogue,
        told: DiscoveredModels | None = None,
        clock: ports.Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """`chance`: decides where nothing else does."""
        self._settings = settings
        self._told = told
        self._catalogue = catalogue
        self._groups = ModelGroups(settings.model_list)
        clock = clock or SystemClock()
        self.health = HealthWatch(settings.routing, clock)
        strategy, placements = settings.routing.strategy, open_placements(clock)
        self._chooser = DeploymentChooser(strategy, self.health, placements, chance or random.Random())
        self._facts: BoundedCache[tuple[str, str], ModelFacts] = BoundedCache(MAX_REMEMBERED_MODELS)
        """By model and deployment."""
        self._alone: dict[str, SingleDeployment] = {}
        self._several: dict[str, dict[str, ModelDeployment]] = {}
        """Deployments that are the same for every caller: with the operator's key."""
        self._sticks: BoundedCache[str, bool] = BoundedCache(MAX_REMEMBERED_MODELS)

    @property
    def names(self) -> list[str]:
        return self._groups.names

    def listed(self) -> Iterator[tuple[GroupMember, ModelFacts, ModelFacts]]:
        """Yields each entry of `model_list`, in order, also those that cannot be served; with what the configuration
        and LiteLLM's map know of its model, and with that plus what its upstream reported for the operator's key."""
        for member in self._groups.members:
            known = self._known_facts(member.entry.model_name, member)
            yield member, known, self._with_told(known, member)

    def _with_told(self, known: ModelFacts, member: GroupMember) -> ModelFacts:
        if self._told is None:
            return known
        try:
            deployment = self._served(member.entry.model_name, member, NO_CALLER)
        except errors.GatewayError:  # it cannot be served, or only with a client's own key
            return known
        return completed(known, self._told.known(deployment)) if deployment.operator_key else known

    def lists(self, model: str) -> bool:
        """Returns whether an entry of `model_list` serves that model."""
        return model in self._alone or bool(self._groups.find(model))

    @property
    def serves_unlisted(self) -> bool:
        """Whether the default upstream serves models that no entry serves."""
        return self._settings.serves_unlisted

    def unknown(self, model: str, caller: RequestCaller) -> errors.ModelNotFound:
        """Builds the error for a model that is not served here; it names the nearest that this caller may use."""
        return errors.ModelNotFound(self._settings.unknown(model, caller.may_ask), param="model")

    def deployment(self, model: str, caller: RequestCaller) -> ModelDeployment:
        """Returns where `model` is served for this caller: of several deployments, the one chosen for a request without
        a hint.
        Raises as `candidates`."""
        known = self._alone.get(model)
        return known.first if known is not None else self.candidates(model, caller).first

    def alone(self, model: str) -> RoutingCandidates | None:
        """Returns a model's only deployment, if it is the same for every caller and was used before; else None."""
        return self._alone.get(model)

    def candidates(self, model: str, caller: RequestCaller, hint: RouteHint = NO_HINT) -> RoutingCandidates:
        """Returns where `model` is served for this caller, and the alternatives if that fails.
        Raises ModelNotFound: not in `model_list`, and either nothing else is served (`upstream.unlisted`) or the
        default upstream is not for this caller; or of a provider that cannot be served; Unauthorized: neither the entry
        nor the request has a key, and the provider wants one."""
        known = self._alone.get(model)
        if known is not None:
            return known
        group = self._groups.find(model)
        if not group:
            return SingleDeployment(self._unlisted(model, caller), self.health)
        if len(group) == 1:
            found = SingleDeployment(self._served(model, group[0], caller), self.health)
            if found.first.operator_key and len(self._alone) < MAX_REMEMBERED_MODELS:
                self._alone[model] = found
            return found
        deployments = self._all(model, group, caller)
        return self._chooser.choose(group, deployments, hint if self._is_sticky(model, group) else None)

    def all_of(self, model: str, caller: RequestCaller) -> list[ModelDeployment]:
        """Returns every deployment of a model that may answer this caller, in the order of `model_list`.
        Raises as `candidates`."""
        group = self._groups.find(model)
        return list(self._all(model, group, caller).values()) if group else [self._unlisted(model, caller)]

    def _all(self, model: str, group: Group, caller: RequestCaller) -> dict[str, ModelDeployment]:
        """Returns the deployments of a group by their ids, without those that are not for this caller."""
        known = self._several.get(model)
        if known is not None:
            return known
        found, refused = {}, []
        for member in group:
            try:
                found[member.id] = self._served(model, member, caller)
            except errors.GatewayError as error:
                refused.append(error)
        if not found:
            raise refused[0]
        are_operators = not refused and all(each.operator_key for each in found.values())
        if are_operators and len(self._several) < MAX_REMEMBERED_MODELS:
            self._several[model] = found
        return found

    def _is_sticky(self, model: str, group: Group) -> bool:
        known = self._sticks.peek(model)
        if known is None:
            facts = (self._known_facts(model, member) for member in group)
            known = self._sticks.put(model, sticks(self._settings.routing.sticky, facts))
        return known

    def _served(self, model: str, member: GroupMember, caller: RequestCaller) -> ModelDeployment:
        """Returns the deployment of a member of a group, as this caller may call it."""
        entry = member.entry
        provider, name = provider_of(entry)
        base = self._base(entry, provider)
        access = self._access(entry, provider, base, caller)
        timeouts = entry.litellm_params.timeouts(self._settings.upstream)
        found = replace(deployment_of(model, entry, (provider, name), base, access, timeouts), id=member.id)
        says = (entry.model_info.model_extra or {}).get("mode") == RESPONSES
        return _only_by_responses(found) if says or self._map_says_responses(found) else found

    def _unlisted(self, model: str, caller: RequestCaller) -> ModelDeployment:
        """Returns the default upstream, or Anthropic where the client has a key for it."""
        if not self.serves_unlisted:
            raise self.unknown(model, caller)
        if model.startswith(CLAUDE_NAMES) and self.asks_anthropic(caller):
            return self.anthropic(model, caller)
        return self.default(model, caller)

    def default(self, model: str, caller: RequestCaller) -> ModelDeployment:
        """Returns the default upstream: with the operator's key if there is one, else with the client's own.
        Raises ModelNotFound: keys are configured, so the client's own is sent nowhere, and the operator named none."""
        upstream = self._settings.upstream
        operator_key = upstream.api_key.get_secret_value() if upstream.api_key else None
        if operator_key is None and (caller.key is not None or self._settings.auth.wants_keys):
            raise self.unknown(model, caller)
        found = ModelDeployment(
            model=model,
            provider_model=model,
            route=f"openai/{model}",
            api_base=upstream.api_base.rstrip("/"),
            api_key=operator_key or self._own_key(caller, upstream.api_base),
            operator_key=operator_key is not None,
            connect_timeout=upstream.connect,
            first_byte_timeout=upstream.first_byte,
            idle_timeout=upstream.idle,
            origin=origin_of("openai", model, upstream.api_base.rstrip("/")),
        )
        return _only_by_responses(found) if self._map_says_responses(found) else found

    def _own_key(self, caller: RequestCaller, base: str) -> str | None:
        """Returns the client's own key for an address. A key of Anthropic's is sent to Anthropic only."""
        upstream = self._settings.upstream
        homes = (_place(ANTHROPIC_BASE), _place(upstream.anthropic_api_base))
        return caller.client_key or (caller.anthropic_key if _place(base) in homes else None)

    def _map_says_responses(self, deployment: ModelDeployment) -> bool:
        """Returns whether LiteLLM's map lists the model as served by Responses only. The map describes OpenAI's own
        servers and Azure's: elsewhere a server of that name may well accept chats."""
        return is_openais(deployment) and self.facts(deployment.model, deployment).mode == RESPONSES

    def asks_anthropic(self, caller: RequestCaller) -> bool:
        """Returns whether requests for Anthropic's models go to Anthropic, with the client's own key. Beside an
        operator's key for the default upstream it must surely be Anthropic's: clients have to send some key."""
        key = caller.anthropic_key
        return key is not None and (key.startswith(chat.ANTHROPICS_KEY) or self._settings.upstream.api_key is None)

    def anthropic(self, model: str, caller: RequestCaller) -> ModelDeployment:
        """Returns Anthropic as the default upstream for its models, with the client's own key."""
        upstream = self._settings.upstream
        base = upstream.anthropic_api_base.rstrip("/")
        return ModelDeployment(
            model=model,
            provider_model=model,
            route=f"anthropic/{model}",
            api_base=base,
            api_key=caller.anthropic_key,
            operator_key=False,
            connect_timeout=upstream.connect,
            first_byte_timeout=upstream.first_byte,
            idle_timeout=upstream.idle,
            protocol="litellm",
            origin=origin_of("anthropic", model, base),
            provider="anthropic",
        )

    def internal(
        self, name: str, chosen: bool, primary: ModelDeployment, caller: RequestCaller
    ) -> ModelDeployment | None:
        """Returns the deployment of an internal model: of `model_list`, or at the primary's own upstream with the same
        key; None if it is neither (guarantee §5).
        `chosen`: the request or the operator named it. A default name counts only at the default upstream, which is
        OpenAI's unless the operator configures another: content goes to no provider that nobody chose."""
        if self.lists(name):
            try:
                found = self.deployment(name, caller)
            except errors.GatewayError:  # without a key for the model, this request has none
                return None
        else:
            is_default = primary.api_base == self._settings.upstream.api_base.rstrip("/")
            is_openais = upstreams.PROTOCOLS[primary.protocol].is_openais and primary.key_header == "authorization"
            if not (is_openais and (chosen or is_default)):
                return None
            provider, slash, _ = primary.route.partition("/")
            route = f"{provider}/{name}" if slash else name
            found = replace(
                primary, model=name, provider_model=name, route=route, parameters={}, protocol="openai", id=""
            )
        if (found.api_base, found.api_key) != (primary.api_base, primary.api_key):
            return found
        # What an internal model reads of a request stays with the organization and project that the client names.
        configured = {each.lower() for each in found.headers}
        account = {k: v for k, v in caller.headers.items() if k in ACCOUNT and k not in configured}
        return replace(found, headers={**account, **found.headers})

    def facts(self, model: str, deployment: ModelDeployment | None = None) -> ModelFacts:
        """Returns what is known of a model: its entry's `model_info` over LiteLLM's map.
        `deployment`: where it is served; its upstream's report fills the gaps of the others."""
        of = model, deployment.id if deployment is not None else ""
        known = self._facts.peek(of) or self._facts.put(of, self._known_facts(model, self._member(model, deployment)))
        if self._told is None or deployment is None:
            return known
        if not lacks(known) and (known.window_is_configured or not is_direct(deployment)):
            return known
        return completed(known, self._told.known(deployment))

    def refused(self, model: str, deployment: ModelDeployment, window: int | None) -> None:
        """Stores a window that an upstream named when it refused a prompt, where nobody configured one."""
        known = self.facts(model, deployment)
        before = known.context_window or known.max_input_tokens
        if self._told is None or known.window_is_configured or tokens(window) is None or window is None:
            return
        if before is None or (window < before and is_direct(deployment)):
            self._told.refused(deployment, window)

    async def learn(self, model: str, deployment: ModelDeployment) -> ModelFacts:
        """Returns what is known of a model, after asking the upstream for facts that are known nowhere else. That takes
        two seconds at most, never fails, and is repeated only after a while."""
        found = self.facts(model, deployment)
        if self._told is None or not lacks(found):
            return found
        await self._told.ask(deployment)
        return self.facts(model, deployment)

    def _member(self, model: str, deployment: ModelDeployment | None) -> GroupMember | None:
        """Returns the entry of a deployment of `model`; the first of the group for a deployment without an entry."""
        group = self._groups.find(model)
        name = deployment.id if deployment is not None else ""
        return next((each for each in group if each.id == name), group[0] if group else None)

    def _known_facts(self, model: str, member: GroupMember | None) -> ModelFacts:
        """Returns what is configured, or in the map."""
        entry = member.entry if member is not None else None
        served_at = self._settings.upstream.api_base if entry is None else named_base(entry)
        return replace(self._catalogue.facts(model, entry), served_at=served_at)

    def _base(self, entry: ModelEntry, provider: str) -> str:
        """Returns an entry's base URL: its own, its provider's, or the default upstream's; empty if litellm knows it.
        Raises ModelNotFound: the entry cannot be served."""
        problem = unsupported(entry)
        if problem:
            raise errors.ModelNotFound(f"The model {entry.model_name!r} cannot be served: {problem}.", param="model")
        base = named_base(entry)
        if base:
            return base.rstrip("/")
        if provider == "openai":
            return self._settings.upstream.api_base.rstrip("/")
        return OPENAI_COMPATIBLE.get(provider) or ""

    def _access(self, entry: ModelEntry, provider: str, base: str, caller: RequestCaller) -> DeploymentAccess:
        """Returns the entry's key, else the client's own. A cloud's credentials are among the other parameters, or come
        from the process's environment."""
        params, upstream = entry.litellm_params, self._settings.upstream
        if params.api_key:
            return DeploymentAccess(params.api_key.get_secret_value(), operator=True)
        if upstream.api_key and base == upstream.api_base.rstrip("/"):
            return DeploymentAccess(
                upstream.api_key.get_secret_value(), operator=True
            )  # its own address alone gets that key
        if params.has_credentials:
            return DeploymentAccess(None, operator=True)
        own = self._own_key(caller, base)
        if provider == "anthropic":
            own = caller.anthropic_key or caller.client_key
        if own is None and provider in THROUGH_LITELLM and not base:
            text = f"The model {entry.model_name!r} needs a key: none is configured, and the request has none."
            raise errors.Unauthorized(text)
        return DeploymentAccess(own, operator=False)


def _place(base: str) -> str:
    """Returns the host and port of an address; empty if it is none."""
    try:
        return urlsplit(base).netloc
    except ValueError:
        return ""


def _only_by_responses(deployment: ModelDeployment) -> ModelDeployment:
    if deployment.protocol != "openai":
        return deployment
    return replace(by_responses(deployment), has_responses=True)


def modifies_params(settings: Settings) -> bool:
    """Returns whether litellm may change requests to suit a provider; litellm has this setting for all models only."""
    return any((entry.litellm_params.model_extra or {}).get("modify_params") for entry in settings.model_list)


class ProtocolUpstream:
    """Calls each deployment by its protocol (an `Upstream`)."""

    def __init__(self, **by_protocol: ports.Upstream) -> None:
        self._by_protocol = by_protocol

    def complete(
        self, deployment: ModelDeployment, request: upstreams.UpstreamRequest
    ) -> Coroutine[Any, Any, JsonAnswer]:
        return self._of(deployment).complete(deployment, request)

    def stream(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> StreamOpener:
        return self._of(deployment).stream(deployment, request)

    def _of(self, deployment: ModelDeployment) -> ports.Upstream:
        """Returns a protocol's adapter. Raises UpstreamRefused: there is none, as if the upstream did not speak it."""
        found = self._by_protocol.get(deployment.protocol)
        if found is None:
            raise errors.UpstreamRefused(404, {"error": {"message": "This API is not served upstream."}}, {})
        return found


class FreeformUpstream:
    """Calls upstreams (an `Upstream`) with functions in place of other tools, where the upstream requires it."""

    def __init__(self, inner: ports.Upstream) -> None:
        self._inner = inner

    def complete(
        self, deployment: ModelDeployment, request: upstreams.UpstreamRequest
    ) -> Coroutine[Any, Any, JsonAnswer]:
        sent, names = _sent(deployment, request)
        answered = self._inner.complete(deployment, sent)
        return _with_freeform(answered, names) if names else answered

    def stream(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> StreamOpener:
        sent, names = _sent(deployment, request)
        opener = self._inner.stream(deployment, sent)
        return _freeform(opener, names) if names else opener


async def _with_freeform(answered: Awaitable[JsonAnswer], names: tool_calls.Names) -> JsonAnswer:
    answer = await answered
    return JsonAnswer(tool_calls.with_freeform(answer.body, names), answer.headers)


@asynccontextmanager
async def _freeform(opener: StreamOpener, names: tool_calls.Names) -> AsyncIterator[ChunkStream]:
    async with opener as opened:
        yield _FreeformStream(opened, names)


def _sent(
    deployment: ModelDeployment, request: upstreams.UpstreamRequest
) -> tuple[upstreams.UpstreamRequest, tool_calls.Names]:
    """Returns the request as sent upstream, and the tools that are sent as functions."""
    body = request.body
    calls = [call for message in body.get("messages") or () for call in message.get("tool_calls") or ()]
    body = tool_calls.with_short_ids(body, calls) if is_openais(deployment) else body
    body = tool_calls.as_mistral_takes(body, calls) if calls and is_mistrals(deployment) else body
    names: tool_calls.Names = {}
    if calls or body.get("tools") or body.get("tool_choice") is not None:
        names, body = _translated(deployment, body), _taken(deployment, body, calls)
    return request if body is request.body else replace(request, body=body), names


def _translated(deployment: ModelDeployment, body: Json) -> tool_calls.Names:
    """Returns the tools sent as functions: chats that accept freeform tools still lack tools of types of their own."""
    names = tool_calls.names_of(body)
    if not names or not takes_freeform(deployment):
        return names
    return {} if deployment.protocol == RESPONSES else {n: kind for n, kind in names.items() if kind != items.CUSTOM}


def _taken(deployment: ModelDeployment, body: Json, calls: Sequence[Json]) -> Json:
    """Returns the body, which has these calls, as the upstream accepts it: unchanged where it has no such tools."""
    takes = takes_freeform(deployment)
    if (takes and deployment.protocol == RESPONSES) or "messages" not in body:
        return body
    choice = body.get("tool_choice")
    fields = set[str]().union(*(each for each in calls if isinstance(each, dict)))
    typed = items.TYPED in fields.union(*(each for each in body.get("tools") or () if isinstance(each, dict)))
    if takes:
        return tool_calls.without_typed(body) if typed else body
    chosen = isinstance(choice, dict) and choice.get("type") != "function"
    if not (typed or chosen or tool_calls.names_of(body) or "custom" in fields):
        return body
    return tool_calls.without_freeform(body, keeps_allowed=deployment.protocol == RESPONSES)


class _FreeformStream(StreamAround):
    """A stream in which calls of translated tools have their original form."""

    def __init__(self, opened: ChunkStream, names: tool_calls.Names) -> None:
        super().__init__(opened)
        self._chunks = tool_calls.FreeformChunks(names)

    async def batches(self) -> AsyncGenerator[list[Json], None]:
        """Yields the inner stream's batches with freeform calls restored (`ChunkStream.batches`)."""
        async with aclosing(self._opened.batches()) as batches:
            async for batch in batches:
                yield [*map(self._chunks.of, batch)]

    async def push(self, take: Callable[[list[Json]], bool]) -> None:
        """Pushes the inner stream's batches with freeform calls restored (`ChunkStream.push`)."""
        await self._opened.push(lambda batch: take([*map(self._chunks.of, batch)]))
