"""A command on a terminal of its own, as a person sees it."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import termios
from collections.abc import Mapping
from pathlib import Path

from tests.support.gateway_process import scrubbed_environment, shared_fork_server

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(
    *arguments: str, directory: Path, width: int = 120, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Runs `gateway …` on a terminal so wide; returns its exit status, and all that it sent there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {**scrubbed_environment(), "TERM": "xterm-256color", **(env or {})}
    environment.pop("COLUMNS", None)  # some runners of tests say that, and it outranks the terminal
    child = shared_fork_server().on(theirs, arguments, environment, directory)
    os.close(theirs)
    found = b""
    with contextlib.suppress(OSError):  # that is how a terminal says that nobody writes to it any more
        while part := os.read(ours, 65536):
            found += part
    os.close(ours)
    return child.wait(60), found.decode().replace("\r\n", "\n")


def without_colours(text: str) -> str:
    """What is read of it."""
    return COLOURS.sub("", text)
