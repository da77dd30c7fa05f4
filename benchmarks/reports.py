"""Times the queries behind pages and commands on a full storage: `python -m benchmarks.reports [--only sqlite]`.

A million requests of a year in 100,000 conversations, by 500 users with six models, are written in bulk, with their
daily roll-ups, to an SQLite file and to a PostgreSQL of its own. Each query runs once cold and then five times.
"""

import argparse
import asyncio
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg

from gateway.core.config.settings import StorageSettings
from gateway.core.types.bill import CostQuery
from gateway.core.types.report_lists import ConversationChoice, ListPart, RequestChoice, RequestQuery
from gateway.inspection.request_search import RequestSearch, request_query
from gateway.storage.database import schema
from gateway.storage.database.migrate import migrate
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.reports.costs import CostReports
from gateway.storage.reports.request_list import list_conversations
from gateway.storage.turns.bills import count_older
from gateway.storage.turns.roll_ups import SUMS, WHO, sums_of
from tests.support.services import own_postgres

GOAL_MS = 300
RUNS = 5
END = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAYS = 365
TENANTS = ("shop", "bank", "lab", "press", "club")
MODELS = ("gpt-4o", "gpt-4o-mini", "o3", "claude", "gemini", "local")
USERS = 500
SHARDS = 4
"""Processes that have added to the roll-ups in PostgreSQL."""
METADATA = '{"filler":"' + "figures of a bill, " * 80 + '"}'
"""As long as a usual bill: some 1,500 bytes."""
BATCH = 20_000
ON_A_PAGE = 50
"""Requests."""
SEARCHES = (
    *("sort=time", "sort=cost", "sort=-cost", "sort=latency", "sort=-latency", "sort=saved", "sort=-saved"),
    *("status=ok", "status=failed", "status=partial", "http_status=429", "http_status=418", "http_status=200"),
    *("model=gpt-4o", "model=local", "model=none", "user=user-3", "user=user-499", "user=nobody", "key=key_3"),
    *("agent=critic", "endpoint=chat", "endpoint=responses", "endpoint=messages", "tenant=lab"),
    *("min_cost=0.09", "min_cost=0.0999", "max_cost=0.00002", "min_cost=0.05&max_cost=0.05001", "min_cost=5"),
    *("min_ms=19000", "min_ms=19990", "max_ms=51", "min_ms=100000", "min_saved=0.005", "max_saved=-0.01"),
    *(
        "since=7d",
        "since=30d&sort=cost",
        "until=2026-05-01",
        "until=2026-05-01&sort=latency",
        "since=24h&status=failed",
    ),
    *("model=gpt-4o&sort=cost", "model=local&sort=-latency", "user=user-3&sort=saved", "status=failed&sort=latency"),
    *("tenant=lab&sort=cost", "tenant=lab&status=failed", "tenant=lab&model=o3", "tenant=lab&user=user-3&sort=cost"),
    *("model=gpt-4o&min_ms=19000", "tenant=lab&min_cost=0.09", "status=failed&model=local&min_cost=0.09"),
    *(
        "endpoint=chat&max_ms=60",
        "status=ok&max_cost=0.0001",
        "key=key_3&agent=critic&sort=cost",
        "http_status=429&sort=cost",
    ),
    *("min_ms=100000&sort=cost", "min_cost=5&sort=latency", "since=300d&until=2026-05-01&min_ms=19000"),
)
"""Filters and orders of the page of requests, as they stand in its address; `tenant`: whoever looks sees it alone."""
Row = dict[str, Any]
Query = Callable[[], Awaitable[Any]]


@dataclass(frozen=True)
class Size:
    """How much is written."""

    conversations: int
    requests_each: int = 10


