"""`storage/lookup/path_cache.py`: what is kept, for how long, and what makes it read anew (guarantee §3.8, ADR 20)."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from gateway.core.types.conversation import ConversationRef, StoredConversation
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.lookup.path_cache import KEPT_SECONDS, PathCache, StorageCaches
from gateway.storage.store import ConversationStore
from tests.integration.commits import contents, message, rebuilt, turn
from tests.support.hand_clock import HandClock


@pytest.fixture
def paths(clock: HandClock) -> PathCache:
    return PathCache(2**22, clock)


@pytest.fixture
def kept(transactions: DatabaseTransactions, clock: HandClock, paths: PathCache) -> ConversationStore:
    """A store that keeps paths."""
    return ConversationStore(transactions, clock, caches=StorageCaches(paths=paths))


async def found(store: ConversationStore, tenant: str, max_bytes: int | None = None) -> StoredConversation:
    return await rebuilt(store, tenant, "conv_" + tenant, max_bytes)


async def test_a_path_that_grew_is_read_from_where_it_was(kept: ConversationStore, tenant: str) -> None:
    """The messages that were read before are the same objects."""
    await kept.commit(turn(tenant, "conv_" + tenant, "q1", ["a1"], created=True))
    before = await found(kept, tenant)
    await kept.commit(turn(tenant, "conv_" + tenant, "q2", ["a2"]))
    after = await found(kept, tenant)
    assert contents(after) == ["q1", "a1", "q2", "a2"]
    assert all(one is other for one, other in zip(before.path, after.path, strict=False))
    assert after.cache is before.cache


async def test_each_branch_has_its_own_path(kept: ConversationStore, tenant: str) -> None:
    first = turn(tenant, "conv_" + tenant, "q1", ["a1"], created=True)
    await kept.commit(first)
    assert first.turn is not None
    shared = first.turn.answers[0].message.message_id
    await kept.commit(turn(tenant, "conv_" + tenant, "q2", ["a2"]))
    assert contents(await found(kept, tenant)) == ["q1", "a1", "q2", "a2"]
    await kept.commit(turn(tenant, "conv_" + tenant, "other", ["b2"], at_head=False, parent_id=shared))
    assert contents(await found(kept, tenant)) == ["q1", "a1", "other", "b2"]
    await kept.commit(turn(tenant, "conv_" + tenant, "q3", ["b3"]))
    assert contents(await found(kept, tenant)) == ["q1", "a1", "other", "b2", "q3", "b3"]


async def test_a_window_that_does_not_hold_it_gets_its_end(kept: ConversationStore, tenant: str) -> None:
    await kept.commit(turn(tenant, "conv_" + tenant, "q1", ["a1 " + "x" * 900], created=True))
    await kept.commit(turn(tenant, "conv_" + tenant, "q2", ["a2"]))
    assert len((await found(kept, tenant)).path) == 4
    assert contents(await found(kept, tenant, max_bytes=300)) == ["q2", "a2"]


async def test_what_another_process_deleted_is_not_used(
    kept: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """It says so in the conversation's row."""
    await kept.commit(turn(tenant, "conv_" + tenant, "q1", ["a1"], created=True))
    await found(kept, tenant)
    rows, table = schema.messages, schema.conversations
    of_it = rows.c.conversation_id == "conv_" + tenant
    body = '{"role":"user","content":"[gone]"}'
    forgotten = datetime(2026, 11, 23, 12, tzinfo=UTC)

    def work(connection: sa.Connection) -> None:
        connection.execute(rows.update().where(of_it, rows.c.role == "user").values(body=body))
        connection.execute(table.update().where(table.c.id == "conv_" + tenant).values(forgotten_at=forgotten))

    await transactions.run(work, write=True)
    assert contents(await found(kept, tenant)) == ["[gone]", "a1"]
    assert contents(await found(kept, tenant)) == ["[gone]", "a1"]


async def test_steps_whose_rows_are_gone_do_not_come_back(
    kept: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = message("assistant", None, tool_calls=[call])
    told = message("tool", "sunny", tool_call_id="c1")
    new = (message("user", "q1"), asked, told)
    await kept.commit(turn(tenant, "conv_" + tenant, new_messages=new, created=True))
    assert "sunny" in contents(await found(kept, tenant))
    gone = schema.reasoning_events.delete().where(schema.reasoning_events.c.conversation_id == "conv_" + tenant)
    await transactions.run(lambda connection: connection.execute(gone).rowcount, write=True)
    assert "sunny" not in contents(await found(kept, tenant))


async def test_a_deletion_drops_all(transactions: DatabaseTransactions, clock: HandClock, tenant: str) -> None:
    dropped: list[bool] = []
    paths = PathCache(2**22, clock, also_forget=lambda: dropped.append(True))
    kept = ConversationStore(transactions, clock, caches=StorageCaches(paths=paths))
    await kept.commit(turn(tenant, "conv_" + tenant, "q1", ["a1"], created=True))
    await found(kept, tenant)
    assert paths.size > 0
    assert await kept.delete_conversation(tenant, "conv_" + tenant)
    assert paths.size == 0
    assert dropped


async def test_what_nobody_asks_for_is_gone_in_minutes(
    kept: ConversationStore, paths: PathCache, clock: HandClock, tenant: str
) -> None:
    await kept.commit(turn(tenant, "conv_" + tenant, "q1", ["a1"], created=True))
    await found(kept, tenant)
    clock.seconds += KEPT_SECONDS - 1
    paths.expire()
    assert paths.size > 0
    clock.seconds += 2
    paths.expire()
    assert paths.size == 0


async def test_what_was_there_and_what_was_not_is_counted(
    kept: ConversationStore, paths: PathCache, tenant: str
) -> None:
    await kept.commit(turn(tenant, "conv_" + tenant, "q1", ["a1"], created=True))
    for number in range(3):
        await found(kept, tenant)
        assert (paths.hits, paths.misses, len(paths)) == (number, 1, 1)


async def test_the_longest_unused_leave_first(
    transactions: DatabaseTransactions, clock: HandClock, tenant: str
) -> None:
    paths = PathCache(20_000, clock)
    store = ConversationStore(transactions, clock, caches=StorageCaches(paths=paths))
    for number in range(12):
        name = f"{tenant}-{number}"
        await store.commit(turn(tenant, "conv_" + name, "q1", ["a1"], created=True))
        assert await store.find_conversation(tenant, ConversationRef("conv_" + name), max_bytes=None)
    assert 0 < paths.size <= 20_000
