"""Requests that are answered once, however often they are sent: by `Idempotency-Key`, and an SDK's own retries.

Within a process those who wait are told by an event; other processes are seen in the storage. No transaction is open
while anyone waits.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Literal

from gateway.base.ids import new_id
from gateway.errors import AnswerNotKept, IdempotencyKeyInUse, IdempotencyKeyMismatch, StorageUnavailable
from gateway.models.exchange import ChatRequest
from gateway.models.turn import Claim, ClaimRecord, RequestIdentity, StoredCompletion
from gateway.ports import Clock
from gateway.storage.claims import ClaimStore
from gateway.storage.store import ConversationStore
from gateway.telemetry.logs import get_logger

log = get_logger("gateway.turn.idempotency")
RETRIED_WITHIN = timedelta(minutes=10)
ALIVE_FOR = timedelta(seconds=30)
BEAT_SECONDS = 10.0
POLL_SECONDS = (0.1, 1.0)
MOST_CONTESTED = 10_000
MOST_UNRELEASED = 10_000

Decision = Literal["run", "run_alone", "replay", "wait", "in_use", "mismatch"]


def decide(identity: RequestIdentity, record: ClaimRecord | None) -> Decision:
    """What becomes of a named request, or of an SDK's retry, of which the storage knows `record`.

    `run_alone`: it runs, and nobody is answered from it, as nobody can tell whose answer it is.
    """
    if record is None or not record.valid:
        return "run"
    if identity.named:
        if record.body != identity.body:
            return "mismatch"
        return "replay" if record.state == "done" else "in_use"
    if record.state == "contested":
        return "run_alone"
    return "replay" if record.state == "done" else "wait"


@dataclass(slots=True, eq=False)
class _Running:
    """A request in this process. `looked`: it is known whether it runs (`begun`); `over`: its end; `waiting`: how many
    wait for that. `ended`: it has been answered, and what is left is to commit its claim or to let it go."""

    claim: Claim | None = None
    begun: bool = False
    ended: bool = False
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0


@dataclass(slots=True)
class Permit:
    """A request that runs. `claim` goes with it to its commit; leaving the context tells whoever waits."""

    claim: Claim | None
    _end: "partial[None]" = field(repr=False)
    _entry: _Running | None = field(default=None, repr=False)

    @property
    def wanted(self) -> bool:
        """Whether anybody in this process waits for its answer."""
        return self.claim is not None and self._entry is not None and self._entry.waiting > 0

    def __enter__(self) -> "Permit":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


class IdempotencyGate:
    """Says of each request whether it runs, waits or has been answered."""

    def __init__(self, claims: ClaimStore, store: ConversationStore, clock: Clock, hours: float) -> None:
        self._claims = claims
        self._store = store
        self._clock = clock
        self._named_for = timedelta(hours=hours)
        self._process = new_id("proc_")
        self._alive_until: datetime | None = None
        self._running: dict[tuple[str, bytes], _Running] = {}
        self._held: set[Claim] = set()
        self._contested: dict[tuple[str, bytes], datetime] = {}
        self._unreleased: deque[Claim] = deque(maxlen=MOST_UNRELEASED)
        self._tasks: set[asyncio.Task[None]] = set()

    async def admit(self, identity: RequestIdentity, request: ChatRequest) -> Permit | StoredCompletion:
        """A permit to run it, or the answer that it was given before. An SDK's retry waits for its first.

        Raises:
            IdempotencyKeyInUse, IdempotencyKeyMismatch, AnswerNotKept: see there.
            StorageUnavailable: it cannot be known whether it was answered.
        """
        recorded = identity.named or request.keeps_content
        if not (identity.named or identity.repeated):
            return await self._first(identity, request, recorded)
        while (other := self._running.get(identity.place)) is not None:
            other.waiting += 1
            try:
                await (other.looked if identity.named and not other.ended else other.over).wait()
            finally:
                other.waiting -= 1
            if identity.named and other.begun and not other.ended and not other.over.is_set():
                raise _refusal(identity, other)
        entry = self._running[identity.place] = _Running()
        try:
            return await self._repeat(identity, request, entry, recorded)
        except BaseException:
            self._leave(identity, entry)
            raise

    async def _first(self, identity: RequestIdentity, request: ChatRequest, recorded: bool) -> Permit:
        """Not a repeat: it runs in any case. If the same request runs already, nobody can tell any more which of
        the two a retry repeats: for a while, retries of it run themselves."""
        other = self._running.get(identity.place)
        entry = None
        if other is None:
            entry = self._running[identity.place] = _Running()
        if not (recorded and self._claims.shared):
            if other is not None:
                self._contest(identity.place, other)
            alone = other is not None or self._is_contested(identity.place)
            claim = None if alone or not recorded else self._claim(identity, request)
            return self._permit(identity, claim, entry)
        claim = self._claim(identity, request)
        try:
            record = await self._take(claim, anew=True)
        except BaseException:
            self._leave(identity, entry)
            raise
        return self._permit(identity, claim if record is None else None, entry)

    async def _repeat(
        self, identity: RequestIdentity, request: ChatRequest, entry: _Running, recorded: bool
    ) -> Permit | StoredCompletion:
        """Named by its client, or an SDK's retry, and the only one of its kind at work in this process."""
        if not recorded or (not identity.named and self._is_contested(identity.place)):
            return self._permit(identity, None, entry)
        await self._let_go()  # the storage is back, and so may be who asked before it went away
        claim = self._claim(identity, request)
        pause, longest = POLL_SECONDS
        while True:
            record = await (self._take(claim, anew=False) if self._claims.shared else self._claims.find(identity))
            match decide(identity, record):
                case "run":
                    return self._permit(identity, claim, entry)
                case "run_alone":
                    return self._permit(identity, None, entry)
                case "in_use":
                    raise IdempotencyKeyInUse
                case "mismatch":
                    raise IdempotencyKeyMismatch
                case "replay" if record is not None:
                    return await self._again(claim, record, entry)
            await asyncio.sleep(pause)
            pause = min(longest, 2 * pause)

    async def _again(self, claim: Claim, record: ClaimRecord, entry: _Running) -> Permit | StoredCompletion:
        """The answer as it is stored. Where it is not, a retry runs as if it were the first."""
        identity = claim.identity
        stored = await self._store.find_completion(identity.tenant, record.request_id)
        if stored is not None and stored.whole:
            self._leave(identity, entry)
            return stored
        if identity.named:
            raise AnswerNotKept
        if self._claims.shared and await self._take(claim, anew=True) is not None:
            return self._permit(identity, None, entry)
        return self._permit(identity, claim, entry)

    def _claim(self, identity: RequestIdentity, request: ChatRequest) -> Claim:
        kept = self._named_for if identity.named else RETRIED_WITHIN
        return Claim(identity, request.request_id, self._process, request.arrived_at, kept)

    async def _take(self, claim: Claim, *, anew: bool) -> ClaimRecord | None:
        """Takes it in the storage, and lets it go again if nobody is there any more when it has been taken."""
        now = self._clock.now()
        due = self._alive_until is None or self._alive_until - now < ALIVE_FOR - timedelta(seconds=BEAT_SECONDS)
        alive_until = now + ALIVE_FOR if due else None
        task = asyncio.ensure_future(self._claims.take(claim, anew=anew, alive_until=alive_until))
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

    def _taken_for_nobody(self, claim: Claim, task: "asyncio.Task[ClaimRecord | None]") -> None:
        if not task.cancelled() and task.exception() is None and task.result() is None:
            self._later(self._release(claim, None))

    def _permit(self, identity: RequestIdentity, claim: Claim | None, entry: _Running | None) -> Permit:
        if entry is not None:
            entry.claim, entry.begun = claim, True
            entry.looked.set()
        return Permit(claim, partial(self._end, identity, claim, entry), entry)

    def _end(self, identity: RequestIdentity, claim: Claim | None, entry: _Running | None) -> None:
        """The request is over; but a commit that has begun runs to its end, whoever has left. Who has been told of its
        failure may send it again at once, before the storage has let it go."""
        if entry is not None:
            entry.ended = True
        if claim is None:
            self._leave(identity, entry)
        elif claim.settling is not None and not claim.settling.done():
            claim.settling.add_done_callback(lambda _: self._close(claim, entry))
        else:
            self._close(claim, entry)

    def _close(self, claim: Claim, entry: _Running | None) -> None:
        if claim.settled:
            self._held.discard(claim)
            self._leave(claim.identity, entry)
        else:
            self._later(self._release(claim, entry))

    async def _release(self, claim: Claim, entry: _Running | None) -> None:
        try:
            await self._claims.release(claim)
        except StorageUnavailable:
            self._unreleased.append(claim)
        except Exception as fault:  # noqa: BLE001 - whoever waits must not wait for ever; the row expires by itself
            log.fault("claim_not_released", fault, request_id=claim.request_id)
        finally:
            self._held.discard(claim)
            self._leave(claim.identity, entry)

    def _leave(self, identity: RequestIdentity, entry: _Running | None) -> None:
        if entry is None:
            return
        if self._running.get(identity.place) is entry:
            del self._running[identity.place]
        entry.looked.set()
        entry.over.set()

    def _contest(self, place: tuple[str, bytes], running: _Running) -> None:
        if running.claim is not None:
            running.claim.contested = True
        if len(self._contested) >= MOST_CONTESTED:
            self._contested.clear()
        self._contested[place] = self._clock.now() + RETRIED_WITHIN

    def _is_contested(self, place: tuple[str, bytes]) -> bool:
        until = self._contested.get(place)
        if until is not None and until <= self._clock.now():
            del self._contested[place]
            return False
        return until is not None

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def keep(self) -> None:
        """Beats beside the server, until it is cancelled; whatever goes wrong, it tries again next time."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                await self.beat()
            except StorageUnavailable as error:
                log.warning("claims_not_confirmed", reason=error.message)
            except Exception as fault:  # noqa: BLE001 - the claims of everyone else must not end with it
                log.fault("beat_failed", fault)

    async def beat(self) -> None:
        """Says that this process is alive while it holds claims, and lets go what it could not let go before.

        Raises:
            StorageUnavailable: it could not be said; claims are another's to take after `ALIVE_FOR`.
        """
        if self._held:
            until = self._clock.now() + ALIVE_FOR
            await self._claims.beat(self._process, until)
            self._alive_until = until
        await self._let_go()

    async def _let_go(self) -> None:
        while self._unreleased:
            claim = self._unreleased.popleft()
            try:
                await self._claims.release(claim)
            except BaseException:
                self._unreleased.append(claim)
                raise

    async def drain(self, seconds: float) -> None:
        """Waits for claims that are being let go, at shutdown."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)


def _refusal(identity: RequestIdentity, other: _Running) -> IdempotencyKeyInUse | IdempotencyKeyMismatch:
    same = other.claim is None or other.claim.identity.body == identity.body
    return IdempotencyKeyInUse() if same else IdempotencyKeyMismatch()
