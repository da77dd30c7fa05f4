"""Streams end with their key: revoked, replaced or expired, it is found out within seconds (guarantee §12.2)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gateway.api.auth import KeyAuthenticator
from gateway.api.server.fast_router import Scope
from gateway.core.errors import Forbidden, Unauthorized
from gateway.core.types.chat import RequestCaller

CHECK_SECONDS = 1.0
"""Between two looks. An answer of the storage holds for three more (`api.runtime_keys`): less than five."""
CREDENTIALS = (b"authorization", b"x-api-key")
ENDED = "The key of this request does not count any more."


class KeyWatch:
    """Looks again and again at the keys of running streams; what cannot be looked up now goes on."""

    def __init__(self, auth: KeyAuthenticator) -> None:
        self._auth = auth
        self._running: dict[Any, tuple[Scope, set[asyncio.Task[Any]]]] = {}
        self._ended: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.Task[None] | None = None

    @contextmanager
    def holding(self, scope: Scope, caller: RequestCaller) -> Iterator[None]:
        """While a stream is sent by the task that this is called in.
        Raises Unauthorized: its key ended meanwhile, and what was within was cancelled."""
        task = asyncio.current_task()
        if caller.key is None or caller.key.is_signed or task is None:  # a token counts when its request comes
            yield
            return
        key = tuple(pair for pair in scope["headers"] if pair[0] in CREDENTIALS)
        self._running.setdefault(key, (scope, set()))[1].add(task)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())
        try:
            yield
        except asyncio.CancelledError:
            if task in self._ended and task.uncancel() == 0:
                raise Unauthorized(ENDED) from None
            raise
        finally:
            self._ended.discard(task)
            tasks = self._running[key][1]
            tasks.discard(task)
            if not tasks:
                del self._running[key]

    async def _watch(self) -> None:
        while self._running:
            await asyncio.sleep(CHECK_SECONDS)
            await asyncio.gather(*map(self._look, list(self._running)), return_exceptions=True)

    async def _look(self, key: Any) -> None:
        scope, tasks = self._running[key]
        try:
            await self._auth.caller(scope)
        except (Unauthorized, Forbidden):
            for task in tasks - self._ended:
                self._ended.add(task)
                task.cancel()

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
