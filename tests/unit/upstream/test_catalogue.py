"""Prices and windows: LiteLLM's map, outranked by `model_info` (guarantee §6, §9)."""

import json
from decimal import Decimal
from typing import Any

import pytest

from gateway.core.config.model_list import ModelEntry
from gateway.core.types.chat import ModelFacts
from gateway.upstream.routing.catalogue import ModelCatalogue, _map_path, entries_of

CATALOGUE = ModelCatalogue()


def facts(model: str, **info: Any) -> ModelFacts:
    raw = {"model_name": "m", "litellm_params": {"model": model}, "model_info": info}
    return CATALOGUE.facts("m", ModelEntry.model_validate(raw))


def test_known_models_have_exact_prices_and_windows() -> None:
    known = CATALOGUE.facts("gpt-4o", None)
    assert (known.max_input_tokens, known.max_output_tokens) == (128_000, 16_384)
    assert known.prices["input_cost_per_token"] == Decimal("2.5e-06")
    assert known.prices["output_cost_per_token"] == Decimal("1e-05")
    assert known.prices["cache_read_input_token_cost"] == Decimal("1.25e-06")


@pytest.mark.parametrize("model", ["openai/gpt-4o", "gpt-4o", "azure-of-mine/gpt-4o"])
def test_a_provider_before_the_name_is_no_obstacle(model: str) -> None:
    assert facts(model).prices == CATALOGUE.facts("gpt-4o", None).prices
    assert CATALOGUE.facts(model, None).max_input_tokens == 128_000


def test_an_unknown_model_has_no_window_and_no_price_rather_than_0() -> None:
    unknown = CATALOGUE.facts("nobody-knows-this", None)
    assert (unknown.max_input_tokens, unknown.prices) == (None, {})
    assert CATALOGUE.facts("sample_spec", None).max_input_tokens is None


def test_what_the_operator_says_outranks_the_map() -> None:
    info = {"max_input_tokens": 5, "max_output_tokens": 6, "context_window": 7, "tokenizer": "cl100k_base"}
    found = facts("openai/gpt-4o", **info)
    assert (found.max_input_tokens, found.max_output_tokens, found.context_window, found.tokenizer) == (
        5, 6, 7, "cl100k_base",
    )  # fmt: skip
    assert found.prices == CATALOGUE.facts("gpt-4o", None).prices


def test_a_configured_price_is_exact_and_no_price_of_the_map_is_mixed_in() -> None:
    info = {"input_cost_per_token": 1e-7, "output_cost_per_token": 0, "output_cost_per_reasoning_token": 3e-7}
    assert facts("openai/gpt-4o", **info).prices == {
        "input_cost_per_token": Decimal("1e-7"),
        "output_cost_per_token": Decimal(0),
        "output_cost_per_reasoning_token": Decimal("3e-7"),
    }


def test_a_search_has_the_price_of_a_usual_one_which_replaces_no_other() -> None:
    """The map has it by size; a configured one alone leaves the prices of tokens as they are."""
    known = CATALOGUE.facts("claude-sonnet-4-5", None).prices
    assert known["search_context_cost_per_query"] == Decimal("0.01")
    own = facts("anthropic/claude-sonnet-4-5", search_context_cost_per_query=0.02).prices
    assert own == {**known, "search_context_cost_per_query": Decimal("0.02")}


def test_a_base_model_lends_what_is_known_of_it() -> None:
    assert facts("openai/my-deployment", base_model="gpt-4o").prices == CATALOGUE.facts("gpt-4o", None).prices


def test_a_table_of_tiers_is_read_as_prices_of_context_tiers() -> None:
    """§6: context tiers; LiteLLM's map has them as `tiered_pricing` for Qwen and Doubao."""
    prices = facts("dashscope/qwen3-max").prices
    assert prices["input_cost_per_token"] == Decimal("1.2e-06")
    assert prices["input_cost_per_token_above_32k_tokens"] == Decimal("2.4e-06")
    assert prices["output_cost_per_token_above_128k_tokens"] == Decimal("1.5e-05")


def test_every_member_of_the_map_is_what_a_full_parse_gives() -> None:
    """The map is cut into its members without being parsed; both ways must agree."""
    path = _map_path()
    assert path is not None
    raw = path.read_bytes()
    whole = json.loads(raw)
    whole.pop("sample_spec")
    cut = {name: json.loads(entry) for name, entry in entries_of(raw).items()}
    assert cut == whole


def test_a_map_written_otherwise_is_parsed_as_a_whole() -> None:
    assert entries_of(b'{"a":{"x":1},"sample_spec":{}}') == {"a": b'{"x":1}'}
