"""A thread that asks what only the event loop can answer."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.retrieval.embeddings.search import LoopBridge

THREADS = ThreadPoolExecutor(2)


async def doubled(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def test_the_thread_gets_its_answers_and_the_task_what_the_work_gives() -> None:
    bridge: LoopBridge[int, int] = LoopBridge(THREADS, doubled, 0)
    assert await bridge.run(lambda start: bridge.ask(bridge.ask(start)), 3) == 12
    silent: LoopBridge[int, int] = LoopBridge(THREADS, doubled, 0)
    assert await silent.run(lambda: "nothing was asked") == "nothing was asked"


async def test_a_fault_of_the_work_is_the_tasks() -> None:
    bridge: LoopBridge[int, int] = LoopBridge(THREADS, doubled, 0)
    with pytest.raises(ZeroDivisionError):
        await bridge.run(lambda: bridge.ask(1) / 0)


async def test_who_leaves_ends_the_answer_and_lets_the_thread_go_on_with_nothing() -> None:
    begun, told = asyncio.Event(), threading.Event()
    cancelled: list[bool] = []
    answers: list[int] = []

    async def never(_: int) -> int:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return 1

    def work() -> None:
        answers.append(bridge.ask(1))
        answers.append(bridge.ask(2))
        told.set()

    bridge: LoopBridge[int, int] = LoopBridge(THREADS, never, -1)
    task = asyncio.ensure_future(bridge.run(work))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == [True]
    assert await asyncio.to_thread(told.wait, 5)
    assert answers == [-1, -1]
