"""Makes segments of indexes in a process of its own, so that no request waits for it and its memory is released.

On standard input: for each segment the number of its regions, then for each region its length in bytes and its text
(numbers of 32 bits). On standard output: the number of its buckets, then for each its number, its length and its data.
"""

import contextlib
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

import gateway
from gateway.retrieval.corpus import TermLexicon
from gateway.retrieval.stored.postings import segment

NICE = 10
"""Niceness of the process."""
SEGMENT_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from gateway.retrieval.stored.segment_process import main; sys.exit(main())"
)
SEGMENT_NUMBER = struct.Struct("<I")


class IndexFailed(Exception):
    """The process ended without an index."""


class SegmentMaker:
    """Owns the process. Its methods block, so they are for a thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._changing = threading.Lock()  # it may be closed while a thread starts the process

    def make(self, texts: Sequence[str]) -> list[tuple[int, bytes]]:
        """Returns the buckets of the index of these regions (`postings.segment`).
        Raises IndexFailed: the process ended, perhaps for lack of memory, or was closed."""
        process = self._running()
        pipe_in, pipe_out = process.stdin, process.stdout
        if pipe_in is None or pipe_out is None:
            raise IndexFailed("no pipes")
        try:
            pipe_in.write(SEGMENT_NUMBER.pack(len(texts)))
            for text in texts:
                data = text.encode("utf-8", "replace")
                pipe_in.write(SEGMENT_NUMBER.pack(len(data)) + data)
            pipe_in.flush()
            return [(_number(pipe_out), _bytes(pipe_out)) for _ in range(_number(pipe_out))]
        except (OSError, EOFError, ValueError) as error:  # ValueError: a pipe that was closed meanwhile
            self.close()
            raise IndexFailed(str(error)) from error

    def _running(self) -> subprocess.Popen[bytes]:
        with self._changing:
            if self._closed:
                raise IndexFailed("closed")
            if self._process is None:
                self._process = _started()
            return self._process

    def close(self) -> None:
        """Ends the process, and lets no other start."""
        with self._changing:
            self._closed = True
            process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        process.wait()

    def __enter__(self) -> "SegmentMaker":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _started() -> subprocess.Popen[bytes]:
    folder = Path(gateway.__file__).parent.parent
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-I", "-c", SEGMENT_PROGRAM, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def main() -> int:
    """Runs in the other process until its input ends."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(NICE)
    lexicon = TermLexicon()
    read, write = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            many = _number(read)
            texts = [_bytes(read).decode("utf-8") for _ in range(many)]
            found = list(segment(texts, lexicon))
            write.write(SEGMENT_NUMBER.pack(len(found)))
            for bucket, data in found:
                write.write(SEGMENT_NUMBER.pack(bucket) + SEGMENT_NUMBER.pack(len(data)) + data)
            write.flush()
    return 0


def _number(pipe: IO[bytes]) -> int:
    data = pipe.read(SEGMENT_NUMBER.size)
    if len(data) < SEGMENT_NUMBER.size:
        raise EOFError("it ended")
    return int(SEGMENT_NUMBER.unpack(data)[0])


def _bytes(pipe: IO[bytes]) -> bytes:
    many = _number(pipe)
    data = pipe.read(many)
    if len(data) < many:
        raise EOFError("it ended")
    return data
