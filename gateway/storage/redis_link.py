"""Commands to one Redis that cost a request milliseconds at most, whatever has become of that Redis."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gateway.logs import get_logger
from gateway.ports import Clock

PAUSE_SECONDS = 2.0
AT_ONCE = 64
"""Commands, each on a connection of its own, that are under way at the same time."""
PROBE_WAIT = 5
"""Requests wait for a probe that has just begun, until this part of a command's time is over."""
ROUNDS = 5
"""Rounds of the event loop after its time in which an answer that had come in time is still read: a loop that somebody
held up finds the answer and the end of the time together."""
log = get_logger("gateway.cache")


class RedisLink:
    """A request waits `timeout_seconds` for an answer. A command that takes longer goes on for a while without it, on
    its own connection, so that no answer is ever read by somebody else. After a fault nobody waits any more: what
    tells that Redis answers in time again is a probe beside the requests.
    """

    def __init__(self, url: str, timeout_seconds: float, clock: Clock) -> None:
        self._url = url
        self._timeout = timeout_seconds
        self._longest = max(1.0, 2 * timeout_seconds)
        self._clock = clock
        self._client: Any = None
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._running: set[asyncio.Task[Any]] = set()
        self._paused_until: float | None = None
        self._probe: asyncio.Task[None] | None = None
        self._wait_until = 0.0

    async def send(self, *command: Any) -> Any:
        """The answer; None also if there is none in time, or the command is refused."""
        if self._paused_until is not None and not await self._is_back():
            return None
        task = self._start(self._asked(*command))
        await asyncio.wait({task}, timeout=self._timeout)
        for _ in range(ROUNDS):
            if task.done():
                return None if task.cancelled() else task.result()
            await asyncio.sleep(0)
        self._pause("too_slow")
        return None

    async def close(self) -> None:
        """Gives up what is under way and closes the connections."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        if self._client is not None:
            await self._client.aclose()

    async def _asked(self, *command: Any) -> Any:
        try:
            async with asyncio.timeout(self._longest), self._slots:
                return await self._opened().execute_command(*command)
        except ResponseError as refused:  # what it holds under that key is not ours: no reason to leave it alone
            log.warning("cache_refused", reason=type(refused).__name__)
        except Exception as error:  # noqa: BLE001 - whatever a broken server does to its client costs a miss
            self._pause(type(error).__name__)
        return None

    def _opened(self) -> Any:
        if self._client is None:
            seconds = self._longest
            self._client = Redis.from_url(self._url, socket_timeout=seconds, socket_connect_timeout=seconds)
        return self._client

    def _pause(self, reason: str) -> None:
        if self._paused_until is None:
            log.warning("cache_unavailable", reason=reason)
        self._paused_until = self._clock.monotonic() + PAUSE_SECONDS

    async def _is_back(self) -> bool:
        loop = asyncio.get_running_loop()
        if self._probe is None or self._probe.done():
            if self._paused_until is not None and self._clock.monotonic() < self._paused_until:
                return False
            self._probe = self._start(self._probed())
            self._wait_until = loop.time() + self._timeout / PROBE_WAIT
        if (seconds := self._wait_until - loop.time()) > 0:
            await asyncio.wait({self._probe}, timeout=seconds)
        return self._paused_until is None

    async def _probed(self) -> None:
        """Ends the pause if Redis answers in time, once there is a connection; else it begins anew."""
        answered = await self._asked("PING") and await self._answers_in_time()
        if answered:
            self._paused_until = None
            log.info("cache_available")
        else:
            self._pause("probe")

    async def _answers_in_time(self) -> bool:
        began = asyncio.get_running_loop().time()
        answer = await self._asked("PING")
        return bool(answer) and asyncio.get_running_loop().time() - began <= self._timeout

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task
