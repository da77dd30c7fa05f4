"""Clients that leave at random moments, and whether they leave the storage as it was (guarantee §3.6, §3.7)."""

import asyncio
import random

import httpx

from tests.chaos.audit import broken_rules, rows
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record, Reply
from tests.support.process import wait_until
from tests.support.reply import JsonDict

AT_ONCE = 25
MESSAGE_CHARS = 40_000
SPARE_MB = 12.0
"""What the allocator may keep: less than what five hundred said who left."""
BUSY = """SELECT state FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'gateway' AND state <> 'idle'"""
CHANCE = random.Random(11)


def check_that_leaving_clients_leave_no_trace(
    gateway: GatewayProcess, upstream: MockUpstream, storage_url: str, number: int
) -> None:
    """So many requests are broken off at random moments; afterwards no session of the database is in a transaction,
    what the requests held is free, every call has its bill, and as many requests at once as before work."""
    upstream.handler = _reply
    asyncio.run(_leave(gateway, number // 4))  # all that is made once is made
    _settle(gateway, upstream, storage_url)
    before = gateway.rss_mb()
    asyncio.run(_leave(gateway, number))
    _settle(gateway, upstream, storage_url)
    after = gateway.rss_mb()
    assert after < before + SPARE_MB, f"{after - before:.1f} MB more"
    calls = len(upstream.chats)
    assert calls > number // 4, "requests that a model was called for"
    assert 0 <= len(rows(storage_url, "SELECT request_id FROM ledger")) - calls <= number // 20
    assert asyncio.run(_answered(gateway)) == [200] * AT_ONCE
    broken = broken_rules(storage_url)
    assert not broken, broken
    assert "Traceback" not in gateway.log_text()


def _reply(record: Record) -> Reply:
    slow = len(record.raw) % 3
    return Reply(text="one two three four five six", delay_first=0.02 * slow, chunk_delay=0.01 * slow)


def _settle(gateway: GatewayProcess, upstream: MockUpstream, storage_url: str) -> None:
    wait_until(lambda: upstream.in_flight == 0, 10, "the end of all calls")
    if not storage_url.startswith("sqlite"):
        wait_until(lambda: not rows(storage_url, BUSY), 10, "the end of all transactions", interval=0.1)
    calls = len(upstream.chats)
    bills = "SELECT request_id FROM ledger"
    wait_until(lambda: len(rows(storage_url, bills)) >= calls, 10, "the bills of all calls", interval=0.1)


def _body(number: int) -> JsonDict:
    said = f"{CHANCE.random()} " + "word " * (MESSAGE_CHARS // 5 + number % 7)
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": said}], "stream": number % 2 == 0}
    return {**body, "store": False} if number % 5 == 0 else body


async def _leave(gateway: GatewayProcess, number: int) -> None:
    gate = asyncio.Semaphore(AT_ONCE)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=gateway.base_url, trust_env=False, timeout=60, limits=limits) as client:

        async def one(position: int) -> None:
            async with gate:
                asking = asyncio.ensure_future(client.post("/chat/completions", json=_body(position)))
                await asyncio.wait({asking}, timeout=CHANCE.expovariate(1 / 0.2))
                asking.cancel()
                await asyncio.wait({asking})

        await asyncio.gather(*map(one, range(number)))


async def _answered(gateway: GatewayProcess) -> list[int]:
    async with httpx.AsyncClient(base_url=gateway.base_url, trust_env=False, timeout=60) as client:
        asked = (client.post("/chat/completions", json=_body(n)) for n in range(AT_ONCE))
        return [answer.status_code for answer in await asyncio.gather(*asked)]
