"""Contents of files that are put under the current key, each in a stream (`gateway encrypt`, guarantee §12.11).

The new content stands whole under a name of its own before the row names it, and the old one goes after that: whoever
is killed in between leaves a content that no file has, and goes on where it was.
"""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing

from gateway.core.errors import ContentUnreadable, StorageUnavailable
from gateway.core.instrumentation.logs import get_logger
from gateway.core.ports import ContentStore
from gateway.core.types.files import SEALED
from gateway.documents.files.sealed import object_name, opened, sealed
from gateway.storage.database.transactions import DatabaseTransactions
from gateway.storage.encryption.columns import KeyVault
from gateway.storage.stored_files import PlacedContent, contents_elsewhere, move_content

log = get_logger("gateway.documents.files.resealing")


async def seal_contents(
    transactions: DatabaseTransactions, stores: Mapping[str, ContentStore], vault: KeyVault
) -> AsyncIterator[tuple[PlacedContent, str | None]]:
    """Puts the contents that are not under the current key under it. Says of each what it was, and why it could not be
    read; None: it is sealed now.
    Raises StorageUnavailable: the database cannot be reached."""
    last: PlacedContent | None = None
    while found := await contents_elsewhere(transactions, vault.current, last):
        for last in found:
            try:
                await _seal(transactions, stores, vault, last)
                yield last, None
            except StorageUnavailable as error:
                yield last, error.message


async def _seal(
    transactions: DatabaseTransactions, stores: Mapping[str, ContentStore], vault: KeyVault, content: PlacedContent
) -> None:
    store = stores.get(content.place.store)
    if store is None:
        raise StorageUnavailable(f"A file's content is in a store that is not configured: {content.place.store}.")
    old, new = content.place.object, object_name(content.tenant, vault)
    async with aclosing(_checked(store, old, content.digest, vault)) as pieces:
        await store.put(new, sealed(pieces, new, vault))
    # Where nobody can say whether the row names it, it stays: the upkeep deletes what no file has.
    moved = await move_content(transactions, content, new)
    try:
        await store.delete(old if moved else new)
    except StorageUnavailable:
        log.warning("file_content_left", store=content.place.store)


async def _checked(store: ContentStore, name: str, digest: bytes, vault: KeyVault) -> AsyncGenerator[bytes, None]:
    """A content; one that is not what was uploaded never takes its place."""
    hashed, pieces = hashlib.sha256(), store.open(name)
    async for piece in opened(pieces, name, vault) if name.endswith(SEALED) else pieces:
        hashed.update(piece)
        yield piece
    if hashed.digest() != digest:
        raise ContentUnreadable("A file's content is not what was uploaded.")
