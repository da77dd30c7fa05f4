"""The schema: migrations lead exactly to `schema.metadata`, from any number of processes, and never back."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.errors import StorageUnavailable
from gateway.storage.database import schema
from gateway.storage.database.migrate import migrate, migrations_folder, revision_of, schema_state
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.store import ConversationStore
from tests.support.command import gateway_command
from tests.support.gateway_process import scrubbed_environment


@pytest.fixture
async def empty(empty_storage_url: str) -> AsyncIterator[DatabaseTransactions]:
    """A database with nothing in it."""
    opened = open_transactions(StorageSettings(url=empty_storage_url))
    yield opened
    await opened.close()


def set_revision(connection: sa.Connection, revision: str) -> None:
    connection.execute(sa.text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def tables(connection: sa.Connection) -> set[str]:
    return set(sa.inspect(connection).get_table_names())


async def test_a_migrated_database_is_exactly_what_the_code_expects(empty: DatabaseTransactions) -> None:
    await migrate(empty)

    def differences(connection: sa.Connection) -> list[object]:
        options = {"compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), schema.metadata))

    assert await empty.run(differences) == []
    assert await empty.run(tables) == {*schema.metadata.tables, "alembic_version"}


async def test_the_tables_refuse_what_the_schema_forbids(empty: DatabaseTransactions) -> None:
    """Autogenerate does not compare foreign keys' actions, nor primary keys."""
    await migrate(empty)

    def keys(connection: sa.Connection) -> dict[str, tuple[list[str], set[tuple[str, str, str | None]]]]:
        inspector = sa.inspect(connection)
        return {
            name: (
                inspector.get_pk_constraint(name)["constrained_columns"],
                {
                    (column, key["referred_table"], key["options"].get("ondelete"))
                    for key in inspector.get_foreign_keys(name)
                    for column in key["constrained_columns"]
                },
            )
            for name in schema.metadata.tables
        }

    expected = {
        name: (
            [column.name for column in table.primary_key],
            {(key.parent.name, key.column.table.name, key.ondelete) for key in table.foreign_keys},
        )
        for name, table in schema.metadata.tables.items()
    }
    assert await empty.run(keys) == expected


def test_the_revision_that_the_code_needs_is_the_only_head() -> None:
    assert ScriptDirectory(str(migrations_folder())).get_heads() == [schema.REVISION]


@pytest.mark.chaos
async def test_ten_migrations_at_once_are_one(empty_storage_url: str) -> None:
    opened = [open_transactions(StorageSettings(url=empty_storage_url, timeout=20)) for _ in range(10)]
    try:
        await asyncio.gather(*(migrate(each) for each in opened))
        assert await opened[0].run(revision_of) == schema.REVISION
        assert await opened[9].run(lambda c: c.execute(sa.text("SELECT * FROM alembic_version")).fetchall()) == [
            (schema.REVISION,)
        ]
    finally:
        for each in opened:
            await each.close()


async def test_an_empty_storage_is_not_ready_and_a_migrated_one_is(empty: DatabaseTransactions) -> None:
    store = ConversationStore(empty, SystemClock())
    assert not await store.ready()
    assert await empty.run(revision_of) is None
    await migrate(empty)
    assert await store.ready()


async def test_a_newer_schema_is_left_alone_and_not_ready(empty: DatabaseTransactions) -> None:
    await migrate(empty)
    await empty.run(lambda c: set_revision(c, "9999"), write=True)
    await migrate(empty)
    assert await empty.run(revision_of) == "9999"
    assert not await ConversationStore(empty, SystemClock()).ready()
    assert await empty.run(tables) == {*schema.metadata.tables, "alembic_version"}


async def test_a_migration_that_fails_leaves_nothing_behind(empty: DatabaseTransactions) -> None:
    create = "CREATE VIEW completions AS SELECT 1 AS id"
    await empty.run(lambda c: c.execute(sa.text(create)).close(), write=True)
    with pytest.raises((sa.exc.DBAPIError, StorageUnavailable)):
        await migrate(empty)
    assert await empty.run(tables) <= {"alembic_version"}


async def test_another_applications_database_is_left_alone_and_named(empty: DatabaseTransactions) -> None:
    create = "CREATE TABLE messages (id INTEGER)"
    await empty.run(lambda c: c.execute(sa.text(create)).close(), write=True)
    with pytest.raises(StorageUnavailable, match=r"another application's .*\(messages\).* name another database"):
        await migrate(empty)
    assert await empty.run(tables) == {"messages"}


async def test_another_applications_revisions_are_not_read_as_the_gateways(empty: DatabaseTransactions) -> None:
    """By their order as texts, some are newer and some older."""
    for made in (
        "CREATE TABLE alembic_version (version_num TEXT)",
        "INSERT INTO alembic_version VALUES ('0003abcdef01')",
    ):
        await empty.run(lambda c, made=made: c.execute(sa.text(made)).close(), write=True)  # type: ignore[misc]
    for asked in (revision_of, schema_state):
        with pytest.raises(StorageUnavailable, match="another application's database, whose schema Alembic"):
            await empty.run(asked)
    with pytest.raises(StorageUnavailable, match="name another database"):
        await migrate(empty)


def gateway_migrate(url: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return gateway_command("migrate", directory=directory, env={"DATABASE_URL": url})


def test_the_command_migrates_once_and_says_so_the_second_time(empty_storage_url: str, tmp_path: Path) -> None:
    """The second time as a process of its own, which is cleared up as well."""
    first = gateway_migrate(empty_storage_url, tmp_path)
    environment = scrubbed_environment() | {"DATABASE_URL": empty_storage_url}
    whole = [sys.executable, "-W", "error", "-m", "gateway", "migrate"]
    second = subprocess.run(whole, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert f"empty -> {schema.REVISION}" in first.stdout
    assert f"already at {schema.REVISION}" in second.stdout
    assert first.stderr == second.stderr == ""


def test_the_command_fails_where_it_cannot_reach_the_database(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    done = gateway_migrate(f"sqlite:///{tmp_path / 'folder'}", tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL")
    assert "Traceback" not in done.stderr
