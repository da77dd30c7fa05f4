"""What makes two messages the same (guarantee §3.1)."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types.chain import is_step, message_digest, says_nothing
from gateway.core.types.content_parts import content_text
from tests.support.answers import image_part, text_part
from tests.unit.making import assistant, tool, user


def text(words: str) -> dict[str, Any]:
    return text_part(words)


IMAGE = image_part("https://example.org/a.png")
SAME = {
    "outer white space": (user("yes"), user(" \n\tyes\n ")),
    "a string and its text part": (user("yes"), user([text("yes")])),
    "a string and its text parts": (user("yes, please"), user([text("yes, "), text("please")])),
    "outer white space of parts": (user("yes"), user([text(" yes"), text(" ")])),
    "fields that say nothing of it": (assistant("a"), assistant("a") | {"refusal": None, "annotations": [], "id": "x"}),
    "no content and an empty one": (assistant(None, "c"), assistant("", "c")),
    "the order of keys": (user([IMAGE]), {"content": [dict(reversed(IMAGE.items()))], "role": "user"}),
}
DIFFERENT = {
    "inner white space": (user("a b"), user("a  b")),
    "case": (user("yes"), user("Yes")),
    "roles": (user("yes"), assistant("yes")),
    "pictures": (user([text("a"), IMAGE]), user([text("a")])),
    "call ids": (assistant(None, "c1"), assistant(None, "c2")),
    "arguments": (assistant(None, "c", arguments="{}"), assistant(None, "c", arguments='{"a":1}')),
    "tools": (assistant(None, "c", name="a"), assistant(None, "c", name="b")),
    "the number of calls": (assistant(None, "c"), assistant(None, "c", "d")),
    "answered calls": (tool("c1", "x"), tool("c2", "x")),
    "a call and none": (assistant("x", "c"), assistant("x")),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=list(SAME))
def test_messages_that_differ_only_in_form_are_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert message_digest(one) == message_digest(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=list(DIFFERENT))
def test_messages_that_say_something_else_differ(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert message_digest(one) != message_digest(other)


@given(words=st.text("ab \n\té🙂\u2028"), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_however_a_text_is_cut_into_parts_it_is_the_same(words: str, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(words) + 40]
    parts = [text(words[a:b]) for a, b in pairwise(places)]
    assert content_text(parts) == words
    assert message_digest(user(parts)) == message_digest(user(words)) == message_digest(user(f"\n{words} "))


def test_a_digest_is_short_and_repeatable() -> None:
    assert message_digest(user("a")) == message_digest(user("a"))
    assert len(message_digest(user("a"))) == 40


def test_calls_and_results_are_the_working_of_a_turn() -> None:
    assert is_step(assistant("text", "c"))
    assert is_step(tool("c", "x"))
    assert not is_step(assistant("text"))
    assert not is_step(user("x"))


def test_a_partial_answer_without_text_or_calls_cannot_be_forwarded() -> None:
    def partial(body: dict[str, Any]) -> bool:
        return says_nothing(body, "partial")

    assert partial(assistant(None))
    assert partial(assistant(""))
    assert not partial(assistant(None, "c"))
    assert not partial(assistant("x"))
    assert not partial({"role": "assistant", "content": None, "refusal": "no"})
    assert not says_nothing(assistant(""), "complete")
    assert not says_nothing(user(""), "complete")
