"""Clients that leave at random, or thousands of streams in their middle: nothing stays behind (§3.6, §3.7)."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import httpx

from tests.chaos.audit import broken_rules, rows
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record, Reply
from tests.support.process import wait_until
from tests.support.reply import JsonDict

LEAVERS_AT_ONCE = 25
MESSAGE_CHARS = 40_000
SPARE_MB = 12.0
"""What the allocator may keep: less than what five hundred said who left."""
BUSY = """SELECT state FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'gateway' AND state <> 'idle'"""
CHANCE = random.Random(11)

STREAMS_AT_ONCE = 40
FEW_FILES = 12
"""How many descriptors more than before are no leak: idle connections, the storage's own files."""


def check_that_leaving_clients_leave_no_trace(
    gateway: GatewayProcess, upstream: MockUpstream, storage_url: str, number: int
) -> None:
    """So many requests are broken off at random moments, every other one after its call has reached the model;
    afterwards no session of the database is in a transaction, what the requests held is free, every call has its bill,
    and as many requests at once as before work."""
    asyncio.run(_leave(gateway, upstream, number // 4))  # all that is made once is made
    _settle(gateway, upstream, storage_url)
    before = gateway.rss_mb()
    asyncio.run(_leave(gateway, upstream, number))
    _settle(gateway, upstream, storage_url)
    after = gateway.rss_mb()
    assert after < before + SPARE_MB, f"{after - before:.1f} MB more"
    calls = len(upstream.chats)
    assert calls >= number // 2, "requests that a model was called for"
    unseen = len(rows(storage_url, "SELECT request_id FROM ledger")) - calls
    assert 0 <= unseen <= number // 4, "bills of calls that broke off before the model had them whole"
    assert asyncio.run(_answered(gateway)) == [200] * LEAVERS_AT_ONCE
    broken = broken_rules(storage_url)
    assert not broken, broken
    assert "Traceback" not in gateway.log_text()


def check_that_cancelled_streams_leave_no_trace(
    gateway: GatewayProcess, upstream: MockUpstream, number: int, max_connections: int
) -> None:
    """Cancels so many streams, at different moments; afterwards as many requests as there may be connections work
    at once, no descriptor is lost, and the upstream holds no call."""
    upstream.handler = _stalling_reply
    asyncio.run(_finish(gateway, max_connections))  # all that is made once is made
    wait_until(lambda: upstream.in_flight == 0, "the end of all calls")
    files = gateway.open_files()
    upstream.clear()
    upstream.handler = _stalling_reply
    asyncio.run(_cancel(gateway, number))
    wait_until(lambda: upstream.in_flight == 0, "the end of all cancelled calls")
    assert len(upstream.chats) == number
    assert upstream.connections_open <= max_connections
    upstream.clear()
    upstream.handler = _stalling_reply
    asyncio.run(_finish(gateway, max_connections))
    assert upstream.max_in_flight == max_connections, "every connection can still be used"
    wait_until(lambda: gateway.open_files() <= files + FEW_FILES, "the end of all descriptors")


def _slow_reply(record: Record) -> Reply:
    slow = len(record.raw) % 3
    return Reply(text="one two three four five six", delay_first=0.02 * slow, chunk_delay=0.01 * slow)


def _stalling_reply(record: Record) -> Reply:
    """Falls silent after as many events as are asked for. Behind the first, which has no words yet, a client would hear
    nothing until a sign of life."""
    said = record.body["messages"][-1]["content"]
    return Reply(text="one two three four", stall_after=int(said) if said.isdigit() else None)


def _settle(gateway: GatewayProcess, upstream: MockUpstream, storage_url: str) -> None:
    wait_until(lambda: upstream.in_flight == 0, "the end of all calls")
    if not storage_url.startswith("sqlite"):
        wait_until(lambda: not rows(storage_url, BUSY), "the end of all transactions", interval=0.1)
    calls = len(upstream.chats)
    bills = "SELECT request_id FROM ledger"
    wait_until(lambda: len(rows(storage_url, bills)) >= calls, "the bills of all calls", interval=0.1)


async def _at_once(
    gateway: GatewayProcess, number: int, at_once: int, one: Callable[[httpx.AsyncClient, int], Awaitable[None]]
) -> None:
    """`one` for each number, with one client for all."""
    gate = asyncio.Semaphore(at_once)
    limits = httpx.Limits(max_connections=None, keepalive_expiry=None)  # httpx may close one as another takes it
    async with httpx.AsyncClient(base_url=gateway.base_url, trust_env=False, timeout=60, limits=limits) as client:

        async def gated(position: int) -> None:
            async with gate:
                await one(client, position)

        await asyncio.gather(*map(gated, range(number)))


async def _leave(gateway: GatewayProcess, upstream: MockUpstream, number: int) -> None:
    """How long a request takes to its call depends on the machine, so every other client waits for that."""
    loop, called = asyncio.get_running_loop(), dict[str, asyncio.Event]()

    def reply(record: Record) -> Reply:
        with contextlib.suppress(RuntimeError):  # the clients are gone already, and their loop is
            loop.call_soon_threadsafe(called[record.body["messages"][-1]["content"]].set)
        return _slow_reply(record)

    async def one(client: httpx.AsyncClient, position: int) -> None:
        body = _long_body(position)
        arrived = called[body["messages"][-1]["content"]] = asyncio.Event()
        asking = asyncio.ensure_future(client.post("/chat/completions", json=body))
        if position // 2 % 2:
            arriving = asyncio.ensure_future(arrived.wait())
            await asyncio.wait({asking, arriving}, return_when=asyncio.FIRST_COMPLETED)
            arriving.cancel()
        await asyncio.wait({asking}, timeout=CHANCE.expovariate(1 / 0.1))
        asking.cancel()
        await asyncio.wait({asking})

    upstream.handler = reply
    await _at_once(gateway, number, LEAVERS_AT_ONCE, one)
    upstream.handler = _slow_reply


async def _answered(gateway: GatewayProcess) -> list[int]:
    found: list[int] = []

    async def one(client: httpx.AsyncClient, position: int) -> None:
        found.append((await client.post("/chat/completions", json=_long_body(position))).status_code)

    await _at_once(gateway, LEAVERS_AT_ONCE, LEAVERS_AT_ONCE, one)
    return found


async def _cancel(gateway: GatewayProcess, number: int) -> None:
    async def one(client: httpx.AsyncClient, position: int) -> None:
        after = position % 4  # words that come before upstream falls silent
        async with client.stream("POST", "/chat/completions", json=_stream_body(str(after + 2))) as answer:
            lines = answer.aiter_lines()
            assert answer.status_code == 200, await answer.aread()
            for _ in range(2 * after + 1):
                await anext(lines)

    await _at_once(gateway, number, STREAMS_AT_ONCE, one)


async def _finish(gateway: GatewayProcess, number: int) -> None:
    """So many streams that all wait for each other: none ends before the last has begun."""
    begun = asyncio.Barrier(number)

    async def one(client: httpx.AsyncClient, position: int) -> None:
        async with client.stream("POST", "/chat/completions", json=_stream_body("2")) as answer:
            async for line in answer.aiter_lines():
                if line:
                    await begun.wait()
                    return

    await asyncio.wait_for(_at_once(gateway, number, number, one), 20)


def _long_body(number: int) -> JsonDict:
    said = f"{CHANCE.random()} " + "word " * (MESSAGE_CHARS // 5 + number % 7)
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": said}], "stream": number % 2 == 0}
    return {**body, "store": False} if number % 5 == 0 else body


def _stream_body(text: str) -> JsonDict:
    return {"model": "small", "messages": [{"role": "user", "content": text}], "stream": True}
