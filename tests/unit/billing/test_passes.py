"""Which pass is bought, and that none makes a session dearer, wherever it ends (guarantee §4 I7)."""

from collections.abc import Iterator
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.passes import (
    COLD_AGE,
    LABEL_TOKENS,
    MAX_CREDIT,
    MIN_CLEARED_TOKENS,
    MIN_RESULT_TOKENS,
    PAID_AGE,
    CarriedResult,
    PromptTokens,
    cleared_for_room,
    cleared_when_cold,
    cleared_when_paid,
    gain_of_new_pass,
)
from gateway.billing.prompt_cache import CacheRates
from gateway.core.types.bill import BranchCosts

RATES = CacheRates(Decimal("0.0000003"), Decimal("0.00000375"))
CALL, OUTPUT = 100, Decimal("0.005")


def costs(direct: Decimal, billed: Decimal) -> BranchCosts:
    return BranchCosts("m", 0, 0, direct, billed)


def loop(results: list[int]) -> tuple[list[CarriedResult], list[int]]:
    """A session with these results, each behind its call, and the sizes of all its messages."""
    sizes = [1000, *(size for tokens in results for size in (CALL, tokens))]
    count = len(results)
    return [CarriedResult(2 + 2 * at, tokens, count - at) for at, tokens in enumerate(results)], sizes


def bought(
    results: list[int], saved: str = "10", answers: int | None = None, marked: tuple[int, ...] | None = None
) -> list[int]:
    """The numbers of the results that leave, where the branch has saved so many USD."""
    carried, sizes = loop(results)
    sums = costs(Decimal(10) + Decimal(saved), Decimal(10))
    found = cleared_when_paid(carried, PromptTokens(sizes, len(sizes), marked), RATES, answers or len(results), sums)
    return [(each.index - 2) // 2 for each in found]


def test_s4_i7_with_much_saved_a_pass_begins_where_it_brings_most() -> None:
    results = [3000, 6000, 6000, *[300] * 40]
    assert bought(results)[:2] == [0, 1]
    assert bought(results)[-1] == len(results) - PAID_AGE


def test_s4_i7_with_little_saved_a_pass_is_bought_near_the_end() -> None:
    """What is written anew behind its first result costs no more than is there."""
    results = [9000, *[150] * 30, 6000, *[150] * 10]
    for saved, left in (("10", [0, 31]), ("-0.07", [31]), ("-0.075", [])):
        assert bought(results, saved, answers=100) == left


@pytest.mark.parametrize(("answers", "passes"), [(40, True), (5, False)])
def test_s4_i7_a_pass_pays_back_within_a_part_of_the_answers_so_far(answers: int, passes: bool) -> None:
    assert bool(bought([2000] * 12, answers=answers)) is passes


def test_s4_i7_no_pass_before_carrying_has_cost_its_price() -> None:
    early = [*[100] * 30, 4000, *[900] * (PAID_AGE - 1)]
    assert bought(early, answers=1000) == []
    assert bought([*early, *[10] * 8], answers=1000)[:1] == [30]


def test_s4_i7_a_free_pass_clears_what_is_old_and_long_where_that_is_enough() -> None:
    old = [CarriedResult(at, MIN_RESULT_TOKENS, COLD_AGE) for at in range(4)]
    kept = [CarriedResult(4, MIN_RESULT_TOKENS - 1, COLD_AGE), CarriedResult(5, 9000, COLD_AGE - 1)]
    assert cleared_when_cold([*old, *kept]) == old
    assert cleared_when_cold([*old[:3], *kept]) == []
    enough = CarriedResult(0, LABEL_TOKENS + MIN_CLEARED_TOKENS, COLD_AGE)
    assert cleared_when_cold([enough]) == [enough]


def test_s4_i7_a_changed_prompt_is_read_up_to_the_last_breakpoint_before_the_change() -> None:
    assert [PromptTokens([10] * 6, 6, (0, 3)).read_until(at) for at in range(6)] == [0, 1, 1, 1, 4, 4]
    assert PromptTokens([10] * 6, 6).read_until(4) == 4


def played(
    results: list[int], starts_with: Decimal, marked: tuple[int, ...] | None = None
) -> Iterator[tuple[Decimal, Decimal]]:
    """The direct cost and the bill of each prefix of a session, all of it warm, that begins with such savings."""
    direct = billed = Decimal(1)
    direct += starts_with
    sizes, carried = [1000], list[CarriedResult]()
    known_direct, known_sent, whole = 0, 0, 1000
    for tokens in [*results, 0]:
        unchanged = known_sent
        found = cleared_when_paid(
            carried, PromptTokens(sizes, len(sizes) - 2, marked), RATES, len(carried), costs(direct, billed)
        )
        for each in found:
            sizes[each.index] = LABEL_TOKENS
        if found:
            first = min(each.index for each in found)
            unchanged = min(unchanged, sum(sizes[: first if marked is None else 1]))
        gone = {each.index for each in found}
        carried = [CarriedResult(c.index, c.tokens, c.age + 1) for c in carried if c.index not in gone]
        direct += RATES.prompt(whole, known_direct) + OUTPUT
        billed += RATES.prompt(sum(sizes), unchanged) + OUTPUT
        yield direct, billed
        known_direct, known_sent = whole, sum(sizes)
        sizes += [CALL, tokens]
        whole += CALL + tokens
        carried.append(CarriedResult(len(sizes) - 1, tokens, 0))


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=80), st.decimals(0, 1, places=3))
def test_s4_i7_a_session_may_end_behind_any_pass_and_is_hardly_dearer(results: list[int], saved: Decimal) -> None:
    assert all(billed <= direct * MAX_CREDIT for direct, billed in played(results, saved))


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=80), st.decimals(0, 1, places=3))
def test_s4_i7_nor_where_its_client_has_set_all_breakpoints(results: list[int], saved: Decimal) -> None:
    """Behind the system message and at the end: all between them is written again, wherever something changes."""
    assert all(billed <= direct * MAX_CREDIT for direct, billed in played(results, saved, marked=(0, 10_000)))


