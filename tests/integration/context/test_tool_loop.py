"""Tool loops on a conversation: deltas, resends, what comes back, what is refused (guarantee §3.1, §3.3, §4 I3)."""

from typing import Any

import pytest
from openai import OpenAI

from tests.support.answers import Json, assistant, read_stream, stored_of, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.tool_loop import ASK, LOOP, TOOLS, Talk, call, calls, result


class Loop(Talk):
    """One conversation under way."""

    def run_once(self) -> None:
        """The whole of `LOOP`, by deltas."""
        self.send(ASK, reply=LOOP[1])
        self.send(LOOP[2], reply=LOOP[3])


@pytest.fixture
def loop(client: OpenAI, upstream: MockUpstream) -> Loop:
    return Loop(client, upstream)


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
    sent = [result("c1", "12 degrees")] if by_id else [ask, calls(call("c1"), content=""), result("c1", "12 degrees")]
    body = {"model": "gpt-4o", "messages": sent, "tools": TOOLS, **({"conversation": found} if by_id else {})}
    assert gateway.post("/chat/completions", json=body).json()["conversation"]["id"] == found
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


def test_s3_4_runs_of_different_lengths_store_each_message_once(loop: Loop, gateway: GatewayProcess) -> None:
    """§3.1, §3.4: a client that trims now more, now less of its history: a run that begins like an earlier one did is
    followed up to the head, and nothing of it is stored again."""
    said: list[Json] = []
    for number in range(16):
        trimmed = said[{10: 4, 15: 4}.get(number, max(len(said) - 6, 0)) :]
        loop.send(*trimmed, user(f"q{number}"), reply=assistant(f"a{number}"))
        said += [user(f"q{number}"), assistant(f"a{number}")]
        assert loop.forwarded == said[:-1]
    export = gateway.get(f"/conversations/{loop.id}/export").json()
    assert len(export["messages"]) == len(said)
