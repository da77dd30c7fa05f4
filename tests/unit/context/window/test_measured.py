"""The unreduced candidate is measured as exactly as it matters, and counted once (guarantee §5)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.artifacts.lossless_compaction import compact
from gateway.context.assembly.render import assemble, worded
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.window.counting import PromptCounter
from gateway.context.window.fit import count_unreduced, fit
from gateway.context.window.fitting import FittingSteps, SelectionLimits
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.window import WindowInputs
from gateway.retrieval.index_cache import PassageFinder
from tests.unit.context.window.test_kept_counts import GPT, Watched
from tests.unit.making import assistant, stored, tool, user

SHARES = (0.7, 0.9)
TOOLS = FittingSteps(assemble, PassageFinder(None, "tenant"), compact, worded)
PAPER = "The lamp of the lighthouse is lit at dusk. " * 40


def material(words: int) -> WindowInputs:
    """A short talk beside a document that stands in the block."""
    path = tuple(replace(m, message_id=None) for m in stored([user("word " * words), assistant("yes"), user("When?")]))
    paper = Artifact("art_1", ArtifactType.DOCUMENT, PAPER, len(PAPER), "attachment:0")
    return WindowInputs((), path, 2, attached=(paper,))


def counter(made: WindowInputs) -> tuple[PromptCounter, Watched]:
    watched = Watched(CounterRegistry().counter(GPT))
    return PromptCounter(watched, {}, made), watched


@given(words=st.integers(0, 600), budget=st.integers(1, 4000))
def test_it_is_known_on_which_side_of_each_share_it_is(words: int, budget: int) -> None:
    made = material(words)
    counting, _ = counter(made)
    exact = counting.total(assemble(made, count_unreduced(made, SelectionLimits(None, 0.1), counting, TOOLS).selection))
    found = count_unreduced(made, SelectionLimits(budget, 0.1), counter(made)[0], TOOLS, SHARES)
    for share in (*SHARES, 1.0):
        assert (found.tokens > share * budget) == (exact > share * budget)
        assert (found.tokens >= share * budget) == (exact >= share * budget)
    assert found.new_pass == (exact > budget)
    assert found.tokens == exact or exact <= SHARES[0] * budget or exact > budget


def test_what_is_surely_below_all_shares_is_not_counted() -> None:
    made = material(100)
    counting, watched = counter(made)
    found = count_unreduced(made, SelectionLimits(100_000, 0.1), counting, TOOLS, SHARES)
    assert (watched.asked, counting.is_exact, found.new_pass) == ([], False, False)
    assert found.tokens == counting.estimate(found.forwarded).total


KINDS = {
    "prose": "The lamp of the lighthouse is lit at dusk, and the keeper goes up. ",
    "code": "    for index, (name, value) in enumerate(sorted(found.items())):\n        rows[index].add(name)\n",
    "figures": "2026-11-27T04:26:51.318,17.25,-0.0041,88123907,0x7fe3a1\n",
    "base64": "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    "script": "灯塔的灯在黄昏时点亮。🙂",
}


def much(kinds: Sequence[str], sizes: Sequence[int]) -> WindowInputs:
    """A loop of tool results that nobody has counted, each of a kind and about so many characters."""
    said = [user("What does it say?")]
    for number, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        text = f"{number} " + KINDS[kind] * (1 + size // len(KINDS[kind]))
        said += [assistant(None, f"call_{number}"), tool(f"call_{number}", text[:size])]
    return WindowInputs((), tuple(replace(m, message_id=None, tokens=None) for m in stored(said)), 0)


LOOPS = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(500, 20_000)), min_size=6, max_size=12)


@settings(max_examples=40, deadline=None)
@given(loop=LOOPS, share_of_bytes=st.floats(0.1, 1.6))
def test_what_samples_show_to_fit_does(loop: list[tuple[str, int]], share_of_bytes: float) -> None:
    made = much(*zip(*loop, strict=True))
    budget = max(1, int(share_of_bytes * sum(size for _, size in loop)))
    counting, _ = counter(made)
    found = count_unreduced(made, SelectionLimits(budget, 0.1), counting, TOOLS, SHARES)
    exact = counter(made)[0].total(found.forwarded)
    for share in (*SHARES, 1.0):
        assert (found.tokens > share * budget) == (exact > share * budget)
    if not counting.is_exact:
        assert abs(found.tokens - exact) <= 0.15 * exact


@pytest.mark.parametrize("sparse", [" ", "-" * 60 + "\n", "aaaa"], ids=["spaces", "rules", "letters"])
@pytest.mark.parametrize("dense", ["\U00013000\U00013001", "🙂灯Ω", KINDS["base64"]], ids=["rare", "signs", "base64"])
def test_what_lies_between_two_samples_may_be_all_tokens(sparse: str, dense: str) -> None:
    """Beside what has hardly any, that is many times the estimate."""
    chars, start, end = 200_000, 49_000, 59_000
    text = (sparse * chars)[:start] + (dense * chars)[: end - start] + (sparse * chars)[: chars - end]
    said = stored([user("What?"), assistant(None, "call_0"), tool("call_0", text)])
    made = WindowInputs((), tuple(replace(each, message_id=None, tokens=None) for each in said), 0)
    counting, _ = counter(made)
    forwarded = assemble(made, count_unreduced(made, SelectionLimits(None, 0.1), counting, TOOLS).selection)
    budget = counter(made)[0].total(forwarded) - 1
    assert count_unreduced(made, SelectionLimits(budget, 0.1), counter(made)[0], TOOLS, SHARES).new_pass


@pytest.mark.parametrize(
    ("times_exact", "chars", "is_counted"),
    [(1.5, 60_000, False), (0.6, 60_000, True), (1.5, 25_000, True)],
    ids=["far below", "near", "little to count"],
)
def test_much_is_counted_where_its_figure_is_near_a_limit(times_exact: float, chars: int, is_counted: bool) -> None:
    """Little is counted: it costs no more than samples, and later requests need not."""
    made = much(["prose"] * 10, [chars // 10] * 10)
    counting, watched = counter(made)
    forwarded = assemble(made, count_unreduced(made, SelectionLimits(None, 0.1), counting, TOOLS).selection)
    budget = int(2 * times_exact * counter(made)[0].total(forwarded) / SHARES[0])
    assert counting.upper_bound(forwarded) > SHARES[0] * budget
    assert not watched.asked
    count_unreduced(made, SelectionLimits(budget, 0.1), counting, TOOLS, SHARES)
    assert (bool(watched.asked), counting.is_exact) == (is_counted, is_counted)


def test_without_a_budget_nothing_is_counted() -> None:
    made = material(100)
    counting, watched = counter(made)
    found = count_unreduced(made, SelectionLimits(None, 0.1), counting, TOOLS, SHARES)
    assert (watched.asked, found.new_pass) == ([], False)


@pytest.mark.parametrize("budget", [600, 800, 3000])
def test_what_was_measured_is_not_counted_again(budget: int) -> None:
    """Not even the message with the block, which is a new one in each selection."""
    made = material(100)
    counting, watched = counter(made)
    limits = SelectionLimits(budget, 0.1)
    known = count_unreduced(made, limits, counting, TOOLS, SHARES)
    before = list(watched.asked)
    assert before
    fitted = fit(made, limits, counting, TOOLS, unreduced=known)
    assert (fitted.new_pass, fitted.tokens <= budget) == (known.new_pass, True)
    assert known.new_pass or watched.asked == before
    assert fitted == fit(made, limits, counter(made)[0], TOOLS)
