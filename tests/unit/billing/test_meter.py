"""The meter: what a request would have cost without a gateway (guarantee §6)."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gateway.billing.meter import MeteredRequest, metered
from gateway.billing.prompt_cache import CacheRates, cache_rates, has_new_head, sent_prompt
from gateway.core.types.bill import BranchCosts, EconomyNote, LeftOutTokens, OtherPrompt, ResultMarks, SentPrompt
from gateway.core.types.prompt_digests import PromptDigests

READ, WRITE, PLAIN = Decimal("0.0000003"), Decimal("0.00000375"), Decimal("0.000003")
PRICES = {
    "input_cost_per_token": PLAIN,
    "output_cost_per_token": Decimal("0.000015"),
    "cache_read_input_token_cost": READ,
    "cache_creation_input_token_cost": WRITE,
    "cache_creation_input_token_cost_above_1hr": 2 * PLAIN,
}
CACHED = {"prompt_tokens": 20_000, "prompt_tokens_details": {"cached_tokens": 18_000, "cache_write_tokens": 2_000}}
BEFORE = BranchCosts("m", 48_000, 30_000, Decimal(3), Decimal(2))
"""After it 18,000 tokens of a prompt of 48,000 had been forwarded."""


NOTE = EconomyNote("auto")


def measured(
    usage: dict[str, Any], note: EconomyNote = NOTE, before: BranchCosts | None = BEFORE, **more: Any
) -> tuple[Any, BranchCosts]:
    known: dict[str, Any] = {
        "model": "m",
        "usage": usage,
        "prices": PRICES,
        "primary": Decimal("0.1"),
        "billed": Decimal("0.11"),
        "counted": usage["prompt_tokens"],
        "left": LeftOutTokens(30_000, 0, 5_000),
        "rewritten": False,
        **more,
    }
    return metered(MeteredRequest(**known), note, before)


def test_what_is_left_out_would_have_been_read_at_the_price_of_reading() -> None:
    economics, sums = measured(CACHED)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + 30_000 * READ
    assert Decimal(economics["net_saving"]) == 30_000 * READ - Decimal("0.01")
    assert (sums.direct, sums.billed) == (3 + Decimal(economics["direct_cost"]), Decimal("2.11"))
    assert (sums.prompt_tokens, sums.left_tokens) == (50_000, 30_000)


def test_on_a_cold_turn_it_would_have_been_written() -> None:
    cold = {"prompt_tokens": 20_000, "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 20_000}}
    economics, _ = measured(cold, EconomyNote("auto", is_cold=True, passed="cold", cleared=30_000), rewritten=True)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + 30_000 * WRITE
    assert (economics["pass"], economics["cleared_tokens"]) == ("cold", 30_000)


def test_a_warm_pass_costs_what_it_rewrites() -> None:
    """Of 18,000 tokens 5,000 stood; without the pass all of them and what it left out would have been read."""
    usage = {"prompt_tokens": 12_000, "prompt_tokens_details": {"cached_tokens": 5_000, "cache_write_tokens": 7_000}}
    economics, _ = measured(usage, EconomyNote("auto", passed="paid", cleared=8_000), rewritten=True, billed=Decimal(1))
    direct = CacheRates(READ, WRITE).prompt(42_000, 48_000) - CacheRates(READ, WRITE).prompt(12_000, 5_000)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + direct
    assert Decimal(economics["net_saving"]) < 0


def test_s6_what_a_pass_left_and_its_provider_did_not_read_is_written_again_by_the_pass() -> None:
    """Anthropic looks for what it has cached no more than 20 blocks before a breakpoint."""
    usage = {"prompt_tokens": 12_000, "prompt_tokens_details": {"cached_tokens": 1_500, "cache_write_tokens": 10_500}}
    economics, _ = measured(usage, EconomyNote("auto", passed="paid", cleared=8_000), rewritten=True)
    direct = CacheRates(READ, WRITE).prompt(42_000, 48_000) - CacheRates(READ, WRITE).prompt(12_000, 1_500)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + direct


@pytest.mark.parametrize(
    ("idle", "cached", "unchanged", "is_cold"),
    [(True, 0, 5_000, True), (False, 0, 5_000, False), (True, 5_000, 5_000, False), (True, 0, 500, False)],
)
def test_a_pass_for_room_is_cold_where_its_head_was_not_read(
    idle: bool, cached: int, unchanged: int, is_cold: bool
) -> None:
    """Providers that promise no time: after some minutes what was read of the head that stayed tells whether a direct
    prompt would have been read."""
    details = {"cached_tokens": cached, "cache_write_tokens": 12_000 - cached}
    usage = {"prompt_tokens": 12_000, "prompt_tokens_details": details}
    left = LeftOutTokens(30_000, 0, unchanged)
    economics, _ = measured(usage, rewritten=True, idle=idle, left=left)
    rates = CacheRates(READ, WRITE)
    whole, sent = (0, 0) if is_cold else (48_000, cached)
    direct = rates.prompt(42_000, whole) - rates.prompt(12_000, sent)
    assert Decimal(economics["direct_cost"]) == max(Decimal(0), Decimal("0.1") + direct)


@pytest.mark.parametrize(
    ("rewritten", "expired", "cached", "is_cold"),
    [(True, True, 4_000, True), (False, True, 4_000, True), (False, False, 4_000, True), (True, False, 4_000, False)]
    + [(rewritten, expired, 17_900, False) for rewritten in (True, False) for expired in (True, False)],
)
def test_s6_a_head_that_other_conversations_keep_cached_does_not_make_a_cold_prompt_warm(
    rewritten: bool, expired: bool, cached: int, is_cold: bool
) -> None:
    """All conversations of an agent begin with the same tools and system messages: here of 4,000 tokens."""
    details = {"cached_tokens": cached, "cache_write_tokens": 20_000 - cached}
    usage = {"prompt_tokens": 20_000, "prompt_tokens_details": details}
    left = LeftOutTokens(30_000, 0, 18_000)
    note = EconomyNote("auto", is_cold=expired)
    economics, _ = measured(usage, note, rewritten=rewritten, idle=True, left=left, head=4_000)
    rates = CacheRates(READ, WRITE)
    whole, sent = (0, 0) if is_cold else (48_000, cached if rewritten else 18_000)
    added = rates.prompt(50_000, whole) - rates.prompt(20_000, sent)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + added


@pytest.mark.parametrize("rewritten", [False, True])
def test_s6_where_tools_changed_a_direct_request_would_have_been_written_anew_too(rewritten: bool) -> None:
    usage = {"prompt_tokens": 20_000, "prompt_tokens_details": {"cached_tokens": 2_000, "cache_write_tokens": 18_000}}
    more: dict[str, Any] = {"rewritten": rewritten, "left": LeftOutTokens(30_000, 15_000, 5_000)}
    economics, _ = measured(usage, has_new_head=lambda: True, **more)
    rates = CacheRates(READ, WRITE)
    direct = rates.prompt(50_000, 2_000) - rates.prompt(20_000, 2_000)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + direct
    assert measured(usage, **more)[0]["direct_cost"] != economics["direct_cost"]


@pytest.mark.parametrize(
    ("tools", "system", "changed"), [(1, "s", False), (2, "s", True), (1, "t", True)], ids=["same", "tools", "system"]
)
def test_s6_a_head_is_tools_and_system_messages(tools: int, system: str, changed: bool) -> None:
    said = [{"role": "user", "content": "Hello"}]
    before = sent_prompt("r", [{"n": 1}], PromptDigests().followed_by([{"role": "system", "content": "s"}, *said]))
    assert has_new_head(before, [{"n": tools}], [{"role": "system", "content": system}, *said, *said]) is changed


def test_s6_an_estimate_of_what_was_left_out_before_is_nothing_new() -> None:
    """The same 30,000 tokens, of a prompt that is estimated 5 % too high, then as much too low."""
    for counted in (21_000, 19_000):
        economics, sums = measured(CACHED, counted=counted, left=LeftOutTokens(30_000, 0, 5_000, change=0))
        assert Decimal(economics["direct_cost"]) == Decimal("0.1") + 30_000 * READ
        assert sums.left_tokens == 30_000


@pytest.mark.parametrize("head", [0, 2_000])
def test_s6_what_its_client_has_not_cached_is_paid_in_full_each_time(head: int) -> None:
    """A client with a single breakpoint, after 2,000 tokens: with its system message, where that is as long."""
    sent = SentPrompt("r", "", "", 0, b"", kept=2_000)
    usage = {"prompt_tokens": 20_000, "prompt_tokens_details": {"cached_tokens": 2_000, "cache_write_tokens": 0}}
    economics, _ = measured(usage, before=BranchCosts("m", 48_000, 30_000, Decimal(3), Decimal(2), 0, sent), head=head)
    each = PLAIN if head else READ
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + 30_000 * each


def test_where_nothing_is_left_out_both_are_equal_to_the_digit() -> None:
    economics, _ = measured(CACHED, left=None, before=BranchCosts("m", 18_000, 0, Decimal(2), Decimal(2)))
    assert Decimal(economics["direct_cost"]) == Decimal("0.1")


@pytest.mark.parametrize("usage", [{"prompt_tokens": 20_000}, {"prompt_tokens": 20_000, "prompt_tokens_details": None}])
def test_an_upstream_that_tells_no_cache_charges_the_usual_price(usage: dict[str, Any]) -> None:
    economics, _ = measured(usage)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + 30_000 * PLAIN


def test_counts_are_scaled_by_what_the_upstream_counts() -> None:
    economics, sums = measured(CACHED, counted=10_000)
    assert sums.left_tokens == 60_000
    assert Decimal(economics["direct_cost"]) > Decimal("0.1") + 59_000 * READ


def test_observe_estimates_what_would_have_been_carried_no_more() -> None:
    economics, sums = measured(CACHED, EconomyNote("observe", clearable=8_000), left=None)
    assert Decimal(economics["estimated_saving"]) == 8_000 * READ
    assert sums.clearable == 8_000


def test_another_model_has_another_cache() -> None:
    """What the model before was sent says nothing of what this one would have read."""
    other = BranchCosts("other", 48_000, 30_000, Decimal(3), Decimal(2))
    economics, _ = measured(CACHED, before=other)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + 30_000 * WRITE


@pytest.mark.parametrize("is_cold", [False, True])
def test_s6_of_a_branch_that_nothing_is_known_of_all_but_the_latest_would_have_been_read(is_cold: bool) -> None:
    """A client that changes its messages at each step begins a branch with each request. What the provider has read
    shows that its cache is warm."""
    note, left = EconomyNote("auto", is_cold=is_cold), LeftOutTokens(30_000, 1_000, 0, 0, 4_000)
    economics, _ = measured(CACHED, note, before=None, left=left)
    rates = CacheRates(READ, WRITE)
    whole, sent = (0, 0) if is_cold else (46_000, 18_000)
    direct = rates.prompt(50_000, whole) - rates.prompt(20_000, sent)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + direct


SENT = SentPrompt("openai/m", "aa", "bb", 0, b"abcd", 7, 300, 9)
OTHERS = (OtherPrompt("other", 40_000, 22_000, 307), OtherPrompt("third", 1, 0, 5))


@pytest.mark.parametrize("cached", [18_000, 4_000, 0])
def test_s6_who_goes_back_behind_a_pass_would_still_have_had_the_own_prompt_cached(cached: int) -> None:
    """All later requests of the client began with it; since the pass the forwarded ones did not."""
    before = BranchCosts("m", 18_000, 0, Decimal(3), Decimal(2), sent=replace(SENT, kept=0))
    details = {"cached_tokens": cached, "cache_write_tokens": 20_000 - cached}
    usage = {"prompt_tokens": 20_000, "prompt_tokens_details": details}
    economics, _ = measured(usage, before=before, left=None, at=SENT.at + SENT.lifetime + 60)
    rates = CacheRates(READ, WRITE)
    direct = rates.prompt(20_000, 18_000) - rates.prompt(20_000, cached)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + direct


@pytest.mark.parametrize(("at", "is_warm"), [(300, True), (308, False)])
def test_s6_a_model_that_is_asked_again_had_its_latest_prompt_in_its_cache(at: float, is_warm: bool) -> None:
    """The client went to another model and came back, within the time for which providers cache a prompt."""
    before = BranchCosts("m", 48_000, 30_000, Decimal(3), Decimal(2), sent=SENT, others=OTHERS)
    economics, sums = measured(CACHED, before=before, model="other", at=at)
    rates = CacheRates(READ, WRITE)
    whole, sent = (40_000, 18_000) if is_warm else (0, 0)
    direct = rates.prompt(50_000, whole) - rates.prompt(20_000, sent)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + direct
    assert sums.others == (OtherPrompt("m", 48_000, 30_000, 307), OTHERS[1])


def test_s6_what_a_pass_of_another_model_had_written_anew_is_no_saving() -> None:
    """What this model reads of its cache shows what the pass left of its latest prompt."""
    usage = {"prompt_tokens": 20_000, "prompt_tokens_details": {"cached_tokens": 2_000, "cache_write_tokens": 18_000}}
    before = BranchCosts("m", 48_000, 30_000, Decimal(3), Decimal(2), sent=SENT, others=OTHERS)
    economics, _ = measured(usage, before=before, model="other", primary=Decimal(1))
    rates = CacheRates(READ, WRITE)
    direct = rates.prompt(50_000, 40_000) - rates.prompt(20_000, 2_000)
    assert Decimal(economics["direct_cost"]) == 1 + direct


MARKS = (ResultMarks(3, b"sixsix"), ResultMarks(0, b"twelve bytes"))


@pytest.mark.parametrize(
    "more", [{}, {"sent": SENT}, {"cut": MARKS}, {"sent": SENT, "bounced": MARKS}, {"others": OTHERS}]
)
def test_sums_are_stored_to_the_picodollar(more: dict[str, Any]) -> None:
    sums = BranchCosts("m", 1, 0, Decimal("1.000000000001"), Decimal("-0.5"), 7, **more)
    assert BranchCosts.of_text(sums.as_text()) == sums


def test_marks_of_results_are_forgotten_with_time() -> None:
    marks = ResultMarks.grown((), [b"sixsix", b"twelve"], 2)
    assert ResultMarks.together(marks) == {b"sixsix", b"twelve"}
    for left in (True, True, False):
        marks = ResultMarks.grown(marks, (), 2)
        assert bool(marks) is left


def test_what_bounced_is_told_at_the_price_of_writing() -> None:
    economics, _ = measured(CACHED, bounced=500, counted=10_000)
    assert economics["bounced"] == {"tokens": 1000, "cost": "0.00375"}
    assert "bounced" not in measured(CACHED)[0]


@pytest.mark.parametrize("text", ["", "null", "[]", '["m", 1, 2, 3, 4]', '["m", "x", 2, 3, 4, 5]', "{"])
def test_what_another_version_stored_is_nothing(text: str) -> None:
    assert BranchCosts.of_text(text) is None


@pytest.mark.parametrize(
    ("gone", "hour", "rates"),
    [
        ((), False, CacheRates(READ, WRITE)),
        ((), True, CacheRates(READ, 2 * PLAIN)),
        (("cache_creation_input_token_cost",), False, CacheRates(READ, PLAIN)),
        (("cache_read_input_token_cost",), False, None),
        (("input_cost_per_token",), False, None),
    ],
)
def test_rates_of_a_prompt_cache(gone: tuple[str, ...], hour: bool, rates: CacheRates | None) -> None:
    prices = {name: price for name, price in PRICES.items() if name not in gone}
    assert cache_rates(prices, 1000, for_an_hour=hour) == rates


def test_the_tier_of_a_service_and_of_a_long_prompt_is_the_calls_own() -> None:
    """What is left out is priced as the call was, and the prompt that was sent as it was billed."""
    flex = {f"{name}_flex": price / 2 for name, price in PRICES.items()}
    usage = {**CACHED, "service_tier": "flex"}
    economics, _ = measured(usage, prices={**PRICES, **flex})
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + 30_000 * READ / 2
    above = {f"{name}_above_200k_tokens": 2 * price for name, price in PRICES.items()}
    cold = {"prompt_tokens": 100_000, "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 100_000}}
    left = LeftOutTokens(200_000, 0, 0)
    economics, _ = measured(cold, EconomyNote("auto"), prices={**PRICES, **above}, before=None, left=left)
    assert Decimal(economics["direct_cost"]) == Decimal("0.1") + 300_000 * 2 * WRITE - 100_000 * WRITE
