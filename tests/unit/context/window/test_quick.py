"""What takes the short way surely fits (guarantee §4 I1): checked against the exact count of texts of many kinds."""

import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.request.validation import plain_messages
from gateway.context.manager import fitted_as_sent, surely_fits
from gateway.context.tokens.counter import CounterRegistry
from gateway.core.jsons import dumps
from gateway.core.types.chat import ModelFacts, PlainMessages
from tests.support.answers import assistant, system, there, user
from tests.support.o200k import prompt_tokens

LARGEST = 8000
PROSE = "The keeper of the lighthouse had not seen a ship for many days, and so he wrote another letter. "


def plain(*texts: str) -> PlainMessages:
    return there(plain_messages([user(text) for text in texts]))


def size_of(messages: PlainMessages) -> int:
    return len(dumps([{"role": r, "content": t} for r, t in zip(messages.roles, messages.texts, strict=True)]))


def exact(messages: PlainMessages) -> int:
    counter = CounterRegistry().counter(ModelFacts("gpt-4o", tokenizer="o200k_base"))
    pairs = zip(messages.roles, messages.texts, strict=True)
    return 3 + sum(counter.message({"role": role, "content": text}) for role, text in pairs)


def test_prose_up_to_half_of_the_budget_is_estimated() -> None:
    messages = plain(*[PROSE * 10] * 40)
    size = size_of(messages)
    assert surely_fits(messages, size, size // 2 + 400, LARGEST)
    assert not surely_fits(messages, size, size // 2 - 400, LARGEST)


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(random.Random(1).randbytes(3000)).decode(),
        random.Random(2).randbytes(2000).hex(),
        " ".join(str(n) for n in range(1000)),
        "灯台守は長い間船を見なかった。" * 100,
        "xq zj kv wq rt pl mn bd fg hj " * 100,
        '{"a":[1,2,3],"b":{"c":null}}' * 100,
        "🙂" * 1000,
    ],
    ids=["base64", "hex", "numbers", "Japanese", "consonants", "JSON", "pictures"],
)
def test_what_may_hold_more_tokens_than_prose_is_estimated_only_where_its_bytes_fit(text: str) -> None:
    messages = plain(text)
    size = size_of(messages)
    assert not surely_fits(messages, size, int(size * 0.9), LARGEST)
    assert surely_fits(messages, size, 2 * size + 100, LARGEST)


def test_texts_that_say_nothing_are_no_puzzle() -> None:
    assert surely_fits(plain(""), 45, 40, LARGEST)


def test_a_part_that_is_no_prose_is_found_among_much_that_is() -> None:
    encoded = base64.b64encode(random.Random(3).randbytes(6000)).decode()
    messages = plain(PROSE * 40, encoded, PROSE * 40)
    size = size_of(messages)
    assert not surely_fits(messages, size, int(size * 0.6), LARGEST)


def test_a_text_that_may_hold_a_document_is_looked_at() -> None:
    """§4 I4: only a user's; what the model itself said is no document."""
    long = PROSE * 100
    assert not surely_fits(plain(long), len(long), 10**6, LARGEST)
    said = there(plain_messages([assistant(long), user("go on")]))
    assert surely_fits(said, len(long), 10**6, LARGEST)


words = st.lists(
    st.sampled_from(["the", "keeper", "wrote", "x", "of", "Σ", "7", "ineluctable", "qzx", "a", "\n", "()"])
)


@given(st.lists(words, min_size=1, max_size=30), st.integers(50, 3000))
def test_s4_i1_whatever_takes_the_short_way_is_within_the_budget_by_exact_count(
    texts: list[list[str]], budget: int
) -> None:
    messages = plain(*(" ".join(text) for text in texts))
    if surely_fits(messages, size_of(messages), budget, LARGEST):
        assert exact(messages) <= budget


def test_s6_a_short_chat_is_counted_and_its_parts_add_up() -> None:
    bodies = [system(PROSE), user(PROSE * 2), assistant(PROSE * 3), user(PROSE * 4)]
    found = there(plain_messages(bodies))
    fitted = fitted_as_sent(bodies, found, CounterRegistry().counter(ModelFacts("gpt-4o")))
    assert not fitted.estimated
    assert fitted.tokens == sum(fitted.breakdown.values()) == prompt_tokens(bodies)
    assert list(fitted.breakdown) == ["system", "tools", "history", "artifacts", "current"]
    assert fitted.breakdown["system"] == prompt_tokens(bodies[:1])
    assert fitted.breakdown["current"] == prompt_tokens(bodies[3:]) - 3
    assert fitted.forwarded.messages == bodies
    assert fitted_as_sent(bodies, found, CounterRegistry().counter(ModelFacts("some-llama"))).estimated
