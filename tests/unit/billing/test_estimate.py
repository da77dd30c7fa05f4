"""Between what and what a call will cost: whatever a provider reports afterwards lies between."""

from decimal import Decimal
from typing import Any

import pytest

from gateway.billing.cost import dearer_kinds, estimated_cost, price_call

PLAIN = {"input_cost_per_token": Decimal("0.000003"), "output_cost_per_token": Decimal("0.000015")}
CACHED = PLAIN | {
    "cache_read_input_token_cost": Decimal("0.0000003"),
    "cache_creation_input_token_cost": Decimal("0.00000375"),
    "cache_creation_input_token_cost_above_1hr": Decimal("0.000006"),
    "output_cost_per_reasoning_token": Decimal("0.00002"),
    "input_cost_per_token_priority": Decimal("0.000006"),
    "output_cost_per_token_priority": Decimal("0.00003"),
    "input_cost_per_token_flex": Decimal("0.0000001"),
    "output_cost_per_token_flex": Decimal("0.0000001"),
}
SPOKEN = PLAIN | {
    "input_cost_per_audio_token": Decimal("0.00004"),
    "output_cost_per_audio_token": Decimal("0.00008"),
    "output_cost_per_image_token": Decimal("0.00012"),
}
HOUR = {"ephemeral_1h_input_tokens": 1000}
REPORTS: list[dict[str, Any]] = [
    {},
    {"prompt_tokens_details": {"cached_tokens": 1000}},
    {"prompt_tokens_details": {"cached_tokens": 400}},
    {"prompt_tokens_details": {"cache_creation_tokens": 1000}},
    {"prompt_tokens_details": {"cache_creation_tokens": 1000, "cache_creation_token_details": HOUR}},
    {"completion_tokens_details": {"reasoning_tokens": 50}},
    {"service_tier": "priority"},
    {"service_tier": "flex", "prompt_tokens_details": {"cached_tokens": 10}},
]


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("completion", [0, 1, 50])
def test_s5_what_a_call_costs_lies_between(report: dict[str, Any], completion: int) -> None:
    found = estimated_cost(CACHED, 1000, 50, report.get("service_tier"))
    real = price_call("primary", "m", {"prompt_tokens": 1000, "completion_tokens": completion, **report}, CACHED).total
    assert found["min"] is not None
    assert found["max"] is not None
    assert real is not None
    assert found["min"] <= real <= found["max"]


HEARD: dict[str, Any] = {"content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}
KINDS: list[tuple[dict[str, Any], list[dict[str, Any]], str]] = [
    ({"modalities": ["text"]}, [{"content": "hi"}], "0.00375"),
    ({"modalities": ["text", "audio"]}, [{"content": "hi"}], "0.007"),
    ({"modalities": ["text", "image"]}, [{"content": "hi"}], "0.009"),
    ({}, [{"content": None}], "0.009"),
    ({"modalities": ["text"]}, [HEARD], "0.04075"),
    ({"modalities": ["text"]}, [{"content": None, "audio": {"id": "audio_1"}}], "0.04075"),
    ({"modalities": "audio"}, [{"content": [5, {"type": "text"}]}], "0.009"),
    ({"modalities": [[], "audio"]}, [HEARD], "0.044"),
]


@pytest.mark.parametrize(("body", "messages", "most"), KINDS)
def test_s12_3_tokens_that_are_no_text_count_at_their_price(
    body: dict[str, Any], messages: list[dict[str, Any]], most: str
) -> None:
    """Sound where the request asks for it or holds it, pictures where it does not decline them."""
    found = estimated_cost(SPOKEN, 1000, 50, kinds=dearer_kinds(SPOKEN, body, messages))
    assert found == {"min": Decimal("0.003"), "max": Decimal(most)}
    assert dearer_kinds(PLAIN, body, messages) == ()


def test_s5_without_a_cache_the_least_is_the_whole_prompt() -> None:
    assert estimated_cost(PLAIN, 1000, 50) == {"min": Decimal("0.003"), "max": Decimal("0.00375")}


def test_s5_what_is_not_known_is_null_and_never_0() -> None:
    assert estimated_cost({}, 1000, 50) == {"min": None, "max": None}
    assert estimated_cost({"input_cost_per_token": Decimal(1)}, 1000, 50) == {"min": None, "max": None}
    assert estimated_cost(PLAIN, 1000, None) == {"min": Decimal("0.003"), "max": None}
    free = {"input_cost_per_token": Decimal(0), "output_cost_per_token": Decimal(0)}
    assert estimated_cost(free, 1000, 50) == {"min": Decimal(0), "max": Decimal(0)}
