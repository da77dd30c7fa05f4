"""Thousands of streams that are cancelled in their middle, and whether they leave the gateway as it was."""

import asyncio

import httpx

from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream, Record, Reply
from tests.support.process import wait_until
from tests.support.reply import JsonDict

AT_ONCE = 40
FEW_FILES = 12
"""How many descriptors more than before are no leak: idle connections, the storage's own files."""


def _handler(record: Record) -> Reply:
    said = record.body["messages"][-1]["content"]
    return Reply(text="one two three four", stall_after=int(said) if said.isdigit() else None)


def check_that_cancelled_streams_leave_no_trace(
    gateway: GatewayProcess, upstream: MockUpstream, number: int, max_connections: int
) -> None:
    """Cancels so many streams, at different moments; afterwards as many requests as there may be connections work
    at once, no descriptor is lost, and the upstream holds no call."""
    upstream.handler = _handler
    asyncio.run(_finish(gateway, max_connections))  # all that is made once is made
    wait_until(lambda: upstream.in_flight == 0, 5, "the end of all calls")
    files = gateway.open_files()
    upstream.clear()
    upstream.handler = _handler
    asyncio.run(_cancel(gateway, number))
    wait_until(lambda: upstream.in_flight == 0, 2, "the end of all cancelled calls")
    assert len(upstream.chats) == number
    assert upstream.connections_open <= max_connections
    upstream.clear()
    upstream.handler = _handler
    asyncio.run(_finish(gateway, max_connections))
    assert upstream.max_in_flight == max_connections, "every connection can still be used"
    wait_until(lambda: gateway.open_files() <= files + FEW_FILES, 5, "the end of all descriptors")


def _body(text: str) -> JsonDict:
    return {"model": "small", "messages": [{"role": "user", "content": text}], "stream": True}


async def _cancel(gateway: GatewayProcess, number: int) -> None:
    limits = httpx.Limits(max_connections=AT_ONCE)
    gate = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=gateway.base_url, trust_env=False, timeout=30, limits=limits) as client:

        async def one(position: int) -> None:
            after = position % 4  # words that come before upstream falls silent
            async with gate, client.stream("POST", "/chat/completions", json=_body(str(after + 1))) as answer:
                lines = answer.aiter_lines()
                assert answer.status_code == 200, await answer.aread()
                for _ in range(2 * after + 1):
                    await anext(lines)

        await asyncio.gather(*map(one, range(number)))


async def _finish(gateway: GatewayProcess, number: int) -> None:
    """So many streams that all wait for each other: none ends before the last has begun."""
    limits = httpx.Limits(max_connections=None)
    begun = asyncio.Barrier(number)
    async with httpx.AsyncClient(base_url=gateway.base_url, trust_env=False, timeout=30, limits=limits) as client:

        async def one() -> None:
            async with client.stream("POST", "/chat/completions", json=_body("1")) as answer:
                async for line in answer.aiter_lines():
                    if line:
                        await begun.wait()
                        return

        await asyncio.wait_for(asyncio.gather(*(one() for _ in range(number))), 20)
