"""What a call costs, in exact decimals (guarantee §6)."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.cost import planning_usage, price_call, price_internal, total_cost
from gateway.billing.metadata import extended_usage
from gateway.core.types.bill import CallCost, InternalCall, usage_of

PRICES = {
    "input_cost_per_token": "2e-6",
    "output_cost_per_token": "8e-6",
    "cache_read_input_token_cost": "5e-7",
    "cache_creation_input_token_cost": "2.5e-6",
    "cache_creation_input_token_cost_above_1hr": "4e-6",
    "output_cost_per_reasoning_token": "9e-6",
    "input_cost_per_audio_token": "4e-5",
    "cache_read_input_audio_token_cost": "1e-5",
    "output_cost_per_audio_token": "8e-5",
    "input_cost_per_token_above_200k_tokens": "3e-6",
    "output_cost_per_token_above_200k_tokens": "1.2e-5",
    "cache_read_input_token_cost_above_200k_tokens": "6e-7",
    "input_cost_per_token_priority": "4e-6",
    "output_cost_per_token_priority": "1.6e-5",
    "input_cost_per_token_flex": "1e-6",
    "input_cost_per_token_above_200k_tokens_priority": "7e-6",
}
BARE = {"input_cost_per_token": "2e-6", "output_cost_per_token": "8e-6"}


def usage(prompt: float, completion: float, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


def cost(prices: Mapping[str, str], reported: dict[str, Any]) -> tuple[Decimal | None, Decimal | None]:
    call = price_call("primary", "m", reported, {name: Decimal(price) for name, price in prices.items()})
    assert call.usage == reported
    return call.prompt_cost, call.completion_cost


def details(**tokens: Any) -> dict[str, Any]:
    return {"prompt_tokens_details": tokens}


HOUR = {"cache_creation_token_details": {"ephemeral_1h_input_tokens": 40}}
CASES: dict[str, tuple[dict[str, str], dict[str, Any], str, str]] = {
    "plain": (PRICES, usage(1000, 100), "0.002", "0.0008"),
    "cached": (PRICES, usage(1000, 0, **details(cached_tokens=400)), "0.0014", "0"),
    "cached, in Anthropic's field": (PRICES, usage(1000, 0, cache_read_input_tokens=400), "0.0014", "0"),
    "reasoning beside the completion, as xAI reports it": (
        BARE,
        usage(10, 5, total_tokens=115, completion_tokens_details={"reasoning_tokens": 100}),
        "0.00002",
        "0.00084",
    ),
    "reasoning within the completion": (
        BARE,
        usage(10, 105, total_tokens=115, completion_tokens_details={"reasoning_tokens": 100}),
        "0.00002",
        "0.00084",
    ),
    "cached, in DeepSeek's field": (PRICES, usage(1000, 0, prompt_cache_hit_tokens=400), "0.0014", "0"),
    "cached, in Moonshot's field": (PRICES, usage(1000, 0, cached_tokens=400), "0.0014", "0"),
    "figures written as doubles": (PRICES, usage(1000.0, 100.0, **details(cached_tokens=400.0)), "0.0014", "0.0008"),
    "cached, without a price of its own": (BARE, usage(1000, 0, **details(cached_tokens=400)), "0.002", "0"),
    "cache written": (PRICES, usage(1000, 0, **details(cache_creation_tokens=100)), "0.00205", "0"),
    "cache written for an hour": (
        PRICES, usage(1000, 0, **details(cache_creation_tokens=100, **HOUR)), "0.00211", "0",
    ),
    "cache written for an hour, in Anthropic's fields": (
        PRICES,
        usage(1000, 0, cache_creation_input_tokens=100, cache_creation={"ephemeral_1h_input_tokens": 40}),
        "0.00211", "0",
    ),
    "an hour without a price of its own costs as a write": (
        {k: v for k, v in PRICES.items() if "1hr" not in k},
        usage(1000, 0, **details(cache_creation_tokens=100, **HOUR)), "0.00205", "0",
    ),
    "read and written": (
        PRICES, usage(1000, 0, **details(cached_tokens=400, cache_creation_tokens=100)), "0.00145", "0",
    ),
    "audio": (
        PRICES,
        usage(100, 50, **details(audio_tokens=10), completion_tokens_details={"audio_tokens": 5}),
        "0.00058", "0.00076",
    ),
    "cached audio": (
        PRICES,
        usage(100, 0, **details(audio_tokens=30, cached_tokens=60, cached_tokens_details={"audio_tokens": 20})),
        "0.00068", "0",
    ),
    "cached audio without a price of its own": (
        {k: v for k, v in PRICES.items() if "audio_token_cost" not in k},
        usage(100, 0, **details(audio_tokens=30, cached_tokens=60, cached_tokens_details={"audio_tokens": 20})),
        "0.00049", "0",
    ),
    "reasoning": (PRICES, usage(0, 100, completion_tokens_details={"reasoning_tokens": 60}), "0", "0.00086"),
    "reasoning without a price of its own": (
        BARE, usage(0, 100, completion_tokens_details={"reasoning_tokens": 60}), "0", "0.0008",
    ),
    "200,000 tokens are not above": (PRICES, usage(200_000, 100), "0.4", "0.0008"),
    "above 200,000 tokens": (PRICES, usage(200_001, 100), "0.600003", "0.0012"),
    "cached above 200,000 tokens": (PRICES, usage(300_000, 0, **details(cached_tokens=100_000)), "0.66", "0"),
    "priority": (PRICES, usage(1000, 100, service_tier="priority"), "0.004", "0.0016"),
    "flex, with a price for one side only": (PRICES, usage(1000, 100, service_tier="flex"), "0.001", "0.0008"),
    "priority above 200,000 tokens": (PRICES, usage(300_000, 1, service_tier="priority"), "2.1", "0.000012"),
    "a tier without prices": (PRICES, usage(1000, 100, service_tier="default"), "0.002", "0.0008"),
    "a configured price of 0": ({"input_cost_per_token": "0", "output_cost_per_token": "0"}, usage(9, 9), "0", "0"),
    "details that are null": (
        PRICES, usage(1000, 100, prompt_tokens_details=None, completion_tokens_details=None), "0.002", "0.0008",
    ),
    "more cached than there were": (PRICES, usage(100, 0, **details(cached_tokens=400)), "0.00005", "0"),
    "searches": (
        {**BARE, "search_context_cost_per_query": "0.01"},
        usage(100, 100, server_tool_use={"web_search_requests": 3}), "0.0002", "0.0308",
    ),
    "searches without a price": (BARE, usage(100, 100, server_tool_use={"web_search_requests": 3}), "0.0002", "0.0008"),
    "figures that are none": (PRICES, usage(1000, 100, **details(cached_tokens="many")), "0.002", "0.0008"),
}  # fmt: skip


@pytest.mark.parametrize(("prices", "reported", "prompt", "completion"), CASES.values(), ids=list(CASES))
def test_each_kind_of_token_has_its_price(
    prices: dict[str, str], reported: dict[str, Any], prompt: str, completion: str
) -> None:
    assert cost(prices, reported) == (Decimal(prompt), Decimal(completion))


@pytest.mark.parametrize("known", [{}, {"input_cost_per_token": "1"}, {"output_cost_per_token": "1"}])
def test_a_model_without_a_known_price_costs_none_never_0(known: dict[str, str]) -> None:
    assert cost(known, usage(10, 10)) == (None, None)
    assert cost(known, usage(0, 0)) == (None, None)


@pytest.mark.parametrize(
    ("rate", "tokens", "rounded"),
    [
        ("5e-13", 1, "0"),
        ("5e-13", 3, "2e-12"),
        ("5e-13", 5, "2e-12"),
        ("5.000001e-13", 1, "1e-12"),
        ("4.999999e-13", 1, "0"),
        ("1.5e-12", 1, "2e-12"),
        ("2.5e-12", 1, "2e-12"),
        ("0.1", 3, "0.3"),
    ],
)
def test_each_side_is_rounded_to_12_decimals_half_even(rate: str, tokens: int, rounded: str) -> None:
    prices = {"input_cost_per_token": rate, "output_cost_per_token": rate}
    assert cost(prices, usage(tokens, tokens)) == (Decimal(rounded), Decimal(rounded))


costs = st.decimals(0, 10, places=12)


purposes = st.sampled_from(["primary", "planner", "summarizer", "embedder"])


@given(calls=st.lists(st.tuples(purposes, costs, costs), max_size=5))
def test_totals_equal_their_parts_exactly(calls: list[tuple[str, Decimal, Decimal]]) -> None:
    made = [CallCost(purpose, "m", {}, prompt, completion) for purpose, prompt, completion in calls]
    whole, planning = total_cost(made)
    assert whole.priced
    assert whole.prompt_cost == sum(c[1] for c in calls if c[0] == "primary")
    assert whole.completion_cost == sum(c[2] for c in calls if c[0] == "primary")
    assert whole.prompt_cost is not None
    assert whole.completion_cost is not None
    assert whole.planning_cost is not None
    assert whole.total_cost == whole.prompt_cost + whole.completion_cost + whole.planning_cost
    parts = sum(x or 0 for x in (planning.planner_cost, planning.summarizer_cost, planning.embedder_cost))
    assert whole.planning_cost == planning.total_cost == parts
    assert (planning.embedder_cost is None) == all(c[0] != "embedder" for c in calls)
    assert planning.planner_cost == sum(c[1] + c[2] for c in calls if c[0] == "planner")
    assert whole.total_cost == sum(c[1] + c[2] for c in calls)


def test_an_unpriced_primary_call_makes_the_whole_null_and_planning_is_still_known() -> None:
    planner = CallCost("planner", "p", {}, Decimal(1), Decimal(2))
    whole, planning = total_cost([CallCost("primary", "m", {}, None, None), planner])
    assert (whole.prompt_cost, whole.completion_cost, whole.total_cost, whole.priced) == (None, None, None, False)
    assert whole.planning_cost == planning.planner_cost == 3


def test_an_embedder_needs_no_price_for_what_it_does_not_write() -> None:
    call = InternalCall("embedder", "openai/e", usage(1000, 0), {"input_cost_per_token": Decimal("2e-8")})
    priced = price_internal(call)
    assert (priced.total, priced.estimated) == (Decimal("0.00002"), False)
    assert price_call("embedder", "openai/e", priced.usage, {k: Decimal(v) for k, v in priced.rates.items()}) == priced
    assert price_internal(InternalCall("planner", "p", usage(1, 0), call.prices)).total is None


def test_an_embedder_without_a_price_costs_nothing_that_could_be_named() -> None:
    primary, embedder = CallCost("primary", "m", {}, Decimal(1), Decimal(2)), CallCost("embedder", "e", {}, None, None)
    whole, planning = total_cost([primary, embedder])
    assert planning.embedder_cost is None
    assert (whole.prompt_cost, whole.completion_cost) == (Decimal(1), Decimal(2))
    assert (whole.total_cost, whole.priced) == (None, False)
    assert planning.planner_cost == 0
    assert planning.total_cost is None
    assert (total_cost([embedder])[0].total_cost, total_cost([embedder])[0].priced) == (None, False)
    assert extended_usage({}, (primary, embedder))["cost_details"]["embedder_cost"] is None


@pytest.mark.parametrize("purpose", ["planner", "summarizer"])
def test_s6_an_internal_model_without_a_price_makes_its_sums_null_and_never_0(purpose: str) -> None:
    calls = (CallCost("primary", "m", {}, Decimal(1), Decimal(2)), CallCost(purpose, "p", {}, None, None))
    whole, planning = total_cost(calls)
    assert (whole.planning_cost, whole.total_cost, whole.priced) == (None, None, False)
    assert {name: getattr(planning, f"{name}_cost") for name in ("planner", "summarizer", "total")} == {
        "planner": 0,
        "summarizer": 0,
        "total": None,
        purpose: None,
    }
    told = extended_usage({}, calls)
    assert (told["cost"], told["cost_details"]["upstream_inference_cost"]) == (None, 3)
    assert told["cost_details"][f"{purpose}_cost"] is None


def test_the_tokens_and_calls_of_internal_models_are_summed_by_purpose() -> None:
    calls = [CallCost("primary", "m", usage(9, 9), None, None)]
    calls += [CallCost("embedder", "e", {"prompt_tokens": n}, None, None) for n in (3, 4)]
    found = planning_usage(calls)
    assert (found.planner, found.embedder) == ({}, {"prompt_tokens": 7, "completion_tokens": 0, "calls": 2})


@pytest.mark.parametrize("purpose", ["primary", "planner"])
def test_one_estimated_call_makes_the_sum_estimated(purpose: str) -> None:
    exact = CallCost("primary", "m", {}, Decimal(1), Decimal(1))
    guess = CallCost(purpose, "m", {}, Decimal(1), Decimal(1), estimated=True)
    assert total_cost([exact, guess])[0].estimated
    assert not total_cost([exact])[0].estimated


def test_the_rates_used_are_kept_with_the_call() -> None:
    prices = {name: Decimal(price) for name, price in PRICES.items()}
    call = price_call("primary", "m", usage(300_000, 1, **details(cached_tokens=1)), prices)
    assert {k: Decimal(v) for k, v in call.rates.items()} == {
        "input_cost_per_token": Decimal("3e-6"),
        "output_cost_per_token": Decimal("1.2e-5"),
        "cache_read_input_token_cost": Decimal("6e-7"),
    }


def test_a_missing_total_is_the_sum() -> None:
    assert usage_of({"prompt_tokens": 3, "completion_tokens": 4}).total_tokens == 7
    assert usage_of({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 9}).total_tokens == 9
    assert usage_of({}).total_tokens == 0


def test_each_price_goes_by_the_highest_tier_that_it_has() -> None:
    """§6: context tiers, of a price list that has them for one kind of token only."""
    tiers = {"input_cost_per_token_above_128k_tokens": "4e-6", "output_cost_per_token_above_256k_tokens": "9e-6"}
    assert cost({**BARE, **tiers}, usage(300_000, 1)) == (Decimal("1.2"), Decimal("9e-6"))
    assert cost({**BARE, **tiers}, usage(128_000, 1)) == (Decimal("0.256"), Decimal("8e-6"))
