"""Passes that pay, by each API and on each storage (guarantee §4 I7, §6)."""

import json
import sqlite3
from decimal import Decimal
from typing import Any

import httpx
import pytest

from tests.support.answers import Json, ok, usage_of, user
from tests.support.command import gateway_command
from tests.support.documents import prose
from tests.support.edges import EDGES, PATHS, Edge, Heard, common, heard, said_by
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.marks import some_or_all
from tests.support.mock_upstream import MockUpstream
from tests.support.postgres import Postgres

TOOL: Json = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}


class Agent:
    """A coding agent that sends everything again; `said` is all of it. `prompt`: tokens that its upstream reports, in
    the place of some more at each step; `cached`: how many of them it reads from its cache, told
    by two names with `both_names`."""

    def __init__(self, gateway: GatewayProcess, upstream: MockUpstream, edge: Edge, name: str) -> None:
        self._at, self._upstream, self._edge = gateway.base_url, upstream, edge
        self._headers = {"authorization": f"Bearer sk-{name}-{edge}"}
        self.said: list[Json] = [user(f"Mend the {name}.")]
        self.forwarded: list[list[Json]] = []
        self.answers: list[Heard] = []
        self.tools = [TOOL]
        self.prompt: int | None = None
        self.cached: int | None = None
        self.both_names = False
        self.stored, self.conversation = True, ""
        self.reads_again: int | None = None

    def steps(self, count: int, **context: Any) -> None:
        """So many steps, each of which reads a file."""
        for _ in range(count):
            number = len(self.said)
            part = number if self.reads_again is None else self.reads_again - 1
            path = json.dumps({"path": f"src/part{part}.py"}, separators=(",", ":"))
            call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": path}}
            answer = {"role": "assistant", "content": None, "tool_calls": [call]}
            details: Json = {} if self.cached is None else {"prompt_tokens_details": {"cached_tokens": self.cached}}
            if self.both_names:
                details |= {"cache_read_input_tokens": self.cached}
            self._upstream.reply(message=answer, usage=usage_of(self.prompt or 1000 + 300 * number, 10, **details))
            body: Json = {"model": "gpt-4o", "messages": self.said, "tools": self.tools, "context": context}
            body |= {} if self.stored else {"store": False}
            body |= {"conversation": self.conversation} if self.conversation else {}
            asked, at = said_by(self._edge, common(body)), f"{self._at}/{PATHS[self._edge]}"
            told = ok(httpx.post(at, json=asked, headers=self._headers, timeout=30, trust_env=False))
            self.answers.append(heard(self._edge, told))
            self.forwarded.append((self._upstream.last.body or {})["messages"])
            self.said += [answer, {"role": "tool", "tool_call_id": call["id"], "content": prose(part, 300)}]


def labelled(messages: list[Json]) -> list[int]:
    return [at for at, each in enumerate(messages) if str(each["content"]).startswith("[Left out: tool result")]


def labels(messages: list[Json]) -> int:
    return len(labelled(messages))


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
    agent.reads_again = min(labelled(first))
    agent.steps(2, economy="auto")
    assert agent.answers[-1].bill["economics"]["bounced"]["tokens"] > 100, "it was cut, and is read again"
    assert not any("bounced" in each.bill.get("economics", {}) for each in agent.answers[:-1])
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


@pytest.mark.parametrize("edge", some_or_all(EDGES, ("chat",)))
def test_s13_14_a_share_of_conversations_goes_direct(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str, request: pytest.FixtureRequest, edge: Edge
) -> None:
    """Each request of a conversation is on the same side, after a restart, too; no pass is made on that side, and the
    report tells what both cost."""
    config: Json = {"storage": {"url": storage_url}, "context": {"economy": "auto", "economy_holdout": 0.5}}
    gateway = start_gateway(config)
    agents: list[Agent] = []
    sides: dict[bool, Agent] = {}
    while len(sides) < 2 and len(agents) < 64:
        agents.append(Agent(gateway, upstream, edge, f"quay{len(agents)}"))
        agents[-1].steps(6)
        (side,) = {each.bill["economics"]["holdout"] for each in agents[-1].answers}
        sides.setdefault(side, agents[-1])
    direct, other = sides[True], sides[False]
    for agent in (direct, other):
        agent.steps(10)
        let_time_pass(storage_url, agent.answers[-1].conversation, request)
    gateway.restart()
    for agent in (direct, other):
        agent.steps(1)
    assert (labels(direct.forwarded[-1]), direct.answers[-1].bill["economics"]["holdout"]) == (0, True)
    assert (labels(other.forwarded[-1]) > 0, other.answers[-1].bill["economics"]["holdout"]) == (True, False)
    done = gateway_command("savings", "--config", str(gateway.config_path), "--json", directory=gateway.directory)
    bills = [each.bill for agent in agents for each in agent.answers]
    compared = json.loads(done.stdout)["compared"]
    for side, held in (("direct", True), ("economised", False)):
        costs = [bill["cost"]["total_cost"] for bill in bills if bill["economics"]["holdout"] is held]
        assert compared[side]["requests"] == len(costs)
        assert compared[side]["cost_per_request"] == pytest.approx(sum(costs) / len(costs))


def test_s13_14_a_session_is_on_one_side_whether_it_is_stored_or_not(
    start_gateway: GatewayFactory, upstream: MockUpstream, storage_url: str
) -> None:
    """Also where its client compacts, and where it is named by its conversation's id."""
    gateway = start_gateway({"storage": {"url": storage_url}, "context": {"economy": "auto", "economy_holdout": 0.5}})
    sides = []
    for name in map(str, range(12)):  # all on one side by chance: once in two thousand runs
        agent = Agent(gateway, upstream, "chat", "mole")
        for store, first in ((False, "a"), (False, "b"), (True, "c"), (False, "d"), (True, "c")):
            agent.said, agent.stored = [user(f"{first} of {name}")], store
            agent.steps(2, session=name)
        agent.conversation = agent.answers[-1].conversation or ""
        agent.steps(1)
        sides.append({each.bill["economics"]["holdout"] for each in agent.answers if "economics" in each.bill})
    assert all(len(each) == 1 for each in sides)
    assert {side for each in sides for side in each} == {True, False}


@pytest.mark.parametrize("edge", EDGES)
def test_s6_11_where_a_prompt_cache_broke_is_told(gateway: GatewayProcess, upstream: MockUpstream, edge: Edge) -> None:
    """By each API, also by a process that did not answer the request before; the page tells it, too."""
    agent = Agent(gateway, upstream, edge, "weir")

    def step(cached: int) -> Json | None:
        agent.cached = cached
        agent.steps(1)
        found: Json | None = agent.answers[-1].bill.get("cache")
        return found

    agent.prompt = 9000
    assert step(0) is None
    assert step(8960) is None
    assert step(0) == {"broke_at": "provider", "promised_tokens": 9000, "cached_tokens": 0}
    agent.tools = [{**TOOL, "function": {**TOOL["function"], "description": "Reads."}}]
    assert (step(0) or {})["broke_at"] == "tools"
    assert step(8960) is None
    agent.both_names = True
    assert step(9000) is None
    found = step(4000)
    assert (found or {}).get("cached_tokens") == 4000  # told by two names, it is read once
    agent.both_names = False
    gateway.restart()
    assert (step(0) or {})["broke_at"] == "provider"
    agent.said[6] = {**agent.said[6], "content": "No such file."}
    assert (step(0) or {})["broke_at"] == "message 7"
