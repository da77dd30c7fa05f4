"""What the demo puts on the screen: 80 columns of plain text, coloured only where a person looks at it."""

import sys
import textwrap
import threading
import time
from types import TracebackType

WIDTH = 80
LABEL = 11
IS_TERMINAL = sys.stdout.isatty()
SECONDS_BETWEEN_LINES = 10
REST_OF_WORD = 8  # room for what may still come of a word that arrives in pieces
BOLD, DIM, GREEN, YELLOW, RED = "1", "2", "32", "33", "31"


def coloured(text: str, code: str) -> str:
    """The text in a colour, or as it is where the output is a file or a pipe."""
    return f"\x1b[{code}m{text}\x1b[0m" if IS_TERMINAL else text


def paragraph(text: str) -> None:
    """Wrapped text, an empty line after it."""
    print(textwrap.fill(" ".join(text.split()), WIDTH) + "\n", flush=True)


def heading(text: str) -> None:
    """The start of a step."""
    print(coloured(f"-- {text} ".ljust(WIDTH, "-"), BOLD) + "\n", flush=True)


def row(label: str, text: str, code: str | None = None) -> None:
    """One figure or answer: the label in a column of its own, the text wrapped beside it."""
    indent = " " * (LABEL + 2)
    lines = textwrap.wrap(text, WIDTH - len(indent)) or ["-"]
    shown = [coloured(line, code) if code else line for line in lines]
    print("  " + coloured(label.ljust(LABEL), DIM) + f"\n{indent}".join(shown), flush=True)


class Waiting:
    """Shows that something is going on: seconds on a terminal, a line now and then in a log.

    Runs beside the call that is waited for, since that call blocks.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._done = threading.Event()
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> "Waiting":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def seconds(self) -> float:
        """Since the waiting began."""
        return time.monotonic() - self._started

    def stop(self) -> None:
        """Ends the display and leaves the line as if it had not been there. Harmless when repeated."""
        if self._done.is_set():
            return
        self._done.set()
        self._thread.join()
        if IS_TERMINAL:
            print("\r" + " " * (WIDTH - 1) + "\r", end="", flush=True)

    def _show(self) -> None:
        while not self._done.is_set():
            if IS_TERMINAL:
                print(f"\r  {self._label} ... {self.seconds:.0f} s ", end="", flush=True)
                self._done.wait(0.5)
            elif not self._done.wait(SECONDS_BETWEEN_LINES):
                print(f"  {self._label} ... {self.seconds:.0f} s", flush=True)


class Flow:
    """A row whose text arrives in pieces: printed at once, broken between words at the edge of the screen."""

    def __init__(self, label: str, code: str) -> None:
        self._label, self._code = label, code
        self._column = 0

    def add(self, piece: str) -> None:
        """Prints the next piece."""
        if self._column == 0:
            print("  " + coloured(self._label.ljust(LABEL), DIM), end="")
            self._column = LABEL + 2
        shown = piece.replace("\n", " ")
        if self._column + len(shown) > WIDTH - REST_OF_WORD and shown.startswith(" "):
            shown = shown.lstrip()
            print("\n" + " " * (LABEL + 2), end="")
            self._column = LABEL + 2
        print(coloured(shown, self._code), end="", flush=True)
        self._column += len(shown)

    def end(self) -> None:
        """Ends the row."""
        print(flush=True)
