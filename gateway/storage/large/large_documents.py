"""Large documents, as questions read them and as their indexes are made (`core.ports.documents.LargeTexts`)."""

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

import sqlalchemy as sa

from gateway.core.ports import Clock
from gateway.core.types.large import IndexClaim, LargeIndex
from gateway.core.types.regions import RegionPlace, TextRegion, place_and_line
from gateway.storage.database import schema
from gateway.storage.database.transactions import DatabaseTransactions, RowInsert
from gateway.storage.large.write_text import BUILDING, FAILED, READY, own

DOCUMENTS, REGIONS, POSTINGS = schema.large_documents, schema.document_regions, schema.document_postings
INSERT_POSTINGS = RowInsert(POSTINGS)
HELD = timedelta(minutes=2)
"""How long a process that has died keeps others from a document: longer than a segment takes."""
TRIES = 3
"""Processes that may fail at a document before it is left as it is."""


class LargeDocuments:
    """Each method is one short transaction.

    Raises:
        StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout.
    """

    def __init__(self, transactions: DatabaseTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def indexes(self, tenant: str, digests: Sequence[str], buckets: Sequence[int] = ()) -> list[LargeIndex]:
        """What is known of these documents, as far as they are there, with these buckets of their indexes."""
        return await self._transactions.run(lambda connection: read_indexes(connection, tenant, digests, buckets))

    async def regions(self, tenant: str, wanted: Mapping[str, Sequence[int]]) -> dict[str, list[TextRegion]]:
        """These regions of documents, in order, as far as they are there."""

        def work(connection: sa.Connection) -> dict[str, list[TextRegion]]:
            return {digest: read_regions(connection, tenant, digest, numbers) for digest, numbers in wanted.items()}

        return await self._transactions.run(work)

    async def places(self, tenant: str, digests: Sequence[str]) -> dict[str, list[RegionPlace]]:
        """Where each region of these documents stands, in order."""

        def work(connection: sa.Connection) -> dict[str, list[RegionPlace]]:
            return {digest: read_places(connection, tenant, digest) for digest in digests}

        return await self._transactions.run(work)

    async def claim(self, holder: str, served: Collection[str] = ()) -> IndexClaim | None:
        """The oldest document whose index is not finished and that no other process is at; None if there is none.

        Args:
            served: tenants whose turn comes after that of all others.
        """
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
        """The next regions to be indexed."""
        numbers = range(claim.indexed, min(claim.regions, claim.indexed + most))
        return await self._transactions.run(
            lambda connection: read_regions(connection, claim.tenant, claim.digest, numbers)
        )

    async def add_segment(
        self, claim: IndexClaim, segment: int, many: int, data: Iterable[tuple[int, bytes]]
    ) -> IndexClaim | None:
        """Stores the index of the next `many` regions. None if the document is gone, or another process's by now."""
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
        """Lets the document go. `failed`: its index could not be made; after a few tries nobody tries again."""
        tries = DOCUMENTS.c.tries + (1 if failed else 0)
        status = sa.case((tries >= TRIES, FAILED), else_=DOCUMENTS.c.status)
        values = {"tries": tries, "status": status, "holder": None, "held_until": None}
        mine = (*own(DOCUMENTS, claim.tenant, claim.digest), DOCUMENTS.c.holder == claim.holder)
        update = DOCUMENTS.update().where(*mine).values(**values)
        await self._transactions.run(lambda connection: connection.execute(update), write=True)


def read_indexes(
    connection: sa.Connection, tenant: str, digests: Sequence[str], buckets: Sequence[int] = ()
) -> list[LargeIndex]:
    """`LargeDocuments.indexes`."""
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
    """These regions of one document, in order, as far as they are there."""
    if not numbers:
        return []
    found = REGIONS.c.number.in_(numbers)
    if isinstance(numbers, range):
        found = REGIONS.c.number.between(numbers.start, numbers.stop - 1)
    query = sa.select(REGIONS).where(*own(REGIONS, tenant, digest), found).order_by(REGIONS.c.number)
    return [
        TextRegion(row.number, row.start, row.text, *place_and_line(row.place)) for row in connection.execute(query)
    ]


def read_places(connection: sa.Connection, tenant: str, digest: str) -> list[RegionPlace]:
    """Where each region of a document stands, in order; their texts are not read."""
    query = sa.select(REGIONS.c.number, REGIONS.c.place).where(*own(REGIONS, tenant, digest))
    rows = connection.execute(query.order_by(REGIONS.c.number))
    return [RegionPlace(row.number, *place_and_line(row.place)) for row in rows]


def read_part(connection: sa.Connection, tenant: str, digest: str, offset: int, limit: int) -> str:
    """Characters of a document's text, from `offset` on."""
    begins = sa.select(sa.func.max(REGIONS.c.number)).where(*own(REGIONS, tenant, digest), REGIONS.c.start <= offset)
    first = connection.execute(begins).scalar()
    if first is None or limit <= 0:
        return ""
    until = (*own(REGIONS, tenant, digest), REGIONS.c.number >= first, REGIONS.c.start < offset + limit)
    rows = connection.execute(sa.select(REGIONS).where(*until).order_by(REGIONS.c.number)).all()
    at = offset - rows[0].start
    return "".join(row.text for row in rows)[at : at + limit]
