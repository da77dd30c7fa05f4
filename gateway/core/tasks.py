"""Tasks that outlive their request, long computations in threads, and the circuit breaker."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundTasks:
    """Tasks that nobody awaits to the end. They are referenced here, as asyncio holds only weak references."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Starts work that continues even if its caller is cancelled. The work handles its own errors."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finished(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for work and returns its result; the work runs to its end even if the caller is cancelled."""
        task = self.start(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody awaits it
        return await asyncio.shield(task)

    async def cancel(self, reason: str | None = None) -> None:
        """Cancels all tasks, with this message, and waits until none is left."""
        for task in self._tasks:
            task.cancel(reason)
        await self.finish()

    async def drain_current(self) -> None:
        """Waits until the tasks running now have ended."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def finish(self, seconds: float | None = None) -> None:
        """Waits until no task is left, including those started meanwhile, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._tasks:
                    await asyncio.wait(self._tasks)


async def offload_if(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns `work(*args)`. A `large` computation runs in a thread, so that other requests' streams do not wait for
    it; a small one runs directly, since starting a thread takes longer."""
    return await asyncio.to_thread(work, *args, **kwargs) if large else work(*args, **kwargs)


@dataclass(slots=True, eq=False)
class Cooldown:
    """One circuit breaker: `threshold` failures in a row begin a cooldown of `seconds`. Without an answer in between,
    each cooldown is twice as long as the one before, up to `max_seconds` if given.

    Times are seconds of the owner's clock. The owner stores the breaker: in memory, or in a cache that replicas share.
    """

    threshold: int
    seconds: float
    max_seconds: float | None = None
    failures: int = 0
    until: float = -math.inf
    started: float | None = None
    """When the latest cooldown began; None: closed, as an answer came since, or failures were too few."""
    repeats: int = 0
    trial: object | None = None
    """The attempt that probes for recovery; the owner sets it to None when it has ended."""

    def remaining(self, now: float) -> float:
        """Returns the seconds for which no attempt is made; infinite while a trial is running."""
        if now < self.until:
            return self.until - now
        return 0.0 if self.trial is None else math.inf

    def began(self, attempt: object, now: float) -> None:
        """Makes the first attempt after a cooldown the trial."""
        if self.started is not None and self.trial is None and now >= self.until:
            self.trial = attempt

    def failed(self, now: float) -> bool:
        """Counts a failure and returns whether it began a cooldown. After a cooldown, each failure begins the next,
        unless the owner sets `failures` to 0."""
        self.failures += 1
        if self.failures >= self.threshold:
            self.start(now)
        return self.failures >= self.threshold

    def start(self, now: float, seconds: float | None = None) -> float:
        """Begins a cooldown of `seconds` (None: the breaker's own length) and returns its seconds."""
        if seconds is None:
            seconds = min(self.seconds * 2.0 ** min(self.repeats, 30), self.max_seconds or self.seconds)
        self.started, self.until, self.trial = now, now + seconds, None
        self.repeats += 1
        return seconds

    def answered(self, began: float = math.inf) -> bool:
        """Resets the count of failures and returns whether this closes the breaker. The answer to an attempt that
        `began` before the cooldown does not close it, as it proves nothing new."""
        self.failures = 0
        if self.started is None or began < self.started:
            return False
        self.started, self.until, self.repeats, self.trial = None, -math.inf, 0, None
        return True
