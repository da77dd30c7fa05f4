"""Deletion for good: nothing that was said is left, in SQLite's files too; the anonymous bill is (guarantee §5, §6)."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.billing.ledger_verification import LedgerAudit
from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings, StorageSettings
from gateway.core.errors import ConversationNotFound
from gateway.core.types.conversation import ConversationRef
from gateway.core.types.turn import LedgerQuery, TurnCommit
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.ledger import ledger_pages
from gateway.storage.lookup.path_cache import StorageCaches
from gateway.storage.retention import Retention
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, bill, contents, in_force, rebuilt, turn
from tests.integration.deleting import WORD, Keeping, figures, full_turn, rows
from tests.integration.traces import traces
from tests.support.answers import there
from tests.support.schemas import brought_up


async def test_nothing_of_what_was_said_is_left_in_any_table(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§5, §6: what people and models said goes, in every column of every table; names leave the bill."""
    mine, other = f"conv_{tenant}", f"conv_other_{tenant}"
    await store.claim_session(tenant, f"my {WORD}", mine)
    await store.commit(full_turn(tenant, mine))
    await store.commit(full_turn(tenant, mine))
    await store.commit(turn(tenant, other, "mine stays", created=True))
    before = await traces(transactions, WORD)
    assert {"messages.body", "attachments.body", "instructions.body", "completions.metadata", "sessions.name",
            "ledger.response_metadata", "reasoning_events.arguments", "reasoning_events.result",
            "messages.rendered"} <= set(before)  # fmt: skip
    assert await store.delete_conversation(tenant, mine)
    assert await traces(transactions, WORD) == []
    assert contents(await rebuilt(store, tenant, other))[0] == "mine stays"