def conversation_rows(size: Size) -> Iterator[tuple[Row, list[Row]]]:
    """Conversations with their bills, oldest first."""
    chance = random.Random(17)
    begin = END - timedelta(days=DAYS)
    step = timedelta(days=DAYS) / size.conversations
    for number in range(size.conversations):
        user = int(min(chance.expovariate(1 / 60), USERS - 1))
        tenant = TENANTS[user % len(TENANTS)]
        who = {"tenant": tenant, "model": chance.choices(MODELS, (40, 30, 10, 10, 5, 5))[0],
               "key_id": f"key_{user % 11}", "project": f"project-{user % 3}", "end_user": f"user-{user}",
               "agent": chance.choice([None, None, "critic"]),
               "endpoint": chance.choice([None, None, None, "responses"])}  # fmt: skip
        conversation = f"conv_{number:032x}"
        start = begin + step * number
        bills = [_bill(chance, who, conversation, number * 100 + turn, start + timedelta(minutes=3 * turn))
                 for turn in range(size.requests_each)]  # fmt: skip
        yield _conversation(number, conversation, who, bills), bills


def _bill(chance: random.Random, who: Row, conversation: str, number: int, when: datetime) -> Row:
    known = chance.randrange(10**7, 10**11)
    planning = known // 10 if chance.random() < 0.1 else 0
    return {
        **who,
        "request_id": f"req_{number:032x}",
        "conversation_id": conversation,
        "completion_id": f"chatcmpl-{number:032x}",
        **_ended(chance),
        "stream": False,
        "prompt_tokens": chance.randrange(100, 20_000),
        "completion_tokens": chance.randrange(10, 900),
        "total_cost_picousd": known,
        "estimated": False,
        "response_metadata": METADATA,
        "created_at": when,
        "cached_tokens": chance.randrange(0, 100),
        "cache_write_tokens": 0,
        "known_cost_picousd": known,
        "planning_cost_picousd": planning,
        "planning_unpriced": 0,
        "saved_picousd": 3 * planning,
        "direct_cost_picousd": known + planning,
        "net_saving_picousd": planning,
        "held_out": None,
        "bounced_tokens": None,
        "bounced_cost_picousd": None,
        "rolled_up": True,
        "total_ms": chance.randrange(50, 20_000),
        "failure": None,
    }


def _ended(chance: random.Random) -> Row:
    """One request in a hundred failed, one in two hundred was left by its client."""
    status = chance.choices(("complete", "failed", "partial"), (985, 10, 5))[0]
    http_status = chance.choice((429, 500, 500, 503)) if status == "failed" else None
    code = {"failed": "server_error", "partial": "client_disconnected"}.get(status)
    return {"status": status, "error_code": code, "http_status": http_status}


def _conversation(number: int, conversation: str, who: Row, bills: list[Row]) -> Row:
    question = (
        f"How does number {number} of our {who['model']} orders stand, and what is left to do for {number % 977}?"
    )
    empty = dict.fromkeys(column.name for column in schema.conversations.columns)
    return {
        **empty,
        "id": conversation,
        "tenant": who["tenant"],
        "attachments": 0,
        "created_at": bills[0]["created_at"],
        "updated_at": bills[-1]["created_at"],
        "question": question,
        "question_folded": question.casefold(),
        "end_user": who["end_user"],
        "model": who["model"],
        "requests": len(bills),
        "prompt_tokens": sum(bill["prompt_tokens"] for bill in bills),
        "completion_tokens": sum(bill["completion_tokens"] for bill in bills),
        "cost_picousd": sum(bill["known_cost_picousd"] for bill in bills),
        "planning_cost_picousd": sum(bill["planning_cost_picousd"] for bill in bills),
        "unpriced": 0,
        "estimated": 0,
    }


