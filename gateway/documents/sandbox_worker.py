"""What runs in the process that reads one document: it confines itself before it reads a byte (guarantee §14.4).

It may not reach a network, outlive the process that waits for it, or take all memory. The kernel sets these limits.
Where it lacks some, the rest hold; `confine` reports which do.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from gateway.documents.document import DocumentFile, ReadOptions, UnreadableDocument, read

UNREADABLE, TOO_MUCH = 3, 4
"""Exit codes: the file is no document of its kind, and the reason is on standard output; reading takes too much memory,
or the text is too long."""
TEXT_BYTES = 64 * 2**20
"""The longest text of a document: as much as a request body has at most by default."""
TOLD_SECONDS = 0.2
"""Least time between two reports of progress."""
ORDER_BYTES = 65_536
"""Limit of the line that describes what is to be read."""
NOBODY = 65534
"""User and group of a process whose parent runs as root."""
FILE_BYTES = 2**28
"""The longest file that it may write; its folder is deleted when it ends."""
OPEN_FILES = 64
PROCESSES = 32
"""Enough for the program that recognizes text, with its threads."""
NEW_USER, NEW_PID, NEW_NET, NEW_IPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
CAPABILITIES_3 = 0x20080522
"""Version of the structure that names capabilities (capset(2))."""
SANDBOX_NAMESPACES = {
    "network": NEW_USER | NEW_PID | NEW_NET | NEW_IPC,
    "network alone": NEW_NET,
    "processes": NEW_USER | NEW_PID,
}
"""Requests to the kernel, tried one after the other until it grants one."""


class _ProgressTeller:
    """Where the process reports its progress; nowhere in any other process."""

    def __init__(self) -> None:
        self.descriptor: int | None = None
        self._next = 0.0
        self._inside = 0

    def tell(self, done: int, total: int) -> None:
        """Reports that `done` of `total` are read: pages, bytes, or whatever else a reader counts."""
        if self.descriptor is None or self._inside or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + TOLD_SECONDS
        with contextlib.suppress(OSError):  # nobody listens, or not fast enough
            os.write(self.descriptor, b"%.3f " % (done / total if total else 1.0))

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Suppresses reports while one of many files is read: its progress is not that of all."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1


_teller = _ProgressTeller()
tell_progress = _teller.tell
"""For readers: `tell_progress(done, total)`, as often as they want."""
tell_nothing = _teller.silent


def main() -> int:
    """Reads a line that describes what follows, and a file, from standard input; writes the reading to standard output,
    as JSON.
    Returns the exit code: 0, `UNREADABLE` or `TOO_MUCH`."""
    teller = int(sys.argv[2])
    source: BinaryIO = os.fdopen(os.dup(0), "rb")
    order = orjson.loads(source.readline(ORDER_BYTES))
    confined = confine(order["seconds"], order["memory_bytes"], keep=(teller,))
    os.set_blocking(teller, False)
    _teller.descriptor = teller
    try:
        found = {**_read(order, source), "confined": confined._asdict()}
        sys.stdout.buffer.write(orjson.dumps(found))
    except UnreadableDocument as error:
        sys.stdout.buffer.write(str(error).encode("utf-8", "replace"))
        return UNREADABLE
    except MemoryError:
        return TOO_MUCH
    return 0


def _read(order: dict[str, Any], source: BinaryIO) -> dict[str, Any]:
    """Reads the document. Raises UnreadableDocument, MemoryError: see `read`; also for a text that is too long."""
    with source:
        raw = source.read()
    reading = read(DocumentFile(raw, order["kind"], order["name"]), ReadOptions(**order["options"]))
    text = reading.text.encode("utf-8", "replace")
    if len(text) > TEXT_BYTES:
        raise MemoryError
    return {**reading.as_json(), "text": text.decode()}


class ConfinedReport(NamedTuple):
    """Whether no network can be reached, and whether processes are counted and end with the first of them."""

    network: bool
    processes: bool


def confine(seconds: float, memory_bytes: int, keep: tuple[int, ...] = ()) -> ConfinedReport:
    """Confines this process and its children for good. It returns in the process that goes on, which may be a child;
    the other process waits for that, and ends as it ends.
    `seconds`: of processor time, for each process; `memory_bytes`: address space, for each process; `keep`: open files
    that the waiting process closes."""
    _drop_root()
    granted = _own_spaces()
    _limit(seconds, memory_bytes, counts_processes="NEW_PID" in granted)
    if "NEW_PID" in granted:
        _go_on_as_first((0, 1, *keep))
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _drop_capabilities()
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return ConfinedReport("NEW_NET" in granted, "NEW_PID" in granted)


def _drop_root() -> None:
    """Drops root, whose processes are not counted; stays root where nobody else may read the libraries."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return
    with contextlib.suppress(OSError):
        if all(_anyone_reads(Path(each)) for each in (__file__, sys.executable, *sys.path) if os.path.exists(each)):
            os.chown(os.getcwd(), NOBODY, NOBODY)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)


def _anyone_reads(path: Path) -> bool:
    path = path.resolve()
    folders = all(folder.stat().st_mode & 0o001 for folder in path.parents)
    return folders and bool(path.stat().st_mode & 0o004)


def _own_spaces() -> frozenset[str]:
    """Returns the namespaces that the kernel granted: without a network in them, and with processes of their own."""
    for flags in SANDBOX_NAMESPACES.values():
        if _call("unshare", flags):
            names = {"NEW_PID": NEW_PID, "NEW_NET": NEW_NET}
            return frozenset(name for name, flag in names.items() if flags & flag)
    return frozenset()


def _limit(seconds: float, memory_bytes: int, *, counts_processes: bool) -> None:
    """Sets resource limits, where the system has them; the waiting process's clock works everywhere."""
    with contextlib.suppress(ImportError):
        import resource

        limits = {
            resource.RLIMIT_CPU: int(seconds) + 1,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_AS: memory_bytes,
            resource.RLIMIT_FSIZE: FILE_BYTES,
            resource.RLIMIT_NOFILE: OPEN_FILES,
        }
        if counts_processes:  # without a namespace, all processes of that user count
            limits[resource.RLIMIT_NPROC] = PROCESSES
        for name, most in limits.items():
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(name, (most, most))


def _go_on_as_first(inherited: tuple[int, ...]) -> None:
    """Goes on as the first process of the new namespace: when it ends, the kernel kills all others there."""
    child = os.fork()
    if child == 0:
        return
    for each in inherited:
        os.close(each)
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def _drop_capabilities() -> None:
    """Drops the capabilities that a process has in a namespace of its own, where it may do what root may."""

    class CapabilityHeader(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    class CapabilitySets(ctypes.Structure):
        _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))

    if os.name == "posix" and sys.platform == "linux" and os.geteuid() != 0:
        _call("capset", ctypes.byref(CapabilityHeader(CAPABILITIES_3, 0)), ctypes.byref((CapabilitySets * 2)()))


def _call(name: str, *arguments: object) -> bool:
    """Calls a function of the C library; returns whether it exists and succeeded."""
    with contextlib.suppress(AttributeError, OSError):
        return int(getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)) == 0
    return False
