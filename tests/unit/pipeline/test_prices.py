"""What a call costs, recomputed in decimals from LiteLLM's own map (guarantee §6)."""

from decimal import Decimal
from typing import Any

import pytest

from tests.support.answers import Json, chat, read_stream, stored, usage_of, user
from tests.support.factory import shared_gateway
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.price_map import price_map, rounded

ASK = [user("hello there")]
OWN_PRICES: dict[str, Json] = {
    "half": {"input_cost_per_token": 1e-06},
    "tiny": {"input_cost_per_token": 1e-13, "output_cost_per_token": 1e-13},
    "house-brand": {},
    "sonnet": {"base_model": "claude-sonnet-4-5"},
    "gemini": {"base_model": "gemini/gemini-2.5-pro"},
    "flash": {"base_model": "gemini/gemini-2.5-flash"},
}


def settings_of_shop(upstream: MockUpstream) -> dict[str, Any]:
    models = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{name}", "api_base": upstream.base_url, "api_key": "sk-up"},
            "model_info": info,
        }
        for name, info in [("gpt-4o", {}), *OWN_PRICES.items()]
    ]
    return {"model_list": models}


shop = shared_gateway(settings_of_shop)
"""A gateway with models of all kinds of prices."""


CASES: list[tuple[str, str, Json, Json, Json, Json]] = [
    (
        "gpt-4o",
        "gpt-4o",
        usage_of(1000, 7, prompt_tokens_details={"cached_tokens": 896}),
        {"service_tier": "priority"},
        {"input_cost_per_token_priority": 104, "cache_read_input_token_cost_priority": 896},
        {"output_cost_per_token_priority": 7},
    ),
    (
        "sonnet",
        "claude-sonnet-4-5",
        usage_of(
            1000,
            50,
            prompt_tokens_details={
                "cache_creation_tokens": 400,
                "cache_creation_token_details": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 300},
            },
        ),
        {},
        {
            "input_cost_per_token": 600,
            "cache_creation_input_token_cost": 100,
            "cache_creation_input_token_cost_above_1hr": 300,
        },
        {"output_cost_per_token": 50},
    ),
    (
        "gemini",
        "gemini/gemini-2.5-pro",
        usage_of(200_001, 100, prompt_tokens_details={"cached_tokens": 1}),
        {},
        {"input_cost_per_token_above_200k_tokens": 200_000, "cache_read_input_token_cost_above_200k_tokens": 1},
        {"output_cost_per_token_above_200k_tokens": 100},
    ),
    (
        "flash",
        "gemini/gemini-2.5-flash",
        usage_of(100, 90, completion_tokens_details={"reasoning_tokens": 60}),
        {},
        {"input_cost_per_token": 100},
        {"output_cost_per_token": 30, "output_cost_per_reasoning_token": 60},
    ),
]
"""`unit/billing/test_cost.py` has each kind of token."""


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("model", "known_as", "usage", "extra", "prompt", "completion"), CASES)
def test_s6_prices_go_by_litellms_map(
    shop: GatewayProcess,
    upstream: MockUpstream,
    model: str,
    known_as: str,
    usage: Json,
    extra: Json,
    prompt: Json,
    completion: Json,
    streamed: bool,
) -> None:
    """Cached input, cache writes, reasoning, context tiers, service tier; totals equal their parts exactly."""
    upstream.reply(text="x", usage=usage, extra=extra)
    if streamed:
        asked = {"model": model, "messages": ASK, "stream_options": {"include_usage": True}}
        wire = read_stream(shop, asked)
        bill, shown = wire.finish["response_metadata"], wire.chunks[-1]["usage"]
    else:
        answer = chat(shop, model=model, messages=ASK)
        bill, shown = answer["response_metadata"], answer["usage"]
        assert Decimal(answer["_headers"]["x-gateway-response-cost"]) == bill["cost"]["total_cost"]
    prices = price_map()[known_as]
    cost = bill["cost"]
    assert cost["prompt_cost"] == rounded(prompt, prices)
    assert cost["completion_cost"] == rounded(completion, prices)
    assert cost["planning_cost"] == 0
    assert cost["total_cost"] == cost["prompt_cost"] + cost["completion_cost"] > 0
    assert (cost["currency"], cost["priced"], cost["estimated"]) == ("USD", True, False)
    assert bill["usage"] == {name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    assert {name: shown[name] for name in usage} == usage, "usage is as upstream reported it"
    assert shown["cost"] == cost["total_cost"]
    parts = {"upstream_inference_cost": cost["total_cost"], "planner_cost": 0, "summarizer_cost": 0}
    assert shown["cost_details"] == parts


def test_s6_a_configured_price_counts_to_the_picodollar(shop: GatewayProcess, upstream: MockUpstream) -> None:
    """Half-even at 12 decimals: of 0.5 and 1.5 picodollars."""
    upstream.reply(text="x", usage=usage_of(5, 15))
    cost = chat(shop, model="tiny", messages=ASK)["response_metadata"]["cost"]
    assert (cost["prompt_cost"], cost["completion_cost"]) == (0, Decimal("2e-12"))
    assert (cost["total_cost"], cost["priced"]) == (Decimal("2e-12"), True)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model", ["house-brand", "half"])
def test_s6_an_unknown_price_is_null(shop: GatewayProcess, upstream: MockUpstream, model: str, streamed: bool) -> None:
    """A model without a known price: cost `null` and `priced` false, never 0."""
    upstream.reply(text="x", usage=usage_of(10, 5))
    if streamed:
        wire = read_stream(shop, {"model": model, "messages": ASK, "stream_options": {"include_usage": True}})
        bill, shown = wire.finish["response_metadata"], wire.chunks[-1]["usage"]
    else:
        answer = chat(shop, model=model, messages=ASK)
        bill, shown = answer["response_metadata"], answer["usage"]
        assert "x-gateway-response-cost" not in answer["_headers"]
    cost = bill["cost"]
    assert (cost["prompt_cost"], cost["completion_cost"], cost["total_cost"]) == (None, None, None)
    assert cost["priced"] is False
    assert shown["cost"] is None
    assert shown["cost_details"]["upstream_inference_cost"] is None
    assert (shown["prompt_tokens"], shown["completion_tokens"]) == (10, 5)


@pytest.mark.parametrize("streamed", [False, True])
def test_s6_a_refused_call_of_an_unknown_price_costs_nothing(
    shop: GatewayProcess, upstream: MockUpstream, streamed: bool
) -> None:
    """Nothing was charged for it, which is known whatever the model would have cost."""
    upstream.reply(status=404, json={"error": {"message": "No such model.", "code": "model_not_found"}})
    answer = shop.post("/chat/completions", json={"model": "house-brand", "messages": ASK, "stream": streamed})
    assert answer.status_code == 404
    cost = stored(shop, answer.headers["x-request-id"])["response_metadata"]["cost"]
    assert (cost["priced"], cost["total_cost"], cost["estimated"]) == (True, 0, False)


def test_s6_usage_missing_is_estimated(shop: GatewayProcess, upstream: MockUpstream) -> None:
    """Counted by the gateway, `estimated` true."""
    upstream.reply(text="alpha beta gamma", usage=None)
    answer = chat(shop, model="gpt-4o", messages=ASK)
    bill, usage = answer["response_metadata"], answer["usage"]
    assert bill["cost"]["estimated"] is True
    assert usage["completion_tokens"] == 3
    assert usage["total_tokens"] == usage["prompt_tokens"] + 3
    assert bill["cost"]["prompt_cost"] == usage["prompt_tokens"] * price_map()["gpt-4o"]["input_cost_per_token"]
    assert (
        bill["cost"]["total_cost"] == bill["cost"]["prompt_cost"] + 3 * price_map()["gpt-4o"]["output_cost_per_token"]
    )
