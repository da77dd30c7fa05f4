"""§13.9: a tail shows every bill once, whenever it is written, on both databases."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.types.report_lists import RequestChoice
from gateway.core.types.turn import TurnCommit
from gateway.operations.tail import REACH, LedgerTail
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.ledger import open_ledger
from gateway.storage.store import ConversationStore
from tests.integration.commits import bill
from tests.support.schemas import brought_up

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def transactions(storage_url: str) -> AsyncIterator[DatabaseTransactions]:
    """A database of the test's own."""
    async with brought_up(storage_url) as opened:
        yield opened


@pytest.fixture
async def reader(transactions: DatabaseTransactions, storage_url: str) -> AsyncIterator[DatabaseTransactions]:
    """The same database, as a command reads it."""
    opened = open_ledger(StorageSettings(url=storage_url))
    yield opened
    await opened.close()


@pytest.fixture
def store(transactions: DatabaseTransactions) -> ConversationStore:
    return ConversationStore(transactions, SystemClock())


def arrived(before: timedelta, tenant: str = "t", **more: Any) -> TurnCommit:
    """A bill of a request that arrived so long before `NOW`."""
    return TurnCommit(bill(tenant, None, created_at=NOW - before, **more))


async def write(store: ConversationStore, *commits: TurnCommit) -> list[str]:
    for each in commits:
        await store.commit(each)
    return [each.ledger.request_id for each in commits]


async def seen(arrivals: LedgerTail, *reach: timedelta) -> list[str]:
    return [line.id for line, _ in await arrivals.look(*reach)]


async def test_s13_9_a_bill_that_comes_late_is_shown_once(
    store: ConversationStore, reader: DatabaseTransactions
) -> None:
    minutes = [timedelta(minutes=n) for n in range(60)]
    old = await write(store, arrived(minutes[50]), arrived(minutes[30]), arrived(minutes[0]))
    arrivals = LedgerTail(reader, RequestChoice(), SystemClock())
    assert [line.id for line, _ in await arrivals.begin(2)] == old[1:]
    assert await seen(arrivals, REACH) == []
    late = await write(store, arrived(minutes[1]), arrived(minutes[59]))
    new = await write(store, arrived(-minutes[1]), arrived(timedelta(seconds=-30)))
    assert await seen(arrivals) == new[::-1]
    assert await seen(arrivals, REACH) == late[::-1]
    assert [await seen(arrivals), await seen(arrivals, REACH)] == [[], []]


async def test_s13_9_bills_in_any_order_are_all_shown_once(
    store: ConversationStore, reader: DatabaseTransactions
) -> None:
    """As requests of several replicas end: each within an hour of its arrival."""
    choose = random.Random(9)
    asked = [arrived(timedelta(minutes=-n), end_user=choose.choice(("ann", None))) for n in range(90)]
    asked.sort(key=lambda each: each.ledger.created_at + timedelta(minutes=choose.randrange(55)))
    every, of_ann = (LedgerTail(reader, RequestChoice(user=user), SystemClock()) for user in (None, "ann"))
    shown: dict[int, list[str]] = {id(each): [line.id for line, _ in await each.begin(10)] for each in (every, of_ann)}
    for start in range(0, len(asked), 5):
        await write(store, *asked[start : start + 5])
        for each in (every, of_ann):
            shown[id(each)] += await seen(each, *choose.choice(((), (REACH,))))
    for each in (every, of_ann):
        shown[id(each)] += await seen(each, REACH)
    assert sorted(shown[id(every)]) == sorted(each.ledger.request_id for each in asked)
    anns = [each.ledger.request_id for each in asked if each.ledger.end_user == "ann"]
    assert sorted(shown[id(of_ann)]) == sorted(anns)


async def test_s13_9_a_clock_that_is_fast_hides_nothing(store: ConversationStore, reader: DatabaseTransactions) -> None:
    """One of the servers lives in the future; those of the others are shown all the same."""
    now = SystemClock().now()
    ahead = arrived(timedelta())
    ahead = replace(ahead, ledger=replace(ahead.ledger, created_at=now + timedelta(days=1)))
    await write(store, ahead)
    arrivals = LedgerTail(reader, RequestChoice(), SystemClock())
    await arrivals.begin(0)
    made = arrived(timedelta())
    names = await write(store, replace(made, ledger=replace(made.ledger, created_at=now)))
    assert await seen(arrivals) == names


async def test_s13_9_a_tail_begins_before_there_is_anything(
    store: ConversationStore, reader: DatabaseTransactions
) -> None:
    arrivals = LedgerTail(reader, RequestChoice(tenant="t"), SystemClock())
    assert await arrivals.begin(10) == []
    assert await seen(arrivals) == []
    names = await write(store, arrived(timedelta()), arrived(timedelta(), tenant="other"))
    assert await seen(arrivals) == names[:1]
    assert await seen(arrivals, REACH) == []


class Meddling:
    """Transactions before one of which a bill is written."""

    def __init__(self, reader: DatabaseTransactions, store: ConversationStore, before: int, commit: TurnCommit) -> None:
        self._reader, self._store, self._left, self._commit = reader, store, before, commit

    async def run(self, work: Any, *, write: bool = False, synced: bool = True) -> Any:
        if not self._left:
            await self._store.commit(self._commit)
        self._left -= 1
        return await self._reader.run(work, write=write)


async def test_s13_9_a_bill_that_comes_while_a_tail_looks_is_shown_once(
    store: ConversationStore, reader: DatabaseTransactions
) -> None:
    for number in range(2, 9):  # what was there at the first two is old
        for late in (timedelta(minutes=40), timedelta(minutes=-1)):
            tenant = f"t-{number}-{late}"
            (old,) = await write(store, arrived(timedelta(), tenant=tenant))
            commit = arrived(late, tenant=tenant)
            meddling: Any = Meddling(reader, store, number, commit)
            arrivals = LedgerTail(meddling, RequestChoice(tenant=tenant), SystemClock())
            shown = [line.id for line, _ in await arrivals.begin(1)]
            for _ in range(3):
                shown += await seen(arrivals, REACH)
            name = commit.ledger.request_id
            assert shown.count(name) == 1, (number, late)
            assert set(shown) <= {name, old}


async def test_s13_9_more_than_a_page_at_once(store: ConversationStore, reader: DatabaseTransactions) -> None:
    arrivals = LedgerTail(reader, RequestChoice(), SystemClock())
    await arrivals.begin(0)
    commits = [arrived(timedelta(microseconds=-(n // 2))) for n in range(1300)]
    await asyncio.gather(*map(store.commit, commits))
    assert sorted(await seen(arrivals)) == sorted(each.ledger.request_id for each in commits)
