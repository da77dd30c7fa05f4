"""`gateway encrypt`: puts what is stored already under the current key; and what `gateway check` says of keys."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import TextIO

from gateway.core.config.settings import Settings
from gateway.core.errors import StorageUnavailable
from gateway.documents.files.factory import open_stores
from gateway.documents.files.resealing import seal_contents
from gateway.operations.actor import tell_trail
from gateway.operations.progress import CommandProgress
from gateway.storage.database.migrate import open_current, shown
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.encryption.columns import open_vault
from gateway.storage.encryption.rewrite import find_others, forget_before, note_key, require_keys, seal_all
from gateway.upstream.http_client import ConnectionPool, new_client

STREAMS = 4
FILES = "contents of files"


def encrypt(settings: Settings, out: TextIO, err: TextIO) -> int:
    """Seals all, and says of each table how many rows were not under the current key. Returns 1 if the storage cannot
    be used; run again it goes on from there.
    Raises ValueError: no key is set, or the package for it is not installed."""
    if settings.storage.encryption_key is None:
        raise ValueError("storage.encryption_key is not set: there is no key to encrypt under")
    try:
        with CommandProgress(err, "encrypting", "rows and contents") as told:
            return 1 if asyncio.run(_encrypt(settings, out, told)) else 0
    except StorageUnavailable as error:
        err.write(f"{shown(settings.storage.url)}: {error.message}\n")
        return 1


async def _encrypt(settings: Settings, out: TextIO, progress: CommandProgress) -> int:
    """Returns how many contents of files could not be read."""
    transactions = await open_current(settings.storage)
    try:
        await note_key(transactions)
        sealed = 0
        async for found in seal_all(transactions, progress):
            sealed += found.rows.total()
            told = _told(found.rows)
            progress.wipe()
            out.write(f"{found.table}: {f'{told}, sealed now' if told else 'nothing to do'}\n")
            out.flush()
        files, unread = await _seal_files(settings, transactions, out, progress)
        sealed += files
        gone = await forget_before(transactions)
        progress.wipe()
        if gone:
            out.write(f"nothing is under these keys any more: {', '.join(sorted(gone))}\n")
        if sealed or gone:
            await tell_trail(transactions, "storage.encrypted", None, rows=sealed, keys_gone=sorted(gone))
        await transactions.wipe()
        await transactions.wipe_owed()
        return unread
    finally:
        await transactions.close()


async def _seal_files(
    settings: Settings, transactions: DatabaseTransactions, out: TextIO, progress: CommandProgress
) -> tuple[int, int]:
    """Returns how many contents of files are sealed now, and how many could not be read: they keep their keys noted."""
    done, left = Counter[str](), Counter[str]()
    vault = open_vault(settings.storage)
    if vault is None:
        return 0, 0
    async with new_client(ConnectionPool(STREAMS)) as client:
        stores = open_stores(settings, transactions, client)
        async for content, problem in seal_contents(transactions, stores, vault):
            if problem is None:
                done[content.place.sealed_under or "plain"] += 1
            else:
                left[problem] += 1
            progress()
    progress.wipe()
    out.write(f"{FILES}: {f'{_told(done)}, sealed now' if done else 'nothing to do'}\n")
    for problem, count in left.items():
        out.write(f"{FILES}: {count} left as they are: {problem}\n")
    return done.total(), left.total()


async def check_content(
    settings: Settings, transactions: DatabaseTransactions
) -> AsyncIterator[tuple[bool, str, bool]]:
    """What `check` says of keys and content: whether it is well, in words, and whether it is a warning only."""
    try:
        await require_keys(transactions)
    except StorageUnavailable as error:
        yield False, error.message, False
        return
    if settings.storage.encryption_key is None:
        return
    plain: Counter[str] = Counter()
    async for found in find_others(transactions):
        plain += found.rows
    if plain:
        yield False, f"{_told(plain)}: run `gateway encrypt`", True
    else:
        yield True, "all of it is under storage.encryption_key", False


def _told(rows: Counter[str]) -> str:
    """Counts in words: `2 rows plain, 1 row under key 0a1b…`."""
    words = {"plain": "plain", "others": "with words to look them up that are not under the key"}
    return ", ".join(
        f"{count} {'row' if count == 1 else 'rows'} {words.get(kind, f'under key {kind}')}"
        for kind, count in sorted(rows.items())
        if count
    )
