"""Work beside the event loop's own: tasks that outlive their request, and long computations in threads."""

import asyncio
from collections.abc import Callable, Coroutine
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
