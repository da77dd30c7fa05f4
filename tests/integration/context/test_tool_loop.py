"""Tool loops on a conversation: deltas, resends, what comes back, what is refused (guarantee §3.1, §3.3, §4 I3)."""

from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.support.answers import Json, assistant, bill_of, conversation_of, http, read_stream, stored_of, user
from tests.support.factory import ClientFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.tool_loop import ASK, LOOP, TOOLS, call, calls, result


class Loop:
    """One conversation under way, by id."""

    def __init__(self, client: OpenAI, upstream: MockUpstream) -> None:
        self.client = client
        self.upstream = upstream
        self.id: str | None = None

    def send(self, *messages: Json, reply: Json | None = None, **more: Any) -> Json:
        """Sends messages, answered by `reply`; returns the answer's extra fields; `forwarded` is what went up."""
        if reply is not None:
            self.upstream.reply(message=reply)
        body = {} if self.id is None else {"conversation": self.id}
        options: Any = {"model": "gpt-4o", "messages": list(messages), "extra_body": {**body, **more}}
        if "tools" not in more:
            options["tools"] = TOOLS
        answer = self.client.chat.completions.create(**options)
        self.id = conversation_of(answer)
        return bill_of(answer)

    @property
    def forwarded(self) -> list[Json]:
        messages: list[Json] = self.upstream.last.body["messages"]
        return messages

    def run_once(self) -> None:
        """The whole of `LOOP`, by deltas."""
        self.send(ASK, reply=LOOP[1])
        self.send(LOOP[2], reply=LOOP[3])


@pytest.fixture
def loop(gateway: GatewayProcess, upstream: MockUpstream, make_client: ClientFactory) -> Loop:
    return Loop(make_client(gateway), upstream)


def test_s3_1_a_tool_loop_by_deltas(loop: Loop) -> None:
    """Only tool messages are sent; stored history is put in front of them."""
    loop.send(ASK, reply=LOOP[1])
    assert loop.forwarded == [ASK]
    loop.send(LOOP[2], reply=LOOP[3])
    assert loop.forwarded == LOOP[:3]


@pytest.mark.parametrize("by_id", [True, False])
def test_s3_a_streamed_call_has_no_empty_text(gateway: GatewayProcess, loop: Loop, by_id: bool) -> None:
    """§3.3: a stream whose text is empty leaves `content: null` beside its calls, as a plain answer does: stored, and
    forwarded again. Some providers refuse an empty text."""
    ask = user(f"What is the weather in Bern? {by_id}")
    loop.upstream.reply(message=calls(call("c1")))
    wire = read_stream(gateway, {"model": "gpt-4o", "messages": [ask], "tools": TOOLS})
    assert any(c["delta"].get("content") == "" for chunk in wire.chunks for c in chunk["choices"]), "it was sent empty"
    found = wire.chunks[0]["conversation"]["id"]
    [completion] = stored_of(gateway, found)
    assert completion["choices"][0]["message"]["content"] is None
    with http(gateway) as client:
        sent = (
            [result("c1", "12 degrees")] if by_id else [ask, calls(call("c1"), content=""), result("c1", "12 degrees")]
        )
        body = {"model": "gpt-4o", "messages": sent, "tools": TOOLS, **({"conversation": found} if by_id else {})}
        assert client.post("/chat/completions", json=body).json()["conversation"]["id"] == found
    assert loop.forwarded == [ask, calls(call("c1")), result("c1", "12 degrees")]


def test_s3_tool_results_come_back_in_the_next_turn(loop: Loop) -> None:
    """The next turn's forwarded messages hold the calls and results of this one, as the messages they were."""
    loop.run_once()
    again = user("And tomorrow?")
    loop.send(again, reply=calls(call("c2", city="Bern", days=1)))
    assert loop.forwarded == [*LOOP, again]
    loop.send(result("c2", "sun"), reply=assistant("Sun tomorrow."))
    assert loop.forwarded == [*LOOP, again, calls(call("c2", city="Bern", days=1)), result("c2", "sun")]
    loop.send(user("Thanks"))
    assert loop.forwarded[-2:] == [assistant("Sun tomorrow."), user("Thanks")]
    assert len(loop.forwarded) == 9
    assert [turn["status"] for turn in stored_of_loop(loop)] == ["complete"] * 5


