"""Kills gateways again and again while many clients talk to them, and compares the database with what these know."""

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import httpx

from tests.chaos.history_audit import HistoryAudit
from tests.chaos.talks import Acknowledged, Json, Talk, Talks
from tests.chaos.told import Told, ask
from tests.support.gateway_process import GatewayProcess
from tests.support.http_server import Record
from tests.support.mock_upstream import MockUpstream
from tests.support.reply import Reply

CLIENTS = 10
SHOWN_CHARS = 100
MOMENTS = ("some time", "an answer from upstream", "an acknowledgement")


class Storm:
    """`clients` at once on all gateways, which share one database; one gateway is killed at a time."""

    def __init__(self, gateways: Sequence[GatewayProcess], upstream: MockUpstream, storage_url: str, seed: int) -> None:
        self._gateways = list(gateways)
        self._chance = random.Random(seed)
        self._talks = Talks(self._chance)
        self._audit = HistoryAudit(storage_url)
        self._serial = itertools.count(1)
        self._up = {gateway.url: True for gateway in gateways}
        self._going = asyncio.Event()
        self._over = False
        self._running = 0
        self._idle = asyncio.Event()
        self._answered = asyncio.Event()
        self._acknowledged = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.acknowledged = self.broken = 0
        upstream.handler = self.reply
        upstream.strict = False
        self._upstream = upstream

    async def run(self, kills: int) -> None:
        """That many kills, each with an audit; then every conversation is looked at once more.
        Raises AssertionError: names what is not as it must be."""
        try:
            await self._run(kills)
        except BaseExceptionGroup as group:
            raise _first(group) from None

    async def _run(self, kills: int) -> None:
        self._going.set()
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client, asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(self._client(client))
            await self._kill(kills)
            self._over = True
        await asyncio.to_thread(self._audit.check, self._talks.all, everything=True)

    async def _kill(self, kills: int) -> None:
        for number in range(kills):
            gateway = self._gateways[number % len(self._gateways)]
            await self._moment(MOMENTS[number % len(MOMENTS)])
            self._going.clear()
            self._up[gateway.url] = False
            gateway.kill9()
            async with asyncio.timeout(30):
                await self._idle.wait()
            await asyncio.to_thread(self._audit.check, self._talks.all)
            self._upstream.requests.clear()
            if len(self._gateways) > 1:
                self._going.set()  # the others go on while this one starts
            await asyncio.to_thread(gateway.start)
            self._up[gateway.url] = True
            self._going.set()
        await self._moment("some time")

    async def _moment(self, which: str) -> None:
        if which == "some time":
            await asyncio.sleep(self._chance.uniform(0, 0.3))
            return
        event = self._answered if which == "an answer from upstream" else self._acknowledged
        for _ in range(self._chance.randint(1, 20)):
            event.clear()
            async with asyncio.timeout(20):
                await event.wait()
        if which == "an answer from upstream":
            await asyncio.sleep(self._chance.uniform(0, 0.006))

    async def _client(self, client: httpx.AsyncClient) -> None:
        while not self._over:
            await self._going.wait()
            talk = self._talks.take()
            talk.using, talk.begun = talk.using + 1, True
            try:
                await self._turn(client, talk)
            finally:
                talk.using -= 1
            await asyncio.sleep(self._chance.uniform(0, 0.02))

    async def _turn(self, client: httpx.AsyncClient, talk: Talk) -> None:
        """A question and all that follows from it. A client that resends forgets a turn that broke off, and one of
        several at once that was not the first to end: both are branches from then on."""
        base = list(talk.history)
        before, new = base, [self._talks.question()]
        while done := await self._request(client, talk, new, before):
            before = [*before, *new, done.answers[0]]
            if not talk.style.resends:
                talk.history += [*new, done.answers[0]]
            calls = done.answers[0].get("tool_calls")
            if not calls:
                if talk.style.resends and talk.history == base:
                    talk.history = before
                return
            new = [self._talks.result(call) for call in calls]

    async def _request(
        self, client: httpx.AsyncClient, talk: Talk, new: list[Json], before: list[Json]
    ) -> Acknowledged | None:
        await self._going.wait()
        body = talk.body(new, before, self._chance)
        url = self._chance.choice([url for url, up in self._up.items() if up])
        self._running += 1
        self._idle.clear()
        try:
            told = await ask(client, url, body)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()
        if told.refused is not None:
            raise AssertionError(f"{talk.style}: {told.refused}")
        if not told.acknowledged:
            self.broken, talk.broken = self.broken + 1, talk.broken + 1
            return None
        return self._told(talk, told, new, before)

    def _told(self, talk: Talk, told: Told, new: list[Json], before: list[Json]) -> Acknowledged:
        if talk.conversation_id not in (None, told.conversation_id):
            raise AssertionError(f"{talk.style}: {told.conversation_id} instead of {talk.conversation_id}")
        talk.conversation_id = told.conversation_id
        done = Acknowledged(told, new, before, told.answers())
        talk.done.append(done)
        self.acknowledged += 1
        self._acknowledged.set()
        return done

    def reply(self, record: Record) -> Reply:
        """On the mock's own loop. No two answers are alike."""
        self._loop.call_soon_threadsafe(self._answered.set)
        body: dict[str, Any] = record.body
        serial = next(self._serial)
        pace = random.Random(serial)
        first, between = pace.choice((0.0, 0.0, 0.01, 0.03)), pace.choice((0.0, 0.001))
        if body.get("tools") and body["messages"][-1]["role"] == "user":
            calls = [("look_up", {"serial": serial})] * pace.randint(1, 2)
            return Reply(tool_calls=calls, delay_first=first, chunk_delay=between)
        asked = str(body["messages"][-1]["content"])[-SHOWN_CHARS:]
        text = f"answer-{serial} to {asked} in some words"
        return Reply(text=text, delay_first=first, chunk_delay=between)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
