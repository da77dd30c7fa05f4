"""Conversations by id and by session: deltas, resends, branches, repeats, tenants (guarantee §3.1, §3.4-3.7, §8)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import APIError, BadRequestError, NotFoundError, OpenAI
from openai.types.chat import ChatCompletion

from tests.support.answers import Json, assistant, bill_of, conversation_of, user
from tests.support.mock_upstream import MockUpstream

SYSTEM = {"role": "system", "content": "Be brief."}
U1, A1, U2, A2 = user("first"), assistant("one"), user("second"), assistant("two")


def send(
    client: OpenAI, *messages: Any, reply: str | None = None, upstream: MockUpstream, **body: Any
) -> ChatCompletion:
    if reply is not None:
        upstream.reply(text=reply)
    return client.chat.completions.create(model="gpt-4o", messages=list(messages), extra_body=body)


@pytest.fixture
def two_turns(client: OpenAI, upstream: MockUpstream) -> str:
    """The id of a conversation U1 A1 U2 A2."""
    first = conversation_of(send(client, U1, reply="one", upstream=upstream))
    assert conversation_of(send(client, U2, reply="two", upstream=upstream, conversation=first)) == first
    assert upstream.last.body["messages"] == [U1, A1, U2]
    return first


def test_s2_the_ways_to_name_a_conversation(client: OpenAI, upstream: MockUpstream, two_turns: str) -> None:
    """`conversation` as id or object, header, metadata; the first that is present counts."""
    again = user("third")
    for body in (
        {"conversation": two_turns},
        {"conversation": {"id": two_turns}},
        {"metadata": {"conversation_id": two_turns}},
        {"metadata": {"conversation_id": two_turns, "longer than stored metadata": "x" * 513}},
    ):
        answer = send(client, again, upstream=upstream, **body)
        assert conversation_of(answer) == two_turns
        assert upstream.forwarded[:4] == [U1, A1, U2, A2]
        assert "conversation" not in upstream.last.body
    raw = client.chat.completions.with_raw_response.create(
        model="gpt-4o", messages=[user("third")], extra_headers={"X-Conversation-Id": two_turns}
    )
    assert raw.headers["x-conversation-id"] == conversation_of(raw.parse()) == two_turns
    other = conversation_of(send(client, user("elsewhere"), upstream=upstream))
    raw = client.chat.completions.with_raw_response.create(
        model="gpt-4o",
        messages=[user("which?")],
        extra_headers={"X-Conversation-Id": two_turns},
        extra_body={"conversation": other, "metadata": {"conversation_id": two_turns}},
    )
    assert raw.headers["x-conversation-id"] == other


def test_s3_4_a_question_that_runs_of_different_length_end_with_is_stored_once(
    client: OpenAI, upstream: MockUpstream, two_turns: str
) -> None:
    """A client trims its history, sends a question, and sends it again behind more of that history."""
    body = {"conversation": two_turns}
    third = user("third")
    send(client, U2, A2, third, reply="three", upstream=upstream, **body)
    fourth = user("fourth \n")
    send(client, third, assistant("three"), fourth, reply="four", upstream=upstream, **body)
    send(client, U2, A2, third, assistant("three"), user("fourth"), reply="four again", upstream=upstream, **body)
    assert upstream.forwarded == [U1, A1, U2, A2, third, assistant("three"), fourth]
    exported = client.get(f"/conversations/{two_turns}/export", cast_to=object)
    assert isinstance(exported, dict)
    assert sum(message["body"]["content"].strip() == "fourth" for message in exported["messages"]) == 1


def test_s3_1_a_branch_that_is_just_so_goes_before_one_with_steps_between(
    client: OpenAI, upstream: MockUpstream
) -> None:
    """Two branches say the same, one of them with tool steps: who sends no steps means the other."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    steps: list[Json] = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    steps.append({"role": "tool", "tool_call_id": "c1", "content": "a lamp"})
    body = {"conversation": conversation_of(send(client, U1, A1, U2, reply="two", upstream=upstream))}
    send(client, U1, *steps, A1, U2, reply="two, looked up", upstream=upstream, **body)
    send(client, U1, A1, user("second, edited"), upstream=upstream, **body)
    assert upstream.forwarded == [U1, A1, user("second, edited")]
    send(client, U1, *steps, A1, user("second, edited"), upstream=upstream, **body)
    assert upstream.forwarded == [U1, *steps, A1, user("second, edited")]


