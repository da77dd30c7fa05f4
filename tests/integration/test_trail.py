"""The trail: no number is left out, whoever adds at once, and whatever is done to its rows is found (§12.12)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.errors import StorageUnavailable
from gateway.core.types.audit_log import AuditActor, ChainAnchor, NewEvent, TrailQuery
from gateway.storage.audit_events import (
    CHANGED,
    EVENTS,
    MISSING,
    NOT_THE_SAME,
    PAGE,
    UNLINKED,
    AuditLog,
    all_events,
    read_events,
    recorder,
    verify,
)
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.store import ConversationStore
from tests.integration.commits import turn
from tests.support.schemas import brought_up

ANN = AuditActor("key_ann", "Ann")
NUMBER = EVENTS.c.number


@pytest.fixture
async def own(storage_url: str) -> AsyncIterator[DatabaseTransactions]:
    """A database of the test's own, as the trail belongs to nobody alone."""
    async with brought_up(storage_url) as opened:
        yield opened


def trail_of(transactions: DatabaseTransactions) -> AuditLog:
    return AuditLog(transactions, SystemClock(), is_strict=True)


async def five_events(transactions: DatabaseTransactions) -> None:
    for number in range(1, 6):
        await trail_of(transactions).saw(NewEvent(ANN, "conversation.seen", f"conv_{number}", "acme", {"n": number}))


async def run(transactions: DatabaseTransactions, *statements: Any) -> None:
    await transactions.run(lambda c: [c.execute(each) for each in statements], write=True)


async def take_triggers_away(transactions: DatabaseTransactions) -> None:
    """As somebody would who owns the database."""
    if transactions.remote:
        await run(transactions, sa.text("ALTER TABLE admin_events DISABLE TRIGGER USER"))
    else:
        names = ("admin_events_no_update", "admin_events_no_delete")
        await run(transactions, *(sa.text(f"DROP TRIGGER {name}") for name in names))


def change(which: int, /, **values: Any) -> Any:
    return EVENTS.update().where(NUMBER.in_([which])).values(**values)


def swap(first: int, second: int) -> list[Any]:
    return [change(first, number=999), change(second, number=first), change(999, number=second)]


def put_in(rows: list[dict[str, Any]], behind: int) -> list[Any]:
    """A row behind another, for which the later ones make room."""
    moved = [change(row["number"], number=row["number"] + 1) for row in reversed(rows) if row["number"] > behind]
    return [*moved, EVENTS.insert().values({**rows[behind - 1], "number": behind + 1})]


async def test_s12_12_whatever_is_done_to_rows_is_found(own: DatabaseTransactions) -> None:
    await five_events(own)
    whole = await verify(own)
    assert (whole.events, whole.broken) == (5, None)
    assert whole.last is not None
    assert whole.last.number == 5
    rows = await own.run(lambda c: [row._asdict() for row in c.execute(sa.select(EVENTS).order_by(NUMBER))])
    await take_triggers_away(own)
    changed = {
        name: ([change(3, **{name: value})], 3, CHANGED)
        for name, value in {
            "at": rows[0]["at"],
            "actor": "key_bob",
            "actor_name": None,
            "tenant": "other",
            "action": "key.created",
            "object": "conv_9",
            "ok": False,
            "details": "{}",
            "previous_digest": rows[0]["digest"],
            "digest": rows[0]["digest"],
        }.items()
    }
    tampered: dict[str, tuple[list[Any], int, str]] = {
        **changed,
        "deleted": ([EVENTS.delete().where(NUMBER == 3)], 3, MISSING),
        "the first deleted": ([EVENTS.delete().where(NUMBER == 1)], 1, MISSING),
        "deleted, and moved up": (
            [EVENTS.delete().where(NUMBER == 3), change(4, number=3), change(5, number=4)],
            3,
            CHANGED,
        ),
        "swapped": (swap(2, 4), 2, CHANGED),
        "put in": (put_in(rows, behind=2), 3, CHANGED),
        "put in at the end": ([EVENTS.insert().values({**rows[4], "number": 6})], 6, CHANGED),
    }
    for name, (statements, number, reason) in tampered.items():
        await run(own, *statements)
        found = await verify(own)
        assert (found.broken, found.reason, found.events) == (number, reason, number - 1), name
        await run(own, EVENTS.delete(), EVENTS.insert().values(rows))
    assert await verify(own) == whole


async def test_s12_12_that_the_last_are_gone_is_found_with_an_earlier_export(own: DatabaseTransactions) -> None:
    await five_events(own)
    last = (await verify(own)).last
    assert last is not None
    assert (await verify(own, last)).events == 1
    assert (await verify(own, replace(last, digest=bytes(32)))).reason == NOT_THE_SAME
    await take_triggers_away(own)
    await run(own, EVENTS.delete().where(NUMBER > 3))
    assert (await verify(own)).broken is None, "the rest holds by itself"
    assert (await verify(own, last)).broken == 5
    await five_events(own)  # others in their place
    assert (await verify(own, last)).reason == NOT_THE_SAME


