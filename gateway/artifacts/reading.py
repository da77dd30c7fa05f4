"""Texts of documents whose reading may take long, read where it can be ended (contract §7: bad input is a 4xx)."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import gateway
from gateway.artifacts import confined
from gateway.artifacts.documents import InlineFile
from gateway.artifacts.unreadable import UnreadableDocument

SECONDS = 60.0
"""For one document, once its turn has come."""
TOO_MUCH = "reading it takes too much time or memory"


class DocumentReader:
    """Reads PDF and DOCX each in a process of its own: no more at once than there are processors."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._places = asyncio.Semaphore(max(2, os.cpu_count() or 1))

    async def text(self, file: InlineFile) -> str:
        """
        Raises:
            UnreadableDocument: it is no document of its kind, or takes too much time or memory.
        """
        if not file.is_slow:
            return await asyncio.to_thread(file.text)
        async with self._places:
            return await self._confined(file)

    async def _confined(self, file: InlineFile) -> str:
        folder = Path(gateway.__file__).parent.parent
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(confined.__file__), file.kind, str(folder)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(self._seconds):
                output, _ = await process.communicate(file.raw)
        except TimeoutError:
            raise UnreadableDocument(TOO_MUCH) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await asyncio.shield(process.wait())
        if process.returncode == confined.UNREADABLE:
            raise UnreadableDocument(output.decode("utf-8", "replace"))
        if process.returncode:
            ended = process.returncode == confined.TOO_MUCH or process.returncode < 0
            raise UnreadableDocument(TOO_MUCH if ended else f"it is no readable {file.kind.upper()}")
        return output.decode()
