"""Every statement of a turn finds what it needs by an index, however many messages others have."""

from typing import Any

import httpx
import pytest

from tests.support.answers import assistant, function_tool, ok, tool_call, tool_result, user
from tests.support.factory import GatewayFactory
from tests.support.mock_upstream import MockUpstream
from tests.support.plans import explain, large_steps, multiply, plans
from tests.support.postgres import PostgresProcess

LARGE = frozenset({"conversations", "messages", "message_links", "chains", "ledger"})
TOOLS = [function_tool("look_up", parameters={"type": "object", "properties": {}})]
TURNS = 60


@pytest.mark.chaos
def test_no_statement_of_a_turn_reads_or_sorts_a_table_of_a_million_messages(
    start_gateway: GatewayFactory, upstream: MockUpstream, chaos_postgres: PostgresProcess
) -> None:
    """§3.2 "one indexed read, however long the chain"; reading a turn reads the window, writing one writes the turn."""
    url = chaos_postgres.new_database()
    gateway = start_gateway({"storage": {"url": url}})
    with httpx.Client(base_url=gateway.base_url, trust_env=False, timeout=60) as client:
        talks = [_Talk(client, upstream, named) for named in ("id", "session", None)]
        for talk in talks:
            talk.seed(TURNS)
        gateway.terminate()
        assert multiply(chaos_postgres, url, 1_000_000 // (3 * 4 * TURNS)) > 900_000
        explain(chaos_postgres, url)
        gateway.start()
        for talk in talks:
            for resends in (True, False):
                talk.turn(resends=resends or talk.named is None)
        gateway.terminate()
    found = plans(chaos_postgres.log)
    explained = " ".join(query for query, _ in found)
    for table in ("messages", "message_links", "chains", "conversations"):
        assert f"FROM {table}" in explained, "what is explained are the statements of turns"
    wrong = {query: lines for query, plan in found if (lines := large_steps(plan, LARGE))}
    assert not wrong


class _Talk:
    """An agent's conversation: a turn is a question, a call, its result and an answer."""

    def __init__(self, client: httpx.Client, upstream: MockUpstream, named: str | None) -> None:
        self._client, self._upstream, self.named = client, upstream, named
        self._messages: list[dict[str, Any]] = []
        self._conversation_id: str | None = None

    def seed(self, turns: int) -> None:
        """So many turns, told in one request."""
        for number in range(turns):
            call = tool_call(f"call_{number}", "look_up")
            self._messages += [
                user(f"question {number} of {self.named}"),
                assistant(None, tool_calls=[call]),
                tool_result(call["id"], f"result {number} of {self.named}"),
                assistant(f"answer {number} of {self.named}"),
            ]
        self._ask([user(f"the end of {self.named}")], resends=True)

    def turn(self, *, resends: bool) -> None:
        """A question, a call and its result, the answer."""
        self._upstream.reply(tool_calls=[("look_up", {})])
        asked = self._ask([user(f"more of {self.named}: {len(self._messages)}")], resends=resends)
        results = [tool_result(c["id"], "found") for c in asked["tool_calls"]]
        self._ask(results, resends=resends)

    def _ask(self, new: list[dict[str, Any]], *, resends: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": "gpt-4o",
            "messages": [*self._messages, *new] if resends else new,
            "tools": TOOLS,
        }
        if self.named == "session":
            body["context"] = {"session": "a session"}
        elif self.named == "id" and self._conversation_id:
            body["conversation"] = self._conversation_id
        answer = ok(self._client.post("/chat/completions", json=body))
        known = answer["conversation"]["id"]
        assert self._conversation_id in (None, known)
        self._conversation_id = known
        told = answer["choices"][0]["message"]
        message = {name: told[name] for name in ("role", "content", "tool_calls") if name in told}
        self._messages += [*new, message]
        return message
