"""`gateway encrypt`: encrypts existing content with the current key."""

import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import TextIO

from gateway.core import errors, ports
from gateway.core.config.settings import Settings
from gateway.core.instrumentation import logs
from gateway.core.types.files import SEALED_ENDING
from gateway.documents.files import open_stores, sealed
from gateway.operations.actor import tell_trail
from gateway.operations.progress import CommandProgress
from gateway.operations.screen import CommandCall
from gateway.operations.storage_reader import run_changing
from gateway.storage import stored_files
from gateway.storage.database import DatabaseTransactions
from gateway.storage.encryption import KeyVault, open_vault, rewrite
from gateway.upstream import ConnectionPool, new_client

SEALING_STREAMS = 4
FILE_CONTENTS = "contents of files"
log = logs.get_logger("gateway.operations.encrypting")


def encrypt(call: CommandCall) -> int:
    """Encrypts all content, and reports for each table how many rows were not under the current key. Returns 1 if the
    storage cannot be used, or contents of files could not be read; another run continues from there.
    Raises ValueError: no key is set, or the package for it is not installed."""
    if call.settings.storage.encryption_key is None:
        raise ValueError("storage.encryption_key is not set: there is no key to encrypt under")

    async def work(transactions: DatabaseTransactions) -> int:
        with CommandProgress(call.err, "encrypting", "rows and contents") as told:
            return 1 if await _encrypt(call, transactions, told) else 0

    return run_changing(call, work)


async def _encrypt(call: CommandCall, transactions: DatabaseTransactions, progress: CommandProgress) -> int:
    """Encrypts rows and files; returns how many contents of files could not be read."""
    await rewrite.note_key(transactions)
    total, out = 0, call.out
    async for found in rewrite.seal_all(transactions, progress):
        total += found.rows.total()
        told = rewrite.in_words(found.rows)
        progress.wipe()
        out.write(f"{found.table}: {f'{told}, sealed now' if told else 'nothing to do'}\n")
        out.flush()
    files, unread = await _seal_files(call.settings, transactions, out, progress)
    total += files
    gone = await rewrite.forget_before(transactions)
    progress.wipe()
    if gone:
        out.write(f"nothing is under these keys any more: {', '.join(sorted(gone))}\n")
    if total or gone:
        await tell_trail(transactions, "storage.encrypted", None, rows=total, keys_gone=sorted(gone))
    await transactions.wipe()
    await transactions.wipe_owed()
    return unread


async def _seal_files(
    settings: Settings, transactions: DatabaseTransactions, out: TextIO, progress: CommandProgress
) -> tuple[int, int]:
    """Encrypts contents of files; returns how many are done, and how many were unreadable: their keys stay recorded."""
    done, left = Counter[str](), Counter[str]()
    vault = open_vault(settings.storage)
    if vault is None:
        return 0, 0
    async with new_client(ConnectionPool(SEALING_STREAMS)) as client:
        stores = open_stores(settings, transactions, client)
        async for content, problem in seal_contents(transactions, stores, vault):
            if problem is None:
                done[content.place.sealed_under or "plain"] += 1
            else:
                left[problem] += 1
            progress()
    progress.wipe()
    out.write(f"{FILE_CONTENTS}: {f'{rewrite.in_words(done)}, sealed now' if done else 'nothing to do'}\n")
    for problem, count in left.items():
        out.write(f"{FILE_CONTENTS}: {count} left as they are: {problem}\n")
    return done.total(), left.total()


# Contents of files, each encrypted with the current key as a stream. The new content is complete under its own name
# before the row names it, and the old content is deleted after that. A process that is killed in between leaves a
# content without a file; the next run continues where it stopped.


async def seal_contents(
    transactions: DatabaseTransactions, stores: Mapping[str, ports.ContentStore], vault: KeyVault
) -> AsyncIterator[tuple[stored_files.PlacedContent, str | None]]:
    """Encrypts the contents that are not under the current key. Yields each as it was, with the reason why it could
    not be read; None: it is encrypted now.
    Raises StorageUnavailable: the database cannot be reached."""
    last: stored_files.PlacedContent | None = None
    while found := await stored_files.contents_elsewhere(transactions, vault.current, last):
        for last in found:
            try:
                await _seal(transactions, stores, vault, last)
                yield last, None
            except errors.StorageUnavailable as error:
                yield last, error.message


async def _seal(
    transactions: DatabaseTransactions,
    stores: Mapping[str, ports.ContentStore],
    vault: KeyVault,
    content: stored_files.PlacedContent,
) -> None:
    store = stores.get(content.place.store)
    if store is None:
        raise errors.StorageUnavailable(
            f"A file's content is in a store that is not configured: {content.place.store}."
        )
    old, new = content.place.object, sealed.object_name(content.tenant, vault)
    async with aclosing(_checked(store, old, content.digest, vault)) as pieces:
        await store.put(new, sealed.sealed(pieces, new, vault))
    # If it is unknown whether the row names the new content, it stays: the upkeep deletes contents without a file.
    moved = await stored_files.move_content(transactions, content, new)
    try:
        await store.delete(old if moved else new)
    except errors.StorageUnavailable:
        log.warning("file_content_left", store=content.place.store)


async def _checked(store: ports.ContentStore, name: str, digest: bytes, vault: KeyVault) -> AsyncGenerator[bytes, None]:
    """Yields a content. Raises ContentUnreadable at its end: it is not what was uploaded, and must not be stored."""
    hashed, pieces = hashlib.sha256(), store.open(name)
    async for piece in sealed.opened(pieces, name, vault) if name.endswith(SEALED_ENDING) else pieces:
        hashed.update(piece)
        yield piece
    if hashed.digest() != digest:
        raise errors.ContentUnreadable("A file's content is not what was uploaded.")
