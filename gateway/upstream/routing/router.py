"""Which deployment serves a model, with whose key (guarantee §1, §8)."""

from dataclasses import replace
from urllib.parse import urlsplit

from gateway.config.model_list import ModelEntry
from gateway.config.settings import Settings
from gateway.errors import GatewayError, ModelNotFound, Unauthorized
from gateway.models.exchange import ANTHROPICS_KEY, Caller, Deployment, ModelFacts
from gateway.upstream.openai.told_facts import ToldFacts, completed, lacks
from gateway.upstream.routing.catalogue import Catalogue
from gateway.upstream.routing.deployments import RESPONSES, Access, by_responses, deployment_of
from gateway.upstream.routing.protocols import ANTHROPIC_BASE
from gateway.upstream.routing.providers import (
    AZURE,
    OPENAI_BASES,
    OPENAI_COMPATIBLE,
    OPENAIS,
    THROUGH_LITELLM,
    named_base,
    origin_of,
    provider_of,
    unsupported,
)

ACCOUNT = ("openai-organization", "openai-project")
ANTHROPICS = "claude-"
"""How the names of Anthropic's models begin."""
MAX_REMEMBERED = 1000
"""Models whose deployment or facts are remembered: names come from clients where there are patterns."""


class ConfiguredRouter:
    """Models of `model_list`; all others, where they may be asked for, at the default upstream."""

    def __init__(self, settings: Settings, catalogue: Catalogue, told: ToldFacts | None = None) -> None:
        self._settings = settings
        self._told = told
        self._catalogue = catalogue
        entries: dict[str, ModelEntry] = {}
        for entry in settings.model_list:  # of several with one name, the first that can be served
            known = entries.setdefault(entry.model_name, entry)
            if unsupported(known) and not unsupported(entry):
                entries[entry.model_name] = entry
        self._patterns = [entry for name, entry in entries.items() if "*" in name]
        self._entries = {name: entry for name, entry in entries.items() if "*" not in name}
        self._facts: dict[str, ModelFacts] = {}
        self._deployments: dict[str, Deployment] = {}
        """Those that are the same for every caller: with the operator's key."""

    @property
    def names(self) -> list[str]:
        """Configured model names, in their order; patterns are none."""
        return list(self._entries)

    def lists(self, model: str) -> bool:
        """Whether an entry of `model_list` serves that model."""
        return self._entry(model) is not None

    @property
    def serves_unlisted(self) -> bool:
        """Whether the default upstream is asked for models that no entry serves."""
        return self._settings.serves_unlisted

    def unknown(self, model: str) -> ModelNotFound:
        """The error for a model that is not served here; it names the nearest that is."""
        return ModelNotFound(self._settings.unknown(model), param="model")

    def deployment(self, model: str, caller: Caller) -> Deployment:
        """Where `model` is served for this caller.

        Raises:
            ModelNotFound: not in `model_list`, and either that is all that is served (`upstream.unlisted`) or the
                default upstream is not for this caller; or of a provider that cannot be served.
            Unauthorized: neither the entry nor the request has a key, and the provider wants one.
        """
        known = self._deployments.get(model)
        if known is not None:
            return known
        entry = self._entry(model)
        if entry is None:
            if not self.serves_unlisted:
                raise self.unknown(model)
            if model.startswith(ANTHROPICS) and self.asks_anthropic(caller):
                return self.anthropic(model, caller)
            return self.default(model, caller)
        provider, name = provider_of(entry)
        base = self._base(entry, provider)
        access = self._access(entry, provider, base, caller)
        timeouts = entry.litellm_params.timeouts(self._settings.upstream)
        found = deployment_of(model, entry, (provider, name), base, access, timeouts)
        if (entry.model_info.model_extra or {}).get("mode") == RESPONSES or self._map_says_responses(found):
            found = _only_by_responses(found)
        if found.operator_key and len(self._deployments) < MAX_REMEMBERED:
            self._deployments[model] = found
        return found

    def default(self, model: str, caller: Caller) -> Deployment:
        """The default upstream: with the operator's key if it has one, else with the client's own.

        Raises:
            ModelNotFound: keys are configured, so the client's own goes nowhere, and the operator named none.
        """
        upstream = self._settings.upstream
        operator_key = upstream.api_key.get_secret_value() if upstream.api_key else None
        if operator_key is None and (caller.key is not None or self._settings.auth.wants_keys):
            raise self.unknown(model)
        found = Deployment(
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

    def _own_key(self, caller: Caller, base: str) -> str | None:
        """The client's own key as it may go to an address. One of Anthropic's goes to Anthropic alone."""
        upstream = self._settings.upstream
        homes = (urlsplit(ANTHROPIC_BASE).netloc, urlsplit(upstream.anthropic_api_base).netloc)
        return caller.client_key or (caller.anthropic_key if urlsplit(base).netloc in homes else None)

    def _map_says_responses(self, deployment: Deployment) -> bool:
        """Whether LiteLLM's map knows the model as one that only Responses serve. It speaks of OpenAI's own servers and
        of Azure's: elsewhere a server of that name may well take chats."""
        is_theirs = deployment.api_base in OPENAI_BASES or deployment.provider == AZURE
        return is_theirs and self.facts(deployment.model).mode == RESPONSES

    def asks_anthropic(self, caller: Caller) -> bool:
        """Whether Anthropic's models are asked for at Anthropic, with the client's own key. One that is not surely
        Anthropic's is none beside an operator's key for the default upstream: clients have to name some."""
        key = caller.anthropic_key
        return key is not None and (key.startswith(ANTHROPICS_KEY) or self._settings.upstream.api_key is None)

    def anthropic(self, model: str, caller: Caller) -> Deployment:
        """Anthropic, with the client's own key for it: the default upstream of models by its names."""
        upstream = self._settings.upstream
        base = upstream.anthropic_api_base.rstrip("/")
        return Deployment(
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

    def internal(self, name: str, chosen: bool, primary: Deployment, caller: Caller) -> Deployment | None:
        """The deployment of an internal model: of `model_list`, or at the primary's own upstream with the same key;
        None if it is neither (guarantee §5).

        Args:
            chosen: the request or the operator named it. A default name counts only at the default upstream, which is
                OpenAI's unless the operator says otherwise: content goes to no provider that nobody chose.
        """
        if self.lists(name):
            try:
                found = self.deployment(name, caller)
            except GatewayError:  # no key for it: this request has no such model
                return None
        else:
            is_default = primary.api_base == self._settings.upstream.api_base.rstrip("/")
            if primary.protocol not in OPENAIS or primary.key_header != "authorization" or not (chosen or is_default):
                return None
            provider, slash, _ = primary.route.partition("/")
            route = f"{provider}/{name}" if slash else name
            found = replace(primary, model=name, provider_model=name, route=route, parameters={}, protocol="openai")
        if (found.api_base, found.api_key) != (primary.api_base, primary.api_key):
            return found
        # What an internal model reads of a request stays with the organization and project that the client names.
        configured = {each.lower() for each in found.headers}
        account = {k: v for k, v in caller.headers.items() if k in ACCOUNT and k not in configured}
        return replace(found, headers={**account, **found.headers})

    def facts(self, model: str, deployment: Deployment | None = None) -> ModelFacts:
        """What is known of a model: its entry's `model_info` over LiteLLM's map.

        Args:
            deployment: where it is served; what its upstream told is added where the others say nothing.
        """
        if model not in self._facts:
            if len(self._facts) > MAX_REMEMBERED:
                self._facts.clear()
            entry = self._entry(model)
            served_at = self._settings.upstream.api_base if entry is None else named_base(entry)
            self._facts[model] = replace(self._catalogue.facts(model, entry), served_at=served_at)
        known = self._facts[model]
        if self._told is None or deployment is None or not lacks(known):
            return known
        return completed(known, self._told.known(deployment))

    async def learn(self, model: str, deployment: Deployment) -> None:
        """Lets the upstream tell what is known of a model nowhere else. It takes two seconds at most, never fails, and
        is done once in a while."""
        if self._told is not None and lacks(self.facts(model)):
            await self._told.ask(deployment)

    def _base(self, entry: ModelEntry, provider: str) -> str:
        """The base URL of an entry: its own, its provider's, or the default upstream's; empty where litellm knows it.

        Raises:
            ModelNotFound: the entry cannot be served.
        """
        problem = unsupported(entry)
        if problem:
            raise ModelNotFound(f"The model {entry.model_name!r} cannot be served: {problem}.", param="model")
        base = named_base(entry)
        if base:
            return base.rstrip("/")
        if provider == "openai":
            return self._settings.upstream.api_base.rstrip("/")
        return OPENAI_COMPATIBLE.get(provider) or ""

    def _access(self, entry: ModelEntry, provider: str, base: str, caller: Caller) -> Access:
        """The entry's key, else the client's own. A cloud's credentials are among the other parameters, or come from
        the process's surroundings."""
        params, upstream = entry.litellm_params, self._settings.upstream
        if params.api_key:
            return Access(params.api_key.get_secret_value(), operator=True)
        if upstream.api_key and base == upstream.api_base.rstrip("/"):
            return Access(upstream.api_key.get_secret_value(), operator=True)  # its own address alone gets that key
        if params.has_credentials:
            return Access(None, operator=True)
        own = self._own_key(caller, base)
        if provider == "anthropic":
            own = caller.anthropic_key or caller.client_key
        if own is None and provider in THROUGH_LITELLM and not base:
            text = f"The model {entry.model_name!r} needs a key: none is configured, and the request has none."
            raise Unauthorized(text)
        return Access(own, operator=False)

    def _entry(self, model: str) -> ModelEntry | None:
        """The entry of that name, else the first whose pattern matches (`*`, `openai/*`: LiteLLM's wildcards), with
        what the star matched in place of the star in the served model."""
        if model in self._entries:
            return self._entries[model]
        for entry in self._patterns:
            star = entry.star(model)
            if star is not None:
                served = entry.litellm_params.model.replace("*", star)
                return entry.model_copy(
                    update={"litellm_params": entry.litellm_params.model_copy(update={"model": served})}
                )
        return None


def _only_by_responses(deployment: Deployment) -> Deployment:
    if deployment.protocol != "openai":
        return deployment
    return replace(by_responses(deployment), has_responses=True)


def modifies_params(settings: Settings) -> bool:
    """Whether litellm may change requests so that a provider takes them; it knows this setting for all models only."""
    return any((entry.litellm_params.model_extra or {}).get("modify_params") for entry in settings.model_list)
