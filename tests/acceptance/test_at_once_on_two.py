"""Many requests at once on one conversation, at two gateways on one PostgreSQL (guarantee §3.7)."""

import asyncio
import random
import threading
from collections.abc import Sequence
from typing import Any

from openai import AsyncOpenAI

from tests.chaos.audit import broken_rules, rows
from tests.support.answers import Json, assistant, chat, conversation_of, stored_of, user
from tests.support.factory import GatewayFactory
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record, Reply
from tests.support.postgres import Postgres

AT_ONCE = 12
SESSIONS = """SELECT state FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'gateway'"""


class Barriers:
    """Holds every answer back until it is let go; a question's answer is known from its words."""

    def __init__(self, upstream: MockUpstream) -> None:
        self._upstream = upstream
        self._gates: dict[str, threading.Event] = {}
        upstream.handler = self._reply

    def _reply(self, record: Record) -> Reply:
        question = record.body["messages"][-1]["content"]
        return Reply(text=answer_to(question), gate=self._gates.setdefault(question, threading.Event()))

    def let_go(self, questions: Sequence[str]) -> None:
        for question in questions:
            self._gates.setdefault(question, threading.Event()).set()

    def forwarded(self, question: str) -> list[Json]:
        """What was before the question in what the model got."""
        (found,) = [c.body["messages"] for c in self._upstream.chats if c.body["messages"][-1]["content"] == question]
        assert found[-1] == user(question)
        return list(found[:-1])


def answer_to(question: str) -> str:
    return f"the answer to {question}"


def turn_of(question: str) -> list[Json]:
    return [user(question), assistant(answer_to(question))]


async def ask(client: AsyncOpenAI, question: str, streamed: bool, **named: Any) -> str:
    """Returns the conversation's id once the answer is acknowledged."""
    said: Any = [user(question)]
    if not streamed:
        whole = await client.chat.completions.create(model="gpt-4o", messages=said, extra_body=named)
        assert whole.choices[0].message.content == answer_to(question)
        return conversation_of(whole)
    stream = await client.chat.completions.create(model="gpt-4o", messages=said, extra_body=named, stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer_to(question)
    return conversation_of(chunks[-1])


async def test_s3_7_each_sees_what_was_committed_when_it_began_and_is_appended_in_the_order_of_commits(
    replica_clients: list[AsyncOpenAI], replicas: list[GatewayProcess], upstream: MockUpstream, replicas_database: str
) -> None:
    """§3.7: deltas, plain and streamed, of both processes. Those under way do not see each other; one that begins
    later sees exactly what has been acknowledged by then, in that order; what ends at the same moment is whole."""
    chance = random.Random(7)
    barriers = Barriers(upstream)
    barriers.let_go(["first"])
    conversation = await ask(replica_clients[0], "first", streamed=False)
    committed = turn_of("first")
    running: dict[str, asyncio.Task[str]] = {}

    async def begin(number: int) -> None:
        question = f"question {number}"
        one = ask(replica_clients[number % 2], question, number % 4 > 1, conversation=conversation)
        running[question] = asyncio.ensure_future(one)
        await asyncio.to_thread(upstream.wait_for_chats, 2 + number)
        assert barriers.forwarded(question) == committed

    for number in range(AT_ONCE):
        await begin(number)
    for number in range(AT_ONCE, AT_ONCE + 8):
        question = chance.choice(list(running))
        barriers.let_go([question])
        assert await running.pop(question) == conversation
        committed += turn_of(question)
        await begin(number)
    rest = list(running)
    barriers.let_go([*rest, "last"])
    assert set(await asyncio.gather(*running.values())) == {conversation}
    await ask(replica_clients[1], "last", streamed=True, conversation=conversation)
    whole = barriers.forwarded("last")
    assert whole[: len(committed)] == committed
    end = whole[len(committed) :]
    assert sorted(each["content"] for each in end[::2]) == sorted(rest)
    assert end == [message for question in end[::2] for message in turn_of(question["content"])]
    listed = {tuple(each["id"] for each in stored_of(gateway, conversation)) for gateway in replicas}
    assert len(listed) == 1, "both tell the same"
    assert len(set(listed.pop())) == 2 + AT_ONCE + 8
    assert broken_rules(replicas_database) == {}


async def test_s3_7_a_new_session_at_once_is_one_conversation(
    replica_clients: list[AsyncOpenAI], upstream: MockUpstream, replicas_database: str
) -> None:
    """§2, §3.7: ten first requests of a session name, five at each process."""
    barriers = Barriers(upstream)
    named: Json = {"context": {"session": "begun ten times"}}
    asked = [asyncio.ensure_future(ask(replica_clients[n % 2], f"s{n}", n % 3 == 0, **named)) for n in range(10)]
    await asyncio.to_thread(upstream.wait_for_chats, 10)
    assert all(barriers.forwarded(f"s{n}") == [] for n in range(10))
    barriers.let_go([*(f"s{n}" for n in range(10)), "after"])
    (conversation,) = set(await asyncio.gather(*asked))
    assert await ask(replica_clients[0], "after", streamed=False, **named) == conversation
    history = barriers.forwarded("after")
    assert sorted(each["content"] for each in history[::2]) == [f"s{n}" for n in range(10)]
    assert history == [message for question in history[::2] for message in turn_of(question["content"])]
    assert broken_rules(replicas_database) == {}


async def test_s3_7_no_session_of_the_database_is_open_while_a_model_is_waited_for(
    start_gateway: GatewayFactory, upstream: MockUpstream, postgres: Postgres
) -> None:
    """§3.7: fifty requests, half of them streams that fall silent in their middle, over one connection."""
    url = postgres.new_database()
    gateway = start_gateway({"storage": {"url": url, "pool_size": 1, "timeout": 20}})
    upstream.reply(text="the answer to first")
    first = chat(gateway, model="gpt-4o", messages=[user("first")])
    gate = threading.Event()

    def held(record: Record) -> Reply:
        text = answer_to(record.body["messages"][-1]["content"])
        return Reply(text=text, stall_after=3, stall_until=gate) if record.body.get("stream") else Reply(text=text, gate=gate)  # fmt: skip  # noqa: E501

    upstream.handler = held
    async with AsyncOpenAI(base_url=gateway.base_url, api_key="sk-test", max_retries=0, timeout=30) as client:
        named = [{"conversation": first["conversation"]["id"]} if n % 3 == 0 else {} for n in range(50)]
        asked = [asyncio.ensure_future(ask(client, f"n{n}", n % 2 == 0, **more)) for n, more in enumerate(named)]
        await asyncio.to_thread(upstream.wait_for_chats, 51)
        assert rows(url, SESSIONS) == [{"state": "idle"}]
        assert len(await asyncio.to_thread(stored_of, gateway, first["conversation"]["id"])) == 1
        gate.set()
        conversations = await asyncio.gather(*asked)
    assert len(set(conversations)) == 1 + 33
    assert len(stored_of(gateway, first["conversation"]["id"])) == 1 + 17
    assert rows(url, "SELECT count(*) AS bills FROM ledger WHERE status = 'complete'") == [{"bills": 51}]
    assert broken_rules(url) == {}
