"""Tasks that outlive their request, long computations in threads, the circuit breaker of all that may fail."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundTasks:
    """Tasks that nobody waits for until the end. Each is held here: asyncio itself holds a task only weakly."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Runs it from now on, whoever leaves. It handles its own errors."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finished(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that goes on to its end also if the caller is cancelled meanwhile."""
        task = self.start(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits for it
        return await asyncio.shield(task)

    async def cancel(self) -> None:
        """Ends them; returns once none is left."""
        for task in self._tasks:
            task.cancel()
        await self.finish()

    async def caught_up(self) -> None:
        """Returns once those that run now have ended."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def finish(self) -> None:
        """Returns once none is left, also of those that are started meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)


async def offload_if(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`work(*args)`: in a thread where it is a long computation, so that streams of other requests do not wait for it,
    else at once, since starting a thread takes longer."""
    return await asyncio.to_thread(work, *args, **kwargs) if large else work(*args, **kwargs)


@dataclass(slots=True, eq=False)
class Cooldown:
    """One breaker: `threshold` failures in a row begin a cooldown of `seconds`. Of cooldowns without an answer between
    them, each is twice as long as the one before, up to `max_seconds` where that is given.

    Times are seconds of a clock of the owner's. The owner also keeps it: in memory, or in a cache that replicas share.
    """

    threshold: int
    seconds: float
    max_seconds: float | None = None
    failures: int = 0
    until: float = -math.inf
    started: float | None = None
    """When the latest cooldown began; None: closed, as it has answered since or never failed often enough."""
    repeats: int = 0
    trial: object | None = None
    """The attempt that finds out whether it is well again; the owner sets it to None when it ended."""

    def remaining(self, now: float) -> float:
        """Seconds for which it is left alone: while a trial goes on, without end for all others."""
        if now < self.until:
            return self.until - now
        return 0.0 if self.trial is None else math.inf

    def began(self, attempt: object, now: float) -> None:
        """Makes the first attempt after a cooldown its trial."""
        if self.started is not None and self.trial is None and now >= self.until:
            self.trial = attempt

    def failed(self, now: float) -> bool:
        """Counts a failure; returns whether it began a cooldown. After one, each failure begins the next, unless the
        owner sets `failures` to 0."""
        self.failures += 1
        if self.failures >= self.threshold:
            self.start(now)
        return self.failures >= self.threshold

    def start(self, now: float, seconds: float | None = None) -> float:
        """Begins a cooldown, of its own length unless that is given; returns its seconds."""
        if seconds is None:
            seconds = min(self.seconds * 2.0 ** min(self.repeats, 30), self.max_seconds or self.seconds)
        self.started, self.until, self.trial = now, now + seconds, None
        self.repeats += 1
        return seconds

    def answered(self, began: float = math.inf) -> bool:
        """Ends the count of failures; returns whether this closes the breaker. An attempt that `began` before the
        cooldown does not: it tells nothing new."""
        self.failures = 0
        if self.started is None or began < self.started:
            return False
        self.started, self.until, self.repeats, self.trial = None, -math.inf, 0, None
        return True
