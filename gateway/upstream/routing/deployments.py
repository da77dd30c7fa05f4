"""An entry of `model_list` as the deployment that calls go to."""

from dataclasses import dataclass
from typing import Any

from gateway.config.settings import CLOUDS, ModelEntry, Timeouts
from gateway.models.exchange import Deployment, JsonAnswer, StreamOpener
from gateway.ports import Upstream

# Which adapter calls a deployment (adapter of `ports.Upstream`).


class ProtocolUpstream:
    """OpenAI's protocol goes one way, everything else through litellm."""

    def __init__(self, openai: Upstream, litellm: Upstream) -> None:
        self._adapters: dict[str, Upstream] = {"openai": openai, "litellm": litellm}

    async def complete(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> JsonAnswer:
        """See `ports.Upstream`."""
        return await self._adapters[deployment.protocol].complete(deployment, body, headers)

    def stream(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> StreamOpener:
        """See `ports.Upstream`."""
        return self._adapters[deployment.protocol].stream(deployment, body, headers)


# LiteLLM's providers by name: whose protocol is OpenAI's, and which are served through litellm itself.
#
# The names are written down here since litellm, which knows them too, takes seconds to import.


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
    "deepinfra": "https://api.deepinfra.com/v1/openai",
    "nvidia_nim": "https://integrate.api.nvidia.com/v1",
    "sambanova": "https://api.sambanova.ai/v1",
    "moonshot": "https://api.moonshot.ai/v1",
    "dashscope": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    "nebius": "https://api.studio.nebius.ai/v1",
    "hyperbolic": "https://api.hyperbolic.xyz/v1",
    "featherless_ai": "https://api.featherless.ai/v1",
    "friendliai": "https://api.friendli.ai/serverless/v1",
    "lambda_ai": "https://api.lambda.ai/v1",
    "nscale": "https://inference.api.nscale.com/v1",
    "hosted_vllm": None,
    "custom_openai": None,
    "openai_like": None,
    "litellm_proxy": None,
    "lm_studio": None,
    "llamafile": None,
}
"""Served without litellm: where, if an entry names no `api_base` (None: it has to)."""

AZURE = "azure"
THROUGH_LITELLM = CLOUDS | {
    *("anthropic", "gemini", "cohere", "cohere_chat", "azure_ai", "ai21", "ai21_chat", "huggingface", "replicate"),
    *("watsonx", "databricks", "snowflake", "cloudflare", "ollama", "ollama_chat", "predibase", "nlp_cloud"),
    *("amazon_nova", "clarifai", "codestral", "datarobot", "gigachat", "github", "meta_llama", "minimax", "novita"),
    *("oobabooga", "triton", "v0", "volcengine", "zai"),
}


def known(provider: str) -> bool:
    """Whether entries of this provider can be served."""
    return provider in OPENAI_COMPATIBLE or provider in THROUGH_LITELLM or provider == AZURE


def split_provider(model: str) -> tuple[str, str]:
    """LiteLLM's `provider/model`; a name without a known provider is OpenAI's."""
    provider, slash, name = model.partition("/")
    if slash and known(provider):
        return provider, name
    return "openai", model


def origin_of(provider: str, name: str, api_base: str | None) -> str:
    """Who made an answer, as far as it matters to who understands what is bound to it: thoughts and their signatures.

    An OpenAI-compatible provider is told apart by its address; a cloud that serves several makers' models by the
    maker whose thoughts are signed.
    """
    if provider in OPENAI_COMPATIBLE or provider == AZURE:
        return f"{provider} {api_base}" if api_base else provider
    return f"{provider} claude" if "claude" in name.lower() else provider


AZURE_API_VERSION = "2025-02-01-preview"
AZURE_V1 = ("v1", "latest", "preview")
OWN_PARAMETERS = {"base_url", "azure_ad_token"}
ROUTER_PARAMETERS = {
    *("rpm", "tpm", "weight", "order", "max_retries", "num_retries", "tags", "model_info"),
    *("max_budget", "budget_duration", "max_parallel_requests", "max_file_size_mb", "mock_response", "fallbacks"),
    *("use_in_pass_through", "use_litellm_proxy", "litellm_credential_name", "configurable_clientside_auth_params"),
    *("default_api_key_tpm_limit", "default_api_key_rpm_limit", "extra_body", "caching", "cache", "callbacks"),
    *("success_callback", "failure_callback", "context_window_fallback_dict", "retry_policy", "cooldown_time"),
}
"""What LiteLLM's router and proxy keep to themselves."""
LITELLM_KNOBS = {
    *("drop_params", "additional_drop_params", "allowed_openai_params", "modify_params"),
    "merge_reasoning_content_in_choices",
}
"""What litellm understands and providers do not."""
REQUEST_FIELDS = frozenset(
    {
        *("messages", "stream", "stream_options", "temperature", "top_p", "n", "stop", "max_tokens"),
        *("max_completion_tokens", "modalities", "prediction", "audio", "presence_penalty", "frequency_penalty"),
        *("logit_bias", "user", "response_format", "seed", "tools", "tool_choice", "parallel_tool_calls", "logprobs"),
        *("top_logprobs", "functions", "function_call", "reasoning_effort", "verbosity", "safety_identifier"),
        *("service_tier", "prompt_cache_key", "thinking", "web_search_options"),
    }
)
"""Fields of a chat request that litellm translates; an entry may set defaults for them."""


@dataclass(frozen=True, slots=True)
class Access:
    """The key that calls are made with, and whether it is the operator's."""

    key: str | None
    operator: bool


def deployment_of(
    model: str, entry: ModelEntry, served: tuple[str, str], base: str, access: Access, timeouts: Timeouts
) -> Deployment:
    """Where `model` is served: through OpenAI's protocol, Azure's form of it, or litellm.

    Args:
        served: the provider and the name that it knows the model by.
        base: its address; empty for the provider's own, which litellm knows.
    """
    params = entry.litellm_params
    provider, name = served
    headers = dict(params.extra_headers)
    if params.organization:
        headers["OpenAI-Organization"] = params.organization
    shared: dict[str, Any] = {
        "model": model,
        "provider_model": name,
        "route": params.model,
        "api_base": base,
        "api_key": access.key,
        "operator_key": access.operator,
        "headers": headers,
        "connect_timeout": timeouts.connect,
        "first_byte_timeout": timeouts.first_byte,
        "idle_timeout": timeouts.idle,
        "origin": origin_of(provider, name, base),
    }
    extras = {k: v for k, v in (params.model_extra or {}).items() if _goes_on(k)}
    more = (params.model_extra or {}).get("extra_body")
    more = dict(more) if isinstance(more, dict) else {}
    if provider in THROUGH_LITELLM:
        parameters = {k: v for k, v in extras.items() if k in REQUEST_FIELDS}
        options = {k: v for k, v in extras.items() if k not in REQUEST_FIELDS}
        options |= {k: v for k in ("custom_llm_provider", "api_version") if (v := getattr(params, k))}
        return Deployment(**shared, parameters=parameters | more, options=options, protocol="litellm")
    shared["parameters"] = {k: v for k, v in extras.items() if k not in LITELLM_KNOBS} | more
    if provider == AZURE:
        shared |= _azure(base, name, params.api_version, (params.model_extra or {}).get("azure_ad_token"))
    return Deployment(**shared)


def _goes_on(parameter: str) -> bool:
    return parameter not in OWN_PARAMETERS | ROUTER_PARAMETERS and "_cost" not in parameter


def _azure(base: str, name: str, version: str | None, token: str | None) -> dict[str, Any]:
    """Azure's address of a deployment, by its first API or by the one that is called v1, and how it takes its key."""
    key = {"api_key": token, "operator_key": True} if token else {"key_header": "api-key"}
    if base.endswith("/openai/v1") or version in AZURE_V1:
        query = f"?api-version={version}" if version == "preview" else ""
        return {"api_base": f"{base.removesuffix('/openai/v1')}/openai/v1", "query": query, **key}
    if "/openai/deployments/" not in base:
        base = f"{base.removesuffix('/openai')}/openai/deployments/{name}"
    return {"api_base": base, "query": f"?api-version={version or AZURE_API_VERSION}", **key}
