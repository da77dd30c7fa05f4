"""Texts of large documents that come before what names them: stored in slices, so that nobody waits for a whole one.

A row `arriving` holds the regions until the transaction that names the document makes it one; nobody reads or indexes
it before. Each slice goes on where the one before ended, whoever wrote that, so the regions that are there are always
a text's first ones. What nobody came for is deleted.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from gateway.core.ports import Clock
from gateway.core.types.regions import region_count, regions_of
from gateway.storage.database import schema
from gateway.storage.database.transactions import DatabaseTransactions
from gateway.storage.large.write_text import ARRIVING, INSERT_REGIONS, INSERTED, put_row, region_row, regions_there

DOCUMENTS = schema.large_documents
SLICE = INSERTED
"""Regions of one transaction: some hundredths of a second."""
AT_ONCE = 2 * SLICE
"""Regions of a text that its turn's own transaction may write: that costs nobody much, and one transaction less."""
KEPT = timedelta(hours=1)
"""How long a text waits for what names it: longer than that takes."""


class ArrivingTexts:
    """Each method is one or more short transactions.

    Raises:
        StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout.
    """

    def __init__(self, transactions: DatabaseTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def store(self, tenant: str, texts: Mapping[str, str]) -> None:
        """Stores texts by their digests, as far as the tenant has them not already. What is not stored when it returns,
        as it was deleted meanwhile, is for the transaction that names the document to write (`write_text`)."""
        for digest, text in texts.items():
            many = await asyncio.to_thread(region_count, text)
            if many > AT_ONCE:
                await self._store_one(tenant, digest, text, many)

    async def _store_one(self, tenant: str, digest: str, text: str, many: int) -> None:
        key, now = {"tenant": tenant, "digest": digest}, self._clock.now()

        def begin(connection: sa.Connection) -> int:
            put_row(connection, key, len(text), many, ARRIVING, now)
            return regions_there(connection, tenant, digest)

        there = await self._transactions.run(begin, write=True)
        left = islice(regions_of(text), there, None)

        def rows() -> list[dict[str, Any]]:
            return [region_row(key, each) for each in islice(left, SLICE)]

        while slice_ := await asyncio.to_thread(rows):
            try:
                await self._transactions.run(partial(_insert, slice_), write=True)
            except IntegrityError:  # the row is gone: somebody has deleted it
                return

    async def expire(self) -> int:
        """Deletes texts that nobody has come for. Returns how many there were."""
        before = self._clock.now() - KEPT
        left = DOCUMENTS.delete().where(DOCUMENTS.c.status == ARRIVING, DOCUMENTS.c.created_at < before)
        deleted = await self._transactions.run(lambda connection: connection.execute(left).rowcount, write=True)
        if deleted:
            await self._transactions.wipe()
        return int(deleted)


def _insert(rows: list[dict[str, Any]], connection: sa.Connection) -> None:
    INSERT_REGIONS(connection, rows)
