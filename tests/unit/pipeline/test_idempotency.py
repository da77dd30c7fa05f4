"""Requests that are answered once: the decisions, and who waits for whom."""

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any, cast

import pytest

from gateway.core.errors import AnswerNotKept, IdempotencyKeyInUse, IdempotencyKeyMismatch, StorageUnavailable
from gateway.core.types.artifacts import ContextGoal
from gateway.core.types.chat import ChatRequest, ContextOptions
from gateway.core.types.turn import ClaimRecord, ClaimState, RequestClaim, RequestIdentity, StoredCompletion
from gateway.pipeline.idempotency import CLAIM_LIFETIME, Decision, IdempotencyGate, RunPermit, decide
from gateway.storage.claims import ClaimStore
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, bill
from tests.support.hand_clock import DayClock

NAMED = RequestIdentity("tenant", b"key", b"body")
OTHER_KEY = RequestIdentity("tenant", b"other key", b"body")
OTHER_BODY = RequestIdentity("tenant", b"key", b"other")


def record(state: ClaimState, *, body: bytes = b"body", valid: bool = True) -> ClaimRecord:
    return ClaimRecord(state, "req_first", body, NOW, valid)


@pytest.mark.parametrize(
    ("identity", "known", "expected"),
    [
        (NAMED, None, "run"),
        (NAMED, record("running", valid=False), "run"),
        (NAMED, record("done", valid=False), "run"),
        (NAMED, record("running"), "in_use"),
        (NAMED, record("done"), "replay"),
        (NAMED, record("running", body=b"other"), "mismatch"),
        (NAMED, record("done", body=b"other"), "mismatch"),
        (NAMED, record("done", body=b"other", valid=False), "run"),
    ],
)
def test_s3_what_becomes_of_it(identity: RequestIdentity, known: ClaimRecord | None, expected: Decision) -> None:
    """The rules of docs/api.md, "Answered once", row by row."""
    assert decide(identity, known) == expected


class Storage:
    """Claims and completions in memory, as one process (`shared` False) or several see them."""

    def __init__(self, clock: DayClock, *, shared: bool) -> None:
        self.shared = shared
        self.down = False
        self.kept = True
        self.rows: dict[tuple[str, bytes], tuple[ClaimState, str, bytes]] = {}
        self.beats: list[Any] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._clock = clock

    async def take(self, claim: RequestClaim, *, alive_until: Any) -> ClaimRecord | None:
        await self._reached()
        self.beats.append(alive_until)
        state, request_id, body = self.rows.get(claim.identity.place, ("done", "", b""))
        if claim.identity.place not in self.rows:
            self.rows[claim.identity.place] = ("running", claim.request_id, claim.identity.body)
            return None
        return ClaimRecord(state, request_id, body, NOW, valid=True)

    async def find(self, identity: RequestIdentity) -> ClaimRecord | None:
        await self._reached()
        row = self.rows.get(identity.place)
        return ClaimRecord(*row, NOW, valid=True) if row else None

    async def release(self, claim: RequestClaim) -> None:
        await self._reached()
        if self.rows.get(claim.identity.place, ("", "", b""))[1] == claim.request_id:
            del self.rows[claim.identity.place]

    async def beat(self, process: str, alive_until: Any) -> None:
        await self._reached()
        self.beats.append(alive_until)

    async def find_completion(self, tenant: str, completion_id: str) -> StoredCompletion:
        message = {"role": "assistant", "content": "Noon."}
        completion = {"choices": [{"index": 0, "message": message}]} if self.kept else None
        return StoredCompletion(bill(tenant, "conv_1", request_id=completion_id), completion)

    async def _reached(self) -> None:
        await self.gate.wait()
        if self.down:
            raise StorageUnavailable("down")

    async def commit(self, claim: RequestClaim) -> None:
        await self._reached()
        self.rows[claim.identity.place] = ("done", claim.request_id, claim.identity.body)


@pytest.fixture
def clock() -> DayClock:
    return DayClock(NOW)


@pytest.fixture(params=[False, True], ids=["one process", "several"])
async def storage(request: pytest.FixtureRequest, clock: DayClock) -> Storage:
    return Storage(clock, shared=request.param)


@pytest.fixture
async def once(storage: Storage, clock: DayClock) -> IdempotencyGate:
    return IdempotencyGate(
        cast(ClaimStore, storage), cast(ConversationStore, storage), clock, 24.0, lambda lifetime: False
    )


def chat(request_id: str, *, store: bool = True) -> ChatRequest:
    options = ContextOptions("auto", "auto", ContextGoal.SYNTHESIS)
    fields: dict[str, Any] = dict.fromkeys(each.name for each in dataclasses.fields(ChatRequest))
    return ChatRequest(**{**fields, "request_id": request_id, "options": options, "store": store, "arrived_at": NOW})


async def run(
    once: IdempotencyGate, storage: Storage, identity: RequestIdentity, name: str, *, commits: bool = True
) -> None:
    permit = await once.admit(identity, chat(name))
    assert isinstance(permit, RunPermit)
    with permit:
        if commits:
            await permit.claim.settle(storage.commit(permit.claim))


