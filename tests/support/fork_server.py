"""Starts gateways as forks of a process that has imported them: most of a start is imports, always the same.

The other commands, too: without their imports they take a tenth of the time.
"""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_FIXED_AT_START = ("PYTHON", "LD_", "MALLOC_", "LC_", "LANG", "TZ")
"""Names of environment variables that an interpreter reads before it is a gateway."""


class Forked:
    """A gateway that a fork_server has forked."""

    def __init__(self, told: int) -> None:
        """`told` is where the fork_server writes its pid, and later its exit status."""
        self._told = told
        self.returncode: int | None = None
        self.pid = self._line()

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; subprocess.TimeoutExpired when it still runs after `timeout` seconds."""
        if self.returncode is None:
            ready = select.poll()
            ready.register(self._told, select.POLLIN)
            if not ready.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("gateway", timeout or 0)
            self.returncode = self._line()
            os.close(self._told)
        return self.returncode

    def _line(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            read = os.read(self._told, 1)
            if not read:
                raise ProcessLookupError("the fork_server has ended")
            line += read
        return int(line)


class ForkServer:
    """Starts its process when it is first needed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._starting = threading.Lock()

    def can(self, environment: Mapping[str, str]) -> bool:
        """Whether an interpreter with `environment` would have become what this one is. Folders that it looks for
        packages in may be more (`forking` adds them), unless a gateway is in them."""
        differing = {name for name, _ in environment.items() ^ self._environment.items()} - {"PYTHONPATH"}
        ours, theirs = (each.get("PYTHONPATH", "").split(os.pathsep) for each in (self._environment, environment))
        return not any(name.startswith(_FIXED_AT_START) for name in differing) and not any(
            Path(folder, "gateway").exists() for folder in theirs if folder not in ours
        )

    def fork(self, args: Sequence[str], environment: Mapping[str, str], cwd: Path, output: IO[bytes]) -> Forked:
        """`gateway` with `args`, in a session of its own."""
        return self._fork(args, environment, cwd, output, output, strict=False)

    def run(
        self, args: Sequence[str], environment: Mapping[str, str], cwd: Path, timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """What `gateway` with `args` printed until it ended; a warning is an error.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            status = self.start(args, environment, cwd, output, errors).wait(timeout)
            printed = [_all_of(file) for file in (output, errors)]
        return subprocess.CompletedProcess(["gateway", *args], status, *printed)

    def on(self, terminal: int, args: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Forked:
        """`gateway` with `args` on the terminal that is open as that file descriptor."""
        with open(terminal, "r+b", buffering=0, closefd=False) as both:
            return self.start(args, environment, cwd, both, both)

    def start(
        self, args: Sequence[str], environment: Mapping[str, str], cwd: Path, output: IO[bytes], errors: IO[bytes]
    ) -> Forked:
        """`gateway` with `args`, whose output and errors go apart; a warning is an error."""
        return self._fork(args, environment, cwd, output, errors, strict=True)

    def _fork(
        self,
        args: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        output: IO[bytes],
        errors: IO[bytes],
        *,
        strict: bool,
    ) -> Forked:
        start = {"args": ["gateway", *args], "env": dict(environment), "cwd": str(cwd), "strict": strict}
        told, telling = os.pipe()
        try:
            descriptors = [output.fileno(), errors.fileno(), telling]
            socket.send_fds(self._running(), [json.dumps(start).encode()], descriptors)
        finally:
            os.close(telling)
        return Forked(told)

    def begin(self) -> None:
        """Starts its process, which imports while others work, and which whoever is forked from here shares."""
        self._running()

    def close(self) -> None:
        """Ends the process, in the one that began it; no gateway."""
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.kill()
            self._process.wait()

    def _running(self) -> socket.socket:
        with self._starting:
            if self._control is None:
                self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", "tests.support.forking", str(theirs.fileno())],
                        env=self._environment,
                        stdin=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        start_new_session=True,
                    )
            return self._control


def _all_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
