"""Runs short transactions: SQLite on a thread of its own, PostgreSQL over asyncpg. The queries are the same functions.

A query is a plain function of a SQLAlchemy `Connection`. So one transaction costs one hop to SQLite's thread, not one
for each statement, and PostgreSQL runs the very same code under SQLAlchemy's greenlet bridge.
"""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from gateway.core.config.settings import StorageSettings
from gateway.storage.database.postgres import PostgresTransactions
from gateway.storage.database.sqlite import SqliteTransactions
from gateway.storage.database.transactions import DatabaseTransactions, Work
from gateway.storage.encryption.vault import open_vault

__all__ = ["DatabaseTransactions", "Work", "insert_for", "insert_if_new", "open_transactions", "parse_url"]

LIBPQ_ONLY = ("sslmode", "channel_binding", "gssencmode", "target_session_attrs", "connect_timeout", "options")


def open_transactions(settings: StorageSettings) -> DatabaseTransactions:
    """The database that `storage.url` names, with the keys of its content; nothing is connected yet.

    Raises:
        ValueError: the URL is none, or of a database that is not supported, or keys cannot be used. The message holds
            no password.
    """
    url = parse_url(settings.url)
    is_file = url.get_backend_name() == "sqlite"
    opened: Any = SqliteTransactions(url, settings.timeout) if is_file else PostgresTransactions(url, settings)
    opened.use_vault(open_vault(settings))
    found: DatabaseTransactions = opened
    return found


def parse_url(text: str) -> URL:
    """`storage.url` with its driver: `sqlite:///FILE`, `postgresql+asyncpg://…` (also `postgres://`)."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # ValueError: a port that is none, with the password beside it
        raise ValueError("storage.url is not a database URL") from None
    backend = url.drivername.partition("+")[0]
    if backend == "sqlite":
        return url.set(drivername="sqlite+pysqlite")
    if backend in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+asyncpg")
        mode = url.query.get("sslmode")  # libpq's name, which hosted databases hand out
        if mode is not None and "ssl" not in url.query:
            url = url.update_query_dict({"ssl": mode})
        return url.difference_update_query(LIBPQ_ONLY)
    raise ValueError(f"storage.url: {backend!r} is not supported; sqlite or postgresql+asyncpg are")


def sqlite_file(text: str) -> Path | None:
    """Returns the file that `storage.url` names, or None: it is no SQLite, or in memory."""
    url = parse_url(text)
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return Path(str(url.database)).absolute() if is_file else None


def insert_for(dialect: sa.Dialect, table: sa.Table) -> Any:
    """An insert that can say what happens on a conflict; only the dialect in use is loaded."""
    if dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert

        return insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert

    return postgresql_insert(table)


def insert_if_new(connection: sa.Connection, table: sa.Table) -> Any:
    """An insert that leaves a row alone that is there already."""
    return insert_for(connection.dialect, table).on_conflict_do_nothing()
