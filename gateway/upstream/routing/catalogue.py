"""Prices and windows from LiteLLM's map, and providers by its names: which speak OpenAI's protocol, which are called
through litellm, which not at all. Read or listed here, since importing litellm costs seconds and 170 MB."""

import functools
import importlib.util
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from gateway.core import jsons
from gateway.core.config.model_list import CLOUDS, TIERED_PRICING, ModelEntry
from gateway.core.types import bill, upstreams
from gateway.core.types.chat import ModelFacts

SEARCH_SIZE = "search_context_size_medium"
"""Of the prices of a web search, that of providers that report how many they ran: theirs are all the same."""
MAP_FILE = "model_prices_and_context_window_backup.json"
CATALOGUE_ENTRY = re.compile(rb'^ {0,4}"((?:[^"\\]|\\.)+)": (\{.*?^    \}),?$', re.MULTILINE | re.DOTALL)
CACHING = "supports_prompt_caching"


class ModelCatalogue:
    """LiteLLM's map; read at the first look-up and stored as small byte strings, one per model."""

    def facts(self, model: str, entry: ModelEntry | None) -> ModelFacts:
        """Returns what is known of a model.

        The map is searched for `base_model`, the entry's `provider/model`, that without the provider, then the name
        itself; `model_info` outranks it. Prices are exact decimals.
        """
        info = entry.model_info if entry else None
        known = self._find(self._names(model, entry))
        extra: dict[str, Any] = dict(info.model_extra or {}) if info else {}
        if entry is not None:  # LiteLLM accepts prices there, too
            named = entry.litellm_params.model_extra or {}
            extra = {**{k: v for k, v in named.items() if "_cost" in k or k == TIERED_PRICING}, **extra}
        prices, is_configured = {**_tiered(known), **_prices(known)}, False
        if info is not None:
            own = {
                "input_cost_per_token": info.input_cost_per_token,
                "output_cost_per_token": info.output_cost_per_token,
            }
            configured = {**_tiered(extra), **_prices(extra)}
            configured |= {k: v for k, v in own.items() if v is not None}
            if configured.keys() - {bill.PER_SEARCH}:  # it replaces the map's: tiers of two price lists must not mix
                prices, is_configured = configured, True
            else:
                prices |= configured
        return ModelFacts(
            name=entry.litellm_params.model if entry else model,
            max_input_tokens=_first(info and info.max_input_tokens, known.get("max_input_tokens")),
            max_output_tokens=_first(info and info.max_output_tokens, known.get("max_output_tokens")),
            context_window=info.context_window if info else None,
            prices=prices,
            tokenizer=info.tokenizer if info else None,
            token_margin=info.token_margin if info else 1.0,
            supports_pdf_input=bool(extra.get("supports_pdf_input", known.get("supports_pdf_input", False))),
            supports_prompt_caching=_caches(extra, known),
            mode=_mode(extra, known),
            prices_are_configured=is_configured,
            window_is_configured=info is not None and bool(info.max_input_tokens or info.context_window),
        )

    def _names(self, model: str, entry: ModelEntry | None) -> list[str]:
        if entry is None:
            return [model, model.partition("/")[2]]
        served = entry.litellm_params.model
        base = entry.model_info.base_model
        return [name for name in (base, served, served.partition("/")[2], entry.model_name) if name]

    def _find(self, names: list[str]) -> dict[str, Any]:
        entries = self.load()
        for name in names:
            if name in entries:
                found: dict[str, Any] = json.loads(entries[name], parse_float=Decimal)
                return found
        return {}

    def load(self) -> dict[str, bytes]:
        """Returns the map by model name, each entry as JSON; read once per process."""
        return _map()


@functools.cache
def _map() -> dict[str, bytes]:
    path = _map_path()
    return entries_of(path.read_bytes()) if path else {}


def entries_of(raw: bytes) -> dict[str, bytes]:
    """Splits a JSON object of objects into its members, not parsed yet.

    The map is written with one indented member after the other, so its members can be cut out unchanged; parsing all
    4,000 of them costs 25 MB that the process would hold. A file in another form is parsed as a whole.
    """
    found = {jsons.loads(b'"%s"' % m.group(1)): m.group(2) for m in CATALOGUE_ENTRY.finditer(raw)}
    if not found:
        found = {name: jsons.dumps(value) for name, value in jsons.loads(raw).items()}
    found.pop("sample_spec", None)
    return found


