"""Prices and windows out of LiteLLM's map, read from its wheel without importing it (that costs seconds and 170 MB)."""

import functools
import importlib.util
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from gateway.core import jsons
from gateway.core.config.model_list import ModelEntry
from gateway.core.types.chat import ModelFacts

MAP_FILE = "model_prices_and_context_window_backup.json"
MEMBER = re.compile(rb'^ {0,4}"((?:[^"\\]|\\.)+)": (\{.*?^    \}),?$', re.MULTILINE | re.DOTALL)
CACHING = "supports_prompt_caching"


class ModelCatalogue:
    """LiteLLM's map; read at the first question and kept as small byte strings, one a model."""

    def facts(self, model: str, entry: ModelEntry | None) -> ModelFacts:
        """What is known of a model.

        The map is asked for `base_model`, the entry's `provider/model`, that without the provider, then the name
        itself; what `model_info` says outranks it. Prices are exact decimals.
        """
        info = entry.model_info if entry else None
        known = self._find(self._names(model, entry))
        extra: dict[str, Any] = dict(info.model_extra or {}) if info else {}
        if entry is not None:  # LiteLLM takes prices there, too
            named = entry.litellm_params.model_extra or {}
            extra = {**{k: v for k, v in named.items() if "_cost" in k}, **extra}
        prices, is_configured = {**_tiered(known), **_prices(known)}, False
        if info is not None:
            own = {
                "input_cost_per_token": info.input_cost_per_token,
                "output_cost_per_token": info.output_cost_per_token,
            }
            configured = {**_tiered(extra), **_prices(extra)}
            configured |= {k: v for k, v in own.items() if v is not None}
            if configured:  # a configured price replaces the map's: tiers of another price list must not mix in
                prices, is_configured = configured, True
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
        """The map by model name, each entry as JSON; read once in a process."""
        return _map()


@functools.cache
def _map() -> dict[str, bytes]:
    path = _map_path()
    return entries_of(path.read_bytes()) if path else {}


def entries_of(raw: bytes) -> dict[str, bytes]:
    """The members of a JSON object of objects, not parsed yet.

    The map is written with one indented member after the other, so its members can be cut out as they stand; parsing
    all 4,000 of them costs 25 MB that the process would keep. Anything written otherwise is parsed as a whole.
    """
    found = {jsons.loads(b'"%s"' % m.group(1)): m.group(2) for m in MEMBER.finditer(raw)}
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
    return {name: Decimal(str(value)) for name, value in known.items() if _is_price(name, value)}


def _tiered(known: dict[str, Any]) -> dict[str, Decimal]:
    """LiteLLM's `tiered_pricing` (Qwen, Doubao) under the names that it gives context tiers elsewhere: a tier holds
    for prompts above the lower end of its range."""
    tiers = known.get("tiered_pricing")
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
    """Whether the model's prompts can be cached: as configured, else as the map has it, if it knows the model."""
    found = configured.get(CACHING, known.get(CACHING, False if known else None))
    return None if found is None else bool(found)


def _mode(configured: dict[str, Any], known: dict[str, Any]) -> str | None:
    found = configured.get("mode", known.get("mode"))
    return found if isinstance(found, str) else None


def _first(*values: Any) -> int | None:
    return next((int(v) for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)