def stored_of_loop(loop: Loop) -> list[Json]:
    answer: Any = loop.client.get("/chat/completions", cast_to=object, options={"params": {"conversation": loop.id}})
    found: list[Json] = answer["data"]
    return found


def test_s4_i3_parallel_calls_stay_together(loop: Loop) -> None:
    """Both results of parallel calls go up after the message with the calls, in the order they were sent."""
    both = calls(call("a", city="Bern"), call("b", "clock"), content="one moment")
    loop.send(ASK, reply=both)
    answers = [result("b", "12:00"), result("a", "12 degrees")]
    loop.send(*answers, reply=assistant("Noon, 12 degrees."))
    assert loop.forwarded == [ASK, both, *answers]
    loop.send(user("ok"))
    assert loop.forwarded == [ASK, both, *answers, assistant("Noon, 12 degrees."), user("ok")]


def test_s3_4_an_edited_result_of_parallel_calls(loop: Loop) -> None:
    """§3.4: a branch in the middle of a step: the first result is the stored one, the second the client's own."""
    both = calls(call("a", city="Bern"), call("b", "clock"))
    loop.send(ASK, reply=both)
    loop.send(result("a", "12 degrees"), result("b", "12:00"), reply=assistant("Noon."))
    sent = [ASK, both, result("a", "12 degrees"), result("b", "13:00")]
    loop.send(*sent, reply=assistant("One."))
    assert loop.forwarded == sent
    loop.send(user("ok"))
    assert loop.forwarded == [*sent, assistant("One."), user("ok")]


def test_s3_1_local_servers_repeat_ids(loop: Loop) -> None:
    """Calls and results are paired by adjacency: the same id in two turns is no confusion."""
    loop.run_once()
    loop.send(user("And in Basel?"), reply=calls(call("c1", city="Basel")))
    loop.send(result("c1", "15 degrees"), reply=assistant("15 in Basel."))
    loop.send(user("Sum up"))
    basel = [user("And in Basel?"), calls(call("c1", city="Basel")), result("c1", "15 degrees")]
    assert loop.forwarded == [*LOOP, *basel, assistant("15 in Basel."), user("Sum up")]


def test_s3_1_a_resend_without_tool_messages_is_restored(loop: Loop) -> None:
    """A client that keeps only what was said gets its tool results back."""
    loop.run_once()
    again = user("Was that rain?")
    bill = loop.send(ASK, LOOP[3], again)
    assert loop.forwarded == [*LOOP, again]
    assert bill["context_utilization"]["strategy"] == "simple"
    loop.send(user("Sure?"))
    assert loop.forwarded[:6] == [*LOOP, again, loop.forwarded[5]]
    assert len(loop.forwarded) == 7, "nothing was doubled"


def test_s3_1_a_full_resend_is_forwarded_as_it_is(loop: Loop) -> None:
    """Nothing is doubled, and the messages go up equal as JSON."""
    loop.run_once()
    again = user("Was that rain?")
    bill = loop.send(*LOOP, again, reply=assistant("Yes."))
    assert loop.forwarded == [*LOOP, again]
    assert bill["context_utilization"]["strategy"] == "passthrough"
    bill = loop.send(*LOOP, again, assistant("Yes."), user("Sure?"))
    assert loop.forwarded == [*LOOP, again, assistant("Yes."), user("Sure?")]


def test_s3_1_a_loop_of_full_resends(loop: Loop) -> None:
    """The ordinary agent: every step resends everything, by id."""
    sent: list[Json] = [ASK]
    for step in range(4):
        wanted = calls(call(f"s{step}", city=str(step)))
        loop.send(*sent, reply=wanted)
        assert loop.forwarded == sent
        sent += [wanted, result(f"s{step}", f"{step} degrees")]
    loop.send(*sent, reply=assistant("done"))
    assert loop.forwarded == sent
    loop.send(user("more"))
    assert loop.forwarded == [*sent, assistant("done"), user("more")]


