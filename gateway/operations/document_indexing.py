"""Builds the indexes of large documents in the background (guarantee §14.7): one at a time in this process, tenants in
turn, and each by one process alone. An index is stored in parts, so that any process can continue it."""

import asyncio

from gateway import retrieval
from gateway.core import errors, ids
from gateway.core.instrumentation import logs
from gateway.core.types.places import IndexClaim
from gateway.storage import LargeDocuments

log = logs.get_logger("gateway.operations.document_indexing")
INDEXING_POLL_SECONDS = 30.0
"""Between two searches for documents that a dead process, or another version, has left."""


class DocumentIndexing:
    """Indexes documents until it is cancelled."""

    def __init__(self, texts: LargeDocuments, arrived: asyncio.Event, seconds: float = INDEXING_POLL_SECONDS) -> None:
        """`arrived` is set when there is something to index."""
        self._texts = texts
        self._arrived = arrived
        self._seconds = seconds
        self._holder = ids.new_id("index_")
        self._served: set[str] = set()
        """Tenants that were served in this round."""

    async def run(self) -> None:
        """Indexes documents for ever; after any failure it tries again next time."""
        while True:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._arrived.wait()
            except TimeoutError:
                pass
            self._arrived.clear()
            try:
                while await self._index_one():
                    pass
            except errors.StorageUnavailable as error:
                log.warning("indexing_postponed", reason=error.message)
            except Exception as fault:  # noqa: BLE001 - one document must not end the indexing of all others
                log.fault("indexing_failed", fault)

    async def _index_one(self) -> bool:
        claim = await self._texts.claim(self._holder, self._served)
        if claim is None:
            self._served.clear()
            return False
        if claim.tenant in self._served:  # no other tenant has anything to index
            self._served.clear()
        self._served.add(claim.tenant)
        try:
            await self._indexed(claim)
        except asyncio.CancelledError:
            await asyncio.shield(self._texts.give_up(claim, failed=False))
            raise
        return True

    async def _indexed(self, claim: IndexClaim) -> None:
        names = {"digest": claim.digest[:16], "regions": claim.regions}
        with retrieval.SegmentMaker() as maker:
            current: IndexClaim | None = claim
            while current is not None and current.indexed < current.regions:
                regions = await self._texts.unindexed(current, retrieval.SEGMENT_REGIONS)
                if not regions:
                    return  # it was deleted
                try:
                    data = await asyncio.to_thread(maker.make, [each.text for each in regions])
                except retrieval.IndexFailed:
                    log.warning("document_not_indexed", **names, indexed=current.indexed)
                    await self._texts.give_up(current, failed=True)
                    return
                segment = current.indexed // retrieval.SEGMENT_REGIONS
                data.append((retrieval.PLACES, await asyncio.to_thread(retrieval.packed_places, regions)))
                current = await self._texts.add_segment(current, segment, len(regions), data)
        if current is not None:
            log.info("document_indexed", **names)
