"""Jobs beside requests, with time that a test moves."""

import asyncio
import contextlib
import heapq
import logging

import pytest

from gateway.core.errors import StorageUnavailable
from gateway.core.scheduler import JITTER, NextRun, Scheduler, repeating


class HandTime:
    """Sleepers that are woken in the order of their times."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._count = 0

    async def sleep(self, seconds: float) -> None:
        """Until the test has moved on so far."""
        self._count += 1
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (self.seconds + seconds, self._count, woken))
        await woken.wait()

    async def move(self, seconds: float) -> None:
        """Wakes all whose time comes meanwhile."""
        until = self.seconds + seconds
        await settled()
        while self._sleepers and self._sleepers[0][0] <= until:
            self.seconds, _, woken = heapq.heappop(self._sleepers)
            woken.set()
            await settled()
        self.seconds = until


async def settled() -> None:
    """Everything that can run has run."""
    for _ in range(10):
        await asyncio.sleep(0)


class RecordedJob:
    """Notes when it ran, and does in each run what it was told for it: to fail, or to say when it is to run again."""

    def __init__(self, time: HandTime, *runs: Exception | float | None) -> None:
        self._time, self._runs = time, list(runs)
        self.at: list[float] = []

    async def __call__(self) -> NextRun | None:
        self.at.append(self._time.seconds)
        run = self._runs.pop(0) if self._runs else None
        if isinstance(run, Exception):
            raise run
        return NextRun(run) if run is not None else None


@pytest.fixture
def time() -> HandTime:
    return HandTime()


@pytest.fixture
def scheduler(time: HandTime) -> Scheduler:
    """Without chance."""
    return Scheduler(time.sleep, lambda: 0.0)


@pytest.mark.parametrize(
    ("at_once", "retry", "runs", "at"),
    [
        (False, None, (), [10, 20, 30, 40]),
        (True, None, (), [0, 10, 20, 30, 40]),
        (True, None, (1.0, 1.0, None), [0, 1, 2, 12, 22, 32, 42]),
        (False, None, (25.0,), [10, 35, 45]),
        (False, None, (KeyError("a"), ValueError("b")), [10, 20, 30, 40]),
        (False, 5.0, (KeyError("a"), StorageUnavailable("b")), [10, 15, 20, 30, 40]),
        (False, None, (2.0, KeyError("a")), [10, 12, 14, 24, 34, 44]),
        (True, None, (KeyError("a"),), [0, 10, 20, 30, 40]),
    ],
)
async def test_a_job_runs_when_it_is_to(
    time: HandTime,
    scheduler: Scheduler,
    at_once: bool,
    retry: float | None,
    runs: tuple[Exception | float | None, ...],
    at: list[float],
) -> None:
    job = RecordedJob(time, *runs)
    scheduler.every(10.0, job, name="job", at_once=at_once, retry=retry)
    await time.move(45.0)
    assert job.at == at
    await scheduler.close()


async def test_one_kind_of_fault_is_told_once_until_the_job_has_worked(
    time: HandTime, scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    down = StorageUnavailable("It is down.")
    runs = (KeyError("a"), KeyError("b"), down, down, ValueError("c"), None, KeyError("d"), down)
    job, silent = RecordedJob(time, *runs), RecordedJob(time, *[down] * 5)
    scheduler.every(1.0, job, name="sweep", postponed="sweep_postponed", failed="sweep_failed")
    scheduler.every(1.0, silent, name="silent")
    with caplog.at_level(logging.INFO):
        await time.move(20.0)
    told = [record.getMessage() for record in caplog.records]
    first = ["sweep_failed", "sweep_postponed", "sweep_failed"]
    assert told == [*first, "sweep_failed", "sweep_postponed"]
    assert len(job.at) == len(silent.at) == 20
    await scheduler.close()


async def test_the_jobs_of_many_processes_come_apart_and_none_comes_late(time: HandTime) -> None:
    jobs = [RecordedJob(time) for _ in range(20)]
    scheduler = Scheduler(time.sleep)
    for job in jobs:
        scheduler.every(10.0, job, name="job")
    await time.move(10.0)
    assert all(10.0 * (1 - JITTER) <= job.at[0] <= 10.0 for job in jobs)
    assert len({job.at[0] for job in jobs}) > 10
    await scheduler.close()


async def test_a_slow_job_keeps_no_other_waiting_and_is_cancelled_at_the_end(
    time: HandTime, scheduler: Scheduler
) -> None:
    ended, other = asyncio.Event(), RecordedJob(time)
    began = 0

    async def slow() -> None:
        nonlocal began
        began += 1
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.set()

    scheduler.every(1.0, slow, name="slow")
    scheduler.every(1.0, other, name="other")
    await time.move(5.0)
    assert (began, other.at) == (1, [1.0, 2.0, 3.0, 4.0, 5.0])
    await scheduler.close()
    assert ended.is_set()
    await time.move(5.0)
    assert (began, len(other.at)) == (1, 5)


async def test_who_closes_waits_only_so_long_for_a_job_that_does_not_end(time: HandTime, scheduler: Scheduler) -> None:
    stuck = asyncio.Event()

    async def stubborn() -> None:
        try:
            await stuck.wait()
        except asyncio.CancelledError:
            await stuck.wait()

    scheduler.every(1.0, stubborn, name="stubborn")
    await time.move(1.0)
    async with asyncio.timeout(5):
        await scheduler.close(0.01)
    stuck.set()
    await scheduler.close()


@pytest.mark.parametrize("fault", [None, ValueError("in the block")])
async def test_a_block_repeats_its_job_until_it_is_left(fault: Exception | None) -> None:
    runs, enough = 0, asyncio.Event()

    async def job() -> None:
        nonlocal runs
        runs += 1
        if runs == 2:
            raise StorageUnavailable("It is down.")
        if runs >= 3:
            enough.set()

    with pytest.raises(ValueError, match="in the block") if fault else contextlib.nullcontext():
        async with repeating(0.001, job, name="job"):
            async with asyncio.timeout(5):
                await enough.wait()
            if fault:
                raise fault
    after = runs
    await asyncio.sleep(0.01)
    assert runs == after >= 3
