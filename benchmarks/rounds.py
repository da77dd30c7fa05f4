"""All servers measured in turn, several times over: what else runs on the machine disturbs them alike."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import servers
from benchmarks.cases import CASES, OPEN, Case
from benchmarks.job import Result
from benchmarks.measure import load
from benchmarks.processor import rss_mb
from benchmarks.servers import Server

DEFAULT_POOL = 100
NGINX_TIMES = 8
MANY = 512


@dataclass(frozen=True)
class Plan:
    """What to measure how often, and after how many seconds to leave the rest."""

    rounds: int
    connections: tuple[int, ...]
    cases: tuple[Case, ...]
    seconds: float

    def __iter__(self) -> Iterator[tuple[int, Case, int]]:
        """Round, case and connections, in the order in which they are measured. The largest number of connections,
        which takes longest, comes after the first round and once more at the end."""
        few = [number for number in sorted(self.connections) if number != MANY]
        many = [number for number in self.connections if number == MANY]
        for turn in range(self.rounds):
            yield from self._turn(turn, few)
            if turn == 0:
                yield from self._turn(turn, many)
        if self.rounds > 1:
            yield from self._turn(1, many)

    def _turn(self, turn: int, connections: Sequence[int]) -> Iterator[tuple[int, Case, int]]:
        chunks = any(case.per_chunk and not case.paced for case in self.cases)
        needed = [case for case in CASES if case in self.cases or (case is OPEN and chunks)]
        yield from ((turn, case, c) for c in connections for case in needed if c in case.connections())


@dataclass(frozen=True)
class Sample:
    """One measurement of one server."""

    turn: int
    case: Case
    connections: int
    server: str
    result: Result


class Bench:
    """The mock upstream and the servers before it, while the `with` block lasts."""

    def __init__(self, folder: Path, only: Sequence[str] | None = None) -> None:
        """`only`: names of the servers to run beside the bare relay (default: all there are)."""
        self._folder = folder
        self._only = only
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            begin = starting.enter_context
            self.mock = begin(servers.mock(self._folder))
            port = self.mock.port
            self.servers = [begin(servers.bare(port, self._folder))]
            self._large_pool = begin(servers.bare(port, self._folder, connections=1000))
            for name, store in (("gateway", False), ("gateway+store", True)):
                if not self._only or name in self._only:
                    self.servers.append(begin(servers.gateway(port, self._folder, store)))
            if servers.nginx_path() and (not self._only or "nginx" in self._only):
                self.servers.append(begin(servers.nginx(port, self._folder)))
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def run(self, plan: Plan) -> list[Sample]:
        """All samples for which there is time, after each server has seen each kind of request."""
        for server in (*self.servers, self._large_pool):
            for case in plan.cases:
                connections = min(case.kinds)
                load(server, connections, 16, [case.kinds[connections]])
        self._warm = {server.name: rss_mb(server.pid) for server in self.servers}
        samples: list[Sample] = []
        deadline = time.monotonic() + plan.seconds
        for turn, case, connections in plan:
            if time.monotonic() > deadline:
                print("out of time: the rest is left out", file=sys.stderr)
                break
            print(f"round {turn + 1}: {case.name} at {connections}", file=sys.stderr, flush=True)
            for server in self.servers:
                times = NGINX_TIMES if server.name == "nginx" and not case.paced else 1
                requests = case.requests[connections] * times
                result = load(
                    self._stands_for(server, case, connections), connections, requests, [case.kinds[connections]]
                )
                samples.append(Sample(turn, case, connections, server.name, result))
        return samples

    def memory(self) -> dict[str, tuple[float, float]]:
        """Resident MB of each server, warm and now."""
        return {
            server.name: (round(self._warm[server.name], 1), round(rss_mb(server.pid), 1)) for server in self.servers
        }

    def _stands_for(self, server: Server, case: Case, connections: int) -> Server:
        """The relay with the large pool takes more streams at once than httpx's default pool could hold."""
        many = case.kinds[connections].make == "stream" and connections > DEFAULT_POOL
        return self._large_pool if server.name == "bare" and many else server
