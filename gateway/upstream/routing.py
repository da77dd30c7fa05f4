"""Which deployment serves a model, with whose key (contract §1, §8)."""

from typing import Any

from gateway.errors import ModelNotFound
from gateway.models.exchange import Caller, Deployment, ModelFacts
from gateway.settings import ModelEntry, Settings
from gateway.upstream.catalogue import Catalogue

OPENAI_COMPATIBLE = {
    "openai": "https://api.openai.com/v1",
    "text-completion-openai": "https://api.openai.com/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "together_ai": "https://api.together.xyz/v1",
    "fireworks_ai": "https://api.fireworks.ai/inference/v1",
    "xai": "https://api.x.ai/v1",
    "perplexity": "https://api.perplexity.ai",
    "cerebras": "https://api.cerebras.ai/v1",
    "hosted_vllm": None,
    "custom_openai": None,
    "openai_like": None,
    "litellm_proxy": None,
    "lm_studio": None,
    "llamafile": None,
}
OWN_PARAMETERS = {"model", "api_base", "api_key", "organization", "extra_headers", "timeout", "base_url"}
ROUTER_PARAMETERS = {
    *("rpm", "tpm", "weight", "order", "max_retries", "num_retries", "tags", "model_info"),
    *("custom_llm_provider", "drop_params", "additional_drop_params", "allowed_openai_params", "modify_params"),
    *("max_budget", "budget_duration", "max_parallel_requests", "max_file_size_mb", "mock_response", "api_version"),
    *("use_in_pass_through", "use_litellm_proxy", "litellm_credential_name", "configurable_clientside_auth_params"),
    *("merge_reasoning_content_in_choices", "default_api_key_tpm_limit", "default_api_key_rpm_limit", "extra_body"),
}
"""What LiteLLM keeps to itself; everything else in `litellm_params` is sent with each request."""


class ConfiguredRouter:
    """Models of `model_list`, and the default upstream for all others (adapter of `ports.Router`)."""

    def __init__(self, settings: Settings, catalogue: Catalogue) -> None:
        self._settings = settings
        self._catalogue = catalogue
        self._entries: dict[str, ModelEntry] = {}
        self._patterns = [entry for entry in settings.model_list if "*" in entry.model_name]
        for entry in settings.model_list:
            if "*" not in entry.model_name:
                self._entries.setdefault(entry.model_name, entry)
        self._facts: dict[str, ModelFacts] = {}

    @property
    def names(self) -> list[str]:
        """Configured model names, in their order; patterns are none."""
        return list(self._entries)

    def lists(self, model: str) -> bool:
        """Whether an entry of `model_list` serves that model."""
        return self._entry(model) is not None

    def deployment(self, model: str, caller: Caller) -> Deployment:
        """Where `model` is served for this caller.

        Raises:
            ModelNotFound: not in `model_list`, and the default upstream is not for this caller.
        """
        entry = self._entry(model)
        if entry is None:
            return self.default(model, caller)
        params = entry.litellm_params
        operator_key = params.api_key.get_secret_value() if params.api_key else None
        provider, name = split_provider(params.model)
        api_base = self.api_base(entry, provider)
        upstream = self._settings.upstream
        if operator_key is None and upstream.api_key and api_base == upstream.api_base.rstrip("/"):
            operator_key = upstream.api_key.get_secret_value()  # its own address, and no other, gets that key
        key = operator_key or caller.client_key
        timeouts = params.timeouts(self._settings.upstream)
        headers = dict(params.extra_headers)
        if params.organization:
            headers["OpenAI-Organization"] = params.organization
        extras: dict[str, Any] = params.model_extra or {}
        own = OWN_PARAMETERS | ROUTER_PARAMETERS
        parameters = {k: v for k, v in extras.items() if k not in own and "_cost" not in k}
        if isinstance(extras.get("extra_body"), dict):
            parameters |= extras["extra_body"]
        return Deployment(
            model=model,
            provider_model=name,
            route=params.model,
            api_base=api_base,
            api_key=key,
            operator_key=operator_key is not None,
            headers=headers,
            parameters=parameters,
            connect_timeout=timeouts.connect,
            first_byte_timeout=timeouts.first_byte,
            idle_timeout=timeouts.idle,
        )

    def default(self, model: str, caller: Caller) -> Deployment:
        """The default upstream: with the operator's key if it has one, else with the client's own.

        Raises:
            ModelNotFound: keys are configured, so the client's own goes nowhere, and the operator named none.
        """
        upstream = self._settings.upstream
        operator_key = upstream.api_key.get_secret_value() if upstream.api_key else None
        if operator_key is None and self._settings.auth.keys:
            raise ModelNotFound(f"The model {model!r} does not exist here.", param="model")
        return Deployment(
            model=model,
            provider_model=model,
            route=f"openai/{model}",
            api_base=upstream.api_base.rstrip("/"),
            api_key=operator_key or caller.client_key,
            operator_key=operator_key is not None,
            connect_timeout=upstream.connect,
            first_byte_timeout=upstream.first_byte,
            idle_timeout=upstream.idle,
        )

    def facts(self, model: str) -> ModelFacts:
        """What is known of a model: its entry's `model_info` over LiteLLM's map."""
        if model not in self._facts:
            if len(self._facts) > 1000:  # names come from clients
                self._facts.clear()
            self._facts[model] = self._catalogue.facts(model, self._entry(model))
        return self._facts[model]

    def api_base(self, entry: ModelEntry, provider: str) -> str:
        """The base URL of an entry: its own, its provider's, or the default upstream's."""
        base = entry.litellm_params.api_base or str((entry.litellm_params.model_extra or {}).get("base_url") or "")
        if base:
            return base.rstrip("/")
        if provider == "openai":
            return self._settings.upstream.api_base.rstrip("/")
        known = OPENAI_COMPATIBLE.get(provider)
        if known is None:
            raise ModelNotFound(f"The model {entry.model_name!r} names no api_base.", param="model")
        return known

    def _entry(self, model: str) -> ModelEntry | None:
        """The entry of that name, else the first whose pattern fits (`*`, `openai/*`: LiteLLM's wildcards); what its
        star stands for takes the place of the star in the model that is served."""
        if model in self._entries:
            return self._entries[model]
        for entry in self._patterns:
            before, _, after = entry.model_name.partition("*")
            if model.startswith(before) and model.endswith(after) and len(model) > len(before) + len(after):
                star = model[len(before) : len(model) - len(after)]
                served = entry.litellm_params.model.replace("*", star)
                return entry.model_copy(
                    update={"litellm_params": entry.litellm_params.model_copy(update={"model": served})}
                )
        return None


def split_provider(model: str) -> tuple[str, str]:
    """LiteLLM's `provider/model`; a name without a known provider is OpenAI's."""
    provider, slash, name = model.partition("/")
    if slash and provider in OPENAI_COMPATIBLE:
        return provider, name
    return "openai", model


def unsupported(entry: ModelEntry) -> str | None:
    """Why an entry cannot be served, or None: it needs an `api_base` or a provider with OpenAI's protocol."""
    params = entry.litellm_params
    if params.api_base or (params.model_extra or {}).get("base_url"):
        return None
    provider, _ = split_provider(params.model)
    if provider == "openai" and "/" in params.model and not params.model.startswith("openai/"):
        return f"the provider of {params.model!r} does not speak OpenAI's protocol; name an api_base that does"
    if OPENAI_COMPATIBLE.get(provider) is None:
        return f"{params.model!r} needs an api_base"
    return None
