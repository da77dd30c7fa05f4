"""Contents of files in a folder (adapter of `ports.documents.ContentStore`): one for each tenant, for owners alone."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.errors import StorageUnavailable

PIECE = 2**20
LISTED = 1000
OWN_FILE, OWN_FOLDER = 0o600, 0o700


class DiskContents:
    """Replicas need the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Keeps them (`ports.documents.ContentStore`). Under its name stands a whole content alone."""
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
            raise StorageUnavailable(f"The file cannot be kept: {error.strerror}.") from error
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    async def open(self, name: str, start: int = 0) -> AsyncIterator[bytes]:
        """The content (`ports.documents.ContentStore`)."""
        try:
            file = await asyncio.to_thread(os.open, self._folder / name, os.O_RDONLY)
            try:
                os.lseek(file, start, os.SEEK_SET)
                while piece := await asyncio.to_thread(os.read, file, PIECE):
                    yield piece
            finally:
                os.close(file)
        except OSError as error:
            raise StorageUnavailable("The content of the file cannot be read.") from error

    async def delete(self, *names: str) -> None:
        """Deletes them (`ports.documents.ContentStore`)."""
        try:
            for name in names:
                await asyncio.to_thread((self._folder / name).unlink, missing_ok=True)
        except OSError as error:
            raise StorageUnavailable("The content of the file cannot be deleted.") from error

    async def names(self) -> AsyncIterator[list[str]]:
        """What is kept, in batches (`ports.documents.ContentStore`); what was never finished, too."""
        found = await asyncio.to_thread(self._list)
        for start in range(0, len(found), LISTED):
            yield found[start : start + LISTED]

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
    """The name is on the disk as well, once this returns."""
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
