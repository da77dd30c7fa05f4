"""What has had its time is deleted: unused conversations in small steps, expired claims, processes long gone."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
import sqlalchemy as sa

from gateway.core.clock import SystemClock, days_before
from gateway.core.config.settings import StorageSettings
from gateway.core.errors import StorageUnavailable
from gateway.core.scheduler import Scheduler
from gateway.core.types.conversation import ConversationRef
from gateway.operations.purge import schedule_sweeps, sweep, sweep_seconds
from gateway.storage.conversations import delete as module
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.retention import Retention
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, turn
from tests.integration.deleting import WORD, Keeping, full_turn, rows
from tests.integration.traces import traces


class Late:
    """A clock that is some days ahead."""

    def __init__(self, days: float = 0.0) -> None:
        self.days = days

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(days=self.days)

    def monotonic(self) -> float:
        return 0.0


async def ids(transactions: DatabaseTransactions, tenant: str) -> list[str]:
    """The conversations that a tenant has."""
    return sorted(row.id for row in await rows(transactions, schema.conversations, tenant=tenant))


async def aged(transactions: DatabaseTransactions, tenant: str, *days: float) -> None:
    """Makes conversations `TENANT-N` that nothing was added to for so many days."""
    for number, age in enumerate(days):
        store = ConversationStore(transactions, Late(-age))
        await store.commit(full_turn(tenant, f"{tenant}-{number}", created=True, cached=(f"pdf:{number}",)))


async def test_only_what_nothing_was_added_to_for_so_long_is_deleted_for_good(
    transactions: DatabaseTransactions, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`conversation.retention_days`, by the same deletion as one by one; in several small steps."""
    monkeypatch.setattr(module, "BATCH", 2)
    await aged(transactions, tenant, 40, 35, 33, 32, 31, 29, 0)
    await aged(transactions, tenant + "x", 50)
    cache = Keeping()
    retention = Retention(transactions, SystemClock(), cache)
    before = days_before(datetime.now(UTC), 30)
    assert await retention.count_expired(before, tenant) == 5
    assert await retention.expire_conversations(before, tenant) == 5
    assert await ids(transactions, tenant) == [f"{tenant}-5", f"{tenant}-6"]
    assert cache.forgotten == [f"{tenant}:pdf:{number}" for number in range(5)]
    assert await ids(transactions, tenant + "x") == [f"{tenant}x-0"]
    await sweep(retention, Late(30), 30)
    assert (await ids(transactions, tenant), await ids(transactions, tenant + "x")) == ([], [])
    assert await traces(transactions, WORD) == []


async def test_without_a_retention_conversations_stay_and_expired_claims_go(
    transactions: DatabaseTransactions, tenant: str
) -> None:
    await aged(transactions, tenant, 4000)
    claim = {"tenant": tenant, "body": b"b", "request_id": "req_1", "created_at": NOW}
    now = datetime.now(UTC)

    def write(connection: sa.Connection) -> None:
        for key, hours, state, process in (
            (b"over", -1, "done", "here"),
            (b"not yet", 1, "done", "gone"),
            (b"runs on", -1, "running", "here"),
            (b"died", -1, "running", "gone"),
        ):
            values = {"key": key, "expires_at": now + timedelta(hours=hours), "state": state}
            connection.execute(schema.claims.insert().values(**claim, **values, process=process + tenant))
        for name, days in (("gone", -2), ("here", 0.1)):
            alive = now + timedelta(days=days)
            connection.execute(schema.processes.insert().values(id=name + tenant, alive_until=alive))

    await transactions.run(write, write=True)
    await sweep(Retention(transactions, SystemClock(), Keeping()), SystemClock(), None)
    assert await ids(transactions, tenant) == [f"{tenant}-0"]
    left = {row.key for row in await rows(transactions, schema.claims, tenant=tenant)}
    assert left == {b"not yet", b"runs on"}
    assert [len(await rows(transactions, schema.processes, id=n + tenant)) for n in ("gone", "here")] == [0, 1]


