"""Bounds of counts: never more than the tokens, and what they are good for: counting ends once it is sure."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.tokens.counter import CounterRegistry, least_tokens
from gateway.context.window.counting import PromptCounter
from gateway.core.types.chat import ModelFacts
from gateway.core.types.window import ForwardedMessages, WindowInputs
from tests.unit.making import assistant, user

MODELS = [ModelFacts("gpt-4o"), ModelFacts("gpt-4"), ModelFacts("text-davinci-003"), ModelFacts("m", token_margin=1.3)]
TEXTS = st.one_of(
    st.text("ab Z9_'s\"{}:,.\n\té数🙂\u0301’ſ", max_size=80),
    st.lists(st.sampled_from(["it's", "don't", "1,234.50", '{"a": 1}', "  ", "\n\n", "Größe", "x_y", "URLs"])).map(
        "".join
    ),
    st.text(max_size=40),
)
MESSAGES = st.lists(
    st.one_of(TEXTS.map(user), TEXTS.map(lambda text: assistant(text, "c", arguments=text))), max_size=6
)


@pytest.mark.parametrize("facts", MODELS, ids=lambda facts: facts.name)
@given(text=TEXTS)
def test_no_text_has_fewer_tokens_than_the_bound(facts: ModelFacts, text: str) -> None:
    assert least_tokens(text) <= CounterRegistry().counter(facts).text(text)


def test_the_bound_of_prose_is_more_than_half_of_its_tokens() -> None:
    text = "What a question needs of a long text is found by the words that both of them have. " * 20
    assert least_tokens(text) > CounterRegistry().counter(MODELS[0]).text(text) / 2


@pytest.mark.parametrize("facts", MODELS, ids=lambda facts: facts.name)
@given(bodies=MESSAGES, share=st.floats(0, 1.2))
def test_what_fits_is_what_is_counted_to_fit(facts: ModelFacts, bodies: list[dict[str, Any]], share: float) -> None:
    counter = CounterRegistry().counter(facts)
    forwarded = ForwardedMessages(bodies, [-1] * len(bodies))
    exact = PromptCounter(counter, {}, WindowInputs((), (), 0)).exact(forwarded).total
    for tokens in (int(share * exact), exact - 1, exact):
        made = PromptCounter(counter, {}, WindowInputs((), (), 0))
        assert made.fits(forwarded, tokens) == (exact <= tokens)


def test_what_is_far_too_long_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = CounterRegistry().counter(MODELS[0])
    bodies = [user(f"question {number}: " + "many words " * 50) for number in range(100)]
    made = PromptCounter(counter, {}, WindowInputs((), (), 0))
    monkeypatch.setattr(counter, "plain", lambda message: pytest.fail(f"counted {message}"))
    assert not made.fits(ForwardedMessages(bodies, [-1] * len(bodies)), 5000)