class Rolled:
    """The daily roll-ups of the bills."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self._found: dict[tuple[Any, ...], Row] = {}
        self._chance = random.Random(19)

    def add(self, bill: Row) -> None:
        """A bill, to the row of its day and of one of the processes."""
        day: date = bill["created_at"].date()
        key = (self._chance.randrange(self._shards), day, *(bill[name] for name in WHO))
        row = self._found.get(key)
        if row is None:
            who = {name: bill[name] for name in WHO}
            digest = self._chance.randbytes(16)
            row = self._found[key] = {"digest": digest, "day": day, **who, **dict.fromkeys(SUMS, 0)}
        for name, value in sums_of(bill).items():
            row[name] += value

    def rows(self) -> list[Row]:
        """All of them."""
        return list(self._found.values())


async def fill(url: str, size: Size) -> None:
    """Writes all to a database on the current schema."""
    is_sqlite = url.startswith("sqlite")
    rolled = Rolled(1 if is_sqlite else SHARDS)
    write: Any = SqliteBulk(url) if is_sqlite else await PostgresBulk.open(url)
    conversations: list[Row] = []
    bills: list[Row] = []
    for conversation, its in conversation_rows(size):
        conversations.append(conversation)
        bills += its
        for bill in its:
            rolled.add(bill)
        if len(bills) >= BATCH:
            await write(schema.conversations, conversations)
            await write(schema.ledger, bills)
            conversations, bills = [], []
    await write(schema.conversations, conversations)
    await write(schema.ledger, bills)
    days = rolled.rows()
    await write(schema.usage_days, days)
    await write.finish()
    print(
        f"{size.conversations * size.requests_each} requests, {size.conversations} conversations, {len(days)} roll-ups"
    )


class SqliteBulk:
    """Writes past the driver's wrapper, without a sync for each transaction."""

    def __init__(self, url: str) -> None:
        self._connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        self._connection.execute("PRAGMA synchronous = OFF")

    async def __call__(self, table: Any, rows: list[Row]) -> None:
        names = [column.name for column in table.columns]
        marks = ", ".join("?" * len(names))
        text = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"
        self._connection.executemany(text, [tuple(_sqlite(row[name]) for name in names) for row in rows])
        self._connection.commit()

    async def finish(self) -> None:
        """Statistics for the planner, as a file has them that `VACUUM` or `ANALYZE` has seen or not: none."""
        self._connection.close()


