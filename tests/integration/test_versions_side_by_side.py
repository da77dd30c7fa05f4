"""Version N and N - 1 on one database, and ten that migrate it at once (guarantee §9, ADR 10)."""

import asyncio
import itertools
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.util import await_only

from gateway.base.clock import SystemClock
from gateway.config.settings import Settings, StorageSettings
from gateway.errors import StorageUnavailable
from gateway.models.conversation import ConversationRef
from gateway.models.turn import LedgerQuery
from gateway.operations.check import check, migrate_now
from gateway.storage.database import migrate as migration
from gateway.storage.database import schema
from gateway.storage.database.engine import Transactions, open_transactions
from gateway.storage.database.migrate import migrate, migrations_folder, revision_of, schema_state
from gateway.storage.store import SqlStore
from gateway.storage.turns.bills import ledger_pages
from tests.integration.commits import NOW, contents, turn
from tests.support.fork_server import ForkServer
from tests.support.gateway_process import scrubbed_environment
from tests.support.postgres import Postgres

NUMBERS = itertools.count()
OLD = "0002"
BEFORE = "0003"


@pytest.fixture
async def transactions(storage_url: str) -> AsyncIterator[Transactions]:
    """An empty database of the test's own."""
    opened = open_transactions(StorageSettings(url=storage_url))
    yield opened
    await opened.close()


async def upgrade(transactions: Transactions, revision: str, folder: Path | None = None) -> None:
    """Runs the migrations of a folder up to one revision, as the version of that revision would."""

    def work(connection: sa.Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(folder or migrations_folder()))
        config.attributes["connection"] = connection
        revision_of(connection)  # begins SQLAlchemy's transaction, so that alembic does not end ours
        command.upgrade(config, revision)

    await transactions.run(work, write=True)


def _insert(connection: sa.Connection, table: sa.Table, **values: object) -> None:
    """Names no column but those given, as the version did that knew no other."""
    columns = [column for column in table.columns if column.name in values]
    known = sa.Table(table.name, sa.MetaData(), *(sa.Column(each.name, each.type) for each in columns))
    connection.execute(known.insert().values(values))


async def store_as_old(
    transactions: Transactions, conversation: str, question: str, answer: str, *, new: bool = False
) -> None:
    """A turn as the version of revision 0002 stored it."""
    number = next(NUMBERS)
    request, ids = f"req_{number}", (f"msg_q{number}", f"msg_a{number}")

    def work(connection: sa.Connection) -> None:
        table = schema.conversations
        where = table.c.id == conversation
        bill = {"status": "complete", "stream": False, "prompt_tokens": 1, "completion_tokens": 1, "model": "m"}
        bill |= {"total_cost_picousd": 5, "estimated": False, "response_metadata": "{}", "created_at": NOW}
        _insert(connection, schema.ledger, request_id=request, tenant="t", conversation_id=conversation, **bill)
        if new:
            times = {"created_at": NOW, "updated_at": NOW}
            _insert(connection, table, id=conversation, tenant="t", attachments=0, **times)
        parent = connection.execute(sa.select(table.c.head_id).where(where).with_for_update()).scalar()
        messages = schema.messages
        numbers = sa.select(sa.func.count()).where(messages.c.conversation_id == conversation)
        sequence = connection.execute(numbers).scalar_one()
        for message_id, role, text in ((ids[0], "user", question), (ids[1], "assistant", answer)):
            body = json.dumps({"role": role, "content": text}, separators=(",", ":"))
            place = {"id": message_id, "conversation_id": conversation, "parent_id": parent, "request_id": request}
            said = {"role": role, "status": "complete", "body": body, "digest": f"old-{message_id}", "weight": 30}
            _insert(connection, messages, **place, **said, sequence_number=sequence, created_at=NOW)
            parent, sequence = message_id, sequence + 1
        connection.execute(table.update().where(where).values(head_id=parent, updated_at=NOW))

    await transactions.run(work, write=True)