def test_s3_1_system_messages(client: OpenAI, upstream: MockUpstream) -> None:
    """System messages sent replace the stored ones; if none are sent, the stored stand."""
    body = {"conversation": conversation_of(send(client, SYSTEM, U1, reply="one", upstream=upstream))}
    send(client, U2, reply="two", upstream=upstream, **body)
    assert upstream.forwarded == [SYSTEM, U1, A1, U2]
    long = {"role": "developer", "content": "Be long."}
    send(client, long, user("third"), reply="three", upstream=upstream, **body)
    assert upstream.forwarded == [long, U1, A1, U2, A2, user("third")]
    send(client, U1, A1, U2, A2, user("third"), assistant("three"), user("fourth"), upstream=upstream, **body)
    assert upstream.forwarded[:2] == [long, U1]
    assert [m["role"] for m in upstream.forwarded].count("developer") == 1


def cached(message: Json) -> Json:
    """The message with the mark up to which its client wants the prompt cached."""
    mark = {"cache_control": {"type": "ephemeral"}}
    return {**message, "content": [{"type": "text", "text": message["content"], **mark}]}


@pytest.mark.parametrize("marked", [U1, A1], ids=["user", "assistant"])
def test_s4_i7_marks_stand_where_the_client_has_them_now(client: OpenAI, upstream: MockUpstream, marked: Json) -> None:
    """A client that marks the end of each request had one mark more in each, and was refused at the fifth; it lost
    those on answers."""
    said: list[Json] = []
    for number in range(6):
        said.append(user(f"question {number}"))
        at = max((i for i, each in enumerate(said) if each["role"] == marked["role"]), default=None)
        sent = [cached(each) if i == at else each for i, each in enumerate(said)]
        send(client, *sent, reply=f"answer {number}", upstream=upstream, context={"session": str(marked)})
        found = [i for i, each in enumerate(upstream.forwarded) if isinstance(each["content"], list)]
        assert [i for i in found if "cache_control" in str(upstream.forwarded[i])] == ([at] if at is not None else [])
        said.append(assistant(f"answer {number}"))


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_s4_i7_of_marks_that_are_not_sent_again_the_latest_stay(
    client: OpenAI, upstream: MockUpstream, api: str
) -> None:
    """As many as providers take: one more was a refusal."""
    body: Json = {"context": {"session": f"marks of deltas by {api}"}}
    for number in range(6):
        sent = cached(user(f"question {number}"))
        if api == "chat":
            send(client, sent, upstream=upstream, **body)
        else:
            client.responses.create(model="gpt-4o", input=[sent], extra_body=body)  # type: ignore[list-item]
    assert [at for at, each in enumerate(upstream.forwarded) if "cache_control" in str(each)] == [4, 6, 8, 10]


@pytest.mark.parametrize("by_header", [False, True])
def test_s2_sessions(client: OpenAI, upstream: MockUpstream, by_header: bool) -> None:
    """A name of the client's own: created at first use, one per tenant and name; an id outranks it."""
    name = f"chat {by_header}"
    headers = {"X-Context-Session": name} if by_header else {}
    body: Json = {} if by_header else {"context": {"session": name}}

    def in_session(client: OpenAI, message: Any, **more: Any) -> str:
        extra = {**body, **more}
        return conversation_of(
            client.chat.completions.create(model="gpt-4o", messages=[message], extra_headers=headers, extra_body=extra)
        )

    upstream.reply(text="one")
    first = in_session(client, U1)
    upstream.reply(text="two")
    assert in_session(client, U2) == first
    assert upstream.forwarded == [U1, A1, U2]
    elsewhere = conversation_of(send(client, user("elsewhere"), reply="there", upstream=upstream))
    assert in_session(client, user("x"), conversation=elsewhere) == elsewhere
    assert in_session(client.with_options(api_key="sk-another"), U1) != first
    assert upstream.forwarded == [U1]
    assert in_session(client, user("third")) == first
    assert upstream.forwarded == [U1, A1, U2, A2, user("third")]


