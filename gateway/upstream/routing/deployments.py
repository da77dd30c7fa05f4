"""An entry of `model_list` as the deployment that calls go to."""

from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote

from gateway.core.config.litellm_names import ROUTER_PARAMETERS
from gateway.core.config.model_list import ModelEntry
from gateway.core.config.settings_fields import UpstreamTimeouts
from gateway.core.types.chat import ModelDeployment
from gateway.upstream.routing.providers import AZURE, THROUGH_LITELLM, origin_of

RESPONSES: Literal["responses"] = "responses"
AZURE_API_VERSION = "2025-02-01-preview"
AZURE_V1 = ("v1", "latest", "preview")
"""Values of `api_version` that mean Azure's second API, whose paths are OpenAI's."""
OWN_PARAMETERS = {"base_url", "azure_ad_token"}
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
class DeploymentAccess:
    """The key that calls are made with, and whether it is the operator's."""

    key: str | None
    operator: bool


def deployment_of(
    model: str,
    entry: ModelEntry,
    served: tuple[str, str],
    base: str,
    access: DeploymentAccess,
    timeouts: UpstreamTimeouts,
) -> ModelDeployment:
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
        "provider": provider,
        "has_responses": _has_responses(entry),
    }
    unknown = params.model_extra or {}
    kept = OWN_PARAMETERS | ROUTER_PARAMETERS
    extras = {k: v for k, v in unknown.items() if k not in kept and "_cost" not in k}
    more = unknown.get("extra_body")
    more = dict(more) if isinstance(more, dict) else {}
    if provider in THROUGH_LITELLM:
        parameters = {k: v for k, v in extras.items() if k in REQUEST_FIELDS}
        options = {k: v for k, v in extras.items() if k not in REQUEST_FIELDS}
        options |= {k: v for k in ("custom_llm_provider", "api_version") if (v := getattr(params, k))}
        return ModelDeployment(**shared, parameters=parameters | more, options=options, protocol="litellm")
    shared["parameters"] = {k: v for k, v in extras.items() if k not in LITELLM_KNOBS} | more
    if provider == AZURE:
        shared |= _azure(base, name, params.api_version, unknown.get("azure_ad_token"))
    return ModelDeployment(**shared)


def _has_responses(entry: ModelEntry) -> bool | None:
    """What an entry says of OpenAI's API for responses, as LiteLLM's map does."""
    info = entry.model_info.model_extra or {}
    if info.get("mode") == RESPONSES:
        return True
    served = info.get("supported_endpoints")
    return f"/v1/{RESPONSES}" in served if isinstance(served, list) else None


def by_responses(deployment: ModelDeployment) -> ModelDeployment:
    """The deployment as it is called in the words of Responses. Azure serves them beside its second API alone."""
    root, classic, _ = deployment.api_base.partition("/openai/deployments/")
    if classic:
        return replace(deployment, protocol=RESPONSES, api_base=f"{root}/openai/v1", query="")
    return replace(deployment, protocol=RESPONSES)


def _azure(base: str, name: str, version: str | None, token: str | None) -> dict[str, Any]:
    """Azure's address of a deployment, by its first API or by the one that is called v1, and how it takes its key."""
    key = {"api_key": token, "operator_key": True} if token else {"key_header": "api-key"}
    if base.endswith("/openai/v1") or version in AZURE_V1:
        query = f"?api-version={version}" if version == "preview" else ""
        return {"api_base": f"{base.removesuffix('/openai/v1')}/openai/v1", "query": query, **key}
    if "/openai/deployments/" not in base:
        base = f"{base.removesuffix('/openai')}/openai/deployments/{quote(name, safe='')}"
    return {"api_base": base, "query": f"?api-version={version or AZURE_API_VERSION}", **key}
