"""Export and import: lossless, between storages too, and nothing by halves."""

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings

from gateway.api.conversations.import_check import parse_export
from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.types.turn import TurnCommit
from gateway.storage.conversations import transfers
from gateway.storage.conversations.transfers import ConversationTransfer
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.store import ConversationStore
from tests.integration.commits import bill, contents, rebuilt, turn
from tests.integration.deleting import full_turn, rows
from tests.integration.exports import Json, bare, documents, user_message, without_ids
from tests.integration.traces import traces
from tests.support.answers import there
from tests.support.schemas import brought_up

ANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def transfer(transactions: DatabaseTransactions) -> ConversationTransfer:
    """The way out of the module's database, and into it."""
    return ConversationTransfer(transactions, SystemClock())


@pytest.fixture
async def elsewhere(tmp_path: Path) -> AsyncIterator[ConversationTransfer]:
    """The same of another storage, on SQLite."""
    async with brought_up(f"sqlite:///{tmp_path}/elsewhere.db") as opened:
        yield ConversationTransfer(opened, SystemClock())


async def exported(transfer: ConversationTransfer, tenant: str, conversation_id: str) -> bytes:
    """The document."""
    pieces = there(await transfer.export_conversation(tenant, conversation_id))
    return b"".join(pieces)


async def imported(transfer: ConversationTransfer, tenant: str, raw: bytes) -> str:
    """The new conversation."""
    return (await transfer.import_conversation(tenant, parse_export(raw))).conversation_id


@given(made=documents())
@ANY
async def test_any_conversation_comes_through_as_it_was(
    transfer: ConversationTransfer, elsewhere: ConversationTransfer, made: Json
) -> None:
    """Every tree, status, number and text, from one storage to another and back, but for new ids."""
    first = jsons.dumps(made)
    one = await imported(elsewhere, "there", first)
    second = await exported(elsewhere, "there", one)
    two = await imported(transfer, "here", second)
    third = await exported(transfer, "here", two)
    expected = without_ids(json.loads(first), sessions=False)
    assert without_ids(json.loads(second), sessions=False) == expected
    assert without_ids(json.loads(third), sessions=False) == expected
    assert one != two != made["id"]


async def test_what_requests_left_behind_comes_through(
    store: ConversationStore, transfer: ConversationTransfer, elsewhere: ConversationTransfer, tenant: str
) -> None:
    """Bodies, forwarded forms, tool steps, system messages, attachments, sessions, completions, failed turns, bills."""
    mine = f"conv_{tenant}"
    await store.claim_session(tenant, "my work", mine)
    await store.commit(full_turn(tenant, mine))
    await store.commit(turn(tenant, mine, "fails", [], status="failed"))
    await store.commit(turn(tenant, mine, "other beginning", at_head=False, parent_id=None))
    price = Decimal("12345678.123456789012")
    await store.commit(
        turn(tenant, mine, [{"type": "x", "n": 2**70}], entry={"metadata": {"cost": {"total_cost": price}}})
    )
    await store.commit(TurnCommit(bill(tenant, mine, "failed", error_code="upstream_timeout")))
    first = await exported(transfer, tenant, mine)
    told = json.loads(first, parse_float=Decimal)
    assert [m["status"] for m in told["messages"]].count("failed") == 1
    assert (len(told["requests"]), told["sessions"], len(told["attachments"])) == (5, ["my work"], 1)
    assert price in [request["response_metadata"]["cost"]["total_cost"] for request in told["requests"]]
    assert [{"type": "x", "n": 2**70}] in [message["body"]["content"] for message in told["messages"]]
    second = await exported(elsewhere, "t", await imported(elsewhere, "t", first))
    assert without_ids(json.loads(second, parse_float=Decimal)) == without_ids(told)


async def test_it_is_new_each_time_and_a_name_that_is_taken_stays_where_it_is(
    store: ConversationStore, transfer: ConversationTransfer, transactions: DatabaseTransactions, tenant: str
) -> None:
    """Importing the same twice gives two conversations; nothing of the first is touched, no bill is made."""
    mine = f"conv_{tenant}"
    await store.claim_session(tenant, "chat", mine)
    await store.commit(full_turn(tenant, mine))
    raw = await exported(transfer, tenant, mine)
    ledger = await rows(transactions, schema.ledger, tenant=tenant)
    one, two = [await transfer.import_conversation(tenant, parse_export(raw)) for _ in range(2)]
    assert len({mine, one.conversation_id, two.conversation_id}) == 3
    assert (one.taken_names, two.taken_names) == (("chat",), ("chat",))
    stranger = await transfer.import_conversation(tenant + "x", parse_export(raw))
    assert stranger.taken_names == ()
    found = [contents(await rebuilt(store, tenant, i)) for i in (mine, one.conversation_id, two.conversation_id)]
    assert found[0] == found[1] == found[2]
    assert await exported(transfer, tenant, mine) == raw
    assert await rows(transactions, schema.ledger, tenant=tenant) == ledger
    assert await store.find_completion(tenant + "x", json.loads(raw)["requests"][0]["id"]) is None


