"""Writes the text of a large document where the turn is written that brings it, and deletes it with its last holder.

Who writes and who deletes lock the document's row first: so a text is there as long as an attachment names it.
"""

from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import sqlalchemy as sa

from gateway.core.types.regions import TextRegion, region_count, regions_of
from gateway.storage.database import schema
from gateway.storage.database.engine import insert_for
from gateway.storage.database.transactions import RowInsert

DOCUMENTS, REGIONS, HOLDERS = schema.large_documents, schema.document_regions, schema.attachments
INSERT_REGIONS = RowInsert(REGIONS, "ON CONFLICT DO NOTHING")
INSERTED = 200
"""Regions that one statement inserts: a megabyte and a half."""
ARRIVING, BUILDING, READY, FAILED = "arriving", "building", "ready", "failed"


def write_text(connection: sa.Connection, tenant: str, digest: str, text: str, now: datetime) -> None:
    """Stores what the tenant has not yet of a text, and locks its row until the transaction ends. Of a text of many
    regions most is there already (`arriving`)."""
    key = {"tenant": tenant, "digest": digest}
    many = region_count(text)
    put_row(connection, key, len(text), many, BUILDING, now)
    there = regions_there(connection, tenant, digest)
    if there < many:
        left = islice(regions_of(text), there, None)
        while rows := [region_row(key, each) for each in islice(left, INSERTED)]:
            INSERT_REGIONS(connection, rows)


def put_row(connection: sa.Connection, key: dict[str, str], chars: int, many: int, status: str, now: datetime) -> None:
    """A document's row. One that is there is locked, and keeps its status, but for one that is `arriving` only."""
    is_arriving = DOCUMENTS.c.status == ARRIVING
    fresh = {"indexed": 0, "status": status, "tries": 0, "holder": None, "held_until": None, "created_at": now}
    insert = insert_for(connection.dialect, DOCUMENTS).values(**key, chars=chars, regions=many, **fresh)
    changed = {
        "status": sa.case((is_arriving, insert.excluded.status), else_=DOCUMENTS.c.status),
        "created_at": sa.case((is_arriving, insert.excluded.created_at), else_=DOCUMENTS.c.created_at),
    }
    connection.execute(insert.on_conflict_do_update(index_elements=["tenant", "digest"], set_=changed))


def regions_there(connection: sa.Connection, tenant: str, digest: str) -> int:
    """How many regions of a document are stored: its first ones, as they are written in their order."""
    query = sa.select(sa.func.count(REGIONS.c.number)).where(*own(REGIONS, tenant, digest))
    return int(connection.execute(query).scalar_one())


def own(table: sa.Table, tenant: str, digest: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """The rows of one document."""
    return table.c.tenant == tenant, table.c.digest == digest


def region_row(key: dict[str, str], region: TextRegion) -> dict[str, Any]:
    """A region's row; `key` are tenant and digest."""
    return {**key, "number": region.number, "start": region.start, "place": region.where, "text": region.text}


def held_by(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[str]:
    """The large documents that attachments hold which are about to be deleted."""
    query = sa.select(HOLDERS.c.document).where(*where, HOLDERS.c.document.is_not(None)).distinct()
    return list(connection.execute(query.order_by(HOLDERS.c.document)).scalars())


def delete_unheld(connection: sa.Connection, tenant: str, digests: Collection[str]) -> None:
    """Deletes those of a tenant's large documents that no conversation of it holds any more, with their indexes."""
    for digest in digests:
        locked = sa.select(DOCUMENTS.c.digest).where(*own(DOCUMENTS, tenant, digest)).with_for_update()
        if connection.execute(locked).first() is None:
            continue
        owners = schema.conversations
        holders = sa.select(HOLDERS.c.number).join(owners, owners.c.id == HOLDERS.c.conversation_id)
        holders = holders.where(HOLDERS.c.document == digest, owners.c.tenant == tenant).limit(1)
        if connection.execute(holders).first() is None:
            connection.execute(DOCUMENTS.delete().where(*own(DOCUMENTS, tenant, digest)))


def whole_text(connection: sa.Connection, tenant: str, digest: str) -> Iterator[str]:
    """The text in pieces."""
    query = sa.select(REGIONS).where(*own(REGIONS, tenant, digest)).order_by(REGIONS.c.number)
    after, more = -1, True
    while more:
        rows = connection.execute(query.where(REGIONS.c.number > after).limit(INSERTED)).all()
        yield from (row.text for row in rows)
        more = len(rows) == INSERTED
        after = rows[-1].number if rows else after
