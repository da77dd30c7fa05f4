"""Brings the schema up to date. Alembic is imported here only, when there is something to do (ADR 10)."""

import asyncio
import contextlib
import os
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

import gateway
from gateway.core import errors, names
from gateway.core.config.settings import StorageSettings
from gateway.core.frozen_records import record
from gateway.storage.database import schema
from gateway.storage.database.postgres import PostgresTransactions, sqlstate
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions, parse_url
from gateway.storage.database.transactions import T
from gateway.storage.encryption.rewrite import note_key, require_keys

SECRET = re.compile(rf"(?<=[?&])({'|'.join(names.SECRET_PARAMETERS)})=[^&]*", re.IGNORECASE)


def shown(url: str) -> str:
    """Renders a database's address without its password, wherever that stands. Raises ValueError: it is no address."""
    return SECRET.sub(r"\1=***", parse_url(url).render_as_string(hide_password=True))


@record
class SchemaState:
    """What the database records of its schema: its revision (None: the database is empty), and the oldest revision of
    the code that may run on it (ADR 10; None: not recorded)."""

    revision: str | None
    oldest: str | None = None

    @property
    def serves(self) -> bool:
        """Whether this version may run on the schema: it is the needed revision, or a newer one that allows it."""
        if self.revision is None or self.revision == schema.REVISION:
            return self.revision == schema.REVISION
        return self.oldest is not None and self.oldest <= schema.REVISION < self.revision

    @property
    def older(self) -> bool:
        """Whether a migration upgrades the schema to what this version needs."""
        return self.revision is None or self.revision < schema.REVISION

    @property
    def fault(self) -> str:
        """Why this version may not run on the schema, where it may not."""
        found = f"schema {self}" if self.revision else "no schema"
        then = ": run `gateway migrate`" if self.older else ", or one that this version may run on"
        return f"The storage has {found}; {schema.REVISION} is needed{then}."

    def __str__(self) -> str:
        if self.revision is None:
            return "empty"
        newer = self.serves and self.revision != schema.REVISION
        return f"{self.revision} (newer than {schema.REVISION}, which may run on it)" if newer else self.revision


def schema_state(connection: sa.Connection) -> SchemaState:
    revision = revision_of(connection)
    if revision is None or revision <= schema.REVISION:
        return SchemaState(revision)
    table = schema.schema_revisions
    if not sa.inspect(connection).has_table(table.name):
        return SchemaState(revision)
    return SchemaState(
        revision, connection.execute(sa.select(table.c.oldest).where(table.c.revision == revision)).scalar()
    )


def revision_of(connection: sa.Connection) -> str | None:
    """Returns the schema's revision; None in an empty database. Raises StorageUnavailable: it is not the gateway's."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    if version is not None and not version.isdecimal():
        raise _anothers("another application's database, whose schema Alembic brings up to date, too")
    return version


def _anothers(whose: str) -> errors.StorageUnavailable:
    where = "name another database, or a schema of its own, by storage.url or GATEWAY_STORAGE_URL"
    return errors.StorageUnavailable(f"The storage is {whose}, and is left as it is: {where}.")


def require_own(connection: sa.Connection) -> None:
    """Refuses a database that has LiteLLM's tables, however it was named: LiteLLM's own schema tool drops tables that
    it does not know. Refuses one in which others have tables of the same names, too. Called if the database has no
    revision of the gateway's.
    Raises StorageUnavailable: it is another application's."""
    found = set(sa.inspect(connection).get_table_names())
    same = ", ".join(sorted(found & schema.metadata.tables.keys()))
    whose = f"another application's database, which has tables of the same names ({same})" if same else ""
    if any(name.startswith(LITELLM_TABLES) for name in found):
        whose = "a LiteLLM proxy's database"
    if whose:
        raise _anothers(whose)


def require_tables(connection: sa.Connection) -> None:
    """Checks that no table of the schema is missing. Raises StorageUnavailable: one is."""
    gone = schema.metadata.tables.keys() - set(sa.inspect(connection).get_table_names())
    if gone:
        names = ", ".join(sorted(gone))
        raise errors.StorageUnavailable(
            f"The storage has lost tables of schema {schema.REVISION}: {names}. Restore a backup."
        )


async def require_current(transactions: DatabaseTransactions) -> None:
    """Checks that this version may use the storage. Raises StorageUnavailable: it cannot be reached, or its schema does
    not allow this version; ContentUnreadable: its content is sealed with a key that is not configured."""
    state = await transactions.run(schema_state)
    if not state.serves:
        raise errors.StorageUnavailable(state.fault)
    await require_keys(transactions)


async def open_current(settings: StorageSettings) -> DatabaseTransactions:
    """Opens the database that `storage.url` names, for commands that change it; never creates one.
    Raises ValueError: the URL is invalid or names an unsupported database; StorageUnavailable: there is no database, it
    cannot be reached, or is not on this version's schema."""
    url = parse_url(settings.url)
    if url.get_backend_name() == "sqlite" and not os.path.isfile(url.database or ""):  # noqa: ASYNC240 - a command's
        raise errors.StorageUnavailable(f"There is no database file at {url.database}. `gateway migrate` makes one.")
    transactions = open_transactions(settings)
    try:
        await require_current(transactions)
        await note_key(transactions)
    except errors.StorageUnavailable:
        await transactions.close()
        raise
    return transactions


if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import Script
    from sqlalchemy.ext.asyncio import AsyncEngine

