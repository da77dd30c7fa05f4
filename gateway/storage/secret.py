"""The key of keyed hashes (guarantee §8), and how a user stands in bills and reports (guarantee §13.6)."""

import hmac
import secrets as random
from typing import Literal

import sqlalchemy as sa

from gateway.storage.database import schema
from gateway.storage.database.engine import insert_if_new

SECRET = "keyed-hash"  # noqa: S105 - the name of the secret, not the secret
USER_CHARS = 256
"""Of a user's name, which its client chooses."""
Users = Literal["plain", "hashed", "off"]


def read_secret(connection: sa.Connection) -> bytes | None:
    """The key of keyed hashes; None in a storage that was not asked for it yet."""
    value = connection.execute(_SECRET).scalar()
    return None if value is None else bytes(value)


def make_secret(connection: sa.Connection) -> bytes:
    """Whoever makes it first, all use it."""
    new = insert_if_new(connection, schema.secrets).values(name=SECRET, value=random.token_bytes(32))
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


_SECRET = sa.select(schema.secrets.c.value).where(schema.secrets.c.name == SECRET)