def test_s3_7_requests_at_once_lose_nothing(client: OpenAI, upstream: MockUpstream, two_turns: str) -> None:
    """Each sees what was committed when it began; turns are appended whole in the order they commit."""
    gate = threading.Event()
    texts = [f"parallel {i}" for i in range(8)]
    for _ in texts:
        upstream.reply(gate=gate)
    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(send, client, user(t), upstream=upstream, conversation=two_turns) for t in texts]
        upstream.wait_for_chats(10)
        gate.set()
        assert {conversation_of(each.result()) for each in made} == {two_turns}
    for chat in upstream.chats[2:]:
        assert chat.body["messages"][:4] == [U1, A1, U2, A2]
        assert len(chat.body["messages"]) == 5
    send(client, user("last"), upstream=upstream, conversation=two_turns)
    messages = upstream.forwarded
    assert messages[:4] == [U1, A1, U2, A2]
    pairs = list(zip(messages[4:-1:2], messages[5:-1:2], strict=True))
    assert sorted(question["content"] for question, _ in pairs) == texts
    assert all(answer == assistant(f"echo: {question['content']}") for question, answer in pairs)


CALL: Json = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOLS: Json = {"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]}


@pytest.mark.parametrize("by", ["conversation", "previous_response_id"])
def test_s3_7_a_result_after_anothers_turn_goes_to_its_call(client: OpenAI, upstream: MockUpstream, by: str) -> None:
    """Its turn goes on at the end; nothing of either turn is lost, then or later."""
    upstream.reply(tool_calls=[CALL])
    first = send(client, U1, upstream=upstream, **TOOLS)
    between = send(client, U2, reply="two", upstream=upstream, conversation=conversation_of(first))
    assert upstream.forwarded == [U1, U2]
    upstream.reply(text="It is lit.")
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    loop = [U1, called, {"role": "tool", "tool_call_id": "call_1", "content": "lit"}]
    if by == "conversation":
        made = send(client, loop[2], upstream=upstream, conversation=conversation_of(first), **TOOLS)
        assert conversation_of(made) == conversation_of(first)
    else:
        output: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "lit"}]
        client.responses.create(
            model="gpt-4o", input=output, previous_response_id=between.id.replace("chatcmpl-", "resp_")
        )
    assert upstream.forwarded == [U2, A2, *loop]
    send(client, user("third"), upstream=upstream, conversation=conversation_of(first), **TOOLS)
    assert upstream.forwarded == [U2, A2, *loop, assistant("It is lit."), user("third")]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_s3_3_results_of_two_turns_come_apart(client: OpenAI, upstream: MockUpstream, order: tuple[int, int]) -> None:
    """Two answers are missing, and a request has one. The error names the result that belongs to another turn."""
    calls = {number: {**CALL, "id": f"call_{number}"} for number in order}
    results = [{"role": "tool", "tool_call_id": f"call_{number}", "content": "lit"} for number in order]
    upstream.reply(tool_calls=[calls[1]])
    name = conversation_of(send(client, U1, upstream=upstream, **TOOLS))
    upstream.reply(tool_calls=[calls[2]])
    send(client, U2, upstream=upstream, conversation=name, **TOOLS)
    with pytest.raises(BadRequestError, match="of another turn") as refused:
        send(client, *results, upstream=upstream, conversation=name, **TOOLS)
    assert (refused.value.code, refused.value.param) == ("tool_call_unknown", "messages[1]")
    for result, answer in zip(results, ("one", "two"), strict=True):
        send(client, result, reply=answer, upstream=upstream, conversation=name, **TOOLS)
    send(client, user("third"), upstream=upstream, conversation=name, **TOOLS)
    whole = {1: [U1, {"role": "assistant", "content": None, "tool_calls": [calls[1]]}]}
    whole[2] = [U2, {"role": "assistant", "content": None, "tool_calls": [calls[2]]}]
    turns = [[*whole[n], results[i], assistant(("one", "two")[i])] for i, n in enumerate(order)]
    assert upstream.forwarded == [*turns[0], *turns[1], user("third")]


