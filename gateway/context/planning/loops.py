"""Tool loops that were answered, known by their first call. A client that says it again behind a user message that is
not stored is not recognised from request to request, and a turn asks its planner once all the same (guarantee §5)."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from gateway.core import jsons
from gateway.core.errors import StorageUnavailable
from gateway.core.ports import CacheBackend
from gateway.core.types.conversation import ConversationHistory
from gateway.core.types.tool_steps import calls_of, turn_starts

LOOP_SECONDS = 3600.0
"""How long a loop is known after its first step, or after its planner was asked."""
ASKED, ANSWERED = b"asked", b"answered"
Body = dict[str, Any]


class ToolLoops:
    """Keyed digests of first calls, in the cache, so that replicas know them of each other. Nobody's words are in it. A
    cache that is down costs nothing but this knowledge.

    Args:
        secret: reads the storage's; may raise StorageUnavailable.
    """

    def __init__(self, cache: CacheBackend, secret: Callable[[], Awaitable[bytes]]) -> None:
        self._cache, self._secret = cache, secret

    async def seen_in(self, tenant: str, history: ConversationHistory, *, stored: bool) -> ConversationHistory:
        """The conversation with what is known of its latest tool loop, where that loop is not stored.

        Args:
            stored: the request leaves stored content. What is not stored is not recognised in any case.
        """
        bodies = [message.body for message in history.messages]
        call, index, current = _latest_loop(bodies, history.stored if stored else 0)
        if call is None:
            return history
        found = await self._cache.get(key) if (key := await self._key(tenant, call)) is not None else None
        if found is None:
            return history
        return replace(history, unrecognised=stored, planned=found == ASKED and index >= current)

    async def note(self, tenant: str, messages: Sequence[Body], answers: Sequence[Body], *, asked: bool) -> None:
        """Notes the loop of a turn when it begins, and when its planner was asked.

        Args:
            messages: those of the request, the current turn at their end.
            answers: what they were answered.
            asked: a planner was asked for this request.
        """
        called = next((calls[0] for answer in answers if (calls := calls_of(answer))), None)
        if called is None and not asked:
            return
        call, index, current = _latest_loop(messages, 0)
        if call is None or index < current:
            call = called
        elif not asked:
            return
        if call is not None and (key := await self._key(tenant, call)) is not None:
            await self._cache.set(key, ASKED if asked else ANSWERED, LOOP_SECONDS)

    async def _key(self, tenant: str, call: Body) -> str | None:
        try:
            secret = await self._secret()
        except StorageUnavailable:
            return None
        function = call.get("function") or {}
        arguments = function.get("arguments")
        try:  # clients may write them anew
            arguments = jsons.loads(arguments or "{}")
        except (jsons.JSONDecodeError, TypeError):
            pass
        who = [tenant, call.get("id"), function.get("name"), arguments, call.get("custom")]
        return "tool_loop:" + hmac.digest(secret, b"loop\0" + jsons.canonical(who), "sha256").hex()


def _latest_loop(bodies: Sequence[Body], since: int) -> tuple[Body | None, int, int]:
    """The first call of the latest turn that has any, the index of its message, and that at which the current turn
    begins. None if that message is before `since`."""
    starts = [0, *turn_starts(body["role"] for body in bodies)]
    end = len(bodies)
    for start in reversed(starts):
        if end <= since:
            break
        called = ((index, calls[0]) for index in range(start, end) if (calls := calls_of(bodies[index])))
        if (found := next(called, None)) is not None:
            return found[1] if found[0] >= since else None, found[0], starts[-1]
        end = start
    return None, 0, starts[-1]