def test_s4_i7_a_pass_costs_what_is_written_again_before_it() -> None:
    results = [9000, *[150] * 30, 6000, *[150] * 10]
    assert bought(results, "-0.07", answers=100) == [31]
    assert bought(results, "-0.07", answers=100, marked=(0,)) == []
    assert bought(results, "-0.07", answers=100, marked=(0, 2 + 2 * 30)) == [31]
    assert leaving(LATE, 4000, marked=(0,)) == []


def test_s4_i7_a_long_session_gets_cheaper_without_any_savings_to_begin_with() -> None:
    direct, billed = list(played([1500, 200, 3000, 400] * 30, Decimal(0)))[-1]
    assert billed < direct * Decimal("0.9")


BUDGET = 20_000


def leaving(
    results: list[int], new: int, direct: str = "1", billed: str = "1", marked: tuple[int, ...] | None = None
) -> list[int]:
    """The numbers of the results that make room for a new one of so many tokens."""
    carried, sizes = loop(results)
    sums = costs(Decimal(direct), Decimal(billed))
    found = cleared_for_room(carried, PromptTokens([*sizes, CALL, new], len(sizes), marked), RATES, BUDGET, sums)
    return [(each.index - 2) // 2 for each in found]


LATE = [3000, *[150] * 40, 1500, 1500]
"""Results that take 17,300 tokens with their calls and what stands before them."""


def test_s4_i7_room_that_is_wanted_late_is_made_where_little_is_written_anew() -> None:
    assert leaving(LATE, 4000) == [41, 42]


def test_s4_i7_a_branch_that_has_saved_enough_decides_all_anew() -> None:
    """That is cheaper, as far as the session goes on."""
    assert leaving(LATE, 4000, direct="1.1") == []


@pytest.mark.parametrize(("new", "billed"), [(4000, "1.01"), (12_000, "1")], ids=["nothing to spend", "too much"])
def test_s4_i7_else_no_room_is_made_near_the_end(new: int, billed: str) -> None:
    assert leaving(LATE, new, billed=billed) == []


@given(st.lists(st.integers(1, 6000), min_size=1, max_size=20), st.integers(1, 12_000))
def test_s4_i7_late_room_is_enough_and_costs_no_more_than_a_session_may_lose(results: list[int], new: int) -> None:
    carried, sizes = loop(results)
    direct = RATES.prompt(sum(sizes), 0)
    prompt = [*sizes, CALL, new]
    figures = PromptTokens(prompt, len(sizes))
    gone = {each.index for each in cleared_for_room(carried, figures, RATES, BUDGET, costs(direct, direct))}
    if not gone:
        return
    sent = [LABEL_TOKENS if at in gone else tokens for at, tokens in enumerate(prompt)]
    assert sum(sent) <= BUDGET
    asked = direct + RATES.prompt(sum(prompt), sum(sizes))
    assert direct + RATES.prompt(sum(sent), sum(sent[: min(gone)])) <= asked * MAX_CREDIT


@pytest.mark.parametrize(
    ("carried", "stays", "saved", "answers", "pays"),
    [
        (1000, 10_000, "10", 60, True),
        (1000, 55_000, "10", 60, False),
        (100, 3_000, "10", 60, False),
        (1000, 10_000, "-0.08", 60, False),
        (1000, 10_000, "10", 4, False),
    ],
    ids=["much leaves", "little leaves", "carried for too little", "nothing saved", "a young conversation"],
)
def test_s4_i7_deciding_anew_pays_where_old_messages_have_cost_a_multiple_of_it(
    carried: int, stays: int, saved: str, answers: int, pays: bool
) -> None:
    """Of sixty messages, each with an answer behind it."""
    sizes, ages = [carried] * 60, list(range(60, 0, -1))
    sums = costs(Decimal(10) + Decimal(saved), Decimal(10))
    assert (gain_of_new_pass(stays, sizes, ages, RATES, answers, sums) > 0) is pays
