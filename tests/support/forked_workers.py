"""Workers forked once all tests are collected, in place of pytest-xdist's, each of which collects them anew.

For `pytest -n NUMBER --dist loadfile` on Linux. Elsewhere, where what the system's libraries keep may not outlive a
fork, and for other ways to distribute tests, it stays with pytest-xdist.
"""

import contextlib
import gc
import os
import sys
from collections import deque
from collections.abc import Iterator
from itertools import chain, pairwise
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Literal

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Comes before pytest-xdist's own, which then finds nothing to distribute."""
    if sys.platform == "linux" and getattr(config.option, "dist", "no") == "loadfile":
        config.option.dist = "no"
        config.pluginmanager.register(ForkedWorkers(config), "forked workers")


class ForkedWorkers:
    """Gives each worker a file, and the next before the last test of that, and passes on what it reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._files: deque[list[int]] = deque()
        self._pids: dict[Any, int] = {}
        self._left: dict[Any, deque[int]] = {}  # the places of those tests that it was given and has not ended
        self._told: Connection | None = None  # in a worker, how that went

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Literal[True] | None:
        """Returns in a worker, too, once that has run its tests: it clears up as any session does."""
        if session.testsfailed or self._config.option.collectonly:
            return None
        files: dict[str, list[int]] = {}
        for place, item in enumerate(session.items):
            files.setdefault(item.nodeid.partition("::")[0], []).append(place)
        self._files.extend(files.values())
        try:
            while self._files or self._pids:
                while self._files and len(self._pids) < len(self._config.option.tx):
                    if (told := self._fork()) is not None:
                        self._work(session, told)
                        return True
                for worker in wait(list(self._pids)):
                    self._hear(session, worker)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
        finally:
            for worker, pid in self._pids.items():
                worker.close()  # it ends when it cannot report
                os.waitpid(pid, 0)
        return True

    def _fork(self) -> Connection | None:
        ours, theirs = Pipe()
        if pid := os.fork():
            theirs.close()
            self._pids[ours], self._left[ours] = pid, deque()
            self._give(ours)
            return None
        for connection in (ours, *self._pids):
            connection.close()
        self._pids.clear()
        return theirs

    def _give(self, worker: Any) -> None:
        file = self._files.popleft() if self._files else []
        self._left[worker].extend(file)
        worker.send(file)

    def _hear(self, session: pytest.Session, worker: Any) -> None:
        hook, left = self._config.hook, self._left[worker]
        try:
            if not (told := worker.recv()):
                return self._give(worker)
            report = hook.pytest_report_from_serializable(config=self._config, data=told)
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                left.popleft()
        except (EOFError, ConnectionError):
            status = os.waitstatus_to_exitcode(os.waitpid(self._pids.pop(worker), 0)[1])
            if left or status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                item, why = session.items[left.popleft() if left else -1], f"its worker ended with {status}"
                report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
                hook.pytest_runtest_logreport(report=report)
            self._files.extendleft([list(left)] if left else [])

    def _work(self, session: pytest.Session, told: Connection) -> None:
        """What is shown and kept of the run is left to the process that forked this."""
        self._config.workerinput = {}  # type: ignore[attr-defined]  # by which plugins know a worker
        capture = self._config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        self._config.get_terminal_writer()._file = Path(os.devnull).open("w")  # noqa: SIM115
        factory: Any = self._config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.mktemp("worker")
        self._told = told
        with contextlib.suppress(EOFError, ConnectionError):  # nobody listens any more
            for item, following in pairwise(chain(_given(session, told), (None,))):
                self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        gc.freeze()  # pytest looks for garbage at the end, for seconds among all that thousands of tests left

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In a worker, tells it."""
        if self._told:
            self._told.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _given(session: pytest.Session, told: Connection) -> Iterator[pytest.Item]:
    while places := told.recv():
        yield from (session.items[place] for place in places)
        told.send({})
