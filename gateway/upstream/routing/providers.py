"""Providers by LiteLLM's names: whose protocol is OpenAI's, which are called through litellm, which not at all.

The names are written down here since litellm, which knows them too, takes seconds to import.
"""

from gateway.core.config.model_list import CLOUDS, ModelEntry
from gateway.core.errors import UpstreamRefused
from gateway.core.ports import Upstream
from gateway.core.types.chat import JsonAnswer, ModelDeployment, StreamOpener
from gateway.core.types.provider_facts import family_in
from gateway.core.types.upstream import UpstreamRequest

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

NAMED_ALONE = (("claude-", "anthropic"), ("command-", "cohere_chat"))
"""Models that LiteLLM serves without a provider before their name."""
AZURE = "azure"
OPENAI_BASES = ("https://api.openai.com/v1", "https://eu.api.openai.com/v1", "https://us.api.openai.com/v1")
THROUGH_LITELLM = CLOUDS | {
    *("anthropic", "gemini", "cohere", "cohere_chat", "azure_ai", "ai21", "ai21_chat", "huggingface", "replicate"),
    *("watsonx", "databricks", "snowflake", "cloudflare", "ollama", "ollama_chat", "predibase", "nlp_cloud"),
    *("amazon_nova", "clarifai", "codestral", "datarobot", "gigachat", "github", "meta_llama", "minimax", "novita"),
    *("oobabooga", "triton", "v0", "volcengine", "zai"),
}


def known(provider: str) -> bool:
    """Whether entries of this provider can be served."""
    return provider in OPENAI_COMPATIBLE or provider in THROUGH_LITELLM or provider == AZURE


def provider_of(entry: ModelEntry) -> tuple[str, str]:
    """The provider of an entry, and the name that it knows the model by."""
    params = entry.litellm_params
    if params.custom_llm_provider:
        return params.custom_llm_provider, params.model.removeprefix(f"{params.custom_llm_provider}/")
    if "/" not in params.model and not named_base(entry):
        return next((p for start, p in NAMED_ALONE if params.model.startswith(start)), "openai"), params.model
    return split_provider(params.model)


def unsupported(entry: ModelEntry) -> str | None:
    """Why an entry cannot be served, or None."""
    params = entry.litellm_params
    if entry.unset:
        return f"the environment has no {' and no '.join(entry.unset)}"
    provider, _ = provider_of(entry)
    if params.custom_llm_provider and not known(provider):
        return f"the provider {provider!r} is not known"
    if provider == AZURE and (params.model_extra or {}).get("client_secret"):
        return "Azure is called with an api_key or an azure_ad_token; a client_secret is not exchanged for one"
    if named_base(entry) or provider in THROUGH_LITELLM:
        return None
    if provider == "openai" and "/" in params.model and not params.model.startswith("openai/"):
        return f"the provider of {params.model!r} is not known; name an api_base that speaks OpenAI's protocol"
    if OPENAI_COMPATIBLE.get(provider) is None:
        return f"{params.model!r} needs an api_base"
    return None


def split_provider(model: str) -> tuple[str, str]:
    """LiteLLM's `provider/model`; a name without a known provider is OpenAI's."""
    provider, slash, name = model.partition("/")
    if slash and known(provider):
        return provider, name
    return "openai", model


def named_base(entry: ModelEntry) -> str:
    """The address that an entry names; empty if it names none."""
    params = entry.litellm_params
    return params.api_base or str((params.model_extra or {}).get("base_url") or "")


def origin_of(provider: str, name: str, api_base: str | None) -> str:
    """Names whoever makes the answers: thoughts and their signatures of one origin are of no use to another.

    OpenAI-compatible providers differ by address; a cloud that serves several makers' models, by the maker whose
    thoughts are signed.
    """
    if provider in OPENAI_COMPATIBLE or provider == AZURE:
        return f"{provider} {api_base}" if api_base else provider
    return f"{provider} claude" if family_in(name).signs_thoughts else provider


class ProtocolUpstream:
    """Calls each deployment by its protocol (an `Upstream`)."""

    def __init__(self, **by_protocol: Upstream) -> None:
        self._by_protocol = by_protocol

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        """One whole answer."""
        return await self._of(deployment).complete(deployment, request)

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> StreamOpener:
        """An answer in chunks."""
        return self._of(deployment).stream(deployment, request)

    def _of(self, deployment: ModelDeployment) -> Upstream:
        """
        Raises:
            UpstreamRefused: nothing here speaks that protocol, as if the upstream itself did not.
        """
        found = self._by_protocol.get(deployment.protocol)
        if found is None:
            raise UpstreamRefused(404, {"error": {"message": "This API is not served upstream."}}, {})
        return found