async def test_s12_12_events_of_another_secret_do_not_hold(own: DatabaseTransactions, tmp_path: Any) -> None:
    """A chain that was made anew elsewhere, row by row."""
    await five_events(own)
    async with brought_up(f"sqlite:///{tmp_path}/forged.db") as forged:
        await five_events(forged)
        rows = await forged.run(lambda c: [row._asdict() for row in c.execute(sa.select(EVENTS).order_by(NUMBER))])
    await take_triggers_away(own)
    await run(own, EVENTS.delete(), EVENTS.insert().values(rows))
    assert (await verify(own)).broken == 1


@pytest.mark.parametrize(
    "verb", ["UPDATE admin_events SET ok = ok", "DELETE FROM admin_events", "TRUNCATE admin_events"]
)
async def test_s12_12_the_database_refuses_to_change_rows(own: DatabaseTransactions, verb: str) -> None:
    if verb.startswith("TRUNCATE") and not own.remote:
        pytest.skip("SQLite has no TRUNCATE")
    await five_events(own)
    with pytest.raises(DBAPIError, match="only added"):
        await run(own, sa.text(verb))
    assert (await verify(own)).events == 5


async def test_s12_12_twenty_that_add_at_once_leave_no_gap(own: DatabaseTransactions, storage_url: str) -> None:
    others = [open_transactions(StorageSettings(url=storage_url, timeout=30.0, pool_size=1)) for _ in range(20)]

    async def add(number: int, transactions: DatabaseTransactions) -> None:
        for each in range(5):
            await trail_of(transactions).saw(NewEvent(AuditActor(f"key_{number}"), "conversation.seen", f"conv_{each}"))

    await asyncio.gather(*(add(number, each) for number, each in enumerate(others)))
    for each in others:
        await each.close()
    found = await verify(own)
    assert (found.events, found.broken) == (100, None)


async def test_s12_12_a_change_and_its_event_stand_or_fall_together(own: DatabaseTransactions) -> None:
    store = ConversationStore(own, SystemClock())
    await store.commit(turn("acme", "conv_1", created=True))
    await run(own, sa.text("ALTER TABLE admin_events RENAME TO put_aside"))
    with pytest.raises(StorageUnavailable):
        await store.delete_conversation("acme", "conv_1", by=ANN)
    assert await store.has_conversation("acme", "conv_1")
    await run(own, sa.text("ALTER TABLE put_aside RENAME TO admin_events"))
    assert await store.delete_conversation("acme", "conv_1", by=ANN)
    assert not await store.delete_conversation("acme", "conv_1", by=ANN), "what is not there is not deleted"
    found, _ = await own.run(lambda c: read_events(c, TrailQuery()))
    assert [(each.number, each.actor, each.action, each.object_id, each.tenant) for each in found] == [
        (1, "key_ann", "conversation.deleted", "conv_1", "acme")
    ]


async def test_what_a_query_names(own: DatabaseTransactions) -> None:
    await five_events(own)
    record: Callable[..., None] = recorder(AuditActor(None, "root"), SystemClock())
    await own.run(lambda c: record(c, "key.created", "key_1", "beta", {"roles": ["user"]}), write=True)

    async def numbers(**query: Any) -> list[int]:
        found, _ = await own.run(lambda c: read_events(c, TrailQuery(**query)))
        return [each.number for each in found]

    assert await numbers() == [1, 2, 3, 4, 5, 6]
    assert await numbers(after=2, limit=2) == [3, 4]
    assert await numbers(newest_first=True, after=3) == [2, 1]
    assert await numbers(action="key.created") == [6]
    assert await numbers(actor="key_ann", after=4) == [5]
    found, has_more = await own.run(lambda c: read_events(c, TrailQuery(limit=5)))
    assert has_more
    assert await numbers(since=found[3].at) == [4, 5, 6]
    assert await numbers(until=found[3].at) == [1, 2, 3]


async def test_an_export_and_a_check_go_page_by_page(
    own: DatabaseTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.storage.audit_events.PAGE", 2)
    await five_events(own)
    pages = [page async for page in all_events(own, TrailQuery())]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert await verify(own, ChainAnchor(3, pages[1][0].digest)) == replace(await verify(own), events=3)
    assert PAGE > 2


async def test_what_cannot_be_recorded_where_nobody_has_a_key_is_told_in_the_log(own: DatabaseTransactions) -> None:
    await run(own, sa.text("ALTER TABLE admin_events RENAME TO put_aside"))
    await AuditLog(own, SystemClock(), is_strict=False).saw(NewEvent(ANN, "conversations.seen"))
    with pytest.raises(StorageUnavailable):
        await trail_of(own).saw(NewEvent(ANN, "conversations.seen"))


async def test_a_row_between_two_of_one_chain_is_unlinked(own: DatabaseTransactions) -> None:
    """By somebody who has the secret, but is not careful."""
    await five_events(own)
    from gateway.storage.audit_events import digest_of
    from gateway.storage.keyed_hashes import read_secret

    secret = await own.run(read_secret) or b""
    found, _ = await own.run(lambda c: read_events(c, TrailQuery()))
    forged = replace(found[2], actor="key_bob")
    await take_triggers_away(own)
    await run(own, change(3, actor="key_bob", digest=digest_of(secret, forged)))
    assert (await verify(own)).broken == 4
    assert (await verify(own)).reason == UNLINKED
