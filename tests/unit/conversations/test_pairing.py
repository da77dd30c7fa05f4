"""Calls and results: paired by adjacency, whole or not at all (guarantee §3.3, §4 I3)."""

from typing import Any

import pytest

from gateway.conversations.message_forms import check_pairs, forwardable, last_step, without_open_calls
from gateway.core.errors import InvalidRequest
from tests.support.answers import chat
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.unit.making import assistant, stored, system, tool, user

STEP = [assistant(None, "c1", "c2"), tool("c2", "two"), tool("c1", "one")]

BROKEN: dict[str, tuple[list[dict[str, Any]], int, int, str, str]] = {
    "a result without a call": ([user("a"), tool("c", "x")], 0, 0, "messages[1]", "tool_call_unknown"),
    "a result first of all": ([tool("c", "x")], 0, 0, "messages[0]", "tool_call_unknown"),
    "a result of another call": ([user("a"), assistant(None, "c"), tool("d", "x")], 0, 0, "messages[2]",
                                 "tool_call_unknown"),
    "a result twice": ([user("a"), *STEP, tool("c1", "again")], 0, 0, "messages[4]", "tool_call_unknown"),
    "a result after something else": ([*STEP, user("b"), tool("c1", "x")], 0, 0, "messages[4]", "tool_call_unknown"),
    "a call without a result": ([assistant(None, "c"), user("b")], 0, 0, "messages[0]", "tool_call_unanswered"),
    "one of two calls without a result": ([assistant(None, "c", "d"), tool("d", "x"), user("b")], 0, 0, "messages[0]",
                                          "tool_call_unanswered"),
    "a last call without a result": ([user("a"), assistant(None, "c")], 0, 0, "messages[1]", "tool_call_unanswered"),
    "system messages are counted": ([user("a"), tool("c", "x")], 0, 2, "messages[3]", "tool_call_unknown"),
    "after stored messages": ([user("a"), assistant("b"), user("c"), tool("c", "x")], 2, 0, "messages[1]",
                              "tool_call_unknown"),
    "stored calls that the request leaves open": ([user("a"), assistant(None, "c"), user("b")], 2, 0, "messages[0]",
                                                  "tool_call_unanswered"),
}  # fmt: skip
WHOLE: dict[str, list[dict[str, Any]]] = {
    "none": [user("a"), assistant("b"), user("c")],
    "parallel, in any order": [user("a"), *STEP, assistant("done")],
    "results at the end": [user("a"), *STEP],
    "the same ids again": [user("a"), *STEP, assistant("b"), user("c"), *STEP, assistant("d")],
    "several steps": [user("a"), *STEP, assistant("and", "c1"), tool("c1", "x"), assistant("b")],
}