def test_s3_1_a_run_that_ends_at_the_head(loop: Loop) -> None:
    """A client that trims its own oldest messages: the run it sends continues the head, the rest is put in front."""
    loop.run_once()
    loop.send(user("two"), reply=assistant("second"))
    loop.send(user("two"), assistant("second"), user("three"))
    assert loop.forwarded == [*LOOP, user("two"), assistant("second"), user("three")]


def test_s3_4_runs_of_different_lengths_store_each_message_once(loop: Loop, gateway: GatewayProcess) -> None:
    """§3.1, §3.4: a client that trims now more, now less of its history: a run that begins like an earlier one did is
    followed up to the head, and nothing of it is stored again."""
    said: list[Json] = []
    for number in range(16):
        trimmed = said[{10: 4, 15: 4}.get(number, max(len(said) - 6, 0)) :]
        loop.send(*trimmed, user(f"q{number}"), reply=assistant(f"a{number}"))
        said += [user(f"q{number}"), assistant(f"a{number}")]
        assert loop.forwarded == said[:-1]
    with http(gateway) as client:
        export = client.get(f"/conversations/{loop.id}/export").json()
    assert len(export["messages"]) == len(said)


def test_s1_reasoning_content_is_put_back(loop: Loop) -> None:
    """`reasoning_content` and signatures are kept verbatim and put back when the client dropped them."""
    thought = {**LOOP[1], "reasoning_content": "Bern, so ask for Bern", "thought_signature": "c2ln"}
    loop.send(ASK, reply=thought)
    loop.send(LOOP[2], reply={**LOOP[3], "reasoning_content": "rain then"})
    assert loop.forwarded == [ASK, thought, LOOP[2]]
    loop.send(*LOOP, user("more"))
    assert loop.forwarded == [ASK, thought, LOOP[2], {**LOOP[3], "reasoning_content": "rain then"}, user("more")]


def test_s3_3_a_result_without_its_call(loop: Loop) -> None:
    """A `tool` message whose call is nowhere: 400 naming messages[i], and nothing goes up or is stored."""
    with pytest.raises(BadRequestError) as caught:
        loop.send(ASK, result("nobody", "x"))
    assert caught.value.param == "messages[1]"
    assert "messages[1]" in caught.value.message
    loop.run_once()
    before = len(stored_of_loop(loop))
    with pytest.raises(BadRequestError) as caught:
        loop.send(result("c1", "the same again"))
    assert caught.value.param == "messages[0]"
    with pytest.raises(BadRequestError) as caught:
        loop.send({"role": "system", "content": "s"}, user("x"), result("zzz", "y"))
    assert caught.value.param == "messages[2]"
    assert len(loop.upstream.chats) == 2
    assert len(stored_of_loop(loop)) == before


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([ASK, LOOP[1], user("never mind")], 1),
        ([ASK, LOOP[1]], 1),
        ([ASK, calls(call("a"), call("b")), result("a", "x"), user("so?")], 1),
        ([ASK, calls(call("a"), call("b")), result("b", "x")], 1),
        ([{"role": "system", "content": "s"}, *LOOP, user("x"), calls(call("d")), user("y")], 6),
    ],
)
def test_s3_3_a_call_left_unanswered_in_a_resend(loop: Loop, messages: list[Json], named: int) -> None:
    """A call left unanswered in a resend: 400 naming messages[i]."""
    with pytest.raises(BadRequestError) as caught:
        loop.send(*messages)
    assert caught.value.param == f"messages[{named}]"
    assert not loop.upstream.chats


def test_s4_i3_calls_that_the_client_never_answers(loop: Loop) -> None:
    """A user message instead of the results: neither half of the pair is forwarded alone."""
    loop.send(ASK, reply=calls(call("c1"), content="let me look"))
    loop.send(user("never mind"))
    assert loop.forwarded == [ASK, assistant("let me look"), user("never mind")]
