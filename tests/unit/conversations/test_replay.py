"""Past turns as requests that can be made again: whose results answer which calls (guarantee §11.18)."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.past_turns import ConversationPath, PathMessage, ReplayChanges
from gateway.inspection.rebuilt_turns import in_turns, turns_of
from gateway.pipeline.turn_replays import ReplayedResult, answered_calls, single_request, to_replay
from tests.support.tool_loop import call, result


def path(*bodies: dict[str, Any]) -> ConversationPath:
    """A branch of these messages, of which the assistant's were answered here, each by a request of its own."""
    found, request = [], 0
    for number, body in enumerate(bodies):
        is_answer = body["role"] == "assistant"
        message = ConversationMessage(body["role"], body, message_id=f"msg_{number}", sequence_number=number)
        found.append(PathMessage(message, f"req_{request}", 0 if is_answer else None, None))
        request += is_answer
    return ConversationPath("conv_1", tuple(found))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


LOOP = [
    user("a"),
    {"role": "assistant", "content": None, "tool_calls": [call("c", "f", x=1), call("d", "f", x=2)]},
    *(result("d", "two"), result("c", "one")),
    said("b"),
]


def test_a_tool_loop_is_made_again_by_its_first_request() -> None:
    """The rest follows from what the model calls."""
    branch = in_turns(path(user("before"), said("yes"), *LOOP))
    turns = turns_of(branch)
    assert [len(turn.requests) for turn in turns] == [1, 2]
    made = to_replay(branch, turns[1:], {}, ReplayChanges("gpt-4o"))[0]
    assert (made.number, made.before, made.has_tools) == (2, "msg_1", True)
    assert [ask.messages for ask in made.asks] == [(user("a"),)]
    assert [(each.name, each.arguments, each.body["content"]) for each in made.results] == [
        ("f", {"x": 2}, "two"),
        ("f", {"x": 1}, "one"),
    ]


def test_an_estimate_takes_calls_that_the_client_brought_with_their_results() -> None:
    """As of a client that ran its tools before it asked here."""
    *brought, answer = path(*LOOP).messages
    messages = [
        *(replace(each, request_id="req_0", choice=None) for each in brought),
        replace(answer, request_id="req_0"),
    ]
    (turn,) = turns_of(branch := in_turns(ConversationPath("conv_1", tuple(messages))))
    (request,) = turn.requests
    ask, before = single_request(branch, request, {}, ReplayChanges("gpt-4o"))
    assert before is None
    assert list(ask.messages) == LOOP[:4]


def test_results_that_came_late_are_of_their_turn() -> None:
    """Where another turn was committed between a call and its result, guarantee §3.7."""
    branch = in_turns(path(*LOOP[:2], user("at once"), said("yes"), *LOOP[2:]))
    turns = turns_of(branch)
    assert [[each.message.role for each in turn.messages] for turn in turns] == [
        ["user", "assistant"],
        ["user", "assistant", "tool", "tool", "assistant"],
    ]


def test_deliveries_are_requests_of_their_turn() -> None:
    """An agent that is given the latest message brings none."""
    branch = in_turns(path(user("a"), said("max"), said("sarah")))
    made = to_replay(branch, turns_of(branch), {}, ReplayChanges("gpt-4o"))
    assert [[ask.messages for ask in turn.asks] for turn in made] == [[(user("a"),), ()]]


RESULTS = [ReplayedResult("f", {"x": 1}, result("c", "first")), ReplayedResult("f", {"x": 1}, result("d", "second"))]


@pytest.mark.parametrize(
    ("calls", "used", "given", "texts", "missing"),
    [
        ([call("n", "f", x=1)], [], {}, ["first"], 0),
        ([call("n", "f", x=1), call("m", "f", x=1)], [], {}, ["first", "second"], 0),
        ([call("n", "f", x=1)], [call("o", "f", x=1)], {}, ["second"], 0),
        ([call("n", "f", x=1)], 2 * [call("o", "f", x=1)], {}, [], 1),
        ([call("n", "f", x=1.0)], [], {}, ["first"], 0),
        ([call("n", "f", x=2)], [], {}, [], 1),
        ([call("n", "g", x=1)], [], {}, [], 1),
        ([call("n", "g", x=1)], [], {"n": "mine"}, ["mine"], 0),
        ([call("n", "f", x=1)], [], {"n": "mine"}, ["mine"], 0),
    ],
)
def test_each_result_answers_one_call(calls: Any, used: Any, given: Any, texts: list[str], missing: int) -> None:
    """By name and arguments; what the client brings goes before."""
    found, left = answered_calls(calls, RESULTS, used, given)
    assert ([each["content"] for each in found], len(left)) == (texts, missing)
    assert [each["tool_call_id"] for each in found] == [each["id"] for each in calls if each not in left]
