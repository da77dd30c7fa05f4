"""Digests of chains: what a conversation is recognised by (guarantee §3.2, ADR 8)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types.chain import (
    CHAIN_START,
    ChainKeys,
    call_digest,
    chain_digests,
    extended,
    message_digest,
    plain_chain_digests,
)
from tests.support.answers import image_part, text_part, tool_call
from tests.unit.making import assistant, system, tool, user

words = st.text(max_size=8)
chats = st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), words), max_size=8)


def said(messages: list[dict[str, Any]]) -> bytes:
    return (chain_digests(messages) or [CHAIN_START])[-1].said


def path(messages: list[dict[str, Any]]) -> bytes:
    return (chain_digests(messages) or [CHAIN_START])[-1].path


@given(chats)
def test_the_short_way_says_the_same(chat: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": text} for role, text in chat]
    assert plain_chain_digests([role for role, _ in chat], [text for _, text in chat]) == chain_digests(messages)


said_so = st.sampled_from(["", " x ", "half \ud83d", "words"])
step_calls = st.lists(
    st.sampled_from(
        [
            tool_call("a", "f"),
            tool_call("b", "f", '{"a": 1}'),
            {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}},
        ]
    ),
    max_size=2,
)
steps = st.one_of(
    st.builds(lambda text, call: tool(call, text), said_so, st.sampled_from("ab")),
    st.builds(lambda text: tool("", text), said_so),
    st.builds(lambda text: tool("a", [text_part(text)]), said_so),
    st.builds(lambda calls: {"role": "assistant", "content": None, "tool_calls": calls}, step_calls),
    st.builds(lambda text, calls: {"role": "assistant", "content": text, "tool_calls": calls}, said_so, step_calls),
    st.builds(lambda calls: {"role": "assistant", "name": "n", "tool_calls": calls}, step_calls),
    st.builds(lambda calls: {"role": "assistant", "tool_calls": calls}, step_calls),
)


def calling(arguments: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]}


NO_WORDS: list[dict[str, Any]] = [{}, *({"content": none} for none in (None, "", " ", [], [text_part("")]))]
MADE = {"tool_calls": [tool_call("a", "f")]}
MADE_ONCE = {"function_call": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("none", NO_WORDS)
@pytest.mark.parametrize("made", [MADE, MADE_ONCE])
def test_s3_2_beside_calls_content_that_is_absent_null_or_empty_is_the_same(
    made: dict[str, Any], none: dict[str, Any]
) -> None:
    """As `model_dump(exclude_none=True)` leaves it out, and other clients write an empty text."""
    first, again = ({"role": "assistant", **more, **made} for more in ({"content": None}, none))
    assert chain_digests([user("hi"), again]) == chain_digests([user("hi"), first])
    assert (message_digest(again), call_digest(CHAIN_START, again)) == (
        message_digest(first),
        call_digest(CHAIN_START, first),
    )
    assert message_digest(again) != message_digest(assistant(None))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1}', '{"a": 2}'),
        ('{"a": "x y"}', '{"a": "xy"}'),
        ('{"a": 12345678901234567890123}', '{"a": 12345678901234567890124}'),
        ('{"a": ', '{"a":'),
    ],
)
def test_s3_1_other_arguments_are_another_call(one: str, other: str) -> None:
    assert message_digest(calling(one)) != message_digest(calling(other))


def test_s3_1_outer_white_space_is_no_difference() -> None:
    assert message_digest(user(" hello\n")) == message_digest(user("hello")) != message_digest(user("hel lo"))


@given(st.lists(steps, max_size=6))
def test_the_short_way_of_steps_says_the_same(chat: list[dict[str, Any]]) -> None:
    """A field that says nothing makes them take the long way."""
    assert chain_digests(chat) == chain_digests([{**message, "annotations": []} for message in chat])


SAME_WORDS = {
    "outer white space": ([user(" hi\n"), assistant("yes ")], [user("hi"), assistant("yes")]),
    "a string and its text parts": ([user("hi you")], [user([text_part("hi "), text_part("you")])]),
    "reasoning that a client drops": (
        [user("hi"), {**assistant("yes"), "reasoning_content": "hm"}],
        [user("hi"), assistant("yes")],
    ),
    "a prefill and its completion": (
        [user("q"), assistant("It is"), assistant(" so. "), user("r")],
        [user("q"), assistant("It is so."), user("r")],
    ),
    **{
        f"arguments that were parsed and written again: {again}": (
            [user("w"), calling('{"city":"Zürich","at":[1,2]}' if again else ""), tool("c1", "sun")],
            [user("w"), calling(again or "{}"), tool("c1", "sun")],
        )
        for again in ('{"city": "Zürich", "at": [1, 2]}', '{\n "city": "Z\\u00fcrich", "at": [1,2]}', "")
    },
    "empty fields": (
        [user("hi"), {**assistant("yes"), "refusal": None, "tool_calls": []}],
        [user("hi"), assistant("yes")],
    ),
}


@pytest.mark.parametrize(("one", "other"), SAME_WORDS.values(), ids=list(SAME_WORDS))
def test_what_makes_no_difference(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """§3.1, §3.2."""
    assert (path(one), said(one)) == (path(other), said(other))


STEPS = [assistant(None, "c1"), tool("c1", "sun")]
SAME_SAID = {
    "tool steps": ([user("w"), *STEPS, assistant("sun")], [user("w"), assistant("sun")]),
    "a text beside a call": (
        [user("w"), assistant("I look", "c1"), STEPS[1], assistant("sun")],
        [user("w"), assistant("sun")],
    ),
    "system messages": ([system("s"), user("w"), system("t"), assistant("a")], [user("w"), assistant("a")]),
}


@pytest.mark.parametrize(("one", "other"), SAME_SAID.values(), ids=list(SAME_SAID))
def test_what_was_said_is_the_same_without_the_working(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """§3.2: system messages, tool calls and results are no part of the chain; they are of the path."""
    assert said(one) == said(other)
    assert path(one) != path(other)


DIFFERENT = [
    ([user("a"), assistant("b")], [user("a"), assistant("c")]),
    ([user("a"), assistant("b")], [assistant("a"), user("b")]),
    ([user("a"), user("b")], [user("ab")]),
    ([user("a b")], [user("a  b")]),
    ([user("yes"), assistant("ok")], [user("yes"), assistant("ok"), user("yes"), assistant("ok")]),
    ([user("a"), {**assistant(None), "refusal": "no"}], [user("a"), {**assistant(None), "refusal": "never"}]),
    ([user([image_part("x")])], [user([image_part("y")])]),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_words_are_another_chain(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert said(one) != said(other)
    assert path(one) != path(other)


@given(chats, words)
def test_a_chain_grows_by_its_last_message_alone(chat: list[tuple[str, str]], more: str) -> None:
    messages = [{"role": role, "content": text} for role, text in chat]
    end = (chain_digests(messages) or [CHAIN_START])[-1]
    assert extended(end, user(more)) == chain_digests([*messages, user(more)])[-1]


def test_an_empty_partial_answer_is_in_no_chain() -> None:
    """§3.6: nothing was delivered of it, so no client sends it."""
    end = chain_digests([user("q")])[-1]
    assert extended(end, assistant(""), status="partial") == end
    assert extended(end, assistant("hal"), status="partial") == extended(end, assistant("hal"))


def test_plain_is_a_chain_of_roles_and_trimmed_texts() -> None:
    assert chain_digests([user("a"), assistant("b")])[-1].plain
    for message in (user(" a"), user([text_part("a")]), {**user("a"), "name": "x"}, system("s"), STEPS[1]):
        assert not chain_digests([message, user("b")])[-1].plain
    assert not extended(CHAIN_START, user("a"), reworded=True).plain


def test_keys_tell_tenants_people_and_secrets_apart_and_calls_in_any_order() -> None:
    """§3.2, §8."""
    end = said([user("a"), assistant("b")])
    keys = {
        ChainKeys(secret, tenant, people).key(end).digest
        for secret in (b"1", b"2")
        for tenant in ("t", "u")
        for people in ((), ("x",), ("y",))
    }
    assert len(keys) == 12
    assert end not in keys
    mine = ChainKeys(b"1", "t")
    one, other = (mine.key(end, ids) for ids in (["a", "b"], ["b", "a"]))
    assert one == other
    assert one.calls != mine.key(end, ["a"]).calls
    assert mine.key(end).calls == b""


def test_the_whole_of_a_chain_begins_with_its_messages() -> None:
    """§3.2: what was said, called and returned, and behind it what was attached, in any order."""
    mine, path = ChainKeys(b"1", "t"), chain_digests([user("a"), *STEPS])[-1].path
    whole = mine.whole(path)
    assert mine.whole(path, ["x", "y"]) == mine.whole(path, ["y", "x"]) != mine.whole(path, ["x"])
    assert mine.whole(path, ["x"]).startswith(whole)
    assert path not in whole
    assert not mine.whole(chain_digests([user("a"), *STEPS[:1]])[-1].path, ["x"]).startswith(whole)
    assert whole != ChainKeys(b"1", "u").whole(path)


def test_an_answer_with_calls_is_told_from_one_that_says_the_same() -> None:
    end = chain_digests([user("w")])[-1]
    assert call_digest(end, assistant(None, "c1")) == call_digest(end, assistant("", "c2"))
    assert call_digest(end, assistant("", "c1")) != extended(end, assistant("")).said
