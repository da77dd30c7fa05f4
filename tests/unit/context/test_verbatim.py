"""What was said once is forwarded again as it was: resent, or put in front of a delta (guarantee §1, §3.1)."""

from typing import Any

import pytest
from openai import OpenAI

from tests.support.answers import (
    Json,
    assistant,
    chat,
    conversation_of,
    function_tool,
    image_part,
    system,
    text_part,
    tool_call,
    tool_result,
    user,
)
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

U1, A1, U2 = user("first"), assistant("one"), user("second")
CALL = tool_call("c", "f", '{ "x": 1.0 }')
RESULT = tool_result("c", "found")
THINKING = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, text_part("said")]

SAID: dict[str, list[Json]] = {
    "plain": [U1, A1, U2],
    "a refusal": [U1, assistant(None, refusal="I will not."), U2],
    "a refusal part": [U1, assistant([{"type": "refusal", "refusal": "no"}]), U2],
    "an audio answer": [U1, assistant(None, audio={"id": "audio_1"}), U2],
    "an empty answer": [U1, assistant(""), U2],
    "two users in a row": [U1, U2],
    "two assistants in a row": [U1, A1, assistant("and more"), U2],
    "a greeting first": [assistant("Hello!"), U1],
    "a developer message in the middle": [U1, A1, {"role": "developer", "content": "From now on: briefly."}, U2],
    "a system message first and one in the middle": [system("s1"), U1, A1, system("s2"), U2],
    "parts": [user([text_part("a"), text_part("b")]), A1, U2],
    "an image": [user([image_part("data:image/png;base64,AAAA")]), A1, U2],
    "names": [{**U1, "name": "Ada"}, {**A1, "name": "Bot"}, U2],
    "tools": [U1, assistant(None, tool_calls=[CALL]), RESULT, A1, U2],
    "tools with text, and parts in the result": [
        U1,
        assistant("wait", tool_calls=[CALL]),
        {**RESULT, "content": [text_part("found")]},
        A1,
        U2,
    ],
    "an empty result": [U1, assistant(None, tool_calls=[CALL]), {**RESULT, "content": ""}, U2],
    "the same call id twice": [
        U1,
        assistant(None, tool_calls=[CALL]),
        RESULT,
        assistant(None, tool_calls=[CALL]),
        {**RESULT, "content": "found more"},
        A1,
        U2,
    ],
    "functions of old": [
        U1,
        assistant(None, function_call={"name": "f", "arguments": "{}"}),
        {"role": "function", "name": "f", "content": "found"},
        A1,
        U2,
    ],
    "reasoning": [U1, {**A1, "reasoning_content": "because", "thought_signature": "c2ln"}, U2],
    "thinking blocks": [U1, assistant(THINKING), U2],
    "cache control": [user([text_part("a", cache_control={"type": "ephemeral"})]), A1, U2],
    "unknown fields": [{**U1, "x": {"y": [1, 2.5, None]}}, {**A1, "annotations": []}, U2],
    "white space": [user("  first \n"), assistant("\none\n"), user(" second")],
    "odd characters": [user("a\u0000b\u2028c\ufeffd\u202e🌊"), A1, U2],
}

TOOLS: list[Any] = [function_tool("f", parameters={"type": "object"})]
"""Without them restored steps are no messages (§3.3)."""


