"""A conversation stays where it is (guarantee §12.5)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types.chat import ModelFacts, RequestCaller
from gateway.core.types.conversation import ConversationRef
from gateway.upstream.routing.deployments import DeploymentRank, ranked
from gateway.upstream.routing.router import (
    MAX_PLACED,
    PLACED_SECONDS,
    RouteHint,
    draws_of,
    hint_of,
    open_placements,
    sticks,
)
from tests.support.answers import assistant, image_part, system, text_part, user
from tests.support.hand_clock import HandClock
from tests.unit.making import chat

HELLO = user("Hello.")
ANSWER = assistant("Hi.")


def chosen(key: str, states: list[DeploymentRank]) -> str:
    return ranked(states, "weighted", draws_of(key))[0].id


@given(
    weights=st.dictionaries(st.text(min_size=1, max_size=8), st.integers(1, 9), min_size=2, max_size=6),
    gone=st.integers(0, 5),
    keys=st.lists(st.text(max_size=8), min_size=1, max_size=50),
)
def test_s12_5_only_the_conversations_of_a_lost_deployment_move(
    weights: dict[str, int], gone: int, keys: list[str]
) -> None:
    """Read backwards it says of a new deployment that conversations move to it and nowhere else."""
    before = [DeploymentRank(name, weight=weight) for name, weight in weights.items()]
    lost = before[gone % len(before)]
    after = [state for state in before if state is not lost]
    for key in keys:
        was = chosen(key, before)
        assert chosen(key, after) == was or was == lost.id
        resting = [
            DeploymentRank(lost.id, weight=lost.weight, rest=1.0) if state is lost else state for state in before
        ]
        assert chosen(key, resting) == chosen(key, after), "one that rests is as one that is not there"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            RouteHint("t", messages=[HELLO]),
            RouteHint("t", messages=[HELLO, ANSWER, {**HELLO, "content": "More"}]),
            True,
        ),
        (RouteHint("t", messages=[HELLO]), RouteHint("t", messages=[system("x"), HELLO]), True),
        (RouteHint("t", messages=[HELLO]), RouteHint("t", messages=[user([text_part(" Hello.\n")])]), True),
        (RouteHint("t", messages=[HELLO]), RouteHint("t", messages=[user("Bye.")]), False),
        (RouteHint("t", messages=[HELLO]), RouteHint("u", messages=[HELLO]), False),
        (RouteHint("t", "conv_1", messages=[HELLO]), RouteHint("t", "conv_1", messages=[ANSWER]), True),
        (RouteHint("t", "conv_1", messages=[HELLO]), RouteHint("t", "conv_2", messages=[HELLO]), False),
        (RouteHint("t", "conv_1"), RouteHint("u", "conv_1"), False),
        (RouteHint("t", messages=[HELLO], cache_key="a"), RouteHint("t", messages=[HELLO], cache_key="b"), False),
        (RouteHint("t", "conv_1", cache_key="a"), RouteHint("t", "conv_1", cache_key="b"), True),
        (RouteHint("t", None, "chatcmpl-1", [HELLO]), RouteHint("t", None, "chatcmpl-1", [ANSWER]), True),
    ],
)
def test_s12_5_requests_of_one_conversation_have_one_key(one: RouteHint, other: RouteHint, same: bool) -> None:
    assert (one.key() == other.key()) is same
    assert one.key() is not None


@pytest.mark.parametrize("hint", [RouteHint("t"), RouteHint("t", messages=[ANSWER])])
def test_s12_5_where_nothing_tells_the_conversation_there_is_no_key(hint: RouteHint) -> None:
    assert hint.key() is None


@pytest.mark.parametrize(
    ("ref", "forward", "expected"),
    [
        (ConversationRef("conv_1", "session"), {}, RouteHint("t", "conv_1", None, [HELLO])),
        (ConversationRef(session="session"), {}, RouteHint("t", "session", None, [HELLO])),
        (ConversationRef(behind="resp_1"), {}, RouteHint("t", None, "chatcmpl-1", [HELLO])),
        (ConversationRef(), {"prompt_cache_key": "a"}, RouteHint("t", None, None, [HELLO], "a")),
        (ConversationRef(), {"prompt_cache_key": 7}, RouteHint("t", None, None, [HELLO])),
    ],
)
def test_s12_5_what_a_request_tells_of_its_conversation(
    ref: ConversationRef, forward: dict[str, Any], expected: RouteHint
) -> None:
    found = hint_of(chat([HELLO], caller=RequestCaller("t"), conversation=ref, forward=forward))
    assert replace(found, messages=list(found.messages)) == expected


def test_s12_5_pictures_are_told_apart() -> None:
    def shown(url: str) -> str | None:
        content: list[Any] = [image_part(url)]
        return RouteHint("t", messages=[user(content)]).key()

    assert shown("data:1") != shown("data:2")


@pytest.mark.parametrize(
    ("setting", "known", "expected"),
    [
        ("auto", [True, False], True),
        ("auto", [None], True),
        ("auto", [False, False], False),
        ("always", [False], True),
        ("never", [True], False),
    ],
)
def test_s12_5_by_itself_where_prompts_may_be_cached(setting: Any, known: list[bool | None], expected: bool) -> None:
    assert sticks(setting, [ModelFacts("m", supports_prompt_caching=each) for each in known]) is expected


def test_s12_5_places_are_kept_for_an_hour_and_are_bounded() -> None:
    clock = HandClock()
    places = open_placements(clock)
    places.put("a", "one")
    clock.seconds = PLACED_SECONDS - 1
    assert places.peek("a") == "one"
    clock.seconds = PLACED_SECONDS
    assert places.peek("a") is None
    for number in range(MAX_PLACED + 1):
        places.put(str(number), "one")
    assert places.peek("0") is None
    assert places.peek("1") == "one"
