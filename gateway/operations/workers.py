"""Several processes behind one port: one for each core that is to be used (`gateway serve --workers N`).

This process serves nobody: it starts the workers, starts one anew that dies, and ends them in order. The kernel shares
new connections out among them.
"""

import contextlib
import os
import select
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.core.config.loading import ConfigurationError
from gateway.core.instrumentation.logs import get_logger
from gateway.core.instrumentation.metrics import SharedCounts, bury, has_served

MIN_LIFE, MIN_LIFE_FAILED = 5.0, 60.0
"""Seconds that a worker lives, or it is started anew only after a while; and one that ended with 1, as after a start
that failed."""
MAX_PAUSE = 30.0
"""Seconds before a worker is started that died at once each time; the first time it is one second."""
PATIENCE = 5.0
"""Seconds beyond the workers' own time to end, after which they are killed."""
HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
log = get_logger("gateway.operations.workers")
Work = Callable[["WorkerFacts"], int]


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker knows of the others: its number, where all of them count, and a pipe that ends with the process
    which started it."""

    number: int
    counts: SharedCounts
    lifeline: int


@dataclass(slots=True)
class _WorkerSlot:
    """A worker that runs or is to run: `pid` is 0 while it is not running, `due` is when it is to be started."""

    number: int
    pid: int = 0
    due: float = 0.0
    started: float = 0.0
    pause: float = 1.0


class WorkerSupervisor:
    """Runs workers until it is asked to end.
    `work`: what a worker does, in a process of its own; gives its exit status; `grace`: seconds within which a worker
    that was asked to end has ended."""

    def __init__(self, count: int, work: Work, grace: float) -> None:
        self._work, self._grace = work, grace
        self._places = [_WorkerSlot(number) for number in range(count)]
        self._signals = 0
        self._wake_read, self._wake_write = os.pipe()
        self._lifeline_read, self._lifeline_write = os.pipe()

    def run(self) -> int:
        """Returns 0, or 1 if the first worker cannot start: its log says why."""
        with tempfile.TemporaryDirectory(prefix="gateway-") as folder:
            self._folder = Path(folder)
            for number in HEARD:
                signal.signal(number, self._heard)
            os.set_blocking(self._wake_read, False)
            os.set_blocking(self._wake_write, False)
            signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
            try:
                return self._supervise()
            finally:
                signal.set_wakeup_fd(-1)

    def _heard(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self._signals += 1

    def _supervise(self) -> int:
        while not self._signals:
            now = time.monotonic()
            for place in self._places:
                if not place.pid and place.due <= now:
                    self._start(place)
            self._wait(min([place.due - now for place in self._places if not place.pid], default=MIN_LIFE))
            for place, status in self._ended():
                if status == 1 and not has_served(self._folder):
                    self._end_all()
                    return 1
                self._revive(place, status)
        return self._end_all()

    def _start(self, place: _WorkerSlot) -> None:
        place.started = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)  # none may come before the worker listens for itself
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes: the others go on
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
            log.warning("worker_not_started", worker=place.number, reason=error.strerror or str(error))
            self._pause(place)
            return
        if pid:
            place.pid = pid
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
            return
        status = 1
        try:  # in the worker, which knows nothing of the others
            signal.set_wakeup_fd(-1)
            for number in HEARD:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
            os.setpgid(0, 0)  # Ctrl-C is for the process that started it, which ends it in order
            for each in (self._wake_read, self._wake_write, self._lifeline_write):
                os.close(each)
            counts = SharedCounts(self._folder, f"{place.number}-{os.getpid()}")
            status = self._work(WorkerFacts(place.number, counts, self._lifeline_read))
        except ConfigurationError as error:
            log.failure("start_failed", reason=str(error), worker=place.number)
        except BaseException as fault:  # noqa: BLE001 - nothing may run on in the place of the supervisor
            log.fault("worker_failed", fault, worker=place.number)
        finally:
            os._exit(status)

    def _revive(self, place: _WorkerSlot, status: int) -> None:
        lived = time.monotonic() - place.started
        pause = 0.0
        if lived >= (MIN_LIFE_FAILED if status == 1 else MIN_LIFE):
            place.pause, place.due = 1.0, time.monotonic()
        else:
            pause = self._pause(place)
        log.warning("worker_died", worker=place.number, status=status, lived=round(lived, 1), again_in=pause)

    def _pause(self, place: _WorkerSlot) -> float:
        """Puts off the next start, each time for longer; returns for how many seconds."""
        pause = place.pause
        place.due, place.pause = time.monotonic() + pause, min(MAX_PAUSE, 2 * pause)
        return pause

    def _ended(self) -> list[tuple[_WorkerSlot, int]]:
        """The workers that have ended since, each with its exit status; below zero: the signal that ended it."""
        found: list[tuple[_WorkerSlot, int]] = []
        for place in self._places:
            if not place.pid:
                continue
            pid, status = os.waitpid(place.pid, os.WNOHANG)
            if pid:
                place.pid = 0
                bury(self._folder, f"{place.number}-{pid}")
                found.append((place, os.waitstatus_to_exitcode(status)))
        return found

    def _end_all(self) -> int:
        """Ends the workers in order; a second signal hurries them. That is passed on as SIGINT: of SIGTERM a worker may
        get one from whoever sends it to all processes, too, as systemd does."""
        passed_on = 0
        deadline = time.monotonic() + self._grace + PATIENCE
        while any(place.pid for place in self._places):
            if passed_on < max(1, self._signals):
                self._send(signal.SIGINT if passed_on else signal.SIGTERM)
                passed_on += 1
            if time.monotonic() > deadline:
                self._send(signal.SIGKILL)
            self._wait(0.5)
            self._ended()
        return 0

    def _send(self, number: signal.Signals) -> None:
        for place in self._places:
            if place.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(place.pid, number)

    def _wait(self, seconds: float) -> None:
        """Until a signal comes, at most so long."""
        ready, _, _ = select.select([self._wake_read], [], [], max(0.0, seconds))
        if ready:
            os.read(self._wake_read, 512)