def _sqlite(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return value.isoformat() if isinstance(value, date) else value


class PostgresBulk:
    """Writes by `COPY`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> "PostgresBulk":
        """Connects."""
        return cls(await asyncpg.connect(urlsplit(url)._replace(scheme="postgresql").geturl()))

    async def __call__(self, table: Any, rows: list[Row]) -> None:
        names = [column.name for column in table.columns]
        records = [tuple(row[name] for name in names) for row in rows]
        await self._connection.copy_records_to_table(table.name, columns=names, records=records)

    async def finish(self) -> None:
        """As autovacuum leaves tables a while after."""
        await self._connection.execute("VACUUM ANALYZE")
        await self._connection.close()


def queries(transactions: DatabaseTransactions, size: Size) -> dict[str, Query]:
    """What pages and commands ask, by name."""
    reports = CostReports(transactions)
    midnight = END.replace(hour=0)
    found: dict[str, Query] = {"bills in no sums": partial(count_older, transactions)}
    for days in (30, 365):
        since = midnight - timedelta(days=days - 1)
        for by in ("day", "model", "user", "key", "tenant"):
            found[f"costs by {by}, {days} days, all tenants"] = partial(reports.report, CostQuery((by,), since))
        found[f"costs by user, {days} days, one tenant"] = partial(
            reports.report, CostQuery(("user",), since, tenant=TENANTS[0])
        )
    week = CostQuery(("conversation",), midnight - timedelta(days=6))
    found["costs by conversation, 7 days, all tenants"] = partial(reports.report, week)
    for days in (30, 365):
        since = midnight - timedelta(days=days - 1)
        found[f"dearest conversations, {days} days"] = partial(reports.dearest_conversations, None, since, 200)
    odd = CostQuery(("model",), END - timedelta(days=7, minutes=5))
    found["costs by model, the last 7 days to the minute"] = partial(reports.report, odd)
    hours = CostQuery(("hour", "model"), midnight - timedelta(days=7), midnight)
    found["usage by hour and model, 7 days"] = partial(reports.report, hours)
    found |= {f"conversations, {name}": partial(transactions.run, partial(list_conversations, part=part))
              for name, part in conversation_parts().items()}  # fmt: skip
    search = RequestSearch(transactions)
    middle = f"conv_{size.conversations // 2:032x}"
    requests = {
        "latest": RequestChoice(),
        "of a conversation": RequestChoice(tenant=None, conversation=middle),
        "of a user": RequestChoice(user="user-3"),
    }
    found |= {f"requests, {name}": partial(search.find, RequestQuery(choice)) for name, choice in requests.items()}
    found |= {f"request search, {text}": partial(search.find, _asked(text)) for text in SEARCHES}
    found |= {
        f"search for a name, {name}": partial(search.named, None, name) for name in ("user-3", "gpt-4o", "nobody")
    }
    found["latencies of a day"] = partial(search.speeds, None, END - timedelta(days=1))
    return found


def _asked(text: str) -> RequestQuery:
    """The query that an address makes."""
    given = dict(parse_qsl(text))
    return request_query(given, given.get("tenant"), END, ON_A_PAGE)


def conversation_parts() -> dict[str, ListPart[ConversationChoice]]:
    """What is searched for."""
    half = END - timedelta(days=DAYS / 2)
    return {
        "latest": ListPart(ConversationChoice()),
        "latest of a tenant": ListPart(ConversationChoice(tenant=TENANTS[1])),
        "half a year ago": ListPart(ConversationChoice(), until=half),
        "of a rare user": ListPart(ConversationChoice(user=f"user-{USERS - 1}")),
        "of a user": ListPart(ConversationChoice(user="user-3")),
        "a text that is rare": ListPart(ConversationChoice(text="number 77 of")),
        "a text that is nowhere": ListPart(ConversationChoice(text="nowhere to be found")),
        "a text that is nowhere, of a tenant": ListPart(ConversationChoice(tenant="lab", text="nowhere to be found")),
    }


async def measure(url: str, size: Size) -> dict[str, tuple[float, float, float]]:
    """Milliseconds of each query: the first run, the median of those after it, and the least processor time of this
    process, in which SQLite runs: on a busy machine that alone says what a query costs."""
    transactions = open_transactions(StorageSettings(url=url))
    found = {}
    for name, query in queries(transactions, size).items():
        times, spent = [], []
        for _ in range(1 + RUNS):
            begun, used = time.perf_counter(), time.process_time()
            await query()
            times.append(1000 * (time.perf_counter() - begun))
            spent.append(1000 * (time.process_time() - used))
        found[name] = (times[0], statistics.median(times[1:]), min(spent))
    await transactions.close()
    return found


async def prepared(url: str, size: Size) -> None:
    """A database that is full."""
    transactions = open_transactions(StorageSettings(url=url))
    await migrate(transactions)
    await transactions.close()
    begun = time.perf_counter()
    await fill(url, size)
    print(f"written in {time.perf_counter() - begun:.0f} s")


def run_on(kind: str, size: Size) -> None:
    """Fills one kind of database, measures, and prints."""
    print(f"\n{kind}")
    with tempfile.TemporaryDirectory(prefix="reports-") as directory:
        if kind == "sqlite":
            _run(f"sqlite:///{Path(directory) / 'gateway.db'}", size)
        else:
            with own_postgres() as server:
                _run(server.new_database(), size)


def _run(url: str, size: Size) -> None:
    asyncio.run(prepared(url, size))
    print(f"{'query':<55} {'first':>8} {'then':>8} {'processor':>10}  ms")
    for name, (first, then, spent) in asyncio.run(measure(url, size)).items():
        over = "  over the goal" if then > GOAL_MS else ""
        print(f"{name:<55} {first:>8.1f} {then:>8.1f} {spent:>10.1f}{over}", flush=True)


def main() -> None:
    """Both kinds, one after the other."""
    parser = argparse.ArgumentParser(description="Times the queries behind pages on a million requests.")
    parser.add_argument("--small", action="store_true", help="a hundredth of it, to see that it works")
    parser.add_argument("--only", choices=("sqlite", "postgres"))
    options = parser.parse_args()
    size = Size(1000 if options.small else 100_000)
    for kind in (options.only,) if options.only else ("sqlite", "postgres"):
        run_on(kind, size)


if __name__ == "__main__":
    main()
