"""Contents of files by the key that they are sealed under, as their names tell (guarantee §12.11)."""

import hashlib
from collections import Counter
from typing import NamedTuple

import sqlalchemy as sa

from gateway.core.types.files import SEALED, ContentPlace
from gateway.storage.database.file_tables import file_contents
from gateway.storage.database.transactions import DatabaseTransactions

TABLE = file_contents.c
LISTED = 100


class PlacedContent(NamedTuple):
    """A content of a tenant, and where it is."""

    tenant: str
    digest: bytes
    place: ContentPlace


async def contents_elsewhere(
    transactions: DatabaseTransactions, current: str | None, after: PlacedContent | None
) -> list[PlacedContent]:
    """The next contents that are not under the key `current`, in the order of tenants and digests.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    query = sa.select(TABLE.tenant, TABLE.digest, TABLE.place, TABLE.object)
    query = query.where(_is_other(current)).order_by(TABLE.tenant, TABLE.digest).limit(LISTED)
    if after is not None:
        query = query.where(sa.tuple_(TABLE.tenant, TABLE.digest) > (after.tenant, after.digest))
    found = await transactions.run(lambda connection: connection.execute(query).all())
    return [PlacedContent(row.tenant, bytes(row.digest), ContentPlace(row.place, row.object)) for row in found]


def kinds_elsewhere(connection: sa.Connection, current: str | None) -> Counter[str]:
    """How many contents are not under the key `current`, by what they are under: `plain`, or the id of a key."""
    objects = connection.execute(sa.select(TABLE.object).where(_is_other(current))).scalars()
    return Counter(ContentPlace("", each).sealed_under or "plain" for each in objects)


async def move_content(transactions: DatabaseTransactions, content: PlacedContent, object_name: str) -> bool:
    """Says that a content is elsewhere in its store from now on. False: it was deleted or moved meanwhile.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    own = (TABLE.tenant == content.tenant, TABLE.digest == content.digest, TABLE.object == content.place.object)

    def work(connection: sa.Connection) -> bool:
        alone_with_files(connection, content.tenant)
        return connection.execute(file_contents.update().where(*own).values(object=object_name)).rowcount == 1

    return await transactions.run(work, write=True)


def alone_with_files(connection: sa.Connection, tenant: str) -> None:
    """Waits until nobody else changes this tenant's files, until the transaction ends. SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        digest = hashlib.blake2b(f"files\0{tenant}".encode(), digest_size=8).digest()
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(int.from_bytes(digest, "big", signed=True))))


def _is_other(current: str | None) -> sa.ColumnElement[bool]:
    return TABLE.object.not_like(f"%.{current or ''}{SEALED}")
