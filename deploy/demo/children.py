"""The two servers of the demo as child processes: started, waited for, and ended whatever happens."""

import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import IO

from screen import Waiting, row

TAIL_LINES = 15
SECONDS_TO_END = 10.0


class DemoFailed(Exception):
    """Something did not work; the text says what, for a person."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Children:
    """Child processes with their logs in a folder; leaving the block ends them, latest first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[tuple[str, subprocess.Popen[bytes], IO[bytes]]] = []

    def __enter__(self) -> "Children":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An impatient second Ctrl-C must not leave a server behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for _, process, log in reversed(self._running):
            process.terminate()
            try:
                process.wait(SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            log.close()

    def start(self, name: str, command: list[str], health: str, timeout: float) -> None:
        """Starts a server and returns once its health address answers 200.

        A session of its own keeps Ctrl-C away from it, so that the order of ending is decided here. Its
        standard input is a pipe that closes when this process is gone: the model ends by that even after
        a `kill -9`.

        Raises:
            DemoFailed: it ended, or was not ready in time.
        """
        log = (self._folder / f"{name}.log").open("wb")
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._running.append((name, process, log))
        with Waiting(f"starting the {name}") as waiting:
            while not _answers(health):
                if process.poll() is not None:
                    raise DemoFailed(f"the {name} ended with exit code {process.returncode} while starting")
                if waiting.seconds > timeout:
                    raise DemoFailed(f"the {name} was not ready after {timeout:.0f} s")
                time.sleep(0.1)
            seconds = waiting.seconds
        row(name, f"ready after {seconds:.1f} s at {health.partition('/health')[0]}")

    def tails(self) -> str:
        """The end of every log, for whoever has to find out what went wrong."""
        parts = []
        for name, process, _ in self._running:
            lines = (self._folder / f"{name}.log").read_text(errors="replace").splitlines()[-TAIL_LINES:]
            state = "running" if process.poll() is None else f"ended with {process.returncode}"
            parts.append("\n".join([f"--- the {name} ({state}), end of its log:", *lines, "\n"]))
        return "".join(parts)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
