"""What a provider's prompt cache charges for a session's requests (guarantee §13.12)."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from gateway.context.tokens.counter import CounterRegistry
from gateway.core.types.chat import ModelFacts
from gateway.operations.savings.playing import PromptCache, PromptSegments

Json = dict[str, Any]
INPUT: dict[str, Decimal] = {"input_cost_per_token": Decimal(10), "output_cost_per_token": Decimal(50)}
READ = {**INPUT, "cache_read_input_token_cost": Decimal(1)}
WRITTEN = {
    **READ,
    "cache_creation_input_token_cost": Decimal(12),
    "cache_creation_input_token_cost_above_1hr": Decimal(20),
}
FACTS = ModelFacts("gpt-4o", tokenizer="o200k_base")
LONG, OTHER = "word " * 1500, "other " * 1500


def message(text: str, **more: Any) -> Json:
    return {"role": "user", "content": text, **more}


class Provider:
    """A provider's cache, asked by messages."""

    def __init__(self, prices: Mapping[str, Decimal], lifetime: float = 300.0) -> None:
        self.segments = PromptSegments(CounterRegistry().counter(FACTS))
        self.cache = PromptCache(prices, self.segments, lifetime)

    def ask(self, at: float, *messages: Json) -> Json:
        return self.cache.usage(self.segments.of_prompt(messages, None), at, 2)


def test_s13_12_what_begins_alike_is_read_and_the_rest_is_written() -> None:
    provider = Provider(WRITTEN)
    first = provider.ask(0, message(LONG))
    total = first["prompt_tokens"]
    assert 1500 < total < 1520
    assert first["prompt_tokens_details"] == {"cached_tokens": 0, "cache_creation_tokens": total}
    assert provider.cache.cost(first) == 12 * total + 100
    second = provider.ask(200, message(LONG, cache_control={"type": "ephemeral"}), message(OTHER))
    known, whole = second["prompt_tokens_details"]["cached_tokens"], second["prompt_tokens"]
    assert known == total - 3, "all of the first but what begins the answer; a mark is no difference"
    assert provider.cache.cost(second) == known + 12 * (whole - known) + 100
    changed = provider.ask(210, message(LONG + "!"), message(OTHER))
    assert changed["prompt_tokens_details"]["cached_tokens"] == 0, "message by message"
    warm = provider.ask(500, message(LONG), message(OTHER))
    assert warm["prompt_tokens_details"]["cached_tokens"] == whole - 3, "each use keeps it"
    cold = provider.ask(801, message(LONG), message(OTHER))
    assert cold["prompt_tokens_details"]["cached_tokens"] == 0


def test_s13_12_what_is_written_for_an_hour_costs_so() -> None:
    provider = Provider(WRITTEN, 3600.0)
    first = provider.ask(0, message(LONG))
    assert provider.cache.cost(first) == 20 * first["prompt_tokens"] + 100
    assert provider.ask(3600, message(LONG))["prompt_tokens_details"]["cached_tokens"] == first["prompt_tokens"] - 3


def test_s13_12_an_automatic_cache_reads_blocks_of_what_begins_alike() -> None:
    provider = Provider(READ)
    first = provider.ask(0, message(LONG))
    assert first["prompt_tokens_details"] == {"cached_tokens": 0}
    assert provider.cache.cost(first) == 10 * first["prompt_tokens"] + 100
    second = provider.ask(10, message(LONG + OTHER))
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert cached % 128 == 0
    assert first["prompt_tokens"] - 140 < cached <= first["prompt_tokens"]
    assert provider.cache.cost(second) == cached + 10 * (second["prompt_tokens"] - cached) + 100
    assert provider.ask(20, message(OTHER))["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("prices", [INPUT, READ, WRITTEN])
def test_s13_12_short_prompts_and_providers_without_a_cache_are_charged_for_all(prices: dict[str, Decimal]) -> None:
    provider = Provider(prices)
    text = LONG if prices is INPUT else "word " * 900
    for _ in range(2):
        usage = provider.ask(0, message(text))
        assert "prompt_tokens_details" not in usage
        assert provider.cache.cost(usage) == 10 * usage["prompt_tokens"] + 100


def test_s13_12_without_a_price_there_is_no_bill() -> None:
    with pytest.raises(ValueError, match="no known price"):
        Provider({}).cache.cost({"prompt_tokens": 1, "completion_tokens": 1})
