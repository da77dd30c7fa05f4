"""The pool of upstream connections, against a real server: limits, waiting, and callers that leave at any moment."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from gateway.upstream.http_client import END, ConnectionOrigin, ConnectionPool
from tests.support.http_server import Answer, Record, ThreadedHttpServer

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
MOST = 4


def respond(record: Record) -> Answer:
    """Every request is answered with `ok` after a moment."""
    return Answer(status=200, headers=(), pieces=[b"ok"], delay_first=0.003)


@contextlib.contextmanager
def running() -> Iterator[ThreadedHttpServer]:
    """A server for the time of a `with` block."""
    found = ThreadedHttpServer(respond)
    found.start()
    yield found
    found.stop()


def at(server: ThreadedHttpServer) -> ConnectionOrigin:
    """Where it listens."""
    return ConnectionOrigin("127.0.0.1", server.port, False)


@pytest.fixture
def server() -> Iterator[ThreadedHttpServer]:
    with running() as found:
        yield found


@pytest.fixture
async def pool() -> AsyncIterator[ConnectionPool]:
    found = ConnectionPool(MOST)
    yield found
    await found.aclose()
    assert found.size == 0


async def ask(pool: ConnectionPool, origin: ConnectionOrigin, wait: float | None = 5) -> bytes:
    """One whole exchange."""
    connection = await pool.take(origin, 1, wait)
    try:
        connection.begin(REQUEST)
        await connection.response(5)
        found = b""
        while (piece := await connection.read(5)) is not END:
            found += piece
        return found
    finally:
        connection.close()


async def test_never_more_connections_than_allowed(server: ThreadedHttpServer, pool: ConnectionPool) -> None:
    assert set(await asyncio.gather(*(ask(pool, at(server)) for _ in range(100)))) == {b"ok"}
    assert server.max_in_flight == MOST
    assert server.connections_opened == pool.size == MOST


async def test_callers_that_leave_at_any_moment_take_nothing_with_them(
    server: ThreadedHttpServer, pool: ConnectionPool
) -> None:
    """Waiting, connecting, sending, reading: afterwards every connection can be used, and nobody waits in vain."""
    dice = random.Random(3)
    for _ in range(30):
        asking = [asyncio.ensure_future(ask(pool, at(server))) for _ in range(20)]
        for each in dice.sample(asking, 15):
            asyncio.get_running_loop().call_later(dice.random() * 0.02, each.cancel)
        done = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 10)
        assert {type(each) for each in done} <= {bytes, asyncio.CancelledError}
        assert sum(each == b"ok" for each in done) >= 5
        assert pool.size <= MOST
    server.max_in_flight = 0
    await asyncio.gather(*(ask(pool, at(server)) for _ in range(3 * MOST)))
    assert server.max_in_flight == MOST


async def test_who_waits_too_long_is_told(server: ThreadedHttpServer, pool: ConnectionPool) -> None:
    held = [await pool.take(at(server), 1, 1) for _ in range(MOST)]
    with pytest.raises(httpx.PoolTimeout):
        await pool.take(at(server), 1, 0.05)
    for connection in held:
        connection.begin(REQUEST)
        connection.close()  # before its answer: it is not used again
    assert pool.size == 0
    assert await ask(pool, at(server)) == b"ok"


async def test_idle_connections_to_one_upstream_make_room_for_another(
    pool: ConnectionPool, server: ThreadedHttpServer
) -> None:
    await asyncio.gather(*(ask(pool, at(server)) for _ in range(MOST)))
    with running() as other:
        assert await ask(pool, at(other), 0.5) == b"ok"
        assert pool.size <= MOST


async def test_connections_that_cannot_be_made_leave_room(pool: ConnectionPool, server: ThreadedHttpServer) -> None:
    nowhere = ConnectionOrigin("no-such-host.invalid", 1, False)
    for _ in range(3 * MOST):
        with pytest.raises(httpx.ConnectError):
            await pool.take(nowhere, 1, 0.1)
    assert pool.size == 0
    assert await ask(pool, at(server)) == b"ok"


async def test_who_comes_first_is_served_first(pool: ConnectionPool, server: ThreadedHttpServer) -> None:
    """Nobody is overtaken for ever, however many come later."""
    order: list[int] = []

    async def one(number: int) -> None:
        await ask(pool, at(server))
        order.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(60):
            group.create_task(one(number))
            await asyncio.sleep(0.0005)
    assert max(abs(place - number) for place, number in enumerate(order)) < 3 * MOST


async def test_a_connection_whose_last_bytes_came_late_serves_the_next_request_to_its_end(
    pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `[DONE]` the rest is awaited for a while; once it has come, that while is nobody's business any more."""
    monkeypatch.setattr("gateway.upstream.http_client.LINGER_SECONDS", 0.2)
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"2\r\nab\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"0\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.4)  # longer than the while
        writer.write(head + b"2\r\ncd\r\n0\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    origin = ConnectionOrigin("127.0.0.1", server.sockets[0].getsockname()[1], False)
    first = await pool.take(origin, 1, 5)
    first.begin(REQUEST)
    await first.response(5)
    assert await first.read(5) == b"ab"
    first.close(linger=True)
    await asyncio.sleep(0.1)
    assert await asyncio.wait_for(ask(pool, origin), 5) == b"cd"
    assert pool.size == 1  # the same connection
    await pool.aclose()
    server.close()
