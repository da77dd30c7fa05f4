"""The secret of keyed hashes (guarantee §8), and how a user is named in bills and reports (guarantee §13.6)."""

import hmac
import secrets
from typing import Literal

import sqlalchemy as sa

from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, insert_if_new

SECRET = "keyed-hash"  # noqa: S105 - the name of the secret, not the secret
USER_CHARS = 256
"""Of a user's name, which its client chooses."""
Users = Literal["plain", "hashed", "off"]
_SECRET = sa.select(schema.secrets.c.value).where(schema.secrets.c.name == SECRET)


def read_secret(connection: sa.Connection) -> bytes | None:
    """The key of keyed hashes; None in a storage that was not asked for it yet."""
    value = connection.execute(_SECRET).scalar()
    return None if value is None else bytes(value)


async def stored_secret(transactions: DatabaseTransactions) -> bytes:
    """The key, made where a new storage has none yet; replicas share it (guarantee §8).
    Raises StorageUnavailable: the storage cannot be reached."""
    known = await transactions.run(read_secret)
    return known if known is not None else await transactions.run(make_secret, write=True)


def make_secret(connection: sa.Connection) -> bytes:
    """Whoever makes it first, all use it."""
    new = insert_if_new(connection, schema.secrets).values(name=SECRET, value=secrets.token_bytes(32))
    connection.execute(new)
    return bytes(connection.execute(_SECRET).scalar_one())


def storable(text: str) -> str:
    """A text as a column takes it: no database takes half a sign, and PostgreSQL no NUL. JSON escapes both."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def user_name(text: str) -> str:
    """A user's name as the ledger has it, and not endless."""
    return storable(text[:USER_CHARS])


def user_digest(secret: bytes, name: str) -> str:
    """`user_` and 40 hex digits: what stands for a user where the name is not to."""
    return "user_" + hmac.digest(secret, b"user\0" + user_name(name).encode(), "sha256").hex()[:40]


def names_of_user(connection: sa.Connection, name: str) -> tuple[str, ...]:
    """What may stand for a user in bills: the name that requests give, then its digest."""
    secret, plain = read_secret(connection), user_name(name)
    return (plain, user_digest(secret, name)) if secret is not None else (plain,)
