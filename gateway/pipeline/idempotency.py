"""Answers requests with an `Idempotency-Key` once, however often they are sent (ADR 9).

Within a process a second request waits for an event; other processes are seen in the storage. No transaction is open
while a request waits.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Literal

from gateway.core import errors, ids, ports, processes
from gateway.core.instrumentation import logs
from gateway.core.tasks import BackgroundTasks
from gateway.core.types import turn
from gateway.core.types.chat import ChatRequest
from gateway.pipeline.billing import next_heartbeat
from gateway.storage import ClaimStore, ConversationStore

log = logs.get_logger("gateway.pipeline.idempotency")
CLAIM_LIFETIME = timedelta(seconds=30)
"""How long a process counts as alive after each heartbeat. The claims of a dead process are free."""
HEARTBEAT_SECONDS = 10.0
"""A third of `CLAIM_LIFETIME`: two heartbeats may be lost."""
MAX_UNRELEASED = 10_000
"""Claims that wait for release while the storage is down. Claims beyond that expire with their process."""

Decision = Literal["run", "replay", "in_use", "mismatch"]


def decide(identity: turn.RequestIdentity, record: turn.ClaimRecord | None) -> Decision:
    """Decides what happens to a request, given the stored record of its key."""
    if record is None or not record.valid:
        return "run"
    if record.body != identity.body:
        return "mismatch"
    return "replay" if record.state == "done" else "in_use"


@dataclass(slots=True, eq=False)
class _RunningKey:
    """A key whose request this process is answering.

    `claim` is set when the request runs, `admitted` when it is decided whether it runs. `answered`: the request is
    over, and its claim is being committed or released. `over`: the claim is committed or released as well.
    """

    claim: turn.RequestClaim | None = None
    answered: bool = False
    admitted: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class RunPermit:
    """The right to run a request. The commit takes its claim; otherwise leaving the context frees the key."""

    claim: turn.RequestClaim
    _end: "partial[None]" = field(repr=False)

    def __enter__(self) -> "RunPermit":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


class IdempotencyGate:
    """Decides for each request with a key whether it runs or receives an earlier answer."""

    def __init__(
        self,
        claims: ClaimStore,
        store: ConversationStore,
        clock: ports.Clock,
        hours: float,
        spares: Callable[[timedelta], bool],
    ) -> None:
        """`hours`: how long a key is valid after its request was answered; `spares`: as in `OpenCalls`."""
        self._claims = claims
        self._store = store
        self._clock = clock
        self._spares = spares
        self._kept = timedelta(hours=hours)
        self._process = processes.process_name(ids.new_id("")[-8:])
        self._alive_until: datetime | None = None
        self._running: dict[tuple[str, bytes], _RunningKey] = {}
        self._held: set[turn.RequestClaim] = set()
        self._unreleased: deque[turn.RequestClaim] = deque(maxlen=MAX_UNRELEASED)
        self._tasks = BackgroundTasks()

    async def secret(self) -> bytes:
        """Returns the key of the digests that identify requests.
        Raises StorageUnavailable: the storage cannot be reached."""
        return await self._store.secret()

    async def admit(self, identity: turn.RequestIdentity, request: ChatRequest) -> RunPermit | turn.StoredCompletion:
        """Returns a permit to run the request, or the answer that it received before.
        Raises IdempotencyKeyInUse: a request with this key is being answered; IdempotencyKeyMismatch: the key was used
        with another request; AnswerNotKept: the request was answered, and the answer is not stored; StorageUnavailable:
        it cannot be determined whether the key was used."""
        while (other := self._running.get(identity.place)) is not None:
            await (other.over if other.answered else other.admitted).wait()
            if other.claim is not None and not other.answered:
                raise (
                    errors.IdempotencyKeyInUse
                    if other.claim.identity.body == identity.body
                    else errors.IdempotencyKeyMismatch
                )
        entry = self._running[identity.place] = _RunningKey()
        try:
            await self._release_late()  # the storage may be back, and with it the client of a claim kept meanwhile
            claim = turn.RequestClaim(identity, request.request_id, self._process, request.arrived_at, self._kept)
            return await self._admit(claim, entry)
        except BaseException:
            self._leave(identity, entry)
            raise

    async def _admit(self, claim: turn.RequestClaim, entry: _RunningKey) -> RunPermit | turn.StoredCompletion:
        """Admits a request; this process runs no other with its key."""
        identity = claim.identity
        record = await (self._take(claim) if self._claims.shared else self._claims.find(identity))
        match decide(identity, record):
            case "in_use":
                raise errors.IdempotencyKeyInUse
            case "mismatch":
                raise errors.IdempotencyKeyMismatch
            case "replay" if record is not None:
                stored = await self._store.find_completion(identity.tenant, record.request_id)
                if stored is None or not stored.whole:
                    raise errors.AnswerNotKept
                self._leave(identity, entry)
                return stored
        entry.claim = claim
        entry.admitted.set()
        return RunPermit(claim, partial(self._end, claim, entry))

    async def _take(self, claim: turn.RequestClaim) -> turn.ClaimRecord | None:
        """Takes the claim in the storage; returns None, or the record of the current holder. If the client leaves
        meanwhile, a claim that was taken is released again."""
        if self._spares(CLAIM_LIFETIME):
            held = await self._claims.find(claim.identity)
            if held is not None and held.state == "running":
                return replace(held, valid=True)
        now = self._clock.now()
        alive_until = next_heartbeat(self._alive_until, now, CLAIM_LIFETIME, HEARTBEAT_SECONDS)
        task = asyncio.create_task(self._claims.take(claim, alive_until=alive_until))
        try:
            record = await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(partial(self._taken_for_nobody, claim))
            raise
        self._alive_until = alive_until or self._alive_until
        if record is None:
            claim.shared = True
            self._held.add(claim)
        return record

    def _taken_for_nobody(self, claim: turn.RequestClaim, task: "asyncio.Task[turn.ClaimRecord | None]") -> None:
        if not task.cancelled() and task.exception() is None and task.result() is None:
            self._tasks.start(self._release(claim, None))

    def _end(self, claim: turn.RequestClaim, entry: _RunningKey) -> None:
        """Ends the request. A commit that has begun runs to its end, even if the client has left."""
        entry.answered = True
        if claim.settling is not None and not claim.settling.done():
            claim.settling.add_done_callback(lambda _: self._close(claim, entry))
        else:
            self._close(claim, entry)

    def _close(self, claim: turn.RequestClaim, entry: _RunningKey) -> None:
        if claim.settled:
            self._held.discard(claim)
            self._leave(claim.identity, entry)
        else:
            self._tasks.start(self._release(claim, entry))

    async def _release(self, claim: turn.RequestClaim, entry: _RunningKey | None) -> None:
        try:
            await self._claims.release(claim)
        except errors.StorageUnavailable:
            self._unreleased.append(claim)
        except Exception as fault:  # noqa: BLE001 - waiting requests must go on; the row expires by itself
            log.fault("claim_not_released", fault, request_id=claim.request_id)
        finally:
            self._held.discard(claim)
            if entry is not None:
                self._leave(claim.identity, entry)

    def _leave(self, identity: turn.RequestIdentity, entry: _RunningKey) -> None:
        if self._running.get(identity.place) is entry:
            del self._running[identity.place]
        entry.admitted.set()
        entry.over.set()

    async def beat(self) -> None:
        """Records that this process is alive while it holds claims, and releases claims whose release failed before.
        Raises StorageUnavailable: nothing was recorded; other processes may take the claims after `CLAIM_LIFETIME`."""
        if self._held:
            until = self._clock.now() + CLAIM_LIFETIME
            await self._claims.beat(self._process, until)
            self._alive_until = until
        await self._release_late()

    async def _release_late(self) -> None:
        while self._unreleased:
            claim = self._unreleased.popleft()
            try:
                await self._claims.release(claim)
            except BaseException:
                self._unreleased.append(claim)
                raise

    async def drain(self, seconds: float) -> None:
        """Waits at shutdown for claims that are being released."""
        await self._tasks.finish(seconds)
