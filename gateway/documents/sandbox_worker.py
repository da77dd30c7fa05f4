"""What runs in the process that reads one document (guarantee §14.4): it confines itself before it looks at a byte."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from gateway.documents.document import DocumentFile, ReadOptions, UnreadableDocument
from gateway.documents.kinds import read
from gateway.documents.sandbox import confine

UNREADABLE, TOO_MUCH = 3, 4
"""Exit codes, as `process` has them."""
TEXT_BYTES = 64 * 2**20
TOLD_SECONDS = 0.2
"""Between two numbers that are told."""
HEAD_BYTES = 65_536
"""Of the line that says what is to be read."""


class _ProgressTeller:
    """Where the process tells how far it is; nowhere in any other process."""

    def __init__(self) -> None:
        self.descriptor: int | None = None
        self._next = 0.0
        self._inside = 0

    def tell(self, done: int, total: int) -> None:
        """`done` of `total` are read: pages, bytes, or whatever else a reader counts."""
        if self.descriptor is None or self._inside or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + TOLD_SECONDS
        with contextlib.suppress(OSError):  # nobody listens, or not fast enough
            os.write(self.descriptor, b"%.3f " % (done / total if total else 1.0))

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """While one of many files is read: what its reader tells says nothing of them all."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1


_teller = _ProgressTeller()
tell_progress = _teller.tell
"""For readers: `tell_progress(done, total)`, as often as they like."""
tell_nothing = _teller.silent


def main() -> int:
    """Reads a line that says what follows, and a file, from standard input; writes the reading to standard output, as
    JSON.
    The exit code: 0, `UNREADABLE` or `TOO_MUCH`."""
    teller = int(sys.argv[2])
    source: BinaryIO = os.fdopen(os.dup(0), "rb")
    order = orjson.loads(source.readline(HEAD_BYTES))
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
    """Raises UnreadableDocument, MemoryError: see `read`; also of a text that is too long."""
    with source:
        raw = source.read()
    reading = read(DocumentFile(raw, order["kind"], order["name"]), ReadOptions(**order["options"]))
    text = reading.text.encode("utf-8", "replace")
    if len(text) > TEXT_BYTES:
        raise MemoryError
    return {**reading.as_json(), "text": text.decode()}
