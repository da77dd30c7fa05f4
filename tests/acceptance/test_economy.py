"""Passes that pay, by each API and on each storage (guarantee §4 I7, §6)."""

import json
import sqlite3
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, http, usage_of, user
from tests.support.documents import prose
from tests.support.edges import EDGES, PATHS, Edge, Heard, common, heard, said_by
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres

TOOL: Json = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}


class Agent:
    """A coding agent that sends everything again; `said` is all of it."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream, edge: Edge, name: str) -> None:
        self._at, self._upstream, self._edge = gateway.base_url, upstream, edge
        self._headers = {"authorization": f"Bearer sk-{name}-{edge}"}
        self.said: list[Json] = [user(f"Mend the {name}.")]
        self.forwarded: list[list[Json]] = []
        self.answers: list[Heard] = []

    def steps(self, count: int, **context: Any) -> None:
        """So many steps, each of which reads a file."""
        for _ in range(count):
            number = len(self.said)
            path = json.dumps({"path": f"src/part{number}.py"}, separators=(",", ":"))
            call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": path}}
            answer = {"role": "assistant", "content": None, "tool_calls": [call]}
            self._upstream.reply(message=answer, usage=usage_of(1000 + 300 * number, 10))
            body = {"model": "gpt-4o", "messages": self.said, "tools": [TOOL], "context": context}
            asked, at = said_by(self._edge, common(body)), f"{self._at}/{PATHS[self._edge]}"
            told = httpx.post(at, json=asked, headers=self._headers, timeout=30, trust_env=False)
            assert told.status_code == 200, told.text
            self.answers.append(heard(self._edge, told.json()))
            self.forwarded.append((self._upstream.last.body or {})["messages"])
            self.said += [answer, {"role": "tool", "tool_call_id": call["id"], "content": prose(number, 300)}]


def labels(messages: list[Json]) -> int:
    return sum(str(each["content"]).startswith("[Left out: tool result") for each in messages)


def let_time_pass(url: str, conversation: str | None, request: pytest.FixtureRequest) -> None:
    """It was used last eleven minutes earlier than it was."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10) as connection:
            at = "strftime('%Y-%m-%d %H:%M:%f', updated_at, '-11 minutes')"
            connection.execute(f"UPDATE conversations SET updated_at = {at} WHERE id = ?", (conversation,))
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    at = "updated_at - interval '11 minutes'"
    assert postgres.query(url, f"UPDATE conversations SET updated_at = {at} WHERE id = '{conversation}' RETURNING id")


@pytest.mark.parametrize("edge", EDGES)
def test_s4_i7_a_cold_turn_clears_old_results_by_each_api(
    gateway: GatewayProcess, upstream: MockUpstream, module_storage_url: str, request: pytest.FixtureRequest, edge: Edge
) -> None:
    agent = Agent(gateway, upstream, edge, "pier")
    agent.steps(16, economy="auto")
    assert not any(map(labels, agent.forwarded))
    let_time_pass(module_storage_url, agent.answers[-1].conversation, request)
    gateway.restart()
    agent.steps(3, economy="auto")
    before, first, *later = agent.forwarded[-4:]
    assert labels(first) >= 3
    assert len(first) == len(before) + 2
    assert all(each[: len(first)] == first for each in later)
    economics = agent.answers[-3].bill["economics"]
    assert (economics["mode"], economics["pass"]) == ("auto", "cold")
    assert Decimal(economics["net_saving"]) > 0
    assert Decimal(economics["direct_cost"]) - Decimal(economics["billed_cost"]) == Decimal(economics["net_saving"])


def test_s6_by_default_bills_say_what_would_have_been_saved(
    gateway: GatewayProcess, upstream: MockUpstream, module_storage_url: str, request: pytest.FixtureRequest
) -> None:
    agent = Agent(gateway, upstream, "chat", "lock")
    agent.steps(16)
    let_time_pass(module_storage_url, agent.answers[-1].conversation, request)
    agent.steps(2)
    assert agent.forwarded[-1] == agent.said[:-2]
    bill = agent.answers[-1].bill
    assert bill["economics"]["mode"] == "observe"
    assert Decimal(bill["economics"]["net_saving"]) == 0
    assert Decimal(bill["economics"]["direct_cost"]) == Decimal(str(bill["cost"]["total_cost"]))
    assert Decimal(bill["economics"]["estimated_saving"]) > 0
    assert "economics" not in agent.answers[0].bill


def test_s2_economy_is_one_of_three(gateway: GatewayProcess) -> None:
    body = {"model": "gpt-4o", "messages": [user("hi")], "context": {"economy": "always"}}
    with http(gateway) as client:
        answer = client.post("/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "context.economy"
