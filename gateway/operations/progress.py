"""The progress of a long command: one counting line on a terminal, erased at the end; nothing in a pipe."""

from threading import Event, Lock, Thread
from time import monotonic
from typing import Self, TextIO

PROGRESS_SECONDS = 0.3
"""Before the line first appears, and between two updates of it."""


class CommandProgress:
    """Shows the progress of a running command (guarantee §13.9).
    `what`: the activity. `unit`: the counted items, in the plural; "": only seconds are shown. `quiet`: nothing is
    shown, because the command writes its output to the same terminal."""

    def __init__(
        self, err: TextIO, what: str, unit: str = "", *, quiet: bool = False, wait: float = PROGRESS_SECONDS
    ) -> None:
        self._err, self._what, self._unit, self._wait = err, what, unit, wait
        self._count, self._width = 0, 0
        self._over, self._lock = Event(), Lock()
        self._thread = Thread(target=self._run, daemon=True) if err.isatty() and not quiet else None

    def __call__(self, more: int = 1) -> None:
        """Adds to the count of finished items."""
        self._count += more

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._over.set()
            self._thread.join()
            self.wipe()

    def wipe(self) -> None:
        """Erases the progress line, so that other text can be written there."""
        with self._lock:
            if self._width:
                self._err.write(f"\r{' ' * self._width}\r")
                self._err.flush()
                self._width = 0

    def _run(self) -> None:
        began = monotonic()
        while not self._over.wait(self._wait):
            counted = f"{self._count:,} {self._unit}, " if self._unit else ""
            text = f"{self._what}: {counted}{monotonic() - began:.0f} s"
            with self._lock:
                self._err.write(f"\r{text.ljust(self._width)}")
                self._err.flush()
                self._width = len(text)