@pytest.mark.parametrize("call_id", ["call_1", "call_2"])
def test_s3_3_a_result_that_no_turn_awaits_is_refused(client: OpenAI, upstream: MockUpstream, call_id: str) -> None:
    """Nor one that its call has already."""
    upstream.reply(tool_calls=[CALL])
    result: Json = {"role": "tool", "tool_call_id": "call_1", "content": "lit"}
    name = conversation_of(send(client, U1, upstream=upstream, **TOOLS))
    send(client, result, reply="one", upstream=upstream, conversation=name, **TOOLS)
    with pytest.raises(BadRequestError) as refused:
        send(client, {**result, "tool_call_id": call_id}, upstream=upstream, conversation=name, **TOOLS)
    assert (refused.value.code, refused.value.param) == ("tool_call_unknown", "messages[0]")


def test_s3_4_results_are_sent_again_after_a_broken_stream(client: OpenAI, upstream: MockUpstream) -> None:
    """The stored answer broke off: a client that retries its delta of results gets another, from their call on."""
    upstream.reply(tool_calls=[CALL])
    name = conversation_of(send(client, U1, upstream=upstream, **TOOLS))
    result: Any = {"role": "tool", "tool_call_id": "call_1", "content": "lit"}
    for words in ("It is not", "It may"):
        upstream.reply(text=words, cut_after=3)
        with pytest.raises(APIError):
            list(client.chat.completions.create(
                model="gpt-4o", messages=[result], stream=True, extra_body={"conversation": name, **TOOLS}
            ))  # fmt: skip
    loop = [U1, {"role": "assistant", "content": None, "tool_calls": [CALL]}, result]
    send(client, result, reply="It is lit.", upstream=upstream, conversation=name, **TOOLS)
    assert upstream.forwarded == loop
    send(client, U2, upstream=upstream, conversation=name, **TOOLS)
    assert upstream.forwarded == [*loop, assistant("It is lit."), U2]


@pytest.mark.parametrize("wrong", ["conv_" + "0" * 32, "conv_x", "nothing like an id", "", "conv_' OR 1=1 --"])
def test_s2_unknown_conversations(client: OpenAI, upstream: MockUpstream, two_turns: str, wrong: str) -> None:
    """Unknown, deleted or another tenant's: 404 `conversation_not_found`, all alike."""
    with pytest.raises(NotFoundError) as unknown:
        send(client, U1, upstream=upstream, conversation=wrong)
    assert unknown.value.code == "conversation_not_found"
    with pytest.raises(NotFoundError) as foreign:
        send(client.with_options(api_key="sk-another"), U1, upstream=upstream, conversation=two_turns)
    assert foreign.value.body == unknown.value.body
    assert len(upstream.chats) == 2, "nothing went up"


def test_s3_5_every_answer_names_its_conversation(client: OpenAI) -> None:
    """Body, header and bill agree; ids cannot be guessed."""
    raw = client.chat.completions.with_raw_response.create(model="gpt-4o", messages=[U1])
    answer = raw.parse()
    assert raw.headers["x-conversation-id"] == conversation_of(answer) == bill_of(answer)["conversation_id"]
    assert len(conversation_of(answer).removeprefix("conv_")) >= 22
