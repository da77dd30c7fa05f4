"""Where files are stored and for whom, by the settings."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gateway.core import errors, ports
from gateway.core.config.settings import Settings
from gateway.documents.files.file_service import Added, FileService, added_unread
from gateway.storage import stored_files
from gateway.storage.database import DatabaseTransactions, sqlite
from gateway.storage.encryption import open_vault
from gateway.upstream import S3Contents

# Contents of files in a folder (adapter of `core.ports.ContentStore`): one for each tenant, readable only by its owner.

DISK_PIECE = 2**20
FILES_PER_BATCH = 1000
OWN_FILE, OWN_FOLDER = 0o600, 0o700


class DiskContents:
    """Contents in a folder, which all replicas have to share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Stores the pieces (`core.ports.ContentStore`). The name appears only when the content is complete."""
        path = self._folder / name
        part = path.with_name(f"{path.name}.part")
        try:
            file = await asyncio.to_thread(_begin, part)
            try:
                async for piece in pieces:
                    await asyncio.to_thread(_write, file, piece)
                await asyncio.to_thread(os.fsync, file)
            finally:
                os.close(file)
            await asyncio.to_thread(_finish, part, path)
        except OSError as error:
            raise errors.StorageUnavailable(f"The file cannot be kept: {error.strerror}.") from error
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    async def open(self, name: str, start: int = 0) -> AsyncIterator[bytes]:
        try:
            file = await asyncio.to_thread(os.open, self._folder / name, os.O_RDONLY)
            try:
                os.lseek(file, start, os.SEEK_SET)
                while piece := await asyncio.to_thread(os.read, file, DISK_PIECE):
                    yield piece
            finally:
                os.close(file)
        except OSError as error:
            raise errors.StorageUnavailable("The content of the file cannot be read.") from error

    async def delete(self, *names: str) -> None:
        try:
            for name in names:
                await asyncio.to_thread((self._folder / name).unlink, missing_ok=True)
        except OSError as error:
            raise errors.StorageUnavailable("The content of the file cannot be deleted.") from error

    async def names(self) -> AsyncIterator[list[str]]:
        """Yields the stored names in batches (`core.ports.ContentStore`), unfinished ones too."""
        found = await asyncio.to_thread(self._list)
        for start in range(0, len(found), FILES_PER_BATCH):
            yield found[start : start + FILES_PER_BATCH]

    def _list(self) -> list[str]:
        return sorted(f"{path.parent.name}/{path.name}" for path in self._folder.glob("*/obj_*"))


def _begin(part: Path) -> int:
    part.parent.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
    return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_FILE)


def _write(file: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(file, left) :]


def _finish(part: Path, path: Path) -> None:
    """Renames the file; the name is on the disk as well when this returns."""
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


FOLDER = "files"


def open_stores(settings: Settings, transactions: DatabaseTransactions, client: Any) -> dict[str, ports.ContentStore]:
    """Opens all stores that contents of files can be in, as far as the settings name them."""
    folder = folder_of(settings)
    stores: dict[str, ports.ContentStore] = {"database": stored_files.DatabaseContents(transactions)}
    if folder is not None:
        stores["disk"] = DiskContents(folder)
    if settings.files.s3.bucket:
        stores["s3"] = S3Contents(settings.files.s3, client)
    return stores


def open_files(
    settings: Settings,
    transactions: DatabaseTransactions,
    rows: stored_files.FileRows,
    client: Any,
    added: Added = added_unread,
) -> FileService:
    """Opens the store of files; `client` speaks HTTP to a bucket. Contents in other stores than the current one can
    still be read, where these are known. `added` is called for each file that is to be read."""
    kept, stores = settings.files, open_stores(settings, transactions, client)
    return FileService(rows, stores, store_of(settings), kept, open_vault(settings.storage), added)


def store_of(settings: Settings) -> str:
    """Returns the store of new contents: `disk`, `database` or `s3`."""
    if settings.files.store != "auto":
        return settings.files.store
    return "disk" if folder_of(settings) is not None else "database"


def folder_of(settings: Settings) -> Path | None:
    """Returns the folder of `disk`; None: none is configured, and there is no database file that it could be beside."""
    if settings.files.path:
        return Path(settings.files.path)
    if (database := sqlite.sqlite_file(settings.storage.url)) is not None:
        return database.parent / FOLDER
    return Path(FOLDER).absolute() if settings.files.store == "disk" else None
