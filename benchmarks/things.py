"""How long a look-up of things takes: what a question names, and a search, at 100 and at 100,000 things of a tenant.
The tenth of a hundred calls tells of the work, the median also of what else the machine does.

python -m benchmarks.things [--things 100 --things 100000] [--rounds 200]

Each question names one thing and shares a short alias with all of them. Times are of the whole call, with the ranking
of what was found, one after the other on one connection. Beside the tenant that is asked there is another one as large.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import sqlalchemy as sa

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.types.memory import MemoryEntity
from gateway.pipeline.features.entity_memory import named_by, noted, phrases_of, ranked, search_of
from gateway.storage.cache.memory_cache import MemoryCache
from gateway.storage.database import schema
from gateway.storage.database.migrate import migrate
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.entities.entity_rows import insert_things, thing_row
from gateway.storage.entities.entity_store import EntityStore
from gateway.storage.store import ConversationStore
from tests.support.services import own_postgres

SIZES = (100, 100_000)
BATCH = 5000
KINDS = ("workflow", "order", "ticket", "file")
TOPICS = ("Task", "Lamp", "Invoice", "Report", "Customer", "Server", "Garden", "Holiday")


def things(tenant: str, place: str, first: int, count: int) -> list[dict[str, object]]:
    """Rows of things: "Lamp 17 Management", a workflow, and so on."""
    now, rows = SystemClock().now(), []
    for number in range(first, first + count):
        kind, topic = KINDS[number % len(KINDS)], TOPICS[number // len(KINDS) % len(TOPICS)]
        note = noted(kind, f"{kind}_{number}", f"{topic} {number} Management", "created")
        name = note.name or ""
        found = MemoryEntity(
            f"mem_{tenant}_{number:07}", "user", None, kind, note.thing_id, name, note.aliases, "created", 1, now, now
        )
        rows.append(thing_row(tenant, place, found))
    return rows


@contextmanager
def urls(folder: Path) -> Iterator[dict[str, str]]:
    """An empty database of each kind."""
    with own_postgres() as server:
        yield {"sqlite": f"sqlite:///{folder / 'things.db'}", "postgres": server.new_database()}


async def filled(transactions: DatabaseTransactions, count: int) -> dict[str, str]:
    """Two tenants with so many things each; the place of each."""
    store = ConversationStore(transactions, SystemClock())
    memory = EntityStore(transactions, SystemClock(), store.secret, MemoryCache(1000, SystemClock()))
    places = {tenant: await memory.place_of(tenant, "ann") for tenant in (f"t{count}", f"other{count}")}
    for tenant, place in places.items():
        for first in range(0, count, BATCH):
            await transactions.run(
                partial(_insert, things(tenant, place, first, min(BATCH, count - first))), write=True
            )
    if transactions.remote:
        for table in (schema.things, schema.thing_aliases):
            await transactions.run(partial(_analyse, table.name), write=True)
    return places


def _insert(rows: list[dict[str, object]], connection: sa.Connection) -> None:
    insert_things(connection, rows)


def _analyse(table: str, connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"ANALYZE {table}").close()


async def timed(work: Callable[[int], Awaitable[object]], rounds: int) -> tuple[float, float, float]:
    """Tenth of a hundred, median and 95th, in milliseconds; the first tenth of the calls is not counted."""
    spent = []
    for number in range(rounds + rounds // 10):
        began = time.perf_counter_ns()
        await work(number)
        spent.append((time.perf_counter_ns() - began) / 1e6)
    spent = spent[rounds // 10 :]
    return quantiles(spent, n=10)[0], median(spent), quantiles(spent, n=20)[-1]


async def measure(name: str, url: str, count: int, rounds: int) -> None:
    """Prints the figures of one database and size."""
    transactions = open_transactions(StorageSettings(url=url))
    try:
        await migrate(transactions)
        places = await filled(transactions, count)
        store = ConversationStore(transactions, SystemClock())
        memory = EntityStore(transactions, SystemClock(), store.secret, MemoryCache(1000, SystemClock()))
        tenant = f"t{count}"

        def wanted(number: int) -> int:
            return number * 7919 % count

        async def recall(number: int) -> None:
            number = wanted(number)
            kind, topic = KINDS[number % len(KINDS)], TOPICS[number // len(KINDS) % len(TOPICS)]
            question = f"Please update my {topic.lower()} {kind} once more, I mean {kind}_{number}, before Friday."
            found = await memory.recall(tenant, [places[tenant]], phrases_of(question))
            named = named_by(question, found)
            assert f"{kind}_{number}" in {thing.thing_id for thing in named}, question

        async def search(number: int) -> None:
            number = wanted(number)
            kind, topic = KINDS[number % len(KINDS)], TOPICS[number // len(KINDS) % len(TOPICS)]
            query = f"{topic} {number} management"
            found = ranked(query, await memory.search(tenant, None, search_of(query), 20))
            assert found[0].thing_id == f"{kind}_{number}", query

        async def nothing(_: int) -> None:
            question = "How is the weather in Paris today, and will it stay dry for the rest of this week?"
            assert not await memory.recall(tenant, [places[tenant]], phrases_of(question))

        async def bare(_: int) -> None:
            await transactions.run(lambda c: c.exec_driver_sql("SELECT 1").scalar())

        for what, work in (("recall", recall), ("search", search), ("recall, nothing", nothing), ("SELECT 1", bare)):
            low, middle, high = await timed(work, rounds)
            figures = f"10 % {low:6.2f} ms   median {middle:6.2f} ms   95 % {high:6.2f} ms"
            print(f"{name:9} {count:7,} things  {what:16} {figures}", flush=True)
    finally:
        await transactions.close()


def main() -> int:
    """Measures both databases, each at all sizes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.things", description=__doc__)
    parser.add_argument("--things", action="append", type=int, help="things of a tenant (100 and 100,000)")
    parser.add_argument("--rounds", type=int, default=200, help="calls of each kind (200)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, urls(Path(folder)) as found:
        for name, url in found.items():
            for count in given.things or SIZES:
                asyncio.run(measure(name, url, count, given.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
