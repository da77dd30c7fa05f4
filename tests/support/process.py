"""What all handles are made of: a child process that tests may stop, freeze and kill, waiting, free ports."""

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

START_SECONDS = 60.0
"""How long a server may take until it is ready."""
PATIENCE = 60.0
"""Seconds that a test waits for what has to happen. It ends a hang; it is no threshold: a busy machine may be slow."""


class ProcessError(RuntimeError):
    """A child ended, or did not get ready in time; the message carries the end of its log."""


def wait_until(check: Callable[[], bool], what: str, interval: float = 0.01, timeout: float = PATIENCE) -> None:
    """Poll `check` until it is true; TimeoutError naming `what` after `timeout` seconds. No test is the faster for a
    shorter one, and some fail for it where the machine is busy."""
    deadline = time.monotonic() + timeout
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(interval)


def within_a_minute(seconds: float = 15.0) -> None:
    """Wait for the next minute if the current one has fewer `seconds` left: what is counted by minutes is counted anew
    where one begins between two requests."""
    left = 60 - time.time() % 60
    if left < seconds:
        time.sleep(left)


def run_as(user: pwd.struct_passwd | None) -> dict[str, Any]:
    """Arguments of `subprocess` that give up root for `user`, its groups included; None changes nothing."""
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def plain_environment() -> dict[str, str]:
    """An environment in which a service behaves alike on every machine."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


class Closing:
    """To be closed at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all that it holds."""
        raise NotImplementedError


class Child(Protocol):
    """What of `subprocess.Popen` is used of a child."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit status, None while it is not known."""

    def poll(self) -> int | None:
        """The exit status, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; subprocess.TimeoutExpired when it still runs after `timeout` seconds."""


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port of `host` that nobody listens on now.

    The kernel hands ephemeral ports out in turn, so another process is unlikely to get the same one
    between this call and the caller's own bind; servers of ours bind port 0 themselves instead.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


class ChildProcess:
    """A child in a session of its own, so that Ctrl-C reaches pytest alone; its output goes to `log`."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._child: Child | None = None

    def spawn(
        self, args: Sequence[str], *, env: Mapping[str, str], cwd: Path, user: pwd.struct_passwd | None = None
    ) -> None:
        """Start `args`, as `user` (without supplementary groups) if one is named, which only root can."""
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                args,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **run_as(user),
            )

    @property
    def pid(self) -> int:
        """The process id of the current (or the last) child."""
        if self._child is None:
            raise ProcessError("never started")
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether the child runs (a frozen one does)."""
        return self._child is not None and self._child.poll() is None

    def wait_ready(self, check: Callable[[], bool], timeout: float, what: str) -> None:
        """Poll `check` until true; ProcessError with the log's tail when the child ends or the time does."""

        def ready() -> bool:
            if not self.alive:
                code = self._child.returncode if self._child else None
                raise ProcessError(f"{what} ended with {code} before it was ready:\n{self.log_tail()}")
            return check()

        try:
            wait_until(ready, what, timeout=timeout)
        except TimeoutError as late:
            self.kill9()
            raise ProcessError(f"{late}\n{self.log_tail()}") from late

    def send_signal(self, number: int) -> None:
        """Send one signal to the child alone."""
        os.kill(self.pid, number)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, as with a hung host."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        self.send_signal(signal.SIGCONT)

    def kill9(self) -> None:
        """SIGKILL to the child and what it started; returns when the child is gone."""
        if self._child is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait(10)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 20.0) -> int:
        """Ask with signal `number`, wait, return the exit code; a child that lingers is killed."""
        if self._child is None:
            raise ProcessError("never started")
        if self.alive:
            self.send_signal(number)
            with contextlib.suppress(ProcessLookupError):
                self.resume()
        try:
            return self._child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill9()
            message = f"still running {timeout:g} s after signal {number}:\n{self.log_tail()}"
            raise ProcessError(message) from None

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of everything the child has printed, over all its starts."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])
