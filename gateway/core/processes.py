"""Names of gateway processes, by which others see that one has ended."""

import contextlib
import os
from datetime import datetime
from pathlib import Path

from gateway.core import ids


def process_name(part: str = "") -> str:
    """Returns this process's name. On Linux it contains the machine and the start time, so that its end is seen on this
    machine at once; no two processes ever share it. `part`: distinguishes parts of one process."""
    try:
        return f"{_machine()}:{os.getpid()}:{_started(os.getpid())}{part and ':' + part}"[:64]
    except OSError:
        return ids.new_id("proc_")


def is_dead(name: str, until: datetime | None, now: datetime) -> bool:
    """Returns whether a process has died: as this machine knows, or by its heartbeats."""
    parts = name.split(":")
    with contextlib.suppress(OSError):
        if len(parts) >= 3 and parts[0] == _machine():
            return _started(int(parts[1])) != parts[2]
    return until is None or until <= now


def _machine() -> str:
    """Identifies one boot and one namespace of process ids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").replace("-", "")[:20]
    return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"


def _started(pid: int) -> str:
    """Returns the clock ticks from boot to start; "" if there is no such process, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]
