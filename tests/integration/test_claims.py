"""What every store of claims promises, on each kind of storage; processes share PostgreSQL alone."""

import asyncio
import sys
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gateway.core.ids import new_id
from gateway.core.processes import process_name
from gateway.core.types.turn import RequestClaim, RequestIdentity, StoredTurn, TurnCommit
from gateway.storage.claims import ClaimStore
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, bill, turn
from tests.support.answers import there
from tests.support.hand_clock import DayClock

SOON, DAY = timedelta(seconds=30), timedelta(days=1)


@pytest.fixture
def clock() -> DayClock:
    return DayClock(NOW)


@pytest.fixture
def claims(transactions: DatabaseTransactions, clock: DayClock) -> ClaimStore:
    return ClaimStore(transactions, clock)


@pytest.fixture
def store(transactions: DatabaseTransactions, clock: DayClock) -> ConversationStore:
    return ConversationStore(transactions, clock)


def claim(tenant: str, process: str = "proc_1", *, at: datetime = NOW) -> RequestClaim:
    identity = RequestIdentity(tenant, b"key", b"body")
    return RequestClaim(identity, new_id("req_"), process, at, timedelta(hours=24))


def answer(held: RequestClaim) -> TurnCommit:
    """The turn that answers it."""
    commit = turn(held.identity.tenant, new_id("conv_"), created=True, entry={"request_id": held.request_id})
    return replace(commit, claim=held)


async def taken(claims: ClaimStore, held: RequestClaim) -> bool:
    return await claims.take(held, alive_until=NOW + SOON) is None


async def test_s3_a_claim_is_one_requests(claims: ClaimStore, tenant: str) -> None:
    """The second sees who holds it and for what body; another tenant's is another's."""
    first, second = claim(tenant), claim(tenant, "proc_2")
    assert await taken(claims, first)
    found = there(await claims.take(second, alive_until=None))
    assert (found.state, found.request_id, found.body, found.valid) == ("running", first.request_id, b"body", True)
    assert await claims.find(first.identity) == found
    assert await taken(claims, claim(f"{tenant}-other"))


async def test_s3_the_commit_makes_it_a_record(
    claims: ClaimStore, store: ConversationStore, tenant: str, clock: DayClock
) -> None:
    """In one transaction with turn and bill; it counts for its time, then the key is free."""
    held = claim(tenant)
    assert await taken(claims, held)
    await store.commit(answer(held))
    assert held.settled
    found = there(await claims.find(held.identity))
    assert (found.state, found.request_id, found.created_at, found.valid) == ("done", held.request_id, NOW, True)
    clock.at += DAY - SOON
    assert not await taken(claims, claim(tenant))
    clock.at += SOON
    found = there(await claims.find(held.identity))
    assert not found.valid
    assert await taken(claims, claim(tenant))


async def test_s3_without_a_claim_in_the_storage(claims: ClaimStore, store: ConversationStore, tenant: str) -> None:
    """A single process holds its claims in memory: the record alone is written, and the later takes the place of the
    earlier, whichever commits last."""
    earlier, later = claim(tenant), claim(tenant, at=NOW + SOON)
    await store.commit(answer(later))
    await store.commit(answer(earlier))
    found = there(await claims.find(later.identity))
    assert found.request_id == later.request_id
    failed = claim(tenant, at=NOW + 2 * SOON)
    await store.commit(TurnCommit(bill(tenant, None, "failed", request_id=failed.request_id), claim=failed))
    assert await claims.find(later.identity) is None


@pytest.mark.parametrize("status", ["failed", "partial"])
async def test_s3_what_did_not_end_well_lets_it_go(
    claims: ClaimStore, store: ConversationStore, tenant: str, status: str
) -> None:
    """So that a retry runs; what others hold by then stays theirs."""
    held, next_one = claim(tenant), claim(tenant)
    assert await taken(claims, held)
    await store.commit(replace(turn(tenant, new_id("conv_"), created=True, status=status), claim=held))
    assert await claims.find(held.identity) is None
    assert await taken(claims, next_one)
    await claims.release(held)
    found = there(await claims.find(held.identity))
    assert found.request_id == next_one.request_id


async def test_s2_that_a_key_was_used_is_remembered_without_content(
    claims: ClaimStore, store: ConversationStore, tenant: str
) -> None:
    """`store: false` leaves the record, and nothing to give again."""
    held = claim(tenant)
    assert await taken(claims, held)
    await store.commit(TurnCommit(bill(tenant, None, request_id=held.request_id), claim=held))
    assert await claims.find(held.identity) is not None


async def test_s3_the_dead_hold_nothing(
    claims: ClaimStore, store: ConversationStore, tenant: str, clock: DayClock
) -> None:
    """A process that said nothing for its time has died: its claim is another's to take, and no longer its own."""
    held, heir = claim(tenant), claim(tenant, "proc_2")
    assert await taken(claims, held)
    clock.at += SOON - timedelta(seconds=1)
    await claims.beat("proc_1", clock.at + SOON)
    clock.at += SOON - timedelta(seconds=1)
    assert not await taken(claims, heir)
    clock.at += timedelta(seconds=1)
    assert await claims.take(heir, alive_until=clock.at + SOON) is None
    await store.commit(answer(held))
    found = there(await claims.find(held.identity))
    assert (found.state, found.request_id) == ("running", heir.request_id)


async def test_s3_who_was_killed_on_this_machine_holds_nothing_at_once(claims: ClaimStore, tenant: str) -> None:
    """A client that asks again after a restart is answered; of several, one holds it."""
    program = "from gateway.core.processes import process_name; print(process_name('x'))"
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    killed = claim(tenant, (await ended.communicate())[0].decode().strip())
    assert await taken(claims, killed)
    assert not there(await claims.find(killed.identity)).valid
    heirs = [claim(tenant, process_name(str(number))) for number in range(5)]
    assert sum(await asyncio.gather(*(taken(claims, each) for each in heirs))) == 1
    assert not await taken(claims, claim(tenant, process_name()))


async def test_s3_many_at_once_take_one(claims: ClaimStore, tenant: str) -> None:
    """Whoever asks at the same time: one holds it."""
    others = [claim(tenant, f"proc_{number}") for number in range(20)]
    assert sum(await asyncio.gather(*(taken(claims, each) for each in others))) == 1


async def test_s3_a_deleted_conversation_takes_its_replay(
    claims: ClaimStore, store: ConversationStore, tenant: str, transactions: DatabaseTransactions
) -> None:
    """That it was answered is remembered; the answer is not."""
    held = claim(tenant)
    commit = answer(held)
    assert isinstance(commit.turn, StoredTurn)
    await store.commit(commit)
    kept = there(await store.find_completion(tenant, held.request_id))
    assert kept.whole
    gone = schema.conversations.delete().where(schema.conversations.c.id == commit.turn.conversation_id)
    await transactions.run(lambda connection: connection.execute(gone), write=True)
    kept = there(await store.find_completion(tenant, held.request_id))
    assert not kept.whole
    assert await claims.find(held.identity) is not None
