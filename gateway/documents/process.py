"""Reads documents that are no plain text, each in its own process with limited memory and time, apart from all else.

A valid file can be made to exhaust both; then its process is killed, and no other request waits (guarantee §7).
`sandbox_worker` has the limits of the process, and what runs in it (guarantee §14.4).
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import orjson

import gateway
from gateway.core import errors
from gateway.core.fair_queue import SharedRoom
from gateway.core.instrumentation import logs
from gateway.documents.document import NO_OPTIONS, DocumentFile, Reading, ReadOptions, UnreadableDocument, read
from gateway.documents.sandbox_worker import NOBODY, TEXT_BYTES, TOO_MUCH, UNREADABLE

log = logs.get_logger("gateway.documents")
DOCUMENT_SECONDS = 60.0
"""Wall clock for one document, without its waiting time."""
MEMORY_BYTES = 2**30
"""Address space of the process: enough for documents of any usual size, little beside a server's memory."""
OUTPUT_BYTES = 3 * TEXT_BYTES
"""As JSON, a text of words and lines is hardly longer."""
WAITING_BYTES = 2**30
"""Bytes of all documents that are being read or wait for it."""
TOO_MUCH_TEXT = "reading it takes too much time or memory"
PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from gateway.documents.sandbox_worker import main; sys.exit(main())"
)
"""Run with the folder that holds the package, and the descriptor to which progress is written."""
CRASHES = frozenset({-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGTRAP})
"""Exit codes of a process whose own fault ended it."""
MAY_HOLD_PDF = frozenset({"pdf", "mail", "msg", "zip", "tar"})
"""Kinds that are read once more, carefully, after a crash: it may have been PDFium's, which is native code."""
PIPE_PIECE = 2**18
PROCESS_EXIT_SECONDS = 5.0
"""Longest wait for a process that was killed."""
MAX_PROCESS_NOTE_BYTES = 65_536

MAX_AT_ONCE = 4
"""Documents that are read at once, however many processors there are: each may take `MEMORY_BYTES`."""
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""A container's share of processors: microseconds of a period, or `max`, and the period."""

Progress = Callable[[float], None]
"""Receives how much of a document is read, as a fraction of 1."""
FOLDER_PREFIX = "gateway-document-"
YOUNG_SECONDS = 60.0
"""A younger folder may have been created and not be locked yet."""
SWEEP_SECONDS = 300.0


def processors(quota: Path = QUOTA) -> int:
    """Returns how many processors this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    count = len(usable(0)) if usable is not None else os.cpu_count() or 1
    try:
        most, period = map(int, quota.read_text().split())
        return max(1, min(count, -(-most // period)))
    except (OSError, ValueError, ZeroDivisionError):  # none, or no limit
        return count


class BytesAtOnce:
    """Counts the bytes that something holds at once, in all and for each tenant."""

    def __init__(self) -> None:
        self._held = 0
        self._of = Counter[str]()

    @contextlib.contextmanager
    def of(self, tenant: str, size: int, most: int) -> Iterator[None]:
        """Holds so many more bytes while the context lasts. An item larger than `most` is admitted alone. A tenant may
        hold half of `most`, or one item that is larger.
        Raises Overloaded: the bytes would exceed `most`, or its half for this tenant."""
        own = self._of[tenant]
        if (self._held and self._held + size > most) or (own and own + size > most // 2):
            raise errors.Overloaded
        self._held += size
        self._of[tenant] += size
        try:
            yield
        finally:
            self._held -= size
            self._of[tenant] -= size
            if not self._of[tenant]:
                del self._of[tenant]


class DocumentReader:
    """Reads as many documents at once as this process may use processors: two to four. Tenants take turns."""

    def __init__(
        self, seconds: float = DOCUMENT_SECONDS, options: ReadOptions = NO_OPTIONS, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._seconds = seconds
        self.options = options
        self._memory_bytes = memory_bytes
        self._slots = SharedRoom(min(max(2, processors()), MAX_AT_ONCE))
        self._waiting = BytesAtOnce()
        self._told = False

    async def read(
        self, file: DocumentFile, tenant: str, options: ReadOptions | None = None, progress: Progress | None = None
    ) -> Reading:
        """Reads the document.
        `tenant`: whose turn it is read in; `options`: other than this reader's own.
        Raises UnreadableDocument: it is no document of its kind, or takes too much time or memory; Overloaded: too many
        bytes of documents wait to be read."""
        options = options or self.options
        if not file.is_slow:
            return await asyncio.to_thread(read, file, options)
        with self._waiting.of(tenant, len(file.raw), WAITING_BYTES):
            async with self._slots.turn(tenant):
                return await self._read_apart(file, options, progress)

    async def cut(self, file: DocumentFile, tenant: str, numbers: Sequence[int]) -> str:
        """Cuts out some pages of a PDF as a PDF, in base64.
        `numbers`: of pages, from 1.
        Raises UnreadableDocument, Overloaded: as `read`; also where its pages cannot be cut out."""
        return (await self.read(file, tenant, ReadOptions(cut=tuple(numbers)))).text

    async def _read_apart(self, file: DocumentFile, options: ReadOptions, progress: Progress | None) -> Reading:
        async with own_folder() as folder:
            began = time.monotonic()
            code, output = await self._run(file, options, folder, progress, self._seconds)
            left = self._seconds - (time.monotonic() - began)
            if code in CRASHES and file.kind in MAY_HOLD_PDF:
                log.warning("document_crashed_reader", kind=file.kind, signal=-code)
                code, output = await self._run(file, replace(options, careful=True), folder, progress, left)
        if code == UNREADABLE:
            raise UnreadableDocument(output[:MAX_PROCESS_NOTE_BYTES].decode("utf-8", "replace"))
        if code:
            ended = code == TOO_MUCH or code < 0
            raise UnreadableDocument(TOO_MUCH_TEXT if ended else f"it is no readable {file.kind.upper()}")
        try:
            found = await asyncio.to_thread(orjson.loads, output)
            self._tell(found["confined"])
            return Reading.from_json(found)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise UnreadableDocument(f"it is no readable {file.kind.upper()}") from error

    async def _run(
        self, file: DocumentFile, options: ReadOptions, folder: str, progress: Progress | None, seconds: float
    ) -> tuple[int, bytes]:
        """Runs the process, for so many seconds at most; returns its exit code and output."""
        told, tells = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-c", PROGRAM, str(Path(gateway.__file__).parent.parent), str(tells)),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env=_environment(folder),
                cwd=folder,
                start_new_session=True,
                pass_fds=(tells,),
            )
        except BaseException:
            os.close(told)
            raise
        finally:
            os.close(tells)
        order = {"kind": file.kind, "name": file.name, "options": asdict(options)}
        head = orjson.dumps({**order, "seconds": self._seconds, "memory_bytes": self._memory_bytes})
        loop = asyncio.get_running_loop()
        loop.add_reader(told, _hear, told, progress)
        writing = asyncio.create_task(_write(process, head, file.raw))
        try:
            async with asyncio.timeout(seconds):
                output = await _read(process)
                return await process.wait(), output
        except TimeoutError:
            raise UnreadableDocument(TOO_MUCH_TEXT) from None
        finally:
            writing.cancel()
            loop.remove_reader(told)
            os.close(told)
            await asyncio.shield(_end(process))

    def _tell(self, confined: dict[str, bool]) -> None:
        """Logs once how the processes are confined, where the kernel does not allow all of it."""
        if not self._told and not all(confined.values()):
            log.info("documents_read_without", missing=[name for name, is_so in confined.items() if not is_so])
        self._told = True


async def confinement() -> dict[str, bool]:
    """Reports what the kernel allows for a process that reads a document: `network`: it can reach none; `processes`:
    they are counted, and end with the first of them. For `gateway check`.
    Raises UnreadableDocument: no process could be started."""
    found: dict[str, bool] = {}

    class ReadingCall(DocumentReader):
        def _tell(self, confined: dict[str, bool]) -> None:
            found.update(confined)

    await ReadingCall()._read_apart(DocumentFile(b"", "text"), NO_OPTIONS, None)
    return found


def _environment(folder: str) -> dict[str, str]:
    """Returns the environment of the process, without any secret of the gateway."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": os.environ.get("LANG", "C.UTF-8"), "TMPDIR": folder}