async def settle() -> None:
    """Lets everyone go on who can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_s3_after_an_outage_of_the_storage_no_claim_is_taken_from_others(clock: DayClock) -> None:
    """Those that run the requests could not say that they live, as little as this one could reach the storage."""
    storage, away = Storage(clock, shared=True), True
    once = IdempotencyGate(
        cast(ClaimStore, storage), cast(ConversationStore, storage), clock, 24.0, lambda lifetime: away
    )
    storage.rows[NAMED.place] = ("running", "req_elsewhere", NAMED.body)
    with pytest.raises(IdempotencyKeyInUse):
        await once.admit(NAMED, chat("req_again"))
    assert storage.beats == [], "nobody asked for the claim"
    del storage.rows[NAMED.place]
    await run(once, storage, NAMED, "req_again")
    assert storage.rows[NAMED.place][:2] == ("done", "req_again")


async def test_s3_a_named_request(once: IdempotencyGate, storage: Storage) -> None:
    """409 while it runs, 422 for another body all along, its answer from then on."""
    permit = await once.admit(NAMED, chat("req_first"))
    assert isinstance(permit, RunPermit)
    with pytest.raises(IdempotencyKeyInUse):
        await once.admit(NAMED, chat("req_2"))
    with pytest.raises(IdempotencyKeyMismatch):
        await once.admit(OTHER_BODY, chat("req_3"))
    with permit:
        await permit.claim.settle(storage.commit(permit.claim))
    answers = await asyncio.gather(*(once.admit(NAMED, chat(f"req_{n}")) for n in range(3)))
    assert [a.ledger.request_id for a in answers if isinstance(a, StoredCompletion)] == 3 * ["req_first"]
    with pytest.raises(IdempotencyKeyMismatch):
        await once.admit(OTHER_BODY, chat("req_5"))
    storage.kept = False
    with pytest.raises(AnswerNotKept):
        await once.admit(NAMED, chat("req_6"))


async def test_s3_what_failed_is_let_go(once: IdempotencyGate, storage: Storage) -> None:
    """Without a commit the key is free again; also where the storage was down at that moment."""
    await run(once, storage, NAMED, "req_first", commits=False)
    await once.drain(1)
    permit = await once.admit(NAMED, chat("req_2"))
    assert isinstance(permit, RunPermit)
    storage.down = True
    with permit:
        pass
    await once.drain(1)
    with pytest.raises(StorageUnavailable):
        await once.admit(NAMED, chat("req_3"))
    storage.down = False
    await once.beat()
    await run(once, storage, NAMED, "req_4")
    assert storage.rows[NAMED.place][:2] == ("done", "req_4")


async def test_s3_who_was_told_of_a_failure_need_not_wait(once: IdempotencyGate, storage: Storage) -> None:
    """Another body with the same key comes while the storage still lets go of the first: it runs once that is done."""
    failed = await once.admit(NAMED, chat("req_first"))
    assert isinstance(failed, RunPermit)
    storage.gate.clear()
    with failed:
        pass
    soon = asyncio.ensure_future(once.admit(OTHER_BODY, chat("req_2")))
    await settle()
    assert not soon.done()
    storage.gate.set()
    assert isinstance(await soon, RunPermit)


async def test_s3_a_commit_under_way_is_waited_for(once: IdempotencyGate, storage: Storage) -> None:
    """The client left while its turn was being committed: the commit ends, and the retry is answered from it."""
    first = await once.admit(NAMED, chat("req_first"))
    assert isinstance(first, RunPermit)

    async def answer(claim: RequestClaim) -> None:
        with first:
            await claim.settle(storage.commit(claim))

    storage.gate.clear()
    running = asyncio.ensure_future(answer(first.claim))
    await settle()
    running.cancel()
    await settle()
    retry = asyncio.ensure_future(once.admit(NAMED, chat("req_2")))
    await settle()
    assert not retry.done()
    storage.gate.set()
    given = await retry
    assert isinstance(given, StoredCompletion)
    assert given.ledger.request_id == "req_first"


async def test_s3_a_client_that_leaves_while_it_is_looked_up(once: IdempotencyGate, storage: Storage) -> None:
    """Whatever it was about to take is free again, and whoever waited goes on."""
    storage.gate.clear()
    gone = asyncio.ensure_future(once.admit(NAMED, chat("req_first")))
    next_one = asyncio.ensure_future(once.admit(NAMED, chat("req_2")))
    await settle()
    gone.cancel()
    await settle()
    storage.gate.set()
    if storage.shared:  # it may come too early: the SDK asks again
        with pytest.raises(IdempotencyKeyInUse):
            await next_one
        await once.drain(1)
        next_one = asyncio.ensure_future(once.admit(NAMED, chat("req_3")))
    assert isinstance(await next_one, RunPermit)


async def test_s3_who_holds_claims_says_that_it_lives(clock: DayClock) -> None:
    """With the first claim, then as long as there are any; nobody is told of a process without."""
    storage = Storage(clock, shared=True)
    once = IdempotencyGate(
        cast(ClaimStore, storage), cast(ConversationStore, storage), clock, 24.0, lambda lifetime: False
    )
    await once.beat()
    assert storage.beats == []
    permit = await once.admit(NAMED, chat("req_first"))
    assert isinstance(permit, RunPermit)
    await run(once, storage, OTHER_KEY, "req_2")
    assert storage.beats == [NOW + CLAIM_LIFETIME, None]
    clock.at += timedelta(seconds=25)
    await once.beat()
    assert storage.beats[-1] == clock.at + CLAIM_LIFETIME
    with permit:
        pass
    await once.drain(1)
    await once.beat()
    assert len(storage.beats) == 3
