"""What servers say of their models, read with suspicion: a figure that cannot be is as good as none.

The shapes are those of vLLM, llama.cpp, Ollama, LM Studio, OpenRouter, Groq, Mistral, Together and SambaNova.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

WINDOWS = (
    *("loaded_context_length", "max_model_len", "n_ctx", "context_length", "context_window", "max_context_length"),
)
"""Fields that hold a model's window, prompt and answer together, the one that is in force before the largest."""
TRAINED = "n_ctx_train"
OUTPUTS = ("max_completion_tokens", "max_output_tokens")
PRICES = {
    "prompt": "input_cost_per_token",
    "completion": "output_cost_per_token",
    "input_cache_read": "cache_read_input_token_cost",
    "input_cache_write": "cache_creation_input_token_cost",
    "internal_reasoning": "output_cost_per_reasoning_token",
}
"""OpenRouter's names of prices, in USD for one token, and LiteLLM's."""
NEEDED = ("prompt", "completion")
MIN_WINDOW, MAX_WINDOW = 256, 100_000_000
MAX_PRICE = Decimal("0.01")
"""USD for one token: ten times what any model costs. A list that tells prices of a million tokens is not misread."""
OLLAMA_WINDOW = 4096
"""Ollama's window for a model that is not loaded and names no other; it cuts what is longer without a word."""
NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """What is told of a model. `certain`: the window is the one in force, not only the largest that it can have."""

    window: int | None = None
    max_output: int | None = None
    prices: dict[str, Decimal] = field(default_factory=dict)
    certain: bool = True


NOTHING = ModelDescription()


def listed(body: Any) -> Iterator[dict[str, Any]]:
    """The entries of a list of models: OpenAI's `{"data": […]}`, or the bare list."""
    entries = body.get("data") if isinstance(body, dict) else body
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            yield entry


def described(entry: dict[str, Any]) -> ModelDescription:
    """What an entry of a list of models says."""
    places = [entry, *(entry.get(name) for name in ("meta", "metadata", "top_provider"))]
    found = [place for place in places if isinstance(place, dict)]
    windows = [window for place in found if (window := _first(place, WINDOWS))]
    trained = next((window for place in found if (window := tokens(place.get(TRAINED)))), None)
    return ModelDescription(
        window=min(windows) if windows else trained,
        max_output=next((limit for place in reversed(found) if (limit := _first(place, OUTPUTS))), None),
        prices=prices(entry.get("pricing")),
        certain=bool(windows),
    )


def _first(place: dict[str, Any], names: tuple[str, ...]) -> int | None:
    return next((number for name in names if (number := tokens(place.get(name)))), None)


def tokens(value: Any) -> int | None:
    """A number of tokens, or None if it is none that a model could have."""
    possible = isinstance(value, int) and not isinstance(value, bool) and MIN_WINDOW <= value <= MAX_WINDOW
    return value if possible else None


def prices(pricing: Any) -> dict[str, Decimal]:
    """Prices by LiteLLM's names; none if prompt or answer has none, or a request costs something by itself."""
    if not isinstance(pricing, dict):
        return {}
    found = {name: price for name in PRICES if (price := _price(pricing.get(name))) is not None}
    alone = _price(pricing.get("request", "0"))
    if alone != 0 or any(name not in found for name in NEEDED):
        return {}
    return {PRICES[name]: price for name, price in found.items() if price or name in NEEDED}


def _price(value: Any) -> Decimal | None:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        price = Decimal(str(value))
    except InvalidOperation:
        return None
    return price if price.is_finite() and 0 <= price <= MAX_PRICE else None


def window_of_props(body: Any) -> int | None:
    """llama.cpp's `/props`: the window of one slot, which is what a request has."""
    settings = body.get("default_generation_settings") if isinstance(body, dict) else None
    return tokens(settings.get("n_ctx")) if isinstance(settings, dict) else None


def window_of_ps(body: Any, names: set[str]) -> int | None:
    """Ollama's `/api/ps`: the window of a model that is loaded."""
    models = body.get("models") if isinstance(body, dict) else None
    for model in models if isinstance(models, list) else ():
        if isinstance(model, dict) and names & {str(model.get("name")), str(model.get("model"))}:
            return tokens(model.get("context_length"))
    return None


def window_of_show(body: Any) -> int | None:
    """Ollama's `/api/show`: the window that a model will have once it is loaded, as far as that can be said."""
    if not isinstance(body, dict):
        return None
    parameters, info = body.get("parameters"), body.get("model_info")
    chosen = NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    if chosen and (window := tokens(int(chosen.group(1)))):
        return window
    largest = (
        (tokens(v) for k, v in info.items() if str(k).endswith(".context_length")) if isinstance(info, dict) else ()
    )
    return next((min(window, OLLAMA_WINDOW) for window in largest if window), None)