async def _write(process: Process, head: bytes, raw: bytes) -> None:
    stdin = process.stdin
    if stdin is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the process may stop reading
        stdin.write(head + b"\n")
        view = memoryview(raw)
        for start in range(0, len(raw), PIPE_PIECE):
            stdin.write(view[start : start + PIPE_PIECE])
            await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


async def _read(process: Process) -> bytes:
    """Reads the process's output, up to its limit."""
    pieces, size = [], 0
    while process.stdout is not None and (piece := await process.stdout.read(PIPE_PIECE)):
        pieces.append(piece)
        size += len(piece)
        if size > OUTPUT_BYTES:
            raise UnreadableDocument(TOO_MUCH_TEXT)
    return b"".join(pieces)


def _hear(told: int, progress: Progress | None) -> None:
    """Passes on the latest progress that the process wrote."""
    data = os.read(told, 4096)
    if not data:
        asyncio.get_running_loop().remove_reader(told)
        return
    with contextlib.suppress(ValueError):
        done = float(data.split()[-1])
        if progress is not None and 0 <= done <= 1:
            progress(done)


async def _end(process: Process) -> None:
    """Kills the process with all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(
            PROCESS_EXIT_SECONDS
        ):  # a pipe that is not read to its end would never let `wait` return
            while process.stdout is not None and await process.stdout.read(PIPE_PIECE):
                pass
            await process.wait()


# The folders of these processes. Those that a killed gateway left behind are deleted, as they may hold document texts:
# the creator of a folder holds a lock on it, which the kernel releases when the creator dies (guarantee §14.4).


@contextlib.asynccontextmanager
async def own_folder() -> AsyncIterator[str]:
    """Creates a folder, and deletes it with all its contents when the context ends."""
    folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)  # in no thread: a cancelled caller would leave the folder behind
    held = _locked(folder)
    try:
        yield folder
    finally:
        await asyncio.shield(asyncio.to_thread(_delete, folder, held))


async def clear_left_behind() -> None:
    """Runs `clear_left` and logs how many it deleted; called at the start and each `SWEEP_SECONDS`."""
    if deleted := await asyncio.to_thread(clear_left):
        log.info("document_folders_cleared", deleted=deleted)


def clear_left() -> int:
    """Deletes folders that nobody holds. Returns how many."""
    found = Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*")
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
    """Locks a folder; None where that fails: then it is too young for a sweep for as long as reading usually takes."""
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
