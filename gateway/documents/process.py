"""Reads documents that are no plain text, each in its own process with limited memory and time.

A valid file can be made to take all of both; then its process is ended, and no other request waits (guarantee §7).
"""

import asyncio
import contextlib
import os
import sys
from dataclasses import asdict
from pathlib import Path

import orjson

import gateway
from gateway.documents.document import DocumentFile, Reading, ReadOptions, UnreadableDocument
from gateway.documents.kinds import is_slow, read

SECONDS = 60.0
"""Wall clock for one document, without the time for which it waits."""
CPU_SECONDS = 60
MEMORY_BYTES = 2**30
"""Address space of the process: enough for documents of any usual size, little beside a server's memory."""
TEXT_BYTES = 64 * 2**20
"""The longest text of a document: as much as a request body has at most by default."""
UNREADABLE = 3
"""Exit code: the file is no document of its kind. The reason is on standard output."""
TOO_MUCH = 4
"""Exit code: reading takes too much memory, or the text is too long."""
TOO_MUCH_TEXT = "reading it takes too much time or memory"
PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from gateway.documents.process import main; sys.exit(main())"
"""Run with the folder that holds the package, the kind and name of the document, and the options as JSON."""
NO_OPTIONS = ReadOptions()


class DocumentReader:
    """Reads at most as many documents at once as there are processors, but at least two."""

    def __init__(self, seconds: float = SECONDS, options: ReadOptions = NO_OPTIONS) -> None:
        self._seconds = seconds
        self.options = options
        self._slots = asyncio.Semaphore(max(2, os.cpu_count() or 1))

    async def read(self, file: DocumentFile, options: ReadOptions | None = None) -> Reading:
        """What the document says.

        Args:
            options: other than this reader's own.

        Raises:
            UnreadableDocument: it is no document of its kind, or takes too much time or memory.
        """
        if not is_slow(file):
            return await asyncio.to_thread(read, file, options or self.options)
        async with self._slots:
            return await self._read_in_process(file, options or self.options)

    async def _read_in_process(self, file: DocumentFile, options: ReadOptions) -> Reading:
        folder = Path(gateway.__file__).parent.parent
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", PROGRAM, str(folder), file.kind, file.name),
            orjson.dumps(asdict(options)).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(self._seconds):
                output, _ = await process.communicate(file.raw)
        except TimeoutError:
            raise UnreadableDocument(TOO_MUCH_TEXT) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await asyncio.shield(process.wait())
        if process.returncode == UNREADABLE:
            raise UnreadableDocument(output.decode("utf-8", "replace"))
        if process.returncode:
            ended = process.returncode == TOO_MUCH or process.returncode < 0
            raise UnreadableDocument(TOO_MUCH_TEXT if ended else f"it is no readable {file.kind.upper()}")
        return Reading.from_json(orjson.loads(output))


def main() -> int:
    """Runs in the other process: reads a file from standard input and writes the reading to standard output, as JSON.

    Returns:
        The exit code: 0, `UNREADABLE` or `TOO_MUCH`.
    """
    _limit_resources()
    try:
        kind, name, options = sys.argv[2:]
        reading = read(DocumentFile(sys.stdin.buffer.read(), kind, name), ReadOptions(**orjson.loads(options)))
        text = reading.text.encode("utf-8", "replace")
    except UnreadableDocument as error:
        sys.stdout.write(str(error))
        return UNREADABLE
    except MemoryError:
        return TOO_MUCH
    if len(text) > TEXT_BYTES:
        return TOO_MUCH
    found = {**reading.as_json(), "text": text.decode()}
    sys.stdout.buffer.write(orjson.dumps(found))
    return 0


def _limit_resources() -> None:
    """Not every system has these limits; the waiting process's clock works everywhere."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
