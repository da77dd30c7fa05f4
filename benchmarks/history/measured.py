"""Has both conversations continued in every form, turn about, and takes down what that cost."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.history.databases import Database, Work
from benchmarks.history.forms import Form
from benchmarks.history.talk import Client, Talk, answering
from benchmarks.processor import cpu_ns
from benchmarks.servers import gateway_config
from tests.support.gateway_process import GatewayProcess
from tests.support.mock_upstream import MockUpstream

SETTLED = 0.05
"""Seconds after the last answer in which what it left to be done counts as well."""
SHORT_ONES = 4


@dataclass(frozen=True)
class Plan:
    """How much is measured: `rounds` of `turns` each, of a conversation of `short` and one of `long` messages."""

    rounds: int = 5
    turns: int = 8
    short: int = 20
    long: int = 10_000


@dataclass
class Cost:
    """What turns of one conversation cost, each: milliseconds by round, and the database's work."""

    cpu_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)
    reading_ms: list[float] = field(default_factory=list)
    """Processor time of reading and checking the same requests, which are then refused."""
    rows: float = 0.0
    steps: float = 0.0
    written: float = 0.0


@dataclass
class Pair:
    """The conversations of one form: several short ones, so that measuring does not make them long, and a long one."""

    form: Form
    short: list[Talk]
    long: list[Talk]
    costs: dict[str, Cost] = field(default_factory=lambda: {"short": Cost(), "long": Cost()})

    def sides(self) -> Iterator[tuple[list[Talk], Cost]]:
        """Both, with what they cost."""
        yield self.short, self.costs["short"]
        yield self.long, self.costs["long"]


def measure(
    database: Database, forms: Sequence[Form], plan: Plan, folder: Path, told: Callable[[str], None]
) -> list[Pair]:
    """The costs of all forms on one database."""
    with MockUpstream() as upstream:
        upstream.handler, upstream.strict = answering, False
        config = gateway_config(int(upstream.url.rpartition(":")[2]), store=True)
        config["storage"] = {"url": database.url}
        plain = GatewayProcess(config, directory=_made(folder / "timed"))
        with _client(plain, upstream) as client:
            pairs = [_begun(form, plan, client) for form in forms]
            database.analyse()
            for pair in pairs:
                _time(pair, plan, client, lambda: cpu_ns(plain.pid) + database.cpu_ns())
                told(f"{database.name}: {pair.form.title}")
                upstream.requests.clear()
        with _client(database.counting(config, _made(folder / "counted")), upstream) as client:
            for pair in pairs:
                _count(pair, plan, client, database)
    return pairs


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@contextmanager
def _client(gateway: GatewayProcess, upstream: MockUpstream) -> Iterator[Client]:
    with gateway:
        client = Client(gateway.port)
        try:
            yield client
        finally:
            client.close()


def _begun(form: Form, plan: Plan, client: Client) -> Pair:
    pair = Pair(form, [Talk(form, n) for n in range(SHORT_ONES)], [Talk(form, SHORT_ONES)])
    for talks, length in ((pair.short, plan.short), (pair.long, plan.long)):
        for talk in talks:
            talk.begin(client, length)
            talk.turn(client)
    return pair


def _time(pair: Pair, plan: Plan, client: Client, spent: Callable[[], int]) -> None:
    for number in range(plan.rounds):
        sides = list(pair.sides())
        for talks, cost in sides if number % 2 else reversed(sides):
            cpu, wall = _each(talks, plan.turns, lambda talk: talk.turn(client), spent)
            cost.cpu_ms.append(cpu)
            cost.wall_ms.append(wall)
            if pair.form.resends:
                cost.reading_ms.append(_each(talks, plan.turns, lambda talk: talk.refused(client), spent)[0])


def _each(talks: list[Talk], turns: int, act: Callable[[Talk], Any], spent: Callable[[], int]) -> tuple[float, float]:
    """Milliseconds of processor time and of the clock that each act takes; the talks take turns."""
    cpu, wall = spent(), 0.0
    for number in range(turns):
        began = time.perf_counter()
        act(talks[number % len(talks)])
        wall += time.perf_counter() - began
    time.sleep(SETTLED)
    return (spent() - cpu) / turns / 1e6, wall * 1000 / turns


def _count(pair: Pair, plan: Plan, client: Client, database: Database) -> None:
    for talks, cost in pair.sides():
        talks[0].turn(client)
        before = database.work()
        for number in range(plan.turns):
            talks[number % len(talks)].turn(client)
        done: Work = database.work() - before
        cost.rows, cost.steps, cost.written = (n / plan.turns for n in (done.rows, done.steps, done.written))
