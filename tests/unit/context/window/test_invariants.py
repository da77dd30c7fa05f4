"""Guarantee §4 over random conversations and budgets: I1 budget, I2 contiguous, I3 pairs, I4 own words, I6 labels."""

import asyncio

import pytest
from hypothesis import event, given, settings

from gateway.context.manager import BuiltContext
from gateway.core.config.settings import ContextSettings
from gateway.core.errors import ContextLengthExceeded
from tests.support.o200k import prompt_tokens
from tests.unit.context.window import invariants
from tests.unit.context.window.histories import DOCUMENT_CHARS, SHARES, Talk, talks
from tests.unit.making import build, material_of

SETTINGS = ContextSettings(document_min_chars=DOCUMENT_CHARS)
FEWER = settings(max_examples=settings().max_examples // 3)
"""Of what takes two requests for each."""


def forwarded(talk: Talk, budget: int | None) -> BuiltContext | None:
    """What is built for the talk, or None where it cannot be made to fit."""
    work = build(talk.messages, budget, talk.instructions, talk.attached, talk.attachments, talk.forward, SETTINGS)
    try:
        return asyncio.run(work)
    except ContextLengthExceeded:
        return None


@given(talk=talks(), share=SHARES)
def test_whatever_is_forwarded_keeps_the_invariants(talk: Talk, share: float) -> None:
    budget = talk.budget(share)
    built = forwarded(talk, budget)
    if built is None:
        event("does not fit")
        assert invariants.needed_at_least(talk) > budget, "it could have been made to fit"
        return
    event(built.utilization.strategy)
    messages = built.fitted.forwarded.messages
    invariants.check_budget(talk, built, budget)
    invariants.check_run(talk, messages)
    invariants.check_current_message(talk, messages)
    invariants.check_labels(talk, built)
    invariants.check_nothing_invented(talk, messages, material_of(built).artifacts)


@FEWER
@given(talk=talks(), share=SHARES)
def test_the_same_request_is_always_forwarded_alike(talk: Talk, share: float) -> None:
    budget = talk.budget(share)
    one, other = forwarded(talk, budget), forwarded(talk, budget)
    assert (one is None) == (other is None)
    if one and other:
        assert one.fitted.forwarded == other.fitted.forwarded
        assert one.utilization == other.utilization


@FEWER
@given(talk=talks())
def test_what_fits_is_forwarded_as_it_was_sent(talk: Talk) -> None:
    talk.attached, talk.attachments = [], []
    files = any(isinstance(m["content"], list) and m["content"][0]["type"] == "file" for m in talk.messages)
    ample = 2 * prompt_tokens([*talk.instructions, *talk.messages], talk.forward) + 100 * len(talk.messages)
    for budget in (ample, None):
        built = forwarded(talk, budget)
        assert built is not None
        if not files:
            invariants.check_untouched(talk, built.fitted.forwarded.messages)
            assert built.utilization.strategy == "passthrough"
        assert built.utilization.messages_excluded == 0


@pytest.mark.parametrize("budget", [200, 2000, None])
async def test_a_question_alone_is_forwarded_alone(budget: int | None) -> None:
    messages = [{"role": "user", "content": "What is the time?"}]
    built = await build(messages, budget)
    assert built.fitted.forwarded.messages == messages
    assert built.utilization.artifacts_processed == []


async def test_what_cannot_be_made_to_fit_is_a_400_that_names_messages() -> None:
    with pytest.raises(ContextLengthExceeded) as raised:
        await build([{"role": "user", "content": "word " * 500}], 100)
    assert (raised.value.status, raised.value.code, raised.value.param) == (400, "context_length_exceeded", "messages")