def _map_path() -> Path | None:
    spec = importlib.util.find_spec("litellm")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / MAP_FILE


def _prices(known: dict[str, Any]) -> dict[str, Decimal]:
    by_size = known.get(bill.PER_SEARCH)
    searched = by_size.get(SEARCH_SIZE) if isinstance(by_size, dict) else by_size
    given = {**known, bill.PER_SEARCH: searched}
    return {name: Decimal(str(value)) for name, value in given.items() if _is_price(name, value)}


def _tiered(known: dict[str, Any]) -> dict[str, Decimal]:
    """Converts LiteLLM's `tiered_pricing` (Qwen, Doubao) to the names that it gives context tiers elsewhere: a tier
    applies to prompts above the lower end of its range."""
    tiers = known.get(TIERED_PRICING)
    found: dict[str, Decimal] = {}
    for tier in tiers if isinstance(tiers, list) else ():
        match tier:
            case {"range": [int() | float() | Decimal() as least, *_]}:
                above = f"_above_{int(least) // 1000}k_tokens" if least else ""
                found |= {name + above: price for name, price in _prices(tier).items()}
    return found


def _is_price(name: str, value: Any) -> bool:
    return "_cost" in name and isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _caches(configured: dict[str, Any], known: dict[str, Any]) -> bool | None:
    """Returns whether the model's prompts can be cached: as configured, else by the map; None if neither knows."""
    found = configured.get(CACHING, known.get(CACHING, False if known else None))
    return None if found is None else bool(found)


def _mode(configured: dict[str, Any], known: dict[str, Any]) -> str | None:
    found = configured.get("mode", known.get("mode"))
    return found if isinstance(found, str) else None


def _first(*values: Any) -> int | None:
    return next((int(v) for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


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
"""Providers served without litellm, with their address if an entry names no `api_base` (None: it has to)."""

NAMED_ALONE = (("claude-", "anthropic"), ("command-", "cohere_chat"))
"""Prefixes of models that LiteLLM serves without a provider before their name, with that provider."""
AZURE = "azure"
OPENAI_BASES = ("https://api.openai.com/v1", "https://eu.api.openai.com/v1", "https://us.api.openai.com/v1")
THROUGH_LITELLM = CLOUDS | {
    *("anthropic", "gemini", "cohere", "cohere_chat", "azure_ai", "ai21", "ai21_chat", "huggingface", "replicate"),
    *("watsonx", "databricks", "snowflake", "cloudflare", "ollama", "ollama_chat", "predibase", "nlp_cloud"),
    *("amazon_nova", "clarifai", "codestral", "datarobot", "gigachat", "github", "meta_llama", "minimax", "novita"),
    *("oobabooga", "triton", "v0", "volcengine", "zai"),
}


def known(provider: str) -> bool:
    """Returns whether entries of this provider can be served."""
    return provider in OPENAI_COMPATIBLE or provider in THROUGH_LITELLM or provider == AZURE


def provider_of(entry: ModelEntry) -> tuple[str, str]:
    """Returns the provider of an entry, and the provider's name for the model."""
    params = entry.litellm_params
    if params.custom_llm_provider:
        return params.custom_llm_provider, params.model.removeprefix(f"{params.custom_llm_provider}/")
    if "/" not in params.model and not named_base(entry):
        return next((p for start, p in NAMED_ALONE if params.model.startswith(start)), "openai"), params.model
    return split_provider(params.model)


def unsupported(entry: ModelEntry) -> str | None:
    """Returns why an entry cannot be served, or None."""
    params = entry.litellm_params
    if entry.unset:
        return " and ".join(entry.unset)
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
    """Splits LiteLLM's `provider/model`; a name without a known provider is OpenAI's."""
    provider, slash, name = model.partition("/")
    if slash and known(provider):
        return provider, name
    return "openai", model


def named_base(entry: ModelEntry) -> str:
    """Returns the address that an entry names; empty if it names none."""
    params = entry.litellm_params
    return params.api_base or str((params.model_extra or {}).get("base_url") or "")


def origin_of(provider: str, name: str, api_base: str | None) -> str:
    """Names the origin of answers: thoughts and their signatures of one origin are of no use to another.

    OpenAI-compatible providers differ by address; a cloud that serves several makers' models, by the maker whose
    thoughts are signed.
    """
    if provider in OPENAI_COMPATIBLE or provider == AZURE:
        return f"{provider} {api_base}" if api_base else provider
    return f"{provider} claude" if upstreams.family_in(name).signs_thoughts else provider
