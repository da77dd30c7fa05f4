"""What a plan saves beside what it costs, at prices by LiteLLM's names."""

from decimal import Decimal
from typing import Any

import pytest

from gateway.billing.cost import MAX_REQUESTS, as_realised, compare, expected_requests, realised
from gateway.core.types.bill import LeftOutTokens, PlanComparison

PRIMARY = {"input_cost_per_token": Decimal("0.0000025"), "cache_read_input_token_cost": Decimal("0.00000125")}
TIERED = {**PRIMARY, "input_cost_per_token_above_200k_tokens": Decimal("0.000005")}


def compared(
    prices: dict[str, Decimal],
    of: int,
    saved: int,
    again: int = 0,
    requests: int = 1,
    cost: Decimal | None = Decimal(0),
) -> PlanComparison:
    """What a plan saves of so many tokens, where the prefix of `again` is read anew."""
    return compare(
        prices,
        candidate_tokens=of,
        saved_tokens=saved,
        invalidated_tokens=again,
        requests=requests,
        planning_cost=cost,
    )


def test_the_first_request_saves_the_full_price_and_further_ones_that_of_cached_input() -> None:
    found = compared(PRIMARY, 9000, 4000, requests=3, cost=Decimal("0.001"))
    assert found.saving == Decimal("0.0000025") * 4000 + 2 * Decimal("0.00000125") * 4000
    assert found.pays is True


def test_the_prefix_that_changes_is_paid_for_once_more() -> None:
    """10,000 tokens of cached prefix at half the price outweigh what 2,000 tokens save once."""
    found = compared(PRIMARY, 9000, 2000, again=10_000)
    assert found.invalidation_cost == Decimal("0.0125")
    assert found.saving == Decimal("0.005")
    assert found.pays is False


def test_a_cache_that_costs_no_less_is_not_lost() -> None:
    without = {"input_cost_per_token": Decimal("0.0000025")}
    found = compared(without, 10, 10, again=9999, requests=2)
    assert found.invalidation_cost == 0
    assert found.saving == Decimal("0.00005")


@pytest.mark.parametrize(("prices", "cost"), [({}, Decimal(1)), (PRIMARY, None)])
def test_an_unknown_price_decides_nothing(prices: dict[str, Decimal], cost: Decimal | None) -> None:
    assert compared(prices, 10, 5, cost=cost).pays is None


def test_the_context_tier_is_that_of_the_context_without_the_plan() -> None:
    assert compared(TIERED, 210_000, 1).saving == Decimal("0.000005")


def test_a_conversation_is_taken_to_go_on_as_long_as_it_has_gone() -> None:
    assert [expected_requests(n) for n in (0, 1, 5, 500)] == [3, 3, 6, MAX_REQUESTS]


def reported(prompt: int, cached: int | None = None) -> dict[str, Any]:
    return {"prompt_tokens": prompt, **({} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}})}


FULL, CACHED = PRIMARY["input_cost_per_token"], PRIMARY["cache_read_input_token_cost"]


@pytest.mark.parametrize(
    ("left", "usage", "expected"),
    [
        (LeftOutTokens(1000, 1000), reported(50, 0), 1000 * FULL),
        (LeftOutTokens(1000, 0), reported(50, 0), 1000 * CACHED),
        (LeftOutTokens(1000, 400, 9000), reported(9500, 8960), 400 * FULL + 600 * CACHED),
        (LeftOutTokens(1000, 0, 9000), reported(9500, 0), 1000 * FULL),
        (LeftOutTokens(1000, 0, 9000), reported(9500), 1000 * FULL),
        (LeftOutTokens(-100, 0, 50), reported(500, 0), -100 * CACHED),
    ],
    ids=["new", "too short to be cached itself", "partly new", "read nothing", "reports no cache", "labels cost more"],
)
def test_what_a_request_saved_is_priced_as_the_upstream_would_have_billed_it(
    left: LeftOutTokens, usage: dict[str, Any], expected: Decimal
) -> None:
    assert realised(left, usage, PRIMARY) == expected


def test_a_call_that_was_not_charged_saved_nothing_and_a_promise_stays_one() -> None:
    assert as_realised(None, LeftOutTokens(1000, 0), {}, PRIMARY) is None
    assert as_realised(None, None, reported(10), PRIMARY) is None
    promised = {"saving": Decimal(1), "pending": True}
    assert as_realised(promised, LeftOutTokens(10, 10), {}, PRIMARY) == {
        **promised, "realised_tokens": 0, "realised_saving": 0,
    }  # fmt: skip
    told = as_realised(None, LeftOutTokens(10, 10), reported(10), PRIMARY)
    saving = 10 * FULL
    assert told == {
        "saved_tokens": 10, "saving": saving, "pending": False, "realised_tokens": 10, "realised_saving": saving,
    }  # fmt: skip


def test_without_a_price_nothing_is_said_in_money() -> None:
    assert realised(LeftOutTokens(10, 10), reported(10), {}) is None
