"""`storage/lookup/find.py`: the messages before a window are those that a fresh reading gives (ADR 20)."""

import random
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from gateway.core.types.conversation import EarlierMessages
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.lookup.path_cache import PathCache, StorageCaches
from gateway.storage.store import ConversationStore
from tests.integration.commits import message, rebuilt, turn
from tests.support.hand_clock import HandClock

LIMIT = 600


@pytest.fixture
def paths() -> PathCache:
    return PathCache(2**22, HandClock())


@pytest.fixture
def kept(transactions: DatabaseTransactions, paths: PathCache) -> ConversationStore:
    """A store that keeps paths."""
    return ConversationStore(transactions, HandClock(), caches=StorageCaches(paths=paths))


@pytest.fixture
def bare(transactions: DatabaseTransactions) -> ConversationStore:
    """One on the same database that keeps nothing."""
    return ConversationStore(transactions, HandClock())


async def read(store: ConversationStore, tenant: str, back: int = 2, limit: int = LIMIT) -> EarlierMessages:
    """What is before the last `back` messages."""
    whole = await rebuilt(store, tenant, "conv_" + tenant)
    return await store.read_earlier(tenant, whole.path[-back].message_id or "", max_bytes=limit)


async def same(kept: ConversationStore, bare: ConversationStore, tenant: str, back: int = 2) -> EarlierMessages:
    """What both read, which is the same."""
    one, other = await read(kept, tenant, back), await read(bare, tenant, back)
    assert [(m.message_id, m.body) for m in one.messages] == [(m.message_id, m.body) for m in other.messages]
    assert one.turns == other.turns
    return one


async def test_what_left_the_window_since_is_read_alone(
    kept: ConversationStore, bare: ConversationStore, tenant: str
) -> None:
    """The others are the same objects, and what is older than the limit leaves."""
    lengths = random.Random(7)
    for number in range(12):
        text = "x" * lengths.choice((10, 90, 200))
        await kept.commit(turn(tenant, "conv_" + tenant, f"q{number} {text}", ["a"], created=not number))
        if number == 8:
            before = await same(kept, bare, tenant)
        if number >= 4:
            await same(kept, bare, tenant)
    after = await same(kept, bare, tenant)
    shared = {m.message_id: m for m in before.messages}
    again = [m for m in after.messages if m.message_id in shared]
    assert again
    assert all(m is shared[m.message_id] for m in again)
    assert after.turns > before.turns > 0


async def test_a_window_that_begins_earlier_and_another_branch_are_read_anew(
    kept: ConversationStore, bare: ConversationStore, tenant: str
) -> None:
    for number in range(5):
        await kept.commit(turn(tenant, "conv_" + tenant, f"q{number}", [f"a{number}"], created=not number))
    await same(kept, bare, tenant, back=2)
    assert [m.content for m in (await same(kept, bare, tenant, back=6)).messages] == ["q0", "a0", "q1", "a1"]
    whole = await rebuilt(kept, tenant, "conv_" + tenant)
    shared = whole.path[3].message_id
    for number in range(2):
        more = {"at_head": False, "parent_id": shared} if not number else {}
        await kept.commit(turn(tenant, "conv_" + tenant, f"other{number}", [f"b{number}"], **more))
    assert [m.content for m in (await same(kept, bare, tenant)).messages] == [
        *("q0", "a0", "q1", "a1", "other0", "b0"),
    ]  # fmt: skip


async def test_what_another_process_deleted_is_not_recalled(
    kept: ConversationStore, bare: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    for number in range(3):
        await kept.commit(turn(tenant, "conv_" + tenant, f"q{number}", [f"a{number}"], created=not number))
    await same(kept, bare, tenant)
    rows, table = schema.messages, schema.conversations
    first = sa.and_(rows.c.conversation_id == "conv_" + tenant, rows.c.sequence_number == 0)
    forgotten = datetime(2026, 11, 23, 12, tzinfo=UTC)

    def work(connection: sa.Connection) -> None:
        connection.execute(rows.update().where(first).values(body='{"role":"user","content":"[gone]"}'))
        connection.execute(table.update().where(table.c.id == "conv_" + tenant).values(forgotten_at=forgotten))

    await transactions.run(work, write=True)
    for _ in range(2):
        assert (await same(kept, bare, tenant)).messages[0].content == "[gone]"


async def test_steps_whose_rows_are_gone_are_not_recalled(
    kept: ConversationStore, bare: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    new = (
        message("user", "q"),
        message("assistant", None, tool_calls=[call]),
        message("tool", "sun", tool_call_id="c1"),
    )
    await kept.commit(turn(tenant, "conv_" + tenant, new_messages=new, created=True))
    await kept.commit(turn(tenant, "conv_" + tenant, "q2", ["a2"]))
    assert "sun" in [m.content for m in (await same(kept, bare, tenant)).messages]
    gone = schema.reasoning_events.delete().where(schema.reasoning_events.c.conversation_id == "conv_" + tenant)
    await transactions.run(lambda connection: connection.execute(gone).rowcount, write=True)
    assert "sun" not in [m.content for m in (await same(kept, bare, tenant)).messages]


async def test_a_deletion_drops_them_and_another_limit_reads_anew(
    kept: ConversationStore, bare: ConversationStore, paths: PathCache, tenant: str
) -> None:
    for number in range(3):
        await kept.commit(turn(tenant, "conv_" + tenant, f"q{number}", [f"a{number}"], created=not number))
    assert len((await read(kept, tenant)).messages) == 4
    assert len((await read(kept, tenant, limit=90)).messages) == len((await read(bare, tenant, limit=90)).messages) < 4
    assert len((await read(kept, tenant)).messages) == 4
    size = paths.size
    paths.recount("conv_" + tenant)
    assert 0 < paths.size < size  # its counts are news to a path, and of no use here
    paths.drop("conv_" + tenant)
    assert paths.size == 0
    await read(kept, tenant)
    assert await kept.delete_conversation(tenant, "conv_" + tenant)
    assert paths.size == 0