async def test_several_processes_sweep_at_once_while_one_conversation_is_used(
    module_storage_url: str, transactions: DatabaseTransactions, tenant: str
) -> None:
    """Each is deleted once, and what is used meanwhile stays whole: either it was deleted before, or not at all."""
    await aged(transactions, tenant, *[40.0] * 30)
    others = [open_transactions(StorageSettings(url=module_storage_url)) for _ in range(2)]
    sweepers = [Retention(each, SystemClock(), Keeping()) for each in others]
    store = ConversationStore(transactions, SystemClock())
    before = days_before(datetime.now(UTC), 30)
    used = f"{tenant}-29"
    sweeping = asyncio.gather(*(each.expire_conversations(before, tenant) for each in sweepers))
    _, counts = await asyncio.gather(store.commit(turn(tenant, used)), sweeping)
    left = await ids(transactions, tenant)
    assert left in ([], [used])
    assert sum(counts) == 30 - len(left)
    assert len(await rows(transactions, schema.messages, conversation_id=used)) in (0, 7)
    for each in others:
        await each.close()


async def test_a_conversation_that_somebody_is_adding_to_is_passed_over(
    module_storage_url: str, transactions: DatabaseTransactions, tenant: str
) -> None:
    """PostgreSQL: its row is locked by the turn that is being written; SQLite has one writer anyway."""
    if not transactions.remote:
        return
    await aged(transactions, tenant, 40, 40)
    other = open_transactions(StorageSettings(url=module_storage_url))
    locked, go = asyncio.Event(), asyncio.Event()

    def add(connection: sa.Connection) -> None:
        row = schema.conversations.update().where(schema.conversations.c.id == f"{tenant}-0")
        connection.execute(row.values(updated_at=datetime.now(UTC)))
        locked.set()
        sa.util.await_only(go.wait())

    adding = asyncio.ensure_future(other.run(add, write=True))
    await locked.wait()
    retention = Retention(transactions, SystemClock(), Keeping())
    assert await retention.expire_conversations(days_before(datetime.now(UTC), 30), tenant) == 1
    go.set()
    await adding
    assert await ids(transactions, tenant) == [f"{tenant}-0"]
    await other.close()


class Flaky:
    """A storage that is away, then broken, then there."""

    def __init__(self) -> None:
        self.asked: list[datetime] = []
        self.faults: list[Exception] = [StorageUnavailable("away"), KeyError("a bad row")]
        self.swept = asyncio.Event()

    async def expire_conversations(self, before: datetime) -> int:
        self.asked.append(before)
        if self.faults:
            raise self.faults.pop(0)
        return 1

    async def expire_by_keys(self) -> tuple[int, float | None]:
        return 1, None

    async def expire_things(self) -> int:
        return 1

    async def expire_texts(self) -> int:
        return 1

    async def expire_claims(self) -> None:
        self.swept.set()


async def test_whatever_goes_wrong_only_postpones_it_and_shutdown_ends_it() -> None:
    store = Flaky()
    jobs = Scheduler()
    schedule_sweeps(jobs, cast(Retention, store), Late(), 1.0, 0.001)
    async with asyncio.timeout(10):
        await store.swept.wait()
    assert len(store.asked) == 3
    await jobs.close()
    asked = len(store.asked)
    await asyncio.sleep(0.01)
    assert len(store.asked) == asked


@pytest.mark.parametrize(("days", "seconds"), [(None, 300), (1e-5, 1), (0.1, 86.4), (30, 300), (1e300, 300)])
def test_a_conversation_outlives_its_time_by_little(days: float | None, seconds: float) -> None:
    assert sweep_seconds(days) == pytest.approx(seconds)
    assert days_before(NOW, days or 1) < NOW