@pytest.mark.parametrize("name", SAID)
def test_s1_what_is_sent_goes_up_equal_as_json(one_gateway: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """When nothing is reduced, restored or dropped, the forwarded messages are what the client sent; so at the first
    request, at a resend by id, and as the history in front of a delta."""
    said = SAID[name]
    upstream.reply(text="answer one")
    first = chat(one_gateway, model="gpt-4o", messages=said)
    assert upstream.last.body["messages"] == said
    body: Any = {"model": "gpt-4o", "conversation": first["conversation"]}
    longer = [*said, assistant("answer one"), user("third")]
    upstream.reply(text="answer two")
    chat(one_gateway, **body, messages=longer)
    assert upstream.last.body["messages"] == longer
    tools: Any = {"tools": TOOLS} if any(message.get("tool_calls") for message in said) else {}
    if any(message.get("function_call") for message in said):
        tools = {"functions": [TOOLS[0]["function"]]}
    chat(one_gateway, **body, **tools, messages=[user("fourth")])
    assert upstream.last.body["messages"] == [*longer, assistant("answer two"), user("fourth")]


@pytest.mark.parametrize("store", [True, False])
def test_s1_2_answers_go_up_again_with_their_empty_fields(
    one_gateway: GatewayProcess, upstream: MockUpstream, store: bool
) -> None:
    """SDKs send an answer again as it came; whoever writes it anew leaves out what is empty. Both go up as sent."""
    empty: Json = {"refusal": None, "annotations": []}
    said = [user(f"first, stored: {store}")]
    for answer in (assistant(None, tool_calls=[CALL]), assistant("found it"), assistant("and more")):
        upstream.reply(message={**answer, **empty})
        got = chat(one_gateway, model="gpt-4o", messages=said, tools=TOOLS, store=store)["choices"][0]["message"]
        assert got == {**answer, **empty}
        said = [*said, got, RESULT if answer.get("tool_calls") else user("and then?")]
        chat(one_gateway, model="gpt-4o", messages=said, tools=TOOLS, store=store)
        assert upstream.last.body["messages"] == said
    bare = [{name: value for name, value in each.items() if name not in empty} for each in said]
    chat(one_gateway, model="gpt-4o", messages=bare, tools=TOOLS, store=store)
    assert upstream.last.body["messages"] == bare


@pytest.mark.parametrize("own", [{"weight": 1}, {"prefix": True, "annotations": []}, {"metadata": {"a": "b"}}])
def test_s1_2_a_clients_own_fields_of_an_answer_go_up(
    one_gateway: GatewayProcess, upstream: MockUpstream, own: Json
) -> None:
    """By id, too, where the answer is forwarded as it was stored."""
    upstream.reply(text="answer one")
    first = chat(one_gateway, model="gpt-4o", messages=[U1])
    said = [U1, {**assistant("answer one"), **own}, U2]
    second = chat(one_gateway, model="gpt-4o", messages=said, conversation=first["conversation"])
    assert upstream.last.body["messages"] == said
    assert second["conversation"] == first["conversation"]


BAD, GOOD = {"url": "data:image/png;base64,AAAA"}, {"url": "data:image/png;base64,BBBB"}
EDITED: dict[str, tuple[list[Json], list[Json]]] = {
    "a word": ([U1, A1], [user("first, edited"), A1]),
    "inner white space": ([U1, A1], [U1, assistant("o ne")]),
    "letter case": ([U1, A1], [U1, assistant("One")]),
    "a name": ([{**U1, "name": "Ada"}, A1], [{**U1, "name": "Bob"}, A1]),
    "a refusal": ([U1, assistant(None, refusal="no")], [U1, assistant(None, refusal="never")]),
    "an image": (
        [user([{"type": "image_url", "image_url": BAD}]), A1],
        [user([{"type": "image_url", "image_url": GOOD}]), A1],
    ),
    "a tool's result": (
        [U1, assistant(None, tool_calls=[CALL]), RESULT, A1],
        [U1, assistant(None, tool_calls=[CALL]), {**RESULT, "content": "lost"}, A1],
    ),
}


@pytest.mark.parametrize("name", EDITED)
def test_s3_1_any_edit_is_a_difference(one_gateway: GatewayProcess, upstream: MockUpstream, name: str) -> None:
    """The first difference branches, whatever differs but outer white space: the edit is what goes up."""
    before, after = EDITED[name]
    upstream.reply(text="answer")
    first = chat(one_gateway, model="gpt-4o", messages=[*before, U2])
    longer = [*after, U2, assistant("answer"), user("third")]
    chat(one_gateway, model="gpt-4o", messages=longer, conversation=first["conversation"])
    assert upstream.last.body["messages"] == longer


def test_s3_4_an_old_branch_is_taken_up_again(gateway: GatewayProcess, upstream: MockUpstream) -> None:
    """Nothing stored is rewritten: a client that goes back to the first branch gets its tool results restored there."""
    upstream.reply(message=assistant(None, tool_calls=[CALL]))
    first = chat(gateway, model="gpt-4o", messages=[U1])
    body: Any = {"model": "gpt-4o", "conversation": first["conversation"]}
    upstream.reply(text="one")
    chat(gateway, **body, messages=[RESULT])
    chat(gateway, **body, messages=[user("first, edited"), assistant("never said"), U2])
    chat(gateway, **body, messages=[U1, A1, user("back again")], tools=TOOLS)
    calls = assistant(None, tool_calls=[CALL])
    assert upstream.last.body["messages"] == [U1, calls, RESULT, A1, user("back again")]


def test_s2_the_same_attachment_again(client: OpenAI, upstream: MockUpstream) -> None:
    """A client that attaches the same paper with each request has attached it once."""
    paper = {"title": "Paper", "content": "The code is K124. " * 20}
    answer = client.chat.completions.create(model="gpt-4o", messages=[U1], extra_body={"attachments": [paper]})
    body = {"attachments": [paper], "conversation": conversation_of(answer)}
    answer = client.chat.completions.create(model="gpt-4o", messages=[U2], extra_body=body)
    forwarded = "".join(message["content"] for message in upstream.last.body["messages"])
    assert forwarded.count(paper["content"].strip()) == 1
