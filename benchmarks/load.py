"""The load generator: keep-alive connections in a closed loop, in a process of its own.

    python -m benchmarks.load < job.json > result.json

Each connection first asks for a small chat; when all have their answer, the server's clock is read, the job's requests
are shared out, and after the last answer (and a moment for what the server does later) it is read again. So the
processor time is that of exactly these requests, begun and ended within it.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

import uvloop

from benchmarks import agents, traffic
from benchmarks.connection import Connection
from benchmarks.job import Gathered, Job, Kind, Result, Window
from benchmarks.processor import cpu_ns

SETTLE_SECONDS = 0.2
KNOWN_STEPS = 2
"""Requests of a session before those that are measured."""


def bodies(job: Job) -> Iterator[tuple[bytes, int | None]]:
    """Each request's body, made when it is asked for, and after how many reads to hang up. The kinds are mixed, in
    the same order each time."""
    cycle = [
        (getattr(traffic, kind.make)(*kind.arguments), kind.drop_after)
        for kind in job.kinds
        for _ in range(kind.weight)
    ]
    random.Random(7).shuffle(cycle)
    for number in range(job.requests):
        payload, drop_after = cycle[number % len(cycle)]
        yield payload.body(job.first_number + number), drop_after


def steps(
    connection: Connection, session: agents.Session, number: int, numbers: range
) -> Iterator[tuple[bytes, int | None]]:
    """Those requests of a connection's own session, each made when the one before is answered."""
    for step in numbers:
        yield session.body(number, step, connection.answered), None


async def lane(job: Job, connection: Connection, waiting: Iterator[tuple[bytes, int | None]], into: Gathered) -> None:
    """One connection's share of the job; what was hung up on or lost is opened anew."""
    for body, drop_after in waiting:
        if not connection.open:
            connection = await opened(job)
        into.add(await connection.ask(body, drop_after))
    connection.close()


async def opened(job: Job) -> Connection:
    """A connection to the job's server."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", job.port)
    return connection


async def run(job: Job) -> Result:
    """Do the job. Raises RuntimeError: the server did not answer the first small chats."""
    connections = [await opened(job) for _ in range(job.connections)]
    small = traffic.chat().body(0)
    answers = await asyncio.gather(*(connection.ask(small) for connection in connections))
    if not all(answer.status == 200 for answer in answers):
        raise RuntimeError(f"the server answers {sorted({answer.status for answer in answers})}")
    work = await shared_out(job, connections)
    await asyncio.sleep(SETTLE_SECONDS)
    into = Gathered(Result())
    if job.requests == job.connections:
        into.window = Window(lambda: cpu_ns(job.pid), job.connections)
        for connection in connections:
            connection.on_read = into.window.read
    own, cpu, began = time.process_time_ns(), cpu_ns(job.pid), time.perf_counter()
    await asyncio.gather(*(lane(job, one, waiting, into) for one, waiting in zip(connections, work, strict=True)))
    into.result.seconds = time.perf_counter() - began
    await asyncio.sleep(SETTLE_SECONDS)
    into.result.cpu_ns = cpu_ns(job.pid) - cpu
    into.result.own_cpu_ns = time.process_time_ns() - own
    return into.summed()


async def shared_out(job: Job, connections: list[Connection]) -> list[Iterator[tuple[bytes, int | None]]]:
    """Each connection's requests: out of one row, or those of a session of its own, whose first two are sent before
    anything is measured."""
    if job.kinds[0].make != "session":
        waiting = bodies(job)
        return [waiting] * len(connections)
    session = agents.session(*job.kinds[0].arguments)
    measured = range(KNOWN_STEPS, KNOWN_STEPS + job.requests // len(connections))
    work: list[Iterator[tuple[bytes, int | None]]] = []
    for number, connection in enumerate(connections, job.first_number * 1000):
        connection.path = session.path
        for body, _ in steps(connection, session, number, range(0 if session.first else KNOWN_STEPS)):
            await connection.ask(body)
        work.append(steps(connection, session, number, measured))
    return work


def main() -> None:
    """Reads the job from stdin, writes the result to stdout."""
    read = json.load(sys.stdin)
    kinds = tuple(Kind(**kind) for kind in read.pop("kinds"))
    json.dump(asdict(uvloop.run(run(Job(kinds=kinds, **read)))), sys.stdout)


if __name__ == "__main__":
    main()