@pytest.mark.parametrize(("messages", "first_sent", "offset", "param", "code"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_pair_is_a_400_that_names_the_clients_message(
    messages: list[dict[str, Any]], first_sent: int, offset: int, param: str, code: str
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        check_pairs(stored(messages), first_sent, offset)
    assert (raised.value.status, raised.value.param, raised.value.code) == (400, param, code)


def broken(messages: list[dict[str, Any]], whole: int = 0) -> tuple[str | None, str | None] | None:
    try:
        check_pairs(stored(messages), 0, 0, whole)
    except InvalidRequest as error:
        return error.param, error.code
    return None


@pytest.mark.parametrize("known", WHOLE.values(), ids=list(WHOLE))
def test_what_is_known_to_pair_is_not_looked_at_again_and_what_follows_it_is(known: list[dict[str, Any]]) -> None:
    for messages, _, _, _, _ in BROKEN.values():
        new = [*known, *messages]
        assert broken(new, last_step(new, len(known))) == broken(new) != broken(new, len(new))


@pytest.mark.parametrize("messages", WHOLE.values(), ids=list(WHOLE))
def test_s4_i3_whole_pairs_pass_and_are_all_forwarded(messages: list[dict[str, Any]]) -> None:
    check_pairs(stored(messages), 0, 0)
    assert [message.body for message in forwardable(stored(messages))] == messages


def test_calls_that_nobody_answered_are_left_out_and_the_text_beside_them_stays() -> None:
    path = [user("a"), assistant("I look", "c", "d"), tool("c", "x"), user("b"), assistant(None, "e"), user("c")]
    assert [m.body for m in forwardable(stored(path))] == [user("a"), assistant("I look"), user("b"), user("c")]


def test_a_partial_answer_stays_as_delivered_without_its_calls() -> None:
    path = [*stored([user("a")]), *stored([assistant("hal", "c")], "partial")]
    assert [m.body for m in forwardable(path)] == [user("a"), assistant("hal")]
    path = [*stored([user("a")]), *stored([assistant(None)], "partial"), *stored([user("b"), assistant("c")])]
    assert [m.body for m in forwardable(path)] == [user("a"), user("b"), assistant("c")]


def test_the_last_calls_wait_for_results_unless_something_else_follows() -> None:
    path = stored([user("a"), assistant("I look", "c")])
    assert [m.body for m in forwardable(path)] == [user("a"), assistant("I look", "c")]
    assert [m.body for m in without_open_calls(path)] == [user("a"), assistant("I look")]
    silent = stored([user("a"), assistant(None, "c")])
    assert [m.body for m in without_open_calls(silent)] == [user("a")]
    whole = stored([user("a"), assistant("b")])
    assert without_open_calls(whole) == whole
    assert without_open_calls([]) == []


def test_results_of_the_last_calls_may_come_in_parts() -> None:
    """Some are stored, the client sends others. An error names the call that is still open."""
    path = stored([user("a"), assistant("I look", "c", "d", "e"), tool("c", "x")])
    (second,) = stored([tool("d", "y")])
    kept = forwardable(path, [second])
    assert kept == path
    with pytest.raises(InvalidRequest, match="'e' has no result") as refused:
        check_pairs([*kept, second], len(kept), 0)
    assert refused.value.param == "messages[0]"
    check_pairs([*kept, second, *stored([tool("e", "z")])], len(kept), 0)


def test_a_system_message_between_call_and_result_breaks_the_pair() -> None:
    with pytest.raises(InvalidRequest):
        check_pairs(stored([user("a"), assistant(None, "c"), system("x"), tool("c", "x")]), 0, 0)


SEARCH = {"id": "srvtoolu_1", "type": "function", "function": {"name": "web_search", "arguments": "{}"}}
LOOK = {"id": "toolu_2", "type": "function", "function": {"name": "look", "arguments": "{}"}}
NO_RESULTS: list[list[dict[str, Any]]] = [
    [user("a"), {"role": "assistant", "content": "found", "tool_calls": [SEARCH]}, user("b")],
    [user("c"), {"role": "assistant", "content": None, "tool_calls": [SEARCH]}, user("d")],
    [user("e"), {"role": "assistant", "content": None, "tool_calls": [SEARCH, LOOK]}, tool("toolu_2", "x")],
]


@pytest.mark.parametrize("messages", NO_RESULTS, ids=["said", "silent", "beside another"])
def test_calls_that_a_provider_answered_itself_are_left_out_with_a_warning(
    messages: list[dict[str, Any]], one_gateway: GatewayProcess, upstream: MockUpstream
) -> None:
    """Other gateways hand Anthropic's own calls to clients, who can send no results of them (guarantee §1.10)."""
    found = chat(one_gateway, model="small", messages=messages)
    warnings = found["response_metadata"]["context_utilization"]["warnings"]
    assert warnings == ["hosted_tool_left_out: web_search (upstream.hosted_tools)"]
    said = upstream.last.body["messages"][1]
    assert said.get("tool_calls") == ([LOOK] if messages[2]["role"] == "tool" else None)
    assert (said["content"] or "") == (messages[1]["content"] or "")
    again = [*messages, {"role": "assistant", "content": found["choices"][0]["message"]["content"]}, user("next")]
    assert chat(one_gateway, model="small", messages=again)["conversation"] == found["conversation"]


def test_such_a_call_with_its_result_stays_and_may_be_refused_without(
    start_gateway: GatewayFactory, upstream: MockUpstream
) -> None:
    refusing = start_gateway({"upstream": {"hosted_tools": "refuse"}})
    answered = [user("a"), {"role": "assistant", "content": None, "tool_calls": [SEARCH]}, tool("srvtoolu_1", "x")]
    chat(refusing, model="small", messages=answered)
    assert upstream.last.body["messages"] == answered
    refused = refusing.post("/chat/completions", json={"model": "small", "messages": NO_RESULTS[0]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages[1]")
