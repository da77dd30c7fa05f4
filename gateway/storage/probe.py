"""What `gateway check` asks of the storage and of the cache."""

import os
import re

import sqlalchemy as sa

from gateway.errors import StorageUnavailable
from gateway.settings import StorageSettings
from gateway.storage import schema
from gateway.storage.engine import Transactions, open_transactions, parse_url

SECRET = re.compile(r"(?<=[?&])(password|passfile|sslpassword)=[^&]*")


def shown(url: str) -> str:
    """The address of a database without its password, wherever in it that stands.

    Raises:
        ValueError: it is none.
    """
    return SECRET.sub(r"\1=***", parse_url(url).render_as_string(hide_password=True))


def revision_of(connection: sa.Connection) -> str | None:
    """The schema's revision, None in an empty database."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return version


async def require_current(transactions: Transactions) -> None:
    """
    Raises:
        StorageUnavailable: it cannot be reached, or is not on this version's schema.
    """
    revision = await transactions.run(revision_of)
    if revision != schema.REVISION:
        found = f"schema {revision}" if revision else "no schema"
        raise StorageUnavailable(f"The storage has {found}; {schema.REVISION} is needed: run `gateway migrate`.")


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