async def said(store: SqlStore, conversation: str) -> list[str]:
    return contents(await store.find_conversation("t", ConversationRef(conversation), max_bytes=None))


@pytest.mark.parametrize("revision", [OLD, BEFORE])
async def test_the_version_before_goes_on_writing_after_the_migration(
    transactions: Transactions, revision: str
) -> None:
    """ADR 10: what it stored before and stores now is continued by the new version, and the other way round."""
    await upgrade(transactions, revision)
    await store_as_old(transactions, "conv_1", "q1", "a1", new=True)
    store = SqlStore(transactions, SystemClock())
    assert not await store.ready()
    await migrate(transactions)
    assert await store.ready()
    await store_as_old(transactions, "conv_1", "q2", "a2")
    assert await said(store, "conv_1") == ["q1", "a1", "q2", "a2"]
    await store.commit(turn("t", "conv_1", "q3", ["a3"]))
    await store_as_old(transactions, "conv_1", "q4", "a4")
    await store.commit(turn("t", "conv_1", "q5", ["a5"]))
    assert await said(store, "conv_1") == [f"{who}{n}" for n in range(1, 6) for who in "qa"]
    await store_as_old(transactions, "conv_2", "new", "conversation", new=True)
    assert await said(store, "conv_2") == ["new", "conversation"]
    rows = [row async for page in ledger_pages(transactions, LedgerQuery(tenant="t")) for row in page]
    assert len(rows) == 6