async def test_an_emptied_conversation_keeps_nothing_that_was_said(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§3.12: as when it is deleted, in every column of every table; its id, session, metadata and bills stay, and it
    goes on. A turn that was under way is its first then."""
    mine, clock = f"conv_{tenant}", SystemClock()
    records = ConversationRecords(transactions, clock, open_cache(CacheSettings(), clock))
    assert await store.claim_session(tenant, "mine", mine) == mine
    await records.update(tenant, mine, {"metadata": {"a": "b"}, "team_task": f"the {WORD}"})
    made = full_turn(tenant, mine)
    await store.commit(made)
    read, rules = made.turn.answers[0].message.message_id if made.turn else None, ({"role": "system", "content": WORD},)
    own = ({"role": "system", "content": "its own"},)
    under_way = turn(tenant, mine, "later", parent_id=read, instructions=(*own, *rules), inherited=rules,
                     completion_plan={"reasoning": WORD},
                     entry=figures(mine, tenant, end_user="Ann"))  # fmt: skip
    assert await traces(transactions, WORD) != []
    record = await records.empty(tenant, mine)
    assert await traces(transactions, WORD) == []
    assert (record.metadata, record.session, record.team_task) == ({"a": "b"}, "mine", None)
    (page,) = [page async for page in ledger_pages(transactions, LedgerQuery(tenant=tenant))]
    assert [row.entry.request_id for row in page] == [made.ledger.request_id]
    found = await rebuilt(store, tenant, ConversationRef(session="mine"))
    assert (found.path, found.instructions, found.attachments, found.head_id) == ((), (), (), None)
    await store.commit(under_way)
    assert await traces(transactions, WORD) == []
    found = await rebuilt(store, tenant, mine)
    assert (contents(found)[0], in_force(found)) == ("later", own)
    later = there(await store.find_completion(tenant, under_way.ledger.request_id))
    assert later.ledger.end_user == "Ann"
    with pytest.raises(ConversationNotFound):
        await records.empty(tenant, "conv_nobodys")


async def test_the_anonymous_bill_stays_and_still_balances(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§6: each request keeps its row with every figure; only names are gone from it, and an audit balances."""
    mine = f"conv_{tenant}"
    made = full_turn(tenant, mine, created=True)
    await store.commit(made)

    async def read() -> tuple[LedgerAudit, dict[str, Any]]:
        audit = LedgerAudit()
        (page,) = [page async for page in ledger_pages(transactions, LedgerQuery(tenant=tenant))]
        (row,) = page
        audit.add(row)
        return audit, row.entry.metadata

    before, metadata = await read()
    await store.delete_conversation(tenant, mine)
    after, nameless = await read()
    assert after == before
    sources = [r["source"] for r in nameless["context_utilization"]["artifacts_processed"]]
    assert sources == ["attachment:0", "history:msg_3"]
    for record in (
        *metadata["context_utilization"]["artifacts_processed"],
        *nameless["context_utilization"]["artifacts_processed"],
    ):
        del record["source"]
    assert nameless == metadata
    found = there(await store.find_completion(tenant, made.ledger.request_id))
    assert (found.completion, found.completion_metadata) == (None, None)
    assert found.ledger.calls == made.ledger.calls


async def test_a_deleted_conversation_is_unknown_everywhere(store: ConversationStore, tenant: str) -> None:
    """§2: unknown, deleted and another tenant's are the same."""
    mine = f"conv_{tenant}"
    await store.claim_session(tenant, "work", mine)
    await store.commit(turn(tenant, mine))
    assert not await store.delete_conversation(tenant + "-stranger", mine)
    assert await store.has_conversation(tenant, mine)
    assert await store.delete_conversation(tenant, mine)
    assert not await store.delete_conversation(tenant, mine)
    assert not await store.has_conversation(tenant, mine)
    for ref in (ConversationRef(mine), ConversationRef(session="work")):
        assert await store.find_conversation(tenant, ref, max_bytes=None) is None
    assert await store.claim_session(tenant, "work", mine + "new") == mine + "new", "the name is free again"
    assert not await store.delete_conversation(tenant, "conv_\x00")


@pytest.mark.parametrize("empty", [False, True])
async def test_a_turn_that_was_under_way_is_not_stored_and_its_bill_names_nothing(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str, empty: bool
) -> None:
    """§3.6, §6: what was deleted while the model was answering stays deleted; the bill of that answer is kept."""
    mine = f"conv_{tenant}"
    await store.claim_session(tenant, "work", mine)
    if not empty:
        await store.commit(turn(tenant, mine))
    late = full_turn(tenant, mine)
    await store.delete_conversation(tenant, mine)
    await store.commit(late)
    assert not await store.has_conversation(tenant, mine)
    assert await traces(transactions, WORD) == []
    found = there(await store.find_completion(tenant, late.ledger.request_id))
    assert found.ledger.calls == late.ledger.calls


async def test_a_bill_that_is_recorded_later_without_its_turn_names_nothing_of_a_deleted_conversation(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§6: a bill that the storage could not take at its time comes when the conversation is gone, or never was."""
    mine = f"conv_{tenant}"
    await store.commit(TurnCommit(bill(tenant, mine, **figures(mine, tenant))))
    assert await traces(transactions, WORD) == []
    await store.commit(turn(tenant, mine, created=True))
    await store.commit(TurnCommit(bill(tenant, mine, **figures(mine, tenant))))
    assert await traces(transactions, WORD) == ["ledger.response_metadata"]
    await store.delete_conversation(tenant, mine)
    assert await traces(transactions, WORD) == []


async def test_keyed_digests_of_its_chains_stay(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§3.2: every answered request leaves its keyed digest, also after deletion."""
    mine = f"conv_{tenant}"
    await store.commit(turn(tenant, mine, created=True))
    row: dict[str, Any] = {"digest": b"d", "calls": b"", "conversation_id": mine, "whole": b"w", "tenant": tenant}
    row |= {"request_id": "req_1", "created_at": NOW}
    await transactions.run(lambda connection: connection.execute(schema.chains.insert().values(**row)), write=True)
    await store.delete_conversation(tenant, mine)
    assert len(await rows(transactions, schema.chains, tenant=tenant)) == 1


async def test_what_the_cache_keeps_goes_with_the_last_conversation_that_holds_the_content(
    transactions: DatabaseTransactions, tenant: str
) -> None:
    """§5: deleting the last conversation that holds an artifact deletes its cache entries."""
    cache = Keeping()
    store = ConversationStore(transactions, SystemClock(), caches=StorageCaches(cache))
    one, two, theirs = f"conv_1{tenant}", f"conv_2{tenant}", f"conv_3{tenant}"
    await store.commit(turn(tenant, one, created=True, cached=("pdf:a", "pdf:b")))
    await store.commit(turn(tenant, one, cached=("pdf:a",)))
    await store.commit(turn(tenant, two, created=True, cached=("pdf:b", "pdf:c")))
    await store.commit(turn(tenant + "x", theirs, created=True, cached=("pdf:a", "pdf:b", "pdf:c")))
    await store.delete_conversation(tenant, one)
    assert cache.forgotten == [f"{tenant}:pdf:a"]
    await store.delete_conversation(tenant, two)
    assert sorted(cache.forgotten) == [f"{tenant}:pdf:a", f"{tenant}:pdf:b", f"{tenant}:pdf:c"]
    late = turn(tenant, two, cached=("pdf:d",))
    await store.commit(late)
    assert cache.forgotten[3:] == [f"{tenant}:pdf:d"], "what a turn under way had put there meanwhile"
    await store.commit(replace(late, again=True))
    assert cache.forgotten[4:] == [f"{tenant}:pdf:d"], "after a COMMIT of which only the ledger tells"
    await store.commit(kept := turn(tenant, one, created=True, cached=("pdf:e",)))
    await store.commit(replace(kept, again=True))
    assert len(cache.forgotten) == 5, "its conversation is there"


async def test_what_a_turn_under_way_had_cached_goes_where_something_was_deleted_meanwhile(
    transactions: DatabaseTransactions, tenant: str
) -> None:
    """§3.12: nobody knew yet that the conversation held it."""
    mine, cache, clock = f"conv_{tenant}", Keeping(), SystemClock()
    store = ConversationStore(transactions, clock, caches=StorageCaches(cache))
    await store.commit(turn(tenant, mine, created=True))
    await ConversationRecords(transactions, clock, cache).empty(tenant, mine)
    await store.commit(turn(tenant, mine, cached=("pdf:a",)))
    assert cache.forgotten == [f"{tenant}:pdf:a"]


async def test_of_two_that_are_deleted_at_once_one_is_the_last(
    module_storage_url: str, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§5, on two processes: neither leaves it to the other."""
    other = open_transactions(StorageSettings(url=module_storage_url))
    cache = Keeping()
    stores = [ConversationStore(each, SystemClock(), caches=StorageCaches(cache)) for each in (transactions, other)]
    for number in range(10):
        ids = [f"conv_{side}{number}{tenant}" for side in "lr"]
        for conversation_id in ids:
            await stores[0].commit(turn(tenant, conversation_id, created=True, cached=(f"pdf:{number}",)))
        await asyncio.gather(*(store.delete_conversation(tenant, i) for store, i in zip(stores, ids, strict=True)))
    assert sorted(cache.forgotten) == [f"{tenant}:pdf:{number}" for number in range(10)]
    await other.close()


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[tuple[Path, DatabaseTransactions]]:
    """A database file of the test's own."""
    path = tmp_path / "own.db"
    async with brought_up(f"sqlite:///{path}") as opened:
        yield path, opened


def found(path: Path) -> list[str]:
    """The files of the database that hold the word, in whatever place of whatever page."""
    files = sorted(path.parent.glob(f"{path.name}*"))
    assert path in files
    return [each.name for each in files if WORD.encode() in each.read_bytes()]


async def test_the_files_bytes_do_not_hold_what_was_deleted(file: tuple[Path, DatabaseTransactions]) -> None:
    """Deleted, whether in small rows, in long ones on pages of their own, or where pages were split."""
    path, transactions = file
    store = ConversationStore(transactions, SystemClock())
    dice = random.Random(5)
    for number in range(60):
        secret = f"{WORD} " * dice.choice([1, 3, 40, 600, 9000])
        created = number < 2
        await store.commit(turn("t", f"conv_{number % 2}", secret, [secret], created=created))
        await store.commit(turn("t", f"conv_o{number % 5}", "x" * dice.randrange(3000), created=number < 5))
    await store.commit(full_turn("t", "conv_0"))
    assert found(path)
    assert await store.delete_conversation("t", "conv_0")
    assert await store.delete_conversation("t", "conv_1")
    assert found(path) == []
    assert (await store.has_conversation("t", "conv_o4"), path.stat().st_size > 0) == (True, True)


async def deleted_while_read(path: Path, transactions: DatabaseTransactions) -> sqlite3.Connection:
    """Deletes a conversation while somebody reads the file; returns who does."""
    store = ConversationStore(transactions, SystemClock())
    await store.commit(turn("t", "conv_1", WORD, created=True))
    reader = sqlite3.connect(path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages").fetchone()
    assert await store.delete_conversation("t", "conv_1")
    return reader


async def test_a_reader_in_the_way_only_delays_emptying_the_log(file: tuple[Path, DatabaseTransactions]) -> None:
    """Deletion does not wait for whoever reads; the log is emptied as soon as nobody does."""
    path, transactions = file
    reader = await deleted_while_read(path, transactions)
    assert not await transactions.wipe()
    reader.close()
    assert await transactions.wipe()
    assert found(path) == []


async def test_the_next_sweep_empties_the_log_that_a_reader_kept(file: tuple[Path, DatabaseTransactions]) -> None:
    """As docs/operations.md has it: nobody has to delete anything else for what was deleted to leave the file."""
    path, transactions = file
    (await deleted_while_read(path, transactions)).close()
    assert found(path), "the reader was in the way"
    await Retention(transactions, SystemClock(), Keeping()).expire_claims()
    assert found(path) == []
