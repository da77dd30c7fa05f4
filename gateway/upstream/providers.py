"""LiteLLM's providers by name: whose protocol is OpenAI's, and which are served through litellm itself.

The names are written down here since litellm, which knows them too, takes seconds to import.
"""

from gateway.settings import CLOUDS

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