@pytest.fixture
def next_version(tmp_path: Path) -> Path:
    """The migrations of a version after this one: a column more, and a word on who may run beside it."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "9998_next.py").write_text(f'''"""The next."""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "9998", "{schema.REVISION}"
def upgrade():
    op.add_column("messages", sa.Column("of_the_next", sa.Text(), nullable=True))
    op.execute("INSERT INTO schema_revisions (revision, oldest) VALUES ('9998', '{schema.REVISION}')")
''')
    (folder / "versions" / "9999_break.py").write_text('''"""The one after, which breaks with this one."""
from alembic import op
revision, down_revision = "9999", "9998"
def upgrade():
    op.execute("INSERT INTO schema_revisions (revision, oldest) VALUES ('9999', '9998')")
''')
    return folder


async def test_this_version_stays_ready_beside_the_next_and_not_beside_one_that_breaks_with_it(
    transactions: Transactions, next_version: Path
) -> None:
    """ADR 10: a rolling upgrade has two versions that are ready; the schema is left alone by the older one."""
    await migrate(transactions)
    store = SqlStore(transactions, SystemClock())
    await store.commit(turn("t", "conv_1", "q1", ["a1"], created=True))
    await upgrade(transactions, "9998", next_version)
    assert await store.ready()
    await migrate(transactions)
    assert await transactions.run(revision_of) == "9998"
    await store.commit(turn("t", "conv_1", "q2", ["a2"]))
    assert await said(store, "conv_1") == ["q1", "a1", "q2", "a2"]
    assert [page async for page in ledger_pages(transactions, LedgerQuery(tenant="t"))]
    await upgrade(transactions, "9999", next_version)
    assert not await store.ready()
    with pytest.raises(StorageUnavailable):
        [page async for page in ledger_pages(transactions, LedgerQuery(tenant="t"))]
    assert not (await transactions.run(schema_state)).older


def test_the_commands_say_beside_whom_they_run(storage_url: str, next_version: Path) -> None:
    """§9: `gateway check` and `gateway migrate` agree with readiness."""
    settings = Settings(storage=StorageSettings(url=storage_url))

    def schema_line() -> tuple[bool, str]:
        (result,) = [each for each in check(settings) if each.name.startswith("storage")]
        return result.ok, result.text

    async def to(revision: str) -> None:
        transactions = open_transactions(settings.storage)
        await upgrade(transactions, revision, next_version)
        await transactions.close()

    asyncio.run(to(OLD))
    assert schema_line() == (True, f"reached, schema {OLD}: run `gateway migrate`, or let `gateway serve` do it at its start")  # fmt: skip  # noqa: E501
    asyncio.run(to("9998"))
    assert schema_line() == (True, f"reached, schema 9998 (newer than {schema.REVISION}, which may run on it)")
    (again,) = migrate_now(settings)
    assert again.ok
    assert "already at 9998" in again.text
    asyncio.run(to("9999"))
    assert schema_line() == (False, "reached, schema 9999: newer than this version, which may not run on it")
    (again,) = migrate_now(settings)
    assert not again.ok


@pytest.mark.parametrize("before", [None, OLD, BEFORE])
async def test_ten_replicas_migrate_at_once(transactions: Transactions, storage_url: str, tmp_path: Path, before: str | None, fork_server: ForkServer) -> None:  # fmt: skip  # noqa: E501
    """§9: ten real processes on an empty and on an old database with data: all succeed, the data is whole."""
    if before is not None:
        await upgrade(transactions, before)
        await store_as_old(transactions, "conv_1", "q1", "a1", new=True)
    environment = scrubbed_environment() | {"DATABASE_URL": storage_url}
    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(lambda _: fork_server.run(["migrate"], environment, tmp_path), range(10)))
    assert [process.returncode for process in done] == [0] * 10, done
    assert [process.stderr for process in done] == [""] * 10
    store = SqlStore(transactions, SystemClock())
    assert await store.ready()
    if before is not None:
        assert await said(store, "conv_1") == ["q1", "a1"]


async def test_the_version_before_is_ready_on_this_schema(transactions: Transactions) -> None:
    """ADR 10: a rolling upgrade, and one that is taken back."""
    await migrate(transactions)
    table = schema.schema_revisions
    query = sa.select(table.c.oldest).where(table.c.revision == schema.REVISION)
    assert await transactions.run(lambda connection: connection.execute(query).scalar()) == BEFORE


class TestPostgres:
    """What PostgreSQL alone can do: build indexes beside writers, and wait for tables."""

    @pytest.fixture
    async def old(self, postgres: Postgres) -> AsyncIterator[Transactions]:
        """A database of the version before, with a conversation."""
        opened = open_transactions(StorageSettings(url=postgres.new_database()))
        await upgrade(opened, OLD)
        await store_as_old(opened, "conv_1", "q1", "a1", new=True)
        yield opened
        await opened.close()

    async def test_an_index_whose_building_was_cut_off_is_built_anew(self, old: Transactions) -> None:
        """ADR 10: what a killed migration leaves is no index that anyone could use."""
        name = migration_indexes()[0]
        make = f"CREATE INDEX {name} ON conversations (updated_at)"
        spoil = f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{name}'::regclass"
        for sql in (make, spoil):
            await old.run(lambda c, sql=sql: c.execute(sa.text(sql)).close(), write=True)  # type: ignore[misc]
        await migrate(old)
        valid = "SELECT indexrelid::regclass::text FROM pg_index WHERE indisvalid"
        built = await old.run(lambda c: set(c.execute(sa.text(valid)).scalars()))
        assert set(migration_indexes()) <= built

    @pytest.mark.parametrize("last", ["SELECT count(*) FROM messages", "LOCK TABLE messages IN ACCESS SHARE MODE"])
    async def test_a_table_in_use_is_waited_for_and_nobody_behind_it_suffers(
        self, old: Transactions, last: str
    ) -> None:
        """ADR 10: a transaction that stays open delays the migration, with a snapshot (which an index would wait for)
        or without one (for which the change of the table does). Others go on reading and writing meanwhile."""
        held, free = asyncio.Event(), asyncio.Event()

        def read_for_long(connection: sa.Connection) -> None:
            connection.execute(sa.text(last))
            held.set()
            await_only(free.wait())

        reading = asyncio.ensure_future(old.run(read_for_long))
        await held.wait()
        with pytest.raises(StorageUnavailable, match="in use"):
            await migrate(old, limit=1.0)
        assert await old.run(revision_of) == OLD
        migrating = asyncio.ensure_future(migrate(old))
        for n in range(2, 30):
            await store_as_old(old, "conv_1", f"q{n}", f"a{n}")
        assert not migrating.done()
        free.set()
        await asyncio.gather(reading, migrating)
        assert len(await said(SqlStore(old, SystemClock()), "conv_1")) == 58

    async def test_another_process_that_never_ends_is_named(self, old: Transactions) -> None:
        """ADR 10: the wait for another's migration has a limit, and the message says for whom it waited."""
        held, free = asyncio.Event(), asyncio.Event()

        def hold(connection: sa.Connection) -> None:
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({migration.LOCK})"))
            held.set()
            while not free.is_set():
                connection.execute(sa.text("SELECT pg_sleep(0.02)"))

        holding = asyncio.ensure_future(old.run(hold, write=True))
        await held.wait()
        with pytest.raises(StorageUnavailable, match="Another process has been migrating"):
            await migrate(old, limit=0.5)
        free.set()
        await holding
        await migrate(old)
        assert await old.run(revision_of) == schema.REVISION