LOCK = 0x636F6E7465787467  # "contextg": any number that no other application on the database uses
LITELLM_TABLES = "LiteLLM_"
LIMIT_SECONDS = 600.0
PAUSE_SECONDS = 0.25
TABLE_MILLISECONDS = 500
"""How long a change of a table may wait for its users: meanwhile all others queue behind it. It is shorter than the
second after which PostgreSQL looks for a deadlock, and might end another client's transaction."""
IN_USE = ("55P03", "40P01")


def migrations_folder() -> Path:
    """Returns `migrations/` of a checkout, or the copy inside an installed wheel."""
    package = Path(gateway.__file__).parent
    bundled = package / "_migrations"
    return bundled if bundled.is_dir() else package.parent / "migrations"


async def migrate(transactions: DatabaseTransactions, limit: float = LIMIT_SECONDS) -> None:
    """Upgrades the schema to this version's revision in one transaction, so that it fails as a whole; any number of
    processes may try at the same time. A newer schema is left unchanged.
    Raises StorageUnavailable: the database is LiteLLM's, it cannot be reached, another process or a transaction on its
    tables blocked it for `limit` seconds, or a migration failed. The schema is then as it was before."""
    end = time.monotonic() + limit
    current = await _patiently(lambda: transactions.run(revision_of), end)
    if current == schema.REVISION:
        await transactions.run(require_tables)
        return
    if current is None:
        await _patiently(lambda: transactions.run(require_own), end)
    try:
        if isinstance(transactions, PostgresTransactions):
            async with transactions.unhurried() as engine, _alone(engine, end, limit):
                await _upgrade_postgres(engine, end, limit)
        else:
            await _patiently(lambda: transactions.run(_upgrade, write=True), end)
    except (SQLAlchemyError, OSError) as error:
        reason = str(getattr(error, "orig", error))
        raise errors.StorageUnavailable(f"The schema could not be brought up to date: {reason}") from error


@contextlib.asynccontextmanager
async def _alone(engine: "AsyncEngine", end: float, limit: float) -> AsyncIterator[None]:
    """Keeps other processes from migrating. It polls instead of queueing: a process that queues holds a snapshot open,
    for whose end the building of an index would wait."""
    ask = sa.text("SELECT pg_try_advisory_xact_lock(:key)")
    async with engine.connect() as guard:
        while not (await guard.execute(ask, {"key": LOCK})).scalar():
            await guard.rollback()
            if time.monotonic() > end:
                raise errors.StorageUnavailable(f"Another process has been migrating the schema for {limit:g} seconds.")
            await _pause()
        # It also replaces the query, whose snapshot would stay open until the transaction ends.
        await guard.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield


async def _upgrade_postgres(engine: "AsyncEngine", end: float, limit: float) -> None:
    while True:
        try:
            async with engine.connect() as connection:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                left = max(1, int(1000 * (end - time.monotonic())))
                await connection.execute(sa.text(f"SET lock_timeout = {left}"))
                await connection.run_sync(_build_indexes)
            async with engine.begin() as connection:
                await connection.execute(sa.text(f"SET LOCAL lock_timeout = {TABLE_MILLISECONDS}"))
                await connection.run_sync(_upgrade)
                return
        except DBAPIError as error:
            if sqlstate(error) not in IN_USE:
                raise
            if time.monotonic() > end:
                message = f"A transaction has kept the tables in use for {limit:g} seconds; nothing was changed."
                raise errors.StorageUnavailable(message) from error
        await _pause()


async def _patiently(work: Callable[[], Awaitable[T]], end: float) -> T:
    """Repeats `work` while another process locks SQLite's file."""
    while True:
        try:
            return await work()
        except errors.StorageUnavailable as error:
            if time.monotonic() > end or "locked" not in str(error.__cause__):
                raise
        await _pause()


async def _pause() -> None:
    await asyncio.sleep(PAUSE_SECONDS * (0.5 + random.random()))


def _build_indexes(connection: sa.Connection) -> None:
    """Builds the indexes of large tables before the upgrade, without blocking writers. An index whose build was
    interrupted is invalid, and is built again."""
    quote = connection.dialect.identifier_preparer.quote
    known = sa.text("SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attname = ANY(:columns)")
    broken = sa.text("SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(:name) AND NOT indisvalid")
    for script in _scripts(_config(), revision_of(connection)):
        for name, table, columns, where in getattr(script.module, "INDEXES", ()):
            found = connection.execute(known, {"name": table, "columns": list(columns)}).scalar()
            if found != len(columns):
                continue  # an intermediate revision makes it, with its indexes
            if connection.execute(broken, {"name": name}).scalar():
                connection.execute(sa.text(f"DROP INDEX CONCURRENTLY {quote(name)}"))
            of = f"{quote(table)} ({', '.join(map(quote, columns))}){f' WHERE {where}' if where else ''}"
            connection.execute(sa.text(f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {quote(name)} ON {of}"))


def _upgrade(connection: sa.Connection) -> None:
    current = revision_of(connection)
    config = _config()
    if current is not None and not list(_scripts(config, current)):
        return
    attributes: dict[str, Any] = config.attributes
    attributes["connection"] = connection
    _alembic().command.upgrade(config, schema.REVISION)


def _alembic() -> Any:
    """Returns Alembic, which is imported only where the schema may be another's."""
    import alembic.config

    return alembic


def _config() -> "Config":
    config: Config = _alembic().config.Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def _scripts(config: "Config", current: str | None) -> "Iterator[Script]":
    """Yields the migrations from a revision to this version's, oldest first: none from a newer one, and none in an
    empty database, where nothing is large."""
    folder = _alembic().script.ScriptDirectory.from_config(config)
    if current is not None and current in {script.revision for script in folder.walk_revisions()}:
        yield from reversed(list(folder.iterate_revisions(schema.REVISION, current)))
