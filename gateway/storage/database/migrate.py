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
    """The address of a database without its password, wherever in it that stands. Raises ValueError: it is none."""
    return SECRET.sub(r"\1=***", parse_url(url).render_as_string(hide_password=True))


@record
class SchemaState:
    """What the database says of its schema: the revision that it is on (None: it is empty), and the oldest revision
    of the code that may run on it (ADR 10; None: it does not say)."""

    revision: str | None
    oldest: str | None = None

    @property
    def serves(self) -> bool:
        """Whether this version of the code may run on it: it is what the code needs, or newer and says so."""
        if self.revision is None or self.revision == schema.REVISION:
            return self.revision == schema.REVISION
        return self.oldest is not None and self.oldest <= schema.REVISION < self.revision

    @property
    def older(self) -> bool:
        """Whether a migration brings it to what this version needs."""
        return self.revision is None or self.revision < schema.REVISION

    @property
    def fault(self) -> str:
        """Why this version may not run on it, where it may not."""
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
    """The schema's revision, None in an empty database."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return version


def require_own(connection: sa.Connection) -> None:
    """A database without the gateway's tables is refused if it has LiteLLM's, however it was named: LiteLLM's own
    schema tool drops tables that it does not know.
    Raises StorageUnavailable: it has."""
    if any(name.startswith(LITELLM_TABLES) for name in sa.inspect(connection).get_table_names()):
        where = "name another database, or a schema of its own, by storage.url or GATEWAY_STORAGE_URL"
        raise errors.StorageUnavailable(f"The storage is a LiteLLM proxy's database, and is left as it is: {where}.")


def require_tables(connection: sa.Connection) -> None:
    """Raises StorageUnavailable: tables are gone that belong to its revision."""
    gone = schema.metadata.tables.keys() - set(sa.inspect(connection).get_table_names())
    if gone:
        names = ", ".join(sorted(gone))
        raise errors.StorageUnavailable(
            f"The storage has lost tables of schema {schema.REVISION}: {names}. Restore a backup."
        )


async def require_current(transactions: DatabaseTransactions) -> None:
    """Raises StorageUnavailable: it cannot be reached, or this version may not run on its schema; ContentUnreadable:
    its content is under a key that is not configured."""
    state = await transactions.run(schema_state)
    if not state.serves:
        raise errors.StorageUnavailable(state.fault)
    await require_keys(transactions)


async def open_current(settings: StorageSettings) -> DatabaseTransactions:
    """The database that `storage.url` names, for commands that change it; none is made.
    Raises ValueError: the URL is none, or of a database that is not supported; StorageUnavailable: there is none, it
    cannot be reached, or is not on this version's schema."""
    url = parse_url(settings.url)
    if url.get_backend_name() == "sqlite" and not os.path.isfile(url.database or ""):  # noqa: ASYNC240 - a command's
        raise errors.StorageUnavailable(f"There is no database file at {url.database}.")
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
"""How long a change of a table may wait for who uses it: meanwhile all others queue up behind it. It is shorter than
the second after which PostgreSQL would look for a deadlock, and might end somebody else's transaction."""
IN_USE = ("55P03", "40P01")


def migrations_folder() -> Path:
    """`migrations/` of a checkout, or the copy inside an installed wheel."""
    package = Path(gateway.__file__).parent
    bundled = package / "_migrations"
    return bundled if bundled.is_dir() else package.parent / "migrations"


async def migrate(transactions: DatabaseTransactions, limit: float = LIMIT_SECONDS) -> None:
    """Upgrades to this version's revision in one transaction, so that it fails as a whole; any number of processes may
    try at once. A schema that is newer than this version is left alone.
    Raises StorageUnavailable: it is LiteLLM's, it cannot be reached, another process or a transaction on its tables was
    in the way for `limit` seconds, or a migration failed. The schema is as it was before."""
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
    """While no other process migrates. It asks again and again instead of queueing: who queues has a snapshot open,
    for whose end the building of an index would wait."""
    ask = sa.text("SELECT pg_try_advisory_xact_lock(:key)")
    async with engine.connect() as guard:
        while not (await guard.execute(ask, {"key": LOCK})).scalar():
            await guard.rollback()
            if time.monotonic() > end:
                raise errors.StorageUnavailable(f"Another process has been migrating the schema for {limit:g} seconds.")
            await _pause()
        # It also takes the place of the question, whose snapshot would stay open to the end of the transaction.
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
    """Again and again while somebody else has SQLite's file."""
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
    """Those of large tables are built before the upgrade and without stopping who writes to them. One whose building
    was cut off is no index, and is built anew."""
    quote = connection.dialect.identifier_preparer.quote
    known = sa.text("SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attname = ANY(:columns)")
    broken = sa.text("SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(:name) AND NOT indisvalid")
    for script in _scripts(_config(), revision_of(connection)):
        for name, table, columns, where in getattr(script.module, "INDEXES", ()):
            found = connection.execute(known, {"name": table, "columns": list(columns)}).scalar()
            if found != len(columns):
                continue  # a revision between makes it, with its indexes
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
    """Alembic, which is loaded where the schema may be another's."""
    import alembic.config

    return alembic


def _config() -> "Config":
    config: Config = _alembic().config.Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def _scripts(config: "Config", current: str | None) -> "Iterator[Script]":
    """The migrations that lead from a revision to this version's, oldest first: none from one that is newer, and none
    in an empty database, where nothing is large."""
    folder = _alembic().script.ScriptDirectory.from_config(config)
    if current is not None and current in {script.revision for script in folder.walk_revisions()}:
        yield from reversed(list(folder.iterate_revisions(schema.REVISION, current)))
