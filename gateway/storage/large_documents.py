"""Large documents (guarantee §14.7): written with the turn that brings them, deleted with the last holder. Writers and
deleters lock the document's row first, so a text exists as long as an attachment names it.

Texts that arrive before the attachment that names them are stored in slices under a row `arriving`, which nobody reads
until a transaction names the document. Each slice continues where the previous one ended, whoever wrote that. Texts
that no transaction names are deleted.
"""

import asyncio
import base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from gateway.core import ports
from gateway.core.frozen_records import record
from gateway.core.types import places
from gateway.core.types.places import IndexClaim, LargeIndex, RegionPlace, TextRegion
from gateway.storage.database import schema
from gateway.storage.database.sqlite import insert_for
from gateway.storage.database.transactions import DatabaseTransactions, reads
from gateway.storage.encryption.columns import RowInsert
from gateway.storage.keyed_hashes import storable

DOCUMENTS = schema.large_documents
REGIONS = schema.document_regions
DOCUMENT_HOLDERS = schema.attachments
INSERT_REGIONS = RowInsert(REGIONS, "ON CONFLICT DO NOTHING")
INSERTED = 200
"""Regions that one statement inserts: a megabyte and a half."""
ARRIVING, BUILDING, READY, FAILED = "arriving", "building", "ready", "failed"


def write_text(connection: sa.Connection, tenant: str, digest: str, text: str, now: datetime) -> None:
    """Stores the regions of a text that the tenant lacks, and locks the document's row until the transaction ends. Most
    regions of a long text are stored already (`arriving`)."""
    key = {"tenant": tenant, "digest": digest}
    many = places.region_count(text)
    put_row(connection, key, len(text), many, BUILDING, now)
    there = regions_there(connection, tenant, digest)
    if there < many:
        left = islice(places.regions_of(text), there, None)
        while rows := [region_row(key, each) for each in islice(left, INSERTED)]:
            INSERT_REGIONS(connection, rows)


def put_row(connection: sa.Connection, key: dict[str, str], chars: int, many: int, status: str, now: datetime) -> None:
    """Inserts a document's row. An existing row is locked and keeps its status, unless that is `arriving`."""
    is_arriving = DOCUMENTS.c.status == ARRIVING
    fresh = {"indexed": 0, "status": status, "tries": 0, "holder": None, "held_until": None, "created_at": now}
    insert = insert_for(connection.dialect, DOCUMENTS).values(**key, chars=chars, regions=many, **fresh)
    changed = {
        "status": sa.case((is_arriving, insert.excluded.status), else_=DOCUMENTS.c.status),
        "created_at": sa.case((is_arriving, insert.excluded.created_at), else_=DOCUMENTS.c.created_at),
    }
    connection.execute(insert.on_conflict_do_update(index_elements=["tenant", "digest"], set_=changed))


def regions_there(connection: sa.Connection, tenant: str, digest: str) -> int:
    """Counts a document's stored regions. They are its first ones, as regions are written in order."""
    query = sa.select(sa.func.count(REGIONS.c.number)).where(*own(REGIONS, tenant, digest))
    return int(connection.execute(query).scalar_one())


