"""Reads uploaded files after the answer, so that the first question finds their text (guarantee §14.5).

One at a time in this process; tenants take turns. Files that another process was reading when it died, or that nobody
has read yet, are read by the next process that looks: at its start, and with each upkeep.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from functools import partial

from gateway.core import errors
from gateway.core.fair_queue import ByTurns
from gateway.core.instrumentation import logs
from gateway.core.tasks import BackgroundTasks
from gateway.core.types import artifacts
from gateway.core.types.files import FAILED, PROCESSED, UPLOADED, FileRecord, document_digest
from gateway.documents import file_reader
from gateway.documents.document import DocumentFile, UnreadableDocument
from gateway.documents.files.file_service import FileService
from gateway.storage import stored_files

log = logs.get_logger("gateway.documents.files.background_reading")
WAITING = 1000
"""Limit of files that wait here; others are found after these were read."""
NOTED_SECONDS = 1.0
"""Time between two notes of a file's progress."""
ALMOST = 0.99
"""The highest progress that is reported of a file that is not wholly read."""
MAX_DETAILS = 300
Read = Callable[[str, str], Awaitable[None]]


class ReadingFiles:
    """The queue of uploaded files that are to be read; `add` enters one."""

    def __init__(self, rows: stored_files.FileRows, noted_seconds: float = NOTED_SECONDS) -> None:
        self._rows = rows
        self._noted_seconds = noted_seconds
        self._waiting = ByTurns[str]()
        self._looks = True
        self._woken = asyncio.Event()
        self._tasks = BackgroundTasks()

    def add(self, tenant: str, file_id: str) -> None:
        """Enters an uploaded file that is to be read."""
        if len(self._waiting) < WAITING:
            self._waiting.add(tenant, file_id)
        else:
            self._looks = True
        self._woken.set()

    def look(self) -> None:
        """Requests a search for files that nobody has read."""
        self._looks = True
        self._woken.set()

    def start(self, files: FileService, reader: file_reader.FileReader) -> None:
        """Starts reading, first what was left behind."""
        self._tasks.start(self._run(partial(self._read, files, reader)))

    async def close(self) -> None:
        """Stops reading. Unread files are read after the next start, or when a request asks about them."""
        await self._tasks.cancel()

    async def _run(self, read: Read) -> None:
        while True:
            try:
                await self._read_all(read)
            except errors.GatewayError as error:
                log.warning("file_reading_postponed", reason=error.message)
            except Exception as fault:  # noqa: BLE001 - one file must not end the reading of all others
                log.fault("file_reading_failed", fault)
            if not self._waiting:
                await self._woken.wait()
            self._woken.clear()

    async def _read_all(self, read: Read) -> None:
        while self._waiting or self._looks:
            if not self._waiting:
                self._looks = False
                left = await self._rows.unread()
                random.Random().shuffle(left)  # other processes that start now look, too
                for named in left:
                    self._waiting.add(*named)
                continue
            await read(*self._waiting.take())

    async def _read(self, files: FileService, reader: file_reader.FileReader, tenant: str, file_id: str) -> None:
        """Reads one file, unless it is gone or was read meanwhile."""
        try:
            if (await files.find(tenant, file_id)).status != UPLOADED:
                return
            record, content = await files.whole(tenant, file_id)
        except errors.FileNotFound:
            return
        status, details, groups = await self._outcome(reader, tenant, record, content)
        progress = 1.0 if status == PROCESSED else None
        if not await self._rows.note_reading(tenant, file_id, status, details, progress):
            await self._rows.forget_read(*groups)  # it was deleted meanwhile
        log.info("file_read", file=file_id, status=status)

    async def _outcome(
        self, reader: file_reader.FileReader, tenant: str, record: FileRecord, content: bytes
    ) -> tuple[str, str | None, tuple[str, ...]]:
        """Reads the file; returns its status, the status details, and the groups of what the cache holds now."""
        own = artifacts.cache_group(tenant, record.id)
        try:
            document = await asyncio.to_thread(file_reader.stored_document, record.name, record.media_type, content)
        except UnreadableDocument:  # it is no document
            return PROCESSED, None, (own,)
        groups = (own, artifacts.cache_group(tenant, document_digest(document.kind, record.digest.hex())))
        try:
            await self._noted(reader, tenant, record.id, document)
        except UnreadableDocument as error:
            told = str(error).replace("\x00", "")[:MAX_DETAILS]
            return FAILED, f"The file cannot be read: {told}.", groups
        return PROCESSED, None, groups

    async def _noted(self, reader: file_reader.FileReader, tenant: str, file_id: str, document: DocumentFile) -> None:
        """Reads and caches the document's text; notes its progress in its row meanwhile."""
        done = noted = 0.0

        def tell(fraction: float) -> None:
            nonlocal done
            done = max(done, min(fraction, ALMOST))

        work = asyncio.create_task(reader.read_and_keep(document, file_id, tenant, progress=tell))
        try:
            while not (await asyncio.wait({work}, timeout=self._noted_seconds))[0]:
                if done > noted:
                    noted = done
                    with contextlib.suppress(errors.StorageUnavailable):
                        await self._rows.note_reading(tenant, file_id, UPLOADED, None, round(noted, 3))
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
        work.result()
