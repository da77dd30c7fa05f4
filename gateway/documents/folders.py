"""The folders of processes that read documents. One that a killed gateway left behind goes, as it may hold what was
read: whoever made a folder holds a lock on it, and the kernel lets go of that when it is gone (guarantee §14.4)."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from gateway.core.instrumentation.logs import get_logger
from gateway.documents.sandbox import NOBODY

PREFIX = "gateway-document-"
YOUNG_SECONDS = 60.0
"""A folder may have been made and not be locked yet."""
SWEEP_SECONDS = 300.0
log = get_logger("gateway.documents")


@contextlib.asynccontextmanager
async def own_folder() -> AsyncIterator[str]:
    """A new folder, which is deleted with all that is in it."""
    folder = tempfile.mkdtemp(prefix=PREFIX)  # in no thread: whoever is cancelled meanwhile would leave it
    held = _locked(folder)
    try:
        yield folder
    finally:
        await asyncio.shield(asyncio.to_thread(_delete, folder, held))


async def clear_left_behind() -> None:
    """Does `clear_left` and logs it; called at the start and each `SWEEP_SECONDS`."""
    if deleted := await asyncio.to_thread(clear_left):
        log.info("document_folders_cleared", deleted=deleted)


def clear_left() -> int:
    """Deletes folders that nobody holds. Returns how many."""
    found = Path(tempfile.gettempdir()).glob(f"{PREFIX}*")
    return sum(_clear(folder) for folder in found)


def _clear(folder: Path) -> bool:
    owners = {os.geteuid()} if os.geteuid() else {0, NOBODY}
    with contextlib.suppress(OSError):  # a link, somebody else's, held, or gone meanwhile
        state = folder.lstat()
        if state.st_uid not in owners or time.time() - state.st_mtime < YOUNG_SECONDS:
            return False
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
            return True
        finally:
            os.close(held)
    return False


def _locked(folder: str) -> int | None:
    """None where a folder cannot be locked: then it is too young for a sweep for as long as reading usually takes."""
    with contextlib.suppress(OSError):
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
            return held
        os.close(held)
    return None


def _delete(folder: str, held: int | None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if held is not None:
        os.close(held)
