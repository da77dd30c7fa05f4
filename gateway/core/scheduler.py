"""Jobs beside requests: each runs again and again until the process ends."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.core.instrumentation.logs import get_logger

JITTER = 0.1
"""Largest share of its interval by which a job runs early, so that processes started together do not stay in step."""
log = get_logger("gateway.core.scheduler")


@record
class NextRun:
    """The seconds until a job runs again, if they differ from its schedule."""

    seconds: float


Job = Callable[[], Awaitable[NextRun | None]]


CHANCE = random.Random()
"""A generator of its own, so that whoever seeds the global one is not disturbed."""


class Scheduler:
    """Runs jobs, each in a task of its own. A failure costs the job that run alone. A kind of fault is logged once, and
    again only after a run has succeeded.
    `sleep`: waits for a number of seconds; `chance`: draws a number from [0, 1)."""

    def __init__(
        self, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep, chance: Callable[[], float] = CHANCE.random
    ) -> None:
        self._sleep, self._chance = sleep, chance
        self._tasks: list[asyncio.Task[None]] = []

    def every(
        self,
        seconds: float,
        job: Job,
        *,
        name: str,
        at_once: bool = False,
        retry: float | None = None,
        postponed: str | None = None,
        failed: str = "job_failed",
    ) -> None:
        """Runs a job every `seconds` from now on, one run after the other.
        `at_once`: whether it runs now, too; `retry`: seconds until the next run after a fault; None: as many as before;
        `postponed`: the event logged when the storage is unavailable; None: nothing is logged; `failed`: the event of
        any other fault."""
        wait = 0.0 if at_once else seconds

        async def run() -> None:
            nonlocal wait
            told: set[type[Exception]] = set()
            while True:
                await self._sleep(wait * (1 - JITTER * self._chance()))
                try:
                    found = await job()
                    wait = found.seconds if found is not None else seconds
                    told.clear()
                    continue
                except errors.StorageUnavailable as error:
                    if postponed is not None and type(error) not in told:
                        log.warning(postponed, reason=error.message)
                    told.add(type(error))
                except Exception as fault:  # noqa: BLE001 - one bad run must not end the job while the server runs
                    if type(fault) not in told:
                        log.fault(failed, fault, job=name)
                    told.add(type(fault))
                wait = retry if retry is not None else wait or seconds

        self._tasks.append(asyncio.create_task(run(), name=name))

    async def close(self, seconds: float | None = None) -> None:
        """Cancels all jobs and waits until they have ended, at most `seconds`."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


@asynccontextmanager
async def repeating(seconds: float, job: Job, *, name: str) -> AsyncIterator[None]:
    """Runs a job every `seconds` until the end of the block, for example to renew a lock that the block holds."""
    scheduler = Scheduler()
    scheduler.every(seconds, job, name=name)
    try:
        yield
    finally:
        await scheduler.close()
