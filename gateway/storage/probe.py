"""What is asked of the storage and of the cache before they are used."""

import os
import re
from dataclasses import dataclass

import sqlalchemy as sa

from gateway.errors import StorageUnavailable
from gateway.settings import StorageSettings
from gateway.storage.engine import Transactions, open_transactions, parse_url
from gateway.storage.schema import REVISION, schema_revisions

SECRET = re.compile(r"(?<=[?&])(password|passfile|sslpassword)=[^&]*")


def shown(url: str) -> str:
    """The address of a database without its password, wherever in it that stands.

    Raises:
        ValueError: it is none.
    """
    return SECRET.sub(r"\1=***", parse_url(url).render_as_string(hide_password=True))


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What the database says of its schema: the revision that it is on (None: it is empty), and the oldest revision
    of the code that may run on it (ADR 10; None: it does not say)."""

    revision: str | None
    oldest: str | None = None

    @property
    def serves(self) -> bool:
        """Whether this version of the code may run on it: it is what the code needs, or newer and says so."""
        if self.revision is None or self.revision == REVISION:
            return self.revision == REVISION
        return self.oldest is not None and self.oldest <= REVISION < self.revision

    @property
    def older(self) -> bool:
        """Whether a migration brings it to what this version needs."""
        return self.revision is None or self.revision < REVISION

    def __str__(self) -> str:
        if self.revision is None:
            return "empty"
        newer = self.serves and self.revision != REVISION
        return f"{self.revision} (newer than {REVISION}, which may run on it)" if newer else self.revision


def schema_state(connection: sa.Connection) -> SchemaState:
    """The state of the schema."""
    revision = revision_of(connection)
    if revision is None or revision <= REVISION:
        return SchemaState(revision)
    table = schema_revisions
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


async def require_current(transactions: Transactions) -> None:
    """
    Raises:
        StorageUnavailable: it cannot be reached, or this version may not run on its schema.
    """
    state = await transactions.run(schema_state)
    if not state.serves:
        found = f"schema {state}" if state.revision else "no schema"
        then = ": run `gateway migrate`" if state.older else ", or one that this version may run on"
        raise StorageUnavailable(f"The storage has {found}; {REVISION} is needed{then}.")


async def open_current(settings: StorageSettings) -> Transactions:
    """The database that `storage.url` names, for commands that change it; none is made.

    Raises:
        ValueError: the URL is none, or of a database that is not supported.
        StorageUnavailable: there is none, it cannot be reached, or is not on this version's schema.
    """
    url = parse_url(settings.url)
    if url.get_backend_name() == "sqlite" and not os.path.isfile(url.database or ""):  # noqa: ASYNC240 - a command's
        raise StorageUnavailable(f"There is no database file at {url.database}.")
    transactions = open_transactions(settings)
    try:
        await require_current(transactions)
    except StorageUnavailable:
        await transactions.close()
        raise
    return transactions


async def reach_cache(url: str, timeout_seconds: float) -> str | None:
    """None if the cache answers, else why not."""
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    client = Redis.from_url(url, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds)
    try:
        await client.ping()
    except (RedisError, OSError, TimeoutError, ValueError) as error:
        return f"cannot be reached ({type(error).__name__})"
    finally:
        await client.aclose()
    return None
