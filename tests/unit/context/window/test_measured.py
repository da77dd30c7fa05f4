"""The unreduced candidate is measured as exactly as it matters, and counted once (guarantee §5)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.artifacts.lossless_compaction import compact
from gateway.context.assembly.block import worded
from gateway.context.assembly.messages import assemble
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.window.counting import PromptCounter
from gateway.context.window.fit import count_unreduced, fit
from gateway.context.window.fitting import FittingSteps
from gateway.context.window.prompt_budget import SelectionLimits
from gateway.core.types.artifacts import Artifact, ArtifactType
from gateway.core.types.window import WindowInputs
from gateway.retrieval.index_cache import PassageFinder
from tests.unit.context.window.test_kept_counts import GPT, Watched
from tests.unit.making import assistant, stored, user

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
    return PromptCounter(watched, {}, made, 1.0), watched


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
