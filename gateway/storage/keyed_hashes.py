"""The secret of keyed hashes (guarantee §8), and how a user is named in bills and reports (guarantee §13.6)."""

import hmac
import secrets
from typing import Literal

import sqlalchemy as sa

from gateway.core.errors import StorageUnavailable
from gateway.core.ports import HistoryStore
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, insert_if_new

SECRET = "keyed-hash"  # noqa: S105 - the name of the secret, not the secret
USER_CHARS = 256
"""The most characters of a user's name, which the client chooses."""
Users = Literal["plain", "hashed", "off"]
_SECRET = sa.select(schema.secrets.c.value).where(schema.secrets.c.name == SECRET)


def read_secret(connection: sa.Connection) -> bytes | None:
    """Returns the secret of keyed hashes; None if the storage has none yet."""
    value = connection.execute(_SECRET).scalar()
    return None if value is None else bytes(value)


async def stored_secret(transactions: DatabaseTransactions) -> bytes:
    """Returns the secret of keyed hashes, and creates it in a new storage; replicas share it (guarantee §8)."""
    known = await transactions.run(read_secret)
    return known if known is not None else await transactions.run(make_secret, write=True)


def make_secret(connection: sa.Connection) -> bytes:
    """Creates the secret of keyed hashes, unless another process was first; returns the one that is stored."""
    new = insert_if_new(connection, schema.secrets).values(name=SECRET, value=secrets.token_bytes(32))
    connection.execute(new)
    return bytes(connection.execute(_SECRET).scalar_one())


async def secret_or_none(store: HistoryStore) -> bytes | None:
    """Returns the secret of keyed hashes; None while it cannot be read. A request that needs the storage fails later;
    the others must work without it (guarantee §3.6)."""
    try:
        return await store.secret()
    except StorageUnavailable:
        return None


def key_id(secret: bytes, token: str) -> str:
    """Returns `key_` and 40 hex digits, the id of a key that a client sends, which is none made at runtime."""
    return f"key_{hmac.digest(secret, token.encode(), 'sha256').hex()[:40]}"


def storable(text: str) -> str:
    """Replaces what columns refuse: lone surrogates in any database, NUL in PostgreSQL. JSON escapes both."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def user_name(text: str) -> str:
    """Returns a user's name as the ledger stores it, cut to `USER_CHARS`."""
    return storable(text[:USER_CHARS])


def user_digest(secret: bytes, name: str) -> str:
    """Returns `user_` and 40 hex digits, which stand for a user where the name must not appear."""
    return "user_" + hmac.digest(secret, b"user\0" + user_name(name).encode(), "sha256").hex()[:40]


def names_of_user(connection: sa.Connection, name: str) -> tuple[str, ...]:
    """Returns the values that may name a user in bills: the name that requests give, then its digest."""
    secret, plain = read_secret(connection), user_name(name)
    return (plain, user_digest(secret, name)) if secret is not None else (plain,)
