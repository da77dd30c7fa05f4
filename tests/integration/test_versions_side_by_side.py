"""Two versions beside each other on one database, and ten processes that migrate it at once (guarantee §9, ADR 10)."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.util import await_only

from gateway.core.clock import SystemClock
from gateway.core.config.settings import Settings, StorageSettings
from gateway.core.errors import StorageUnavailable
from gateway.core.types.turn import LedgerQuery
from gateway.operations.check import check, migrate_now
from gateway.operations.storage_upkeep import prepare_storage
from gateway.storage.database import migrate as migration
from gateway.storage.database import schema
from gateway.storage.database.finish import finish
from gateway.storage.database.migrate import migrate, migrations_folder, revision_of, schema_state
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.ledger import ledger_pages
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, contents, message, quoted, rebuilt, turn
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import scrubbed_environment
from tests.support.marks import few_or_many
from tests.support.next_version import BREAKING, INDEX, NEXT, become_next, next_migrations, next_sources
from tests.support.postgres import Postgres

pytestmark = pytest.mark.in_turn("empty_storage_url")

THIS = schema.REVISION


@pytest.fixture
async def transactions(empty_storage_url: str) -> AsyncIterator[DatabaseTransactions]:
    """An empty database of the test's own."""
    opened = open_transactions(StorageSettings(url=empty_storage_url))
    yield opened
    await opened.close()


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """The migrations of the version after this one."""
    return next_migrations(tmp_path / "migrations")


async def upgrade(transactions: DatabaseTransactions, revision: str, folder: Path) -> None:
    """Runs the migrations of a folder up to one revision, as the version of that revision would."""

    def work(connection: sa.Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(folder))
        config.attributes["connection"] = connection
        revision_of(connection)  # begins SQLAlchemy's transaction, so that alembic does not end ours
        command.upgrade(config, revision)

    await transactions.run(work, write=True)


async def begun(transactions: DatabaseTransactions) -> ConversationStore:
    """A database of this version with a conversation of one turn."""
    await migrate(transactions)
    store = ConversationStore(transactions, SystemClock())
    await store.commit(turn("t", "conv_1", "q1", ["a1"], created=True))
    return store


async def said(store: ConversationStore, conversation: str) -> list[str]:
    return contents(await rebuilt(store, "t", conversation))


