"""Turns that are under way in this process. A request that goes on from one whose client has left waits until that is
committed (guarantee §3.7)."""

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from gateway.conversations.rebuild import users_of
from gateway.core.types.chain import ChainDigest
from gateway.core.types.chat import ChatRequest
from gateway.pipeline.stages import RequestRun
from gateway.pipeline.stored_turn import chain_of

MAX_SECONDS = 5.0
"""How long a request waits for the turn before it. A commit that takes longer is not waited for."""
PASSES = 3
"""Passes of the event loop within which a connection that has been closed is known to be."""
Key = tuple[Hashable, ...]


class RunningTurns:
    """Knows a turn by the name of its conversation, and by what its client will have said with the next request.

    Only turns of this process are known: of another replica's a request sees what is committed.
    """

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        self._seconds = seconds
        self._running: defaultdict[str, dict[str, tuple[RequestRun, list[Key]]]] = defaultdict(dict)
        self._by_key: defaultdict[Key, dict[str, RequestRun]] = defaultdict(dict)
        self._ends: dict[str, asyncio.Event] = {}

    def __len__(self) -> int:
        return sum(map(len, self._running.values()))

    def enter(self, run: RequestRun) -> None:
        """A turn that will be stored is under way from now on, until `leave`."""
        prepared, request = run.prepared, run.prepared.request
        if prepared.conversation_id is None or request.options.dry_run:
            return
        tenant = request.caller.tenant
        keys = [*_names(request), (tenant, "id", prepared.conversation_id), _said(request, chain_of(prepared).end)]
        if request.api is not None:
            keys.append((tenant, "answer", run.completion_id))
        self._running[tenant][request.request_id] = run, keys
        for key in keys:
            self._by_key[key][request.request_id] = run

    def leave(self, run: RequestRun) -> None:
        """The turn is committed, or never will be. Does nothing if it is not under way."""
        request_id, tenant = run.asked.request_id, run.asked.caller.tenant
        _, keys = self._running[tenant].pop(request_id, (run, []))
        if not self._running[tenant]:
            del self._running[tenant]
        for key in keys:
            found = self._by_key[key]
            found.pop(request_id, None)
            if not found:
                del self._by_key[key]
        end = self._ends.pop(request_id, None)
        if end is not None:
            end.set()

    async def ended(self, request: ChatRequest, chain: Sequence[ChainDigest]) -> None:
        """Returns once every turn that the request goes on from is committed, if its client has left or its commit has
        begun, or after `seconds`. A turn that somebody is still reading is not waited for.
        `chain`: the chain digests after each message of the request."""
        if request.caller.tenant not in self._running:
            return
        keys = {*_names(request), *(_said(request, digest) for digest in chain)}
        if not self._found(keys):
            return
        for _ in range(PASSES):
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(self._seconds):
                while leaving := [each for each in self._found(keys) if _is_leaving(each)]:
                    await self._end_of(leaving[0]).wait()
        except TimeoutError:
            return

    def _found(self, keys: Iterable[Key]) -> list[RequestRun]:
        return [each for key in keys if key in self._by_key for each in self._by_key[key].values()]

    def _end_of(self, run: RequestRun) -> asyncio.Event:
        return self._ends.setdefault(run.asked.request_id, asyncio.Event())


def _is_leaving(run: RequestRun) -> bool:
    return run.is_ending or run.asked.has_left()


def _names(request: ChatRequest) -> list[Key]:
    """The conversation as the request names it, if it does."""
    tenant, ref = request.caller.tenant, request.conversation
    named = {"id": ref.conversation_id, "session": ref.session, "answer": ref.behind}
    return [(tenant, kind, name) for kind, name in named.items() if name is not None]


def _said(request: ChatRequest, digest: ChainDigest) -> Key:
    """What was said up to a message, as guarantee §3.2 recognises it."""
    return request.caller.tenant, users_of(request.forward, request.caller), digest.said