async def test_an_imported_conversation_is_deleted_like_any_other(
    store: ConversationStore, transfer: ConversationTransfer, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§5, §6: with what came with it for information."""
    word = f"marimba{tenant}"
    await store.commit(turn(tenant, f"conv_{tenant}", word, created=True, completion_metadata={"k": word}))
    raw = await exported(transfer, tenant, f"conv_{tenant}")
    copy = await imported(transfer, tenant, raw)
    assert await store.delete_conversation(tenant, f"conv_{tenant}")
    assert {"messages.body", "imported_requests.body"} <= set(await traces(transactions, word))
    assert await store.delete_conversation(tenant, copy)
    assert await traces(transactions, word) == []


async def test_another_tenants_is_unknown(
    store: ConversationStore, transfer: ConversationTransfer, tenant: str
) -> None:
    """§8."""
    await store.commit(turn(tenant, f"conv_{tenant}", created=True))
    assert await transfer.export_conversation(tenant + "x", f"conv_{tenant}") is None
    assert await transfer.export_conversation(None, f"conv_{tenant}") is not None
    for odd in ("conv_none", "conv_\x00", ""):
        assert await transfer.export_conversation(tenant, odd) is None


async def test_what_cannot_be_written_leaves_nothing(
    transfer: ConversationTransfer, transactions: DatabaseTransactions, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it, or nothing."""
    raw = jsons.dumps(bare([user_message(0, None), user_message(1, 0)]))
    monkeypatch.setattr(transfers, "BATCH", 1)
    rows_of = transfers.rows_of

    def spoilt(*given: Any) -> Any:
        found = rows_of(*given)
        found.messages[1]["id"] = found.messages[0]["id"]
        return found

    monkeypatch.setattr("gateway.storage.conversations.transfers.rows_of", spoilt)
    with pytest.raises(sa.exc.IntegrityError):
        await imported(transfer, tenant, raw)
    assert await rows(transactions, schema.conversations, tenant=tenant) == []


async def test_large_documents_that_share_an_id_keep_their_own_texts(
    transactions: DatabaseTransactions, tenant: str
) -> None:
    """The ids of attachments are the document's, and tell nothing of what they hold."""
    transfer = ConversationTransfer(transactions, SystemClock(), index_chars=100)
    texts = ["one " * 50, "short", "two " * 50]
    about = {"title": None, "label": None, "source": "attachment:0:x", "attachment_type": "document"}
    shared = {"artifact_id": "art_1", "said": None, "created_at": "2026-01-31T12:00:00.000000Z"}
    attached = [{"number": n, "document": {**about, "content": each}, **shared} for n, each in enumerate(texts)]
    name = await imported(transfer, tenant, jsons.dumps(bare([user_message(0, None)], attachments=attached)))
    found = json.loads(await exported(transfer, tenant, name))["attachments"]
    assert [each["document"]["content"] for each in found] == texts


async def test_a_large_document_may_hold_what_a_column_refuses(transactions: DatabaseTransactions, tenant: str) -> None:
    """A NUL, which PostgreSQL stores in no text, is a replacement character in a large document, in each database."""
    transfer = ConversationTransfer(transactions, SystemClock(), index_chars=100)
    about = {"title": None, "label": None, "source": "attachment:0:x", "attachment_type": "document"}
    said = {"number": 0, "artifact_id": "art_1", "said": None, "created_at": "2026-01-31T12:00:00.000000Z"}
    attached = [{"document": {**about, "content": "nul \x00 " * 50}, **said}]
    name = await imported(transfer, tenant, jsons.dumps(bare([user_message(0, None)], attachments=attached)))
    found = json.loads(await exported(transfer, tenant, name))["attachments"]
    assert [each["document"]["content"] for each in found] == ["nul \ufffd " * 50]


@pytest.mark.chaos
async def test_thousands_of_messages_hold_nobody_up(
    store: ConversationStore, transfer: ConversationTransfer, tenant: str
) -> None:
    """The loop that streams share goes on turning while a long conversation comes and goes, in threads."""
    raw = jsons.dumps(bare([user_message(n, n - 1 if n else None, "word " * 20) for n in range(3_000)]))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    made = await asyncio.to_thread(parse_export, raw)
    copy = (await transfer.import_conversation(tenant, made)).conversation_id
    pieces = there(await transfer.export_conversation(tenant, copy))
    size = sum([len(piece) for piece in await asyncio.to_thread(list, pieces)])
    ticking.cancel()
    assert size > len(raw)
    assert ticks > 20  # a handful at most if it were done on the loop
    found = await rebuilt(store, tenant, copy, 100)
    assert found.path[-1].sequence_number == 2999
