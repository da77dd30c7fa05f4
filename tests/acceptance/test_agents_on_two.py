"""Four agents at once, two gateways, one PostgreSQL: nothing is lost, nothing doubled (guarantee §11.4, §3.7)."""

import asyncio
import random
import threading
from collections import Counter
from typing import Any

from openai import AsyncOpenAI

from tests.chaos.audit import broken_rules, rows
from tests.support.answers import Json, http, user
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record, Reply

WRITERS = [f"writer-{number}" for number in range(4)]
ROUNDS = 6
OF_DELIVERIES = {"a message without a bill", "an answered bill without its question"}
"""Rules that do not hold of an item that was added, and of a message that is delivered to several agents."""


class Writers:
    """The model behind the agents: it knows each by its instruction, and answers each request once it is let go."""

    def __init__(self, upstream: MockUpstream) -> None:
        self.gates: dict[str, threading.Event] = {}
        self.prompts: dict[str, str] = {}
        self._round = 0
        upstream.handler = self._reply

    def begin(self, number: int) -> None:
        """All requests from here on belong to this round."""
        self._round = number
        self.gates = {name: threading.Event() for name in WRITERS}
        self.prompts = {}

    def _reply(self, record: Record) -> Reply:
        system, prompt = record.body["messages"]
        name = system["content"]
        self.prompts[name] = prompt["content"]
        return Reply(text=mail(self._round, name), gate=self.gates[name])


def mail(number: int, name: str) -> str:
    return f"mail {number} of {name}"


async def write(client: AsyncOpenAI, name: str, conversation: str, *, streamed: bool) -> str:
    """What the agent answers to the latest message of the conversation."""
    agent = {"id": name, "type": "claude-code", "instruction": name, "window": 1000}
    body: Json = {"agent": agent, "conversation": conversation}
    nothing: Any = []
    if not streamed:
        whole = await client.chat.completions.create(model="gpt-4o", messages=nothing, extra_body=body)
        return whole.choices[0].message.content or ""
    stream = await client.chat.completions.create(model="gpt-4o", messages=nothing, extra_body=body, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def test_s11_4_four_agents_at_once_on_two_replicas(
    replica_clients: list[AsyncOpenAI], replicas: list[GatewayProcess], upstream: MockUpstream, replicas_database: str
) -> None:
    """§11.4, §3.7: in each round all four are given the same message by two processes, plain and streamed, and answer
    in any order; each of the next round reads every mail of the rounds before, once."""
    chance, writers = random.Random(11), Writers(upstream)
    with http(replicas[0]) as client:
        task = {"type": "message", "role": "user", "content": "Write four mails."}
        conversation = client.post("/conversations", json={"items": [task]}).json()["id"]
    written: list[str] = []
    for number in range(ROUNDS):
        writers.begin(number)
        before = len(upstream.chats)
        at = chance.sample(range(4), 4)
        asked = {
            name: asyncio.ensure_future(write(replica_clients[at[n] % 2], name, conversation, streamed=at[n] > 1))
            for n, name in enumerate(WRITERS)
        }
        await asyncio.to_thread(upstream.wait_for_chats, before + 4)
        assert len(set(writers.prompts.values())) == 1, "all see the same"
        (prompt,) = set(writers.prompts.values())
        assert Counter(prompt.count(each) for each in written).keys() <= {1}, "each mail before, once"
        for name in chance.sample(WRITERS, 4):
            writers.gates[name].set()
        answers = await asyncio.gather(*asked.values())
        assert dict(zip(asked, answers, strict=True)) == {name: mail(number, name) for name in WRITERS}
        written += answers
    listed = [all_items(replica, conversation) for replica in replicas]
    assert listed[0] == listed[1], "both tell the same"
    assert Counter(said for _, said in listed[0]) == Counter(["Write four mails.", *written])
    assert all(said.endswith(name) for name, said in listed[0] if name is not None)
    bills = "SELECT agent, count(*) AS bills FROM ledger WHERE status = 'complete' GROUP BY agent ORDER BY agent"
    assert rows(replicas_database, bills) == [{"agent": name, "bills": ROUNDS} for name in WRITERS]
    with http(replicas[1]) as client:
        agents = client.get(f"/conversations/{conversation}").json()["totals"]["agents"]
    assert {each["agent"]: each["requests"] for each in agents} == dict.fromkeys(WRITERS, ROUNDS)
    assert broken_rules(replicas_database).keys() <= OF_DELIVERIES


def all_items(gateway: GatewayProcess, conversation: str) -> list[tuple[str | None, str]]:
    """Who said what, in order."""
    with http(gateway) as client:
        found = client.get(f"/conversations/{conversation}/items", params={"order": "asc", "limit": "100"}).json()
    assert not found["has_more"]
    return [(item.get("agent"), item["content"][0]["text"]) for item in found["data"]]


async def test_s11_4_four_agents_with_messages_of_their_own_at_once(
    replica_clients: list[AsyncOpenAI], replicas: list[GatewayProcess], upstream: MockUpstream, replicas_database: str
) -> None:
    """§11.4: four times four deltas at once, half of them at each process: whole turns, in the order of commits."""
    upstream.handler = lambda record: Reply(text=f"answer to {record.body['messages'][-1]['content']}")
    with http(replicas[0]) as client:
        conversation = client.post("/conversations", json={}).json()["id"]

    async def speak(number: int, name: str) -> None:
        said: Any = [user(f"{name} {number}")]
        body: Json = {"agent": name, "conversation": conversation}
        await replica_clients[number % 2].chat.completions.create(model="gpt-4o", messages=said, extra_body=body)

    await asyncio.gather(*(speak(number, name) for number in range(4) for name in WRITERS))
    items = all_items(replicas[1], conversation)
    asked = [said for _, said in items[::2]]
    assert sorted(asked) == sorted(f"{name} {number}" for number in range(4) for name in WRITERS)
    assert items[1::2] == [(said.partition(" ")[0], f"answer to {said}") for said in asked]
    assert broken_rules(replicas_database).keys() <= OF_DELIVERIES
