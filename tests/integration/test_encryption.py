"""Content at rest under keys: what is stored is sealed, moves nowhere, rotates, and is refused with a wrong key."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.errors import ContentUnreadable
from gateway.core.types.records import RecordQuery
from gateway.core.types.turn import CompletionQuery
from gateway.storage.cache.memory_cache import MemoryCache
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.database import schema
from gateway.storage.database.migrate import require_current
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.encryption import rewrite
from gateway.storage.encryption.columns import OF_COLUMN, PREFIX, key_id
from gateway.storage.store import ConversationStore
from tests.integration.commits import message, rebuilt, turn
from tests.support.answers import there
from tests.support.schemas import bring_up

FIRST, SECOND = "11" * 32, "22" * 32
CANARY = "canary-7f3a"
Opened = Any


@pytest.fixture
async def open_with(storage_url: str) -> AsyncIterator[Opened]:
    """Opens one database with keys: `open_with(current, *before)`."""
    opened: list[DatabaseTransactions] = []

    async def opening(current: str | None, *before: str) -> DatabaseTransactions:
        found = open_transactions(
            StorageSettings(url=storage_url, encryption_key=current, encryption_keys_before=before)
        )
        opened.append(found)
        await bring_up(found)
        await rewrite.note_key(found)
        return found

    yield opening
    for each in opened:
        await each.close()


async def say(transactions: DatabaseTransactions, conversation: str, text: str = CANARY) -> None:
    store = ConversationStore(transactions, SystemClock())
    asked = replace(message("user", text), rendered={"role": "user", "content": f"<block>{text}</block>"})
    system = ({"role": "system", "content": text},)
    envelope = {"id": "chatcmpl-1", "choices": [{"index": 0, "message": {"content": None}}], "logprobs": text}
    more: dict[str, Any] = {"completion": envelope, "completion_metadata": {"note": text}}
    await store.commit(turn("t", conversation, created=True, new_messages=(asked,), instructions=system, **more))


async def said(transactions: DatabaseTransactions, conversation: str) -> Any:
    store = ConversationStore(transactions, SystemClock())
    found = await rebuilt(store, "t", conversation)
    return found.path[0].body["content"]


async def stored(transactions: DatabaseTransactions) -> str:
    """Every value of every table, as the driver gives it."""

    def work(connection: sa.Connection) -> str:
        rows: list[Any] = []
        for table in schema.metadata.sorted_tables:
            rows += connection.exec_driver_sql(f"SELECT * FROM {table.name}").all()
        return repr(rows)

    return await transactions.run(work)


async def sealed_values(transactions: DatabaseTransactions) -> Iterator[str]:
    def work(connection: sa.Connection) -> list[str]:
        return [
            value
            for each in rewrite.contents()
            for column in each.columns
            for value in connection.execute(sa.select(sa.type_coerce(column, sa.Text))).scalars()
            if value
        ]

    return iter(await transactions.run(work))


async def test_s12_11_nothing_that_was_said_is_stored_in_clear(open_with: Opened) -> None:
    transactions = await open_with(FIRST)
    await say(transactions, "conv_1")
    assert await said(transactions, "conv_1") == CANARY
    assert CANARY not in await stored(transactions)
    values = list(await sealed_values(transactions))
    head = PREFIX + key_id(bytes.fromhex(FIRST))
    assert values
    assert all(value.startswith(head) for value in values)
    assert not [value for value in values if value[len(head)] == OF_COLUMN], "a value is bound to no row"


async def test_s12_11_a_value_that_was_moved_to_another_row_is_refused(open_with: Opened) -> None:
    transactions = await open_with(FIRST)
    await say(transactions, "conv_1", "mine")
    await say(transactions, "conv_2", "yours")

    def move(connection: sa.Connection) -> None:
        first = "SELECT body FROM messages WHERE conversation_id = 'conv_1' AND role = 'user'"
        into = "WHERE conversation_id = 'conv_2' AND role = 'user'"
        connection.exec_driver_sql(f"UPDATE messages SET body = ({first}) {into}")

    await transactions.run(move, write=True)
    assert await said(transactions, "conv_1") == "mine"
    with pytest.raises(ContentUnreadable, match="belongs elsewhere"):
        await said(transactions, "conv_2")


async def test_s12_11_keys_rotate_beside_what_is_written(open_with: Opened) -> None:
    """Plain, under a first key, under a second one: all is read on the way, and at the end under the second alone."""
    plain = await open_with(None)
    await say(plain, "conv_plain")
    first = await open_with(FIRST)
    await say(first, "conv_first")
    assert await said(first, "conv_plain") == CANARY
    second = await open_with(SECOND, FIRST)
    await say(second, "conv_second")
    assert [await said(second, f"conv_{name}") for name in ("plain", "first", "second")] == [CANARY] * 3
    await rewrite.require_keys(second)
    found = sum([each.rows.total() async for each in rewrite.find_others(second)])
    done = sum([each.rows.total() async for each in rewrite.seal_all(second)])
    assert found == done > 0
    assert [each.rows.total() async for each in rewrite.seal_all(second)] == [0] * (len(rewrite.contents()) + 1)
    assert await rewrite.forget_before(second) == {key_id(bytes.fromhex(FIRST))}
    alone = await open_with(SECOND)
    await require_current(alone)
    assert [await said(alone, f"conv_{name}") for name in ("plain", "first", "second")] == [CANARY] * 3
    assert CANARY not in await stored(alone)


async def test_s12_11_a_key_that_does_not_fit_reads_nothing(open_with: Opened) -> None:
    transactions = await open_with(FIRST)
    await say(transactions, "conv_1")
    for keys in ((None,), (SECOND,)):
        wrong = await open_with(*keys)
        with pytest.raises(ContentUnreadable, match=key_id(bytes.fromhex(FIRST))):
            await require_current(wrong)
    with pytest.raises(ContentUnreadable, match="not configured"):
        await said(wrong, "conv_1")


async def test_a_key_to_read_with_alone_writes_plain(open_with: Opened) -> None:
    """How a key comes to many replicas: first each can read what is under it, then they write so."""
    ready, first = await open_with(None, FIRST), await open_with(FIRST)
    await say(ready, "conv_ready")
    await say(first, "conv_first")
    assert await said(ready, "conv_first") == await said(first, "conv_ready") == CANARY
    assert await ready.run(rewrite.noted_keys) == {key_id(bytes.fromhex(FIRST))}


async def test_completions_and_conversations_are_chosen_by_metadata(open_with: Opened) -> None:
    transactions = await open_with(FIRST)
    for number in range(4):
        await say(transactions, f"conv_{number}", f"text {number % 2}")
    store = ConversationStore(transactions, SystemClock())
    page = there(await store.list_completions("t", CompletionQuery(metadata=(("note", "text 1"),), limit=1)))
    assert page.has_more
    assert [each.completion_metadata for each in page.found] == [{"note": "text 1"}]
    page = there(await store.list_completions("t", CompletionQuery(metadata=(("note", "text 2"),), limit=1)))
    assert page.found == ()
    records = ConversationRecords(transactions, SystemClock(), MemoryCache(1000, SystemClock()))
    await records.update("t", "conv_2", {"metadata": {"note": "kept"}})
    chosen = await records.list_page("t", RecordQuery(metadata=(("note", "kept"),), limit=1))
    assert ([each.conversation_id for each in chosen.found], chosen.has_more) == (["conv_2"], False)


async def test_s12_11_a_sealed_file_holds_no_plain_bytes(tmp_path: Path) -> None:
    """Also in the write-ahead log."""
    path = tmp_path / "sealed.db"
    transactions = open_transactions(StorageSettings(url=f"sqlite:///{path}", encryption_key=FIRST))
    await bring_up(transactions)
    await say(transactions, "conv_1")
    assert CANARY.encode() not in files_of(tmp_path)
    await transactions.close()
    assert CANARY.encode() not in files_of(tmp_path)


def files_of(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.iterdir())
