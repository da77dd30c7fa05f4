"""How far a long command is: one line on a terminal that counts, and is gone at the end; into a pipe nothing."""

from threading import Event, Lock, Thread
from time import monotonic
from typing import Self, TextIO

PROGRESS_SECONDS = 0.3
"""Until the line is shown first, and between two times that it is written."""


class CommandProgress:
    """Counts while a command is at work (guarantee §13.9).
    `what`: is done. `unit`: is counted, in the plural; "": seconds alone. `quiet`: nothing is shown, since what the
    command writes goes to the same terminal."""

    def __init__(
        self, err: TextIO, what: str, unit: str = "", *, quiet: bool = False, wait: float = PROGRESS_SECONDS
    ) -> None:
        self._err, self._what, self._unit, self._wait = err, what, unit, wait
        self._count, self._width = 0, 0
        self._over, self._lock = Event(), Lock()
        self._thread = Thread(target=self._run, daemon=True) if err.isatty() and not quiet else None

    def __call__(self, more: int = 1) -> None:
        """So many more are done."""
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
        """Takes the line away, so that something else can be written there."""
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
