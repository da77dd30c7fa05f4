"""Lets work in a thread ask for what only the event loop can do, in its request's own task."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Asked = TypeVar("Asked")
Told = TypeVar("Told")


class Bridge(Generic[Asked, Told]):
    """The thread calls `ask` and waits; the task that runs `run` answers. Whoever cancels that task ends what it waits
    for, and the thread is told `nothing`."""

    def __init__(self, threads: Executor, answer: Callable[[Asked], Awaitable[Told]], nothing: Told) -> None:
        self._threads = threads
        self._answer = answer
        self._nothing = nothing
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[tuple[Asked, Future[Told]]] = asyncio.Queue()
        self._closed = False

    def ask(self, asked: Asked) -> Told:
        """To be called in the thread."""
        told: Future[Told] = Future()
        self._loop.call_soon_threadsafe(self._put, asked, told)
        return told.result()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """What `work` returns, which runs in a thread."""
        self._closed = False
        working = self._loop.run_in_executor(self._threads, work, *arguments)
        told: Future[Told] | None = None
        try:
            while True:
                question = asyncio.ensure_future(self._waiting.get())
                either: set[asyncio.Future[Any]] = {working, question}
                try:
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    question.cancel()
                if not question.done() or question.cancelled():
                    return await working
                asked, told = question.result()
                told.set_result(await self._answer(asked))
                told = None
        finally:
            self._closed = True
            working.add_done_callback(lambda done: done.cancelled() or done.exception())
            if told is not None and not told.done():
                told.set_result(self._nothing)
            while not self._waiting.empty():
                self._waiting.get_nowait()[1].set_result(self._nothing)

    def _put(self, asked: Asked, told: "Future[Told]") -> None:
        if self._closed:
            told.set_result(self._nothing)
        else:
            self._waiting.put_nowait((asked, told))
