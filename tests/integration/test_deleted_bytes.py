"""What was deleted is not in SQLite's files either: pages are overwritten and the log is emptied (guarantee §5)."""

import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.core.clock import SystemClock
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.retention import Retention
from gateway.storage.store import ConversationStore
from tests.integration.commits import turn
from tests.integration.deleting import WORD, Keeping, full_turn
from tests.support.schemas import brought_up


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