async def test_a_migration_that_fails_in_its_middle_leaves_the_old_schema(transactions: Transactions) -> None:
    """ADR 10: and the version before goes on as if nothing had been tried."""
    await upgrade(transactions, OLD)
    in_the_way = "CREATE TABLE claims (id INTEGER)"
    await transactions.run(lambda c: c.execute(sa.text(in_the_way)).close(), write=True)
    with pytest.raises(StorageUnavailable):
        await migrate(transactions)
    assert await transactions.run(revision_of) == OLD
    columns = await transactions.run(lambda c: [each["name"] for each in sa.inspect(c).get_columns("messages")])
    assert "path_digest" not in columns
    await store_as_old(transactions, "conv_1", "q1", "a1", new=True)
    await transactions.run(lambda c: c.execute(sa.text("DROP TABLE claims")).close(), write=True)
    await migrate(transactions)
    assert await said(SqlStore(transactions, SystemClock()), "conv_1") == ["q1", "a1"]


async def test_sqlites_migration_waits_for_a_writer(tmp_path: Path) -> None:
    """ADR 10: also longer than a request would."""
    file = tmp_path / "gateway.db"
    transactions = open_transactions(StorageSettings(url=f"sqlite:///{file}", timeout=0.1))
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable):
        await migrate(transactions, limit=0.3)
    migrating = asyncio.ensure_future(migrate(transactions))
    await asyncio.wait({migrating}, timeout=0.5)
    assert not migrating.done()
    writer.execute("ROLLBACK")
    await migrating
    assert await SqlStore(transactions, SystemClock()).ready()
    writer.close()
    await transactions.close()


async def test_sqlites_migration_waits_for_who_reads_a_file_without_a_log(tmp_path: Path) -> None:
    """ADR 10: the change to a write-ahead log, for which SQLite does not wait, is no reason to fail: as when ten
    processes meet at a new file."""
    file = tmp_path / "gateway.db"
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("CREATE TABLE something (id INTEGER)")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM something").fetchall()
    transactions = open_transactions(StorageSettings(url=f"sqlite:///{file}", timeout=0.1))
    migrating = asyncio.ensure_future(migrate(transactions))
    await asyncio.wait({migrating}, timeout=0.5)
    assert not migrating.done()
    reader.execute("ROLLBACK")
    await migrating
    assert await SqlStore(transactions, SystemClock()).ready()
    reader.close()
    await transactions.close()


def migration_indexes() -> list[str]:
    """The indexes that are built before the upgrade to this version's revision."""
    scripts = migration._scripts(migration._config(), OLD)
    return [name for script in scripts for name, _, _ in script.module.INDEXES]