async def test_two_versions_are_ready_and_write_beside_each_other(
    transactions: DatabaseTransactions, next_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADR 10: a rolling upgrade: the next version is ready once it has migrated, and this one stays so; what either
    stores, the other continues. The older one leaves the schema alone."""
    store = await begun(transactions)
    become_next(monkeypatch, next_version)
    assert not await store.ready()
    await migrate(transactions)
    assert await store.ready()
    await store.commit(turn("t", "conv_1", "q2", ["a2"]))
    monkeypatch.undo()
    assert await store.ready()
    await migrate(transactions)
    assert await transactions.run(revision_of) == NEXT
    await store.commit(turn("t", "conv_1", "q3", ["a3"]))
    await store.commit(turn("t", "conv_2", "new", ["conversation"], created=True))
    become_next(monkeypatch, next_version)
    assert await said(store, "conv_1") == ["q1", "a1", "q2", "a2", "q3", "a3"]
    assert await said(store, "conv_2") == ["new", "conversation"]
    rows = [row async for page in ledger_pages(transactions, LedgerQuery(tenant="t")) for row in page]
    assert len(rows) == 4


async def test_this_version_is_not_ready_beside_one_that_breaks_with_it(
    transactions: DatabaseTransactions, next_version: Path
) -> None:
    """ADR 10: a newer schema says which versions may run on it."""
    store = await begun(transactions)
    await upgrade(transactions, NEXT, next_version)
    assert [page async for page in ledger_pages(transactions, LedgerQuery(tenant="t"))]
    await upgrade(transactions, BREAKING, next_version)
    assert not await store.ready()
    with pytest.raises(StorageUnavailable):
        [page async for page in ledger_pages(transactions, LedgerQuery(tenant="t"))]
    assert not (await transactions.run(schema_state)).older


async def test_a_process_that_starts_on_a_schema_it_may_not_run_on_says_so(
    transactions: DatabaseTransactions, next_version: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And on a newer one that it may run on it does not."""
    await begun(transactions)
    told = []
    for revision in (NEXT, BREAKING):
        await upgrade(transactions, revision, next_version)
        await prepare_storage(Settings(), transactions)
        told.append("storage_schema_not_current" in caplog.text)
    assert told == [False, True]


def oldest_versions(connection: sa.Connection) -> dict[str, str]:
    """By revision the oldest one whose code may run on it."""
    return {row.revision: row.oldest for row in connection.execute(sa.select(schema.schema_revisions))}


def stored_bodies(connection: sa.Connection) -> list[str]:
    return list(connection.execute(sa.select(schema.messages.c.body)).scalars())


SINCE_STEPS = tuple(f"{number:04}" for number in range(2, 19))
"""Revisions since tool steps have a table of their own; the later ones only add to it."""
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


async def test_the_schema_says_which_version_may_run_on_it(transactions: DatabaseTransactions) -> None:
    """ADR 10: every migration leaves a row, the first one too."""
    await migrate(transactions)
    assert await transactions.run(oldest_versions) == {"0001": "0001"} | dict.fromkeys(SINCE_STEPS, "0002")


async def test_where_something_was_stored_the_version_before_may_run_on(transactions: DatabaseTransactions) -> None:
    """ADR 10, ADR 19: until `gateway migrate --finish` what this version writes can be read by the one before."""
    await upgrade(transactions, "0001", migrations_folder())
    query = sa.text("INSERT INTO secrets (name, value) VALUES ('keyed-hash', :value)")
    await transactions.run(lambda connection: connection.execute(query, {"value": b"x" * 32}).close(), write=True)
    await migrate(transactions)
    assert await transactions.run(oldest_versions) == {"0001": "0001"} | dict.fromkeys(SINCE_STEPS, "0001")
    store = ConversationStore(transactions, SystemClock())
    steps = (message("assistant", None, tool_calls=[CALL]), message("tool", "found", tool_call_id="c"))
    await store.commit(turn("t", "conv_1", new_messages=steps, created=True))
    assert all(await transactions.run(stored_bodies))
    assert await finish(transactions) == 1
    assert await transactions.run(oldest_versions) == {"0001": "0001"} | dict.fromkeys(SINCE_STEPS, "0002")
    assert not all(await transactions.run(stored_bodies))
    assert await said(store, "conv_1") == [None, "found", "answer"]


def make_preview(connection: sa.Connection) -> None:
    """Makes schema 0001 what it was before its release, with two chains that say the same."""
    later = {"ledger": ["end_user"], "completions": ["plan"], "calibrations": ["saved_per_call", "calls_seen"]}
    for table, columns in later.items():
        for column in columns:
            connection.execute(sa.text(f"ALTER TABLE {table} DROP COLUMN {column}"))
    schema.chains.drop(connection)
    names = ("digest", "calls", "conversation_id", "tenant", "created_at")
    old = [sa.Column(name, schema.chains.c[name].type, nullable=False) for name in names]
    key = sa.PrimaryKeyConstraint("digest", "calls", "conversation_id", name="pk_chains")
    chains = sa.Table("chains", sa.MetaData(), *old, key, sqlite_with_rowid=False)
    chains.create(connection)
    row = {"digest": b"d", "calls": b"", "tenant": "t", "created_at": NOW}
    connection.execute(chains.insert(), [{**row, "conversation_id": name} for name in ("conv_1", "conv_2")])
    model = "INSERT INTO calibrations (model, margin, samples, updated_at) VALUES ('m', 1.5, 3, :now)"
    connection.execute(sa.text(model), {"now": NOW})


async def test_a_database_of_a_preview_becomes_that_of_the_release(transactions: DatabaseTransactions) -> None:
    """`gateway serve` upgrades any earlier schema; the preview writes rows that this one refuses, so it may not run."""
    await upgrade(transactions, "0001", migrations_folder())
    await transactions.run(make_preview, write=True)
    await migrate(transactions)
    assert await transactions.run(oldest_versions) == {"0001": "0001"} | dict.fromkeys(SINCE_STEPS, "0002")

    def found(connection: sa.Connection) -> tuple[list[str], list[bytes], list[int]]:
        key = sa.inspect(connection).get_pk_constraint("chains")["constrained_columns"]
        wholes = connection.execute(sa.select(schema.chains.c.whole).order_by("conversation_id")).scalars()
        return key, list(wholes), list(connection.execute(sa.select(schema.calibrations.c.calls_seen)).scalars())

    key = ["digest", "calls", "conversation_id", "whole"]
    assert await transactions.run(found) == (key, [b"conv_1", b"conv_2"], [0])
    store = ConversationStore(transactions, SystemClock())
    await store.commit(turn("t", "conv_3", "q1", ["a1"], created=True))
    assert await said(store, "conv_3") == ["q1", "a1"]


async def test_finishing_deletes_failures_that_quote_what_an_older_version_deleted(
    transactions: DatabaseTransactions,
) -> None:
    """§6: a version that knew no failures left them where it deleted a conversation, or a part of one."""
    await migrate(transactions)
    store = ConversationStore(transactions, SystemClock())
    names = ("conv_gone", "conv_cut", "conv_kept")
    for name in names:
        await store.commit(turn("t", name, answers=(), created=True, status="failed", entry=quoted("heliotrope")))
    table = schema.conversations

    def deletes(connection: sa.Connection) -> None:
        connection.execute(table.delete().where(table.c.id == "conv_gone"))
        connection.execute(table.update().where(table.c.id == "conv_cut").values(forgotten_at=NOW))

    await transactions.run(deletes, write=True)
    await finish(transactions)
    left = sa.select(schema.ledger.c.conversation_id).where(schema.ledger.c.failure.is_not(None))
    assert await transactions.run(lambda connection: list(connection.execute(left).scalars())) == ["conv_kept"]


@pytest.mark.chaos
def test_a_check_says_that_an_upgrade_is_not_finished(empty_storage_url: str) -> None:
    """§9, ADR 19: until `gateway migrate --finish`, which says what it did."""
    settings = Settings(storage=StorageSettings(url=empty_storage_url))

    async def used_before() -> None:
        transactions = open_transactions(settings.storage)
        await upgrade(transactions, "0001", migrations_folder())
        query = sa.text("INSERT INTO processes (id, alive_until) VALUES ('older', CURRENT_TIMESTAMP)")
        await transactions.run(lambda connection: connection.execute(query).close(), write=True)
        await transactions.close()

    def warnings() -> list[str]:
        return [each.text for each in check(settings) if each.name == "schema" and not each.ok]

    asyncio.run(used_before())
    assert [each.ok for each in migrate_now(settings)] == [True]
    assert "gateway migrate --finish" in warnings()[0]
    assert [each.ok for each in migrate_now(settings, finishing=True)] == [True, True]
    assert warnings() == []


@pytest.mark.chaos
def test_the_commands_say_beside_whom_they_run(
    empty_storage_url: str, next_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§9: `gateway check` and `gateway migrate` agree with readiness."""
    settings = Settings(storage=StorageSettings(url=empty_storage_url))

    def schema_line() -> tuple[bool, str]:
        (result,) = [each for each in check(settings) if each.name.startswith("storage")]
        return result.ok, result.text

    async def to(revision: str) -> None:
        transactions = open_transactions(settings.storage)
        await upgrade(transactions, revision, next_version)
        await transactions.close()

    asyncio.run(to(THIS))
    become_next(monkeypatch, next_version)
    assert schema_line() == (True, f"reached, schema {THIS}: run `gateway migrate`, or let `gateway serve` do it at its start")  # fmt: skip  # noqa: E501
    monkeypatch.undo()
    asyncio.run(to(NEXT))
    assert schema_line() == (True, f"reached, schema {NEXT} (newer than {THIS}, which may run on it)")
    (again,) = migrate_now(settings)
    assert again.ok
    assert f"already at {NEXT}" in again.text
    asyncio.run(to(BREAKING))
    assert schema_line() == (False, f"reached, schema {BREAKING}: newer than this version, which may not run on it")
    (again,) = migrate_now(settings)
    assert not again.ok
    assert again.text.endswith(f"already at {BREAKING}: newer than this version, which may not run on it")


def assert_all_migrate(number: int, server: ForkServer, environment: Mapping[str, str], folder: Path) -> None:
    """So many processes at once, all of which succeed."""
    with ThreadPoolExecutor(number) as pool:
        done = list(pool.map(lambda _: server.run(["migrate"], environment, folder), range(number)))
    assert [process.returncode for process in done] == [0] * number, done
    assert [process.stderr for process in done] == [""] * number


@few_or_many(4, 10)
@pytest.mark.chaos
async def test_replicas_migrate_an_empty_database_at_once(
    transactions: DatabaseTransactions, tmp_path: Path, empty_storage_url: str, fork_server: ForkServer, number: int
) -> None:
    """§9: real processes; all succeed."""
    assert_all_migrate(number, fork_server, scrubbed_environment() | {"DATABASE_URL": empty_storage_url}, tmp_path)
    assert await ConversationStore(transactions, SystemClock()).ready()


@pytest.fixture(scope="module")
def next_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """In which `gateway` is the next version."""
    environment = scrubbed_environment() | {"PYTHONSAFEPATH": "1"}
    sources = next_sources(tmp_path_factory.mktemp("next") / "sources")
    return environment | {"PYTHONPATH": os.pathsep.join([str(sources), environment["PYTHONPATH"]])}


@pytest.fixture(scope="module")
def next_server(next_environment: dict[str, str]) -> Iterator[ForkServer]:
    with contextlib.closing(ForkServer(next_environment)) as server:
        yield server


@pytest.mark.chaos
async def test_ten_replicas_of_the_next_version_migrate_at_once(
    transactions: DatabaseTransactions,
    tmp_path: Path,
    empty_storage_url: str,
    next_server: ForkServer,
    next_environment: dict[str, str],
) -> None:
    """§9: ten real processes on a database with data: all succeed, the data is whole."""
    store = await begun(transactions)
    assert_all_migrate(10, next_server, next_environment | {"DATABASE_URL": empty_storage_url}, tmp_path)
    assert await transactions.run(revision_of) == NEXT
    assert await store.ready()
    assert await said(store, "conv_1") == ["q1", "a1"]


class TestPostgres:
    """What PostgreSQL alone can do: build indexes beside writers, and wait for tables."""

    @pytest.fixture
    async def opened(self, postgres: Postgres) -> AsyncIterator[DatabaseTransactions]:
        """An empty database."""
        opened = open_transactions(StorageSettings(url=postgres.empty_database()))
        yield opened
        await opened.close()

    @pytest.fixture
    async def store(
        self, opened: DatabaseTransactions, next_version: Path, monkeypatch: pytest.MonkeyPatch
    ) -> ConversationStore:
        """A database of this version with a conversation, about to be migrated by the next one."""
        store = await begun(opened)
        become_next(monkeypatch, next_version)
        return store

    @pytest.mark.usefixtures("store")
    @pytest.mark.chaos
    async def test_an_index_whose_building_was_cut_off_is_built_anew(self, opened: DatabaseTransactions) -> None:
        """ADR 10: what a killed migration leaves is no index that anyone could use."""
        make = f"CREATE INDEX {INDEX} ON conversations (tenant, head_id)"
        spoil = f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{INDEX}'::regclass"
        for sql in (make, spoil):
            await opened.run(lambda c, sql=sql: c.execute(sa.text(sql)).close(), write=True)  # type: ignore[misc]
        await migrate(opened)
        valid = "SELECT indexrelid::regclass::text FROM pg_index WHERE indisvalid"
        assert INDEX in await opened.run(lambda c: set(c.execute(sa.text(valid)).scalars()))

    @pytest.mark.parametrize("last", ["SELECT count(*) FROM messages", "LOCK TABLE messages IN ACCESS SHARE MODE"])
    @pytest.mark.chaos
    async def test_a_table_in_use_is_waited_for_and_nobody_behind_it_suffers(
        self, opened: DatabaseTransactions, store: ConversationStore, last: str
    ) -> None:
        """ADR 10: a transaction that stays open delays the migration, with a snapshot (which an index would wait for)
        or without one (for which the change of the table does). Others go on reading and writing meanwhile."""
        held, free = asyncio.Event(), asyncio.Event()

        def read_for_long(connection: sa.Connection) -> None:
            connection.execute(sa.text(last))
            held.set()
            await_only(free.wait())

        reading = asyncio.ensure_future(opened.run(read_for_long))
        await held.wait()
        with pytest.raises(StorageUnavailable, match="in use"):
            await migrate(opened, limit=1.0)
        assert await opened.run(revision_of) == THIS
        migrating = asyncio.ensure_future(migrate(opened))
        for n in range(2, 30):
            await store.commit(turn("t", "conv_1", f"q{n}", [f"a{n}"]))
        assert not migrating.done()
        free.set()
        await asyncio.gather(reading, migrating)
        assert len(await said(store, "conv_1")) == 58

    @pytest.mark.usefixtures("store")
    @pytest.mark.chaos
    async def test_another_process_that_never_ends_is_named(self, opened: DatabaseTransactions) -> None:
        """ADR 10: the wait for another's migration has a limit, and the message says for whom it waited."""
        held, free = asyncio.Event(), asyncio.Event()

        def hold(connection: sa.Connection) -> None:
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({migration.LOCK})"))
            held.set()
            while not free.is_set():
                connection.execute(sa.text("SELECT pg_sleep(0.02)"))

        holding = asyncio.ensure_future(opened.run(hold, write=True))
        await held.wait()
        with pytest.raises(StorageUnavailable, match="Another process has been migrating"):
            await migrate(opened, limit=0.5)
        free.set()
        await holding
        await migrate(opened)
        assert await opened.run(revision_of) == NEXT


async def test_a_migration_that_fails_in_its_middle_leaves_the_old_schema(
    transactions: DatabaseTransactions, next_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADR 10: and the version before goes on as if nothing had been tried."""
    store = await begun(transactions)
    in_the_way = "CREATE TABLE of_the_next (id INTEGER)"
    await transactions.run(lambda c: c.execute(sa.text(in_the_way)).close(), write=True)
    become_next(monkeypatch, next_version)
    with pytest.raises(StorageUnavailable):
        await migrate(transactions)
    assert await transactions.run(revision_of) == THIS
    columns = await transactions.run(lambda c: [each["name"] for each in sa.inspect(c).get_columns("messages")])
    assert "of_the_next" not in columns
    monkeypatch.undo()
    await store.commit(turn("t", "conv_1", "q2", ["a2"]))
    await transactions.run(lambda c: c.execute(sa.text("DROP TABLE of_the_next")).close(), write=True)
    become_next(monkeypatch, next_version)
    await migrate(transactions)
    assert await said(store, "conv_1") == ["q1", "a1", "q2", "a2"]


@pytest.mark.parametrize(
    "statements",
    [
        ("PRAGMA journal_mode = WAL", "BEGIN IMMEDIATE"),
        ("CREATE TABLE something (id INTEGER)", "BEGIN", "SELECT * FROM something"),
    ],
    ids=["a writer", "who reads a file without a log"],
)
async def test_sqlites_migration_waits_for_a_writer_and_for_who_reads(
    tmp_path: Path, statements: tuple[str, ...]
) -> None:
    """ADR 10: also longer than a request would. The change to a write-ahead log, for which SQLite does not wait, is no
    reason to fail: as when ten processes meet at a new file."""
    file = tmp_path / "gateway.db"
    transactions = open_transactions(StorageSettings(url=f"sqlite:///{file}", timeout=0.1))
    other = sqlite3.connect(file, isolation_level=None)
    for statement in statements:
        other.execute(statement).fetchall()
    with pytest.raises(StorageUnavailable):
        await migrate(transactions, limit=0.3)
    migrating = asyncio.ensure_future(migrate(transactions))
    await asyncio.wait({migrating}, timeout=0.5)
    assert not migrating.done()
    other.execute("ROLLBACK")
    await migrating
    assert await ConversationStore(transactions, SystemClock()).ready()
    other.close()
    await transactions.close()