async def kept_for(transactions: DatabaseTransactions, tenant: str, name: str, age: float, *days: float | None) -> None:
    """A conversation that keys of so many days made and continued, to which nothing was added for `age` days."""
    store = ConversationStore(transactions, Late(-age))
    for number, each in enumerate(days):
        await store.commit(turn(tenant, name, created=number == 0, retention_days=each))


async def days_of(transactions: DatabaseTransactions, tenant: str) -> dict[str, float | None]:
    found = await rows(transactions, schema.conversations, tenant=tenant)
    return {row.id.removeprefix(f"{tenant}-"): row.retention_days for row in found}


async def test_s12_13_the_shortest_time_of_the_keys_counts(transactions: DatabaseTransactions, tenant: str) -> None:
    for name, days in {
        "none": (None,),
        "one": (7,),
        "shorter": (30, 7),
        "longer": (7, 30, None),
        "late": (None, 3),
    }.items():
        await kept_for(transactions, tenant, f"{tenant}-{name}", 0, *days)
    found = await days_of(transactions, tenant)
    assert found == {"none": None, "one": 7, "shorter": 7, "longer": 7, "late": 3}


async def test_s12_13_a_keys_conversations_go_in_its_time(transactions: DatabaseTransactions, tenant: str) -> None:
    """Beside all others, whether or not there is a `conversation.retention_days`."""
    for name, age, days in (
        ("fresh", 6, (7.0,)),
        ("old", 8, (7.0,)),
        ("older", 31, (30.0,)),
        ("kept", 29, (30.0,)),
        ("forever", 900, (None,)),
        ("half", 0.6, (0.5,)),
    ):
        await kept_for(transactions, tenant, f"{tenant}-{name}", age, *days)
    retention = Retention(transactions, SystemClock(), Keeping())
    assert await retention.expire_by_keys() == (3, 0.5)
    assert await days_of(transactions, tenant) == {"fresh": 7, "kept": 30, "forever": None}
    deleted, shortest = await retention.expire_by_keys()
    assert deleted == 0
    assert shortest is not None, "times of other tests may be there, too"
    assert await sweep(retention, SystemClock(), None) == shortest


async def test_s12_13_what_is_taken_out_of_a_conversation_is_no_addition(
    transactions: DatabaseTransactions, tenant: str
) -> None:
    """As when a file expires that it holds: it would be kept for another such time, and listed as active."""
    await aged(transactions, tenant, 40)
    now = datetime.now(UTC)
    await transactions.run(lambda connection: module.forget_blocks(connection, tenant, f"{tenant}-0", now), write=True)
    (row,) = await rows(transactions, schema.conversations, tenant=tenant)
    assert row.forgotten_at is not None
    assert await Retention(transactions, SystemClock(), Keeping()).expire_conversations(days_before(now, 30), tenant)


async def test_s12_13_a_conversation_in_use_is_not_deleted(transactions: DatabaseTransactions, tenant: str) -> None:
    """A request that found it marks it: it outlives its time until its turn is stored."""
    name = f"{tenant}-used"
    await kept_for(transactions, tenant, name, 8, 7.0)
    store = ConversationStore(transactions, SystemClock())
    assert await store.find_conversation(tenant, ConversationRef(name), max_bytes=None) is not None
    await Retention(transactions, SystemClock(), Keeping()).expire_by_keys()
    assert await ids(transactions, tenant) == [name]


async def test_s12_13_an_index_serves_the_sweep(transactions: DatabaseTransactions, tenant: str) -> None:
    if not transactions.remote:
        plan = await transactions.run(
            lambda c: c.execute(
                sa.text(
                    "EXPLAIN QUERY PLAN SELECT id FROM conversations WHERE retention_days = 7.0 "
                    "AND updated_at < '2020-01-01' ORDER BY updated_at LIMIT 20"
                )
            ).all()
        )
        assert "ix_conversations_retention (retention_days=? AND updated_at<?)" in str(plan)