def own(table: sa.Table, tenant: str, digest: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    """Returns the conditions that select one document's rows."""
    return table.c.tenant == tenant, table.c.digest == digest


def region_row(key: dict[str, str], region: TextRegion) -> dict[str, Any]:
    """Builds a region's row; `key` holds tenant and digest."""
    where, text = storable(region.where), storable(region.text)
    return {**key, "number": region.number, "start": region.start, "place": where, "text": text}


def held_by(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[str]:
    """Lists the large documents of the attachments that match `where` and are about to be deleted."""
    query = sa.select(DOCUMENT_HOLDERS.c.document).where(*where, DOCUMENT_HOLDERS.c.document.is_not(None)).distinct()
    return list(connection.execute(query.order_by(DOCUMENT_HOLDERS.c.document)).scalars())


def delete_unheld(connection: sa.Connection, tenant: str, digests: Collection[str]) -> None:
    """Deletes those large documents of a tenant that none of its conversations holds, with their indexes."""
    for digest in digests:
        locked = sa.select(DOCUMENTS.c.digest).where(*own(DOCUMENTS, tenant, digest)).with_for_update()
        if connection.execute(locked).first() is None:
            continue
        owners = schema.conversations
        holders = sa.select(DOCUMENT_HOLDERS.c.number).join(owners, owners.c.id == DOCUMENT_HOLDERS.c.conversation_id)
        holders = holders.where(DOCUMENT_HOLDERS.c.document == digest, owners.c.tenant == tenant).limit(1)
        if connection.execute(holders).first() is None:
            connection.execute(DOCUMENTS.delete().where(*own(DOCUMENTS, tenant, digest)))


def whole_text(connection: sa.Connection, tenant: str, digest: str) -> Iterator[str]:
    """Yields a document's text, one region at a time."""
    query = sa.select(REGIONS).where(*own(REGIONS, tenant, digest)).order_by(REGIONS.c.number)
    after, more = -1, True
    while more:
        rows = connection.execute(query.where(REGIONS.c.number > after).limit(INSERTED)).all()
        yield from (row.text for row in rows)
        more = len(rows) == INSERTED
        after = rows[-1].number if rows else after


SLICE = INSERTED
"""Regions of one transaction: some hundredths of a second."""
AT_ONCE = 2 * SLICE
"""Regions of a text that its turn's own transaction may write: that holds others up little, and saves a transaction."""
KEPT = timedelta(hours=1)
"""How long a text waits for the transaction that names it: longer than that takes."""


@record
class ArrivingTexts:
    """Stores large texts before their turn is committed; each method is one or more short transactions.
    `index_chars`: from how many characters an attachment is a large document; None: none is. `stored` is called after
    one is stored."""

    transactions: DatabaseTransactions
    clock: ports.Clock
    index_chars: int | None = None
    stored: Callable[[], None] | None = None

    async def store(self, tenant: str, texts: Mapping[str, str]) -> None:
        """Stores large texts by their digests, as far as the tenant lacks them. A text deleted meanwhile is left
        unfinished; the transaction that names the document writes the rest (`write_text`)."""
        for digest, text in texts.items():
            many = await asyncio.to_thread(places.region_count, text)
            if many > AT_ONCE:
                await self._store_one(tenant, digest, text, many)

    async def _store_one(self, tenant: str, digest: str, text: str, many: int) -> None:
        key, now = {"tenant": tenant, "digest": digest}, self.clock.now()

        def begin(connection: sa.Connection) -> int:
            put_row(connection, key, len(text), many, ARRIVING, now)
            return regions_there(connection, tenant, digest)

        there = await self.transactions.run(begin, write=True)
        left = islice(places.regions_of(text), there, None)

        def rows() -> list[dict[str, Any]]:
            return [region_row(key, each) for each in islice(left, SLICE)]

        while slice_ := await asyncio.to_thread(rows):
            try:
                await self.transactions.run(partial(_insert, slice_), write=True)
            except IntegrityError:  # the row is gone: somebody has deleted it
                return

    async def expire(self) -> int:
        """Deletes texts that no transaction has named within `KEPT`. Returns how many were deleted."""
        before = self.clock.now() - KEPT
        left = DOCUMENTS.delete().where(DOCUMENTS.c.status == ARRIVING, DOCUMENTS.c.created_at < before)
        deleted = await self.transactions.run(lambda connection: connection.execute(left).rowcount, write=True)
        if deleted:
            await self.transactions.wipe()
        return int(deleted)


def _insert(rows: list[dict[str, Any]], connection: sa.Connection) -> None:
    INSERT_REGIONS(connection, rows)


POSTINGS = schema.document_postings
INSERT_POSTINGS = RowInsert(POSTINGS)
HELD = timedelta(minutes=2)
"""How long a dead process keeps others from a document: longer than a segment takes."""
TRIES = 3
"""Attempts that may fail at a document before its index is given up."""


def read_indexes(
    connection: sa.Connection, tenant: str, digests: Sequence[str], buckets: Sequence[int] = ()
) -> list[LargeIndex]:
    """Reads the indexes of those documents that exist, with the given buckets."""
    data: dict[str, dict[tuple[int, int], bytes]] = {digest: {} for digest in digests}
    if buckets:
        columns = (POSTINGS.c.digest, POSTINGS.c.segment, POSTINGS.c.bucket, POSTINGS.c.data)
        where = (POSTINGS.c.tenant == tenant, POSTINGS.c.digest.in_(digests), POSTINGS.c.bucket.in_(buckets))
        for row in connection.execute(sa.select(*columns).where(*where)):
            data[row.digest][row.segment, row.bucket] = base64.b64decode(row.data)
    query = sa.select(DOCUMENTS).where(DOCUMENTS.c.tenant == tenant, DOCUMENTS.c.digest.in_(digests))
    known = {row.digest: row for row in connection.execute(query)}
    return [
        LargeIndex(digest, row.chars, row.regions, row.indexed, row.status, data[digest])
        for digest, row in ((digest, known.get(digest)) for digest in dict.fromkeys(digests))
        if row is not None
    ]


def read_regions(connection: sa.Connection, tenant: str, digest: str, numbers: Sequence[int]) -> list[TextRegion]:
    """Reads the given regions of one document, in order; missing ones are left out."""
    if not numbers:
        return []
    found = REGIONS.c.number.in_(numbers)
    if isinstance(numbers, range):
        found = REGIONS.c.number.between(numbers.start, numbers.stop - 1)
    query = sa.select(REGIONS).where(*own(REGIONS, tenant, digest), found).order_by(REGIONS.c.number)
    return [
        TextRegion(row.number, row.start, row.text, *places.place_and_line(row.place))
        for row in connection.execute(query)
    ]


def read_places(connection: sa.Connection, tenant: str, digest: str) -> list[RegionPlace]:
    """Reads the place of each region of a document, in order, without the texts."""
    query = sa.select(REGIONS.c.number, REGIONS.c.place).where(*own(REGIONS, tenant, digest))
    rows = connection.execute(query.order_by(REGIONS.c.number))
    return [RegionPlace(row.number, *places.place_and_line(row.place)) for row in rows]


def read_regions_of(
    connection: sa.Connection, tenant: str, wanted: Mapping[str, Sequence[int]]
) -> dict[str, list[TextRegion]]:
    """Reads the wanted regions of each document, in order; missing ones are left out."""
    return {digest: read_regions(connection, tenant, digest, numbers) for digest, numbers in wanted.items()}


def read_places_of(connection: sa.Connection, tenant: str, digests: Sequence[str]) -> dict[str, list[RegionPlace]]:
    """Reads the place of each region of these documents, in order."""
    return {digest: read_places(connection, tenant, digest) for digest in digests}


def read_part(connection: sa.Connection, tenant: str, digest: str, offset: int, limit: int) -> str:
    """Reads `limit` characters of a document's text, from `offset` on."""
    begins = sa.select(sa.func.max(REGIONS.c.number)).where(*own(REGIONS, tenant, digest), REGIONS.c.start <= offset)
    first = connection.execute(begins).scalar()
    if first is None or limit <= 0:
        return ""
    until = (*own(REGIONS, tenant, digest), REGIONS.c.number >= first, REGIONS.c.start < offset + limit)
    rows = connection.execute(sa.select(REGIONS).where(*until).order_by(REGIONS.c.number)).all()
    at = offset - rows[0].start
    return "".join(row.text for row in rows)[at : at + limit]


class LargeDocuments:
    """Reads large documents and builds their indexes; each method is one short transaction."""

    def __init__(self, transactions: DatabaseTransactions, clock: ports.Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    indexes = reads(read_indexes)
    regions = reads(read_regions_of)
    places = reads(read_places_of)

    async def claim(self, holder: str, served: Collection[str] = ()) -> IndexClaim | None:
        """Claims the oldest document whose index is unfinished and that no other process holds; None if there is none.
        `served`: tenants that come after all others."""
        now = self._clock.now()
        free = sa.or_(DOCUMENTS.c.held_until.is_(None), DOCUMENTS.c.held_until < now)
        due = (DOCUMENTS.c.status == BUILDING, free)
        order = (DOCUMENTS.c.tenant.in_(served), DOCUMENTS.c.created_at) if served else (DOCUMENTS.c.created_at,)
        query = sa.select(DOCUMENTS).where(*due).order_by(*order).limit(1)

        def work(connection: sa.Connection) -> IndexClaim | None:
            row = connection.execute(query.with_for_update(skip_locked=True)).first()
            if row is None:
                return None
            values = {"holder": holder, "held_until": now + HELD}
            connection.execute(DOCUMENTS.update().where(*own(DOCUMENTS, row.tenant, row.digest)).values(**values))
            return IndexClaim(row.tenant, row.digest, row.regions, row.indexed, holder)

        if not await self._transactions.run(lambda c: c.execute(query).first() is not None):
            return None
        return await self._transactions.run(work, write=True)

    async def unindexed(self, claim: IndexClaim, most: int) -> list[TextRegion]:
        """Returns the next regions to index, at most `most`."""
        numbers = range(claim.indexed, min(claim.regions, claim.indexed + most))
        return await self._transactions.run(
            lambda connection: read_regions(connection, claim.tenant, claim.digest, numbers)
        )

    async def add_segment(
        self, claim: IndexClaim, segment: int, many: int, data: Iterable[tuple[int, bytes]]
    ) -> IndexClaim | None:
        """Stores the index of the next `many` regions. None: the document is gone, or another process holds it."""
        now, indexed = self._clock.now(), claim.indexed + many
        key = {"tenant": claim.tenant, "digest": claim.digest}
        encoded = [
            {**key, "bucket": bucket, "segment": segment, "data": base64.b64encode(each).decode()}
            for bucket, each in data
        ]
        done = indexed >= claim.regions
        values = {
            "indexed": indexed,
            "status": READY if done else BUILDING,
            "held_until": None if done else now + HELD,
            "holder": None if done else claim.holder,
        }
        mine = (
            *own(DOCUMENTS, claim.tenant, claim.digest),
            DOCUMENTS.c.holder == claim.holder,
            DOCUMENTS.c.indexed == claim.indexed,
        )

        def work(connection: sa.Connection) -> bool:
            if connection.execute(DOCUMENTS.update().where(*mine).values(**values)).rowcount != 1:
                return False
            INSERT_POSTINGS(connection, encoded)
            return True

        if not await self._transactions.run(work, write=True):
            return None
        return IndexClaim(claim.tenant, claim.digest, claim.regions, indexed, claim.holder)

    async def give_up(self, claim: IndexClaim, *, failed: bool) -> None:
        """Releases a claimed document. `failed`: its index could not be built; after `TRIES` no process tries again."""
        tries = DOCUMENTS.c.tries + (1 if failed else 0)
        status = sa.case((tries >= TRIES, FAILED), else_=DOCUMENTS.c.status)
        values = {"tries": tries, "status": status, "holder": None, "held_until": None}
        mine = (*own(DOCUMENTS, claim.tenant, claim.digest), DOCUMENTS.c.holder == claim.holder)
        update = DOCUMENTS.update().where(*mine).values(**values)
        await self._transactions.run(lambda connection: connection.execute(update), write=True)
