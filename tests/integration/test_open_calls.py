"""Calls that are open, and who bills them when their process has died (guarantee §6.10)."""

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import sqlalchemy as sa

from gateway.core.errors import StorageUnavailable
from gateway.core.processes import is_dead, process_name
from gateway.core.types.conversation import ConversationRef
from gateway.core.types.turn import OpenCallRow
from gateway.pipeline.billing import OPEN_CALLS_ALIVE_FOR, OpenCalls, priced_prompt
from gateway.storage.database import schema
from gateway.storage.quota.library_rates import TableRates
from gateway.storage.store import ConversationStore
from tests.integration.commits import bill, contents, listed, rebuilt, turn
from tests.support.hand_clock import DayClock

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
PRICES = {"input_cost_per_token": Decimal("0.0000025"), "output_cost_per_token": Decimal("0.00001")}
NOBODY = dict.fromkeys(("conversation_id", "completion_id", "end_user", "agent", "key_id", "project", "endpoint"))


def of(store: ConversationStore, name: str, at: datetime = NOW) -> OpenCalls:
    """Those of a process elsewhere."""
    made = OpenCalls(store, DayClock(at))
    made._process = name
    return made


async def opened(calls: OpenCalls, tenant: str, request_id: str) -> None:
    facts = {**NOBODY, "tenant": tenant, "model": "gpt-4o", "stream": True, "route": ["gpt-4o"], "goal": "synthesis"}
    await calls.open(request_id, NOW, facts, [priced_prompt("openai/gpt-4o", 1000, PRICES)])


async def test_s6_10_a_call_that_is_given_up_while_it_is_opened_leaves_nothing(
    store: ConversationStore, tenant: str
) -> None:
    """§6.10: its client leaves while that is written: nobody was asked."""
    calls = of(store, f"mine-{tenant}")
    other = asyncio.ensure_future(store.commit(turn(tenant, f"conv_{tenant}", created=True)))
    await asyncio.sleep(0)  # with nothing else to write, SQLite has it before anybody can leave
    opening = asyncio.ensure_future(opened(calls, tenant, f"req_{tenant}"))
    await asyncio.sleep(0)
    opening.cancel()
    calls.close(f"req_{tenant}")
    await asyncio.gather(other, calls.drain(10))
    assert opening.cancelled()
    assert await left(store) == 0


async def left(store: ConversationStore) -> int:
    query = sa.select(sa.func.count()).select_from(schema.open_calls)
    return await store._transactions.run(lambda c: int(c.execute(query).scalar() or 0))


async def test_s6_10_of_processes_that_look_at_once_one_bills_a_dead_one(
    store: ConversationStore, other_store: ConversationStore, tenant: str
) -> None:
    """§6.10: not while it lives; then each call once, estimated, with its prompt alone."""
    dying = of(store, f"dying-{tenant}")
    for number in range(3):
        await opened(dying, tenant, f"req_{tenant}_{number}")
    await opened(dying, tenant, f"req_{tenant}_0")  # it goes on to a further model
    slots = TableRates(store._transactions, DayClock(NOW))
    assert await slots.enter(f"key of {tenant}", f"req_{tenant}_0", 1)
    others = [
        of(each, f"other-{tenant}-{n}", NOW + OPEN_CALLS_ALIVE_FOR / 2) for n, each in enumerate((store, other_store))
    ]
    assert await asyncio.gather(*(each.look() for each in others)) == [0, 0]
    later = [
        of(each, f"other-{tenant}-{n}", NOW + 2 * OPEN_CALLS_ALIVE_FOR) for n, each in enumerate((store, other_store))
    ]
    assert not await slots.enter(f"key of {tenant}", "another", 1)
    assert sum(await asyncio.gather(*(each.look() for each in later))) == 3
    assert await slots.enter(f"key of {tenant}", "another", 1), "nobody waits for what a dead one held"
    assert await left(store) == 0
    found = await store.find_completion(tenant, f"req_{tenant}_0")
    assert found is not None
    entry = found.ledger
    assert (entry.status, entry.error_code) == ("failed", "process_killed")
    assert entry.metadata["cost"]["total_cost"] == Decimal("0.0025")
    assert [(call.usage["prompt_tokens"], call.estimated) for call in entry.calls] == [(1000, True)]
    assert entry.figures is not None
    assert (entry.figures.direct_cost, entry.figures.net_saving) == (None, None), "what was left out is not known"


async def test_s6_10_a_heartbeat_keeps_long_calls(store: ConversationStore, tenant: str) -> None:
    """§6.10: of a model that thinks for minutes."""
    living, name = of(store, f"living-{tenant}"), f"req_{tenant}"
    await opened(living, tenant, name)
    for seconds in range(5, 60, 5):
        living._clock.at = NOW + timedelta(seconds=seconds)  # type: ignore[attr-defined]
        assert await living.look() == 0
        assert await of(store, f"other-{tenant}", NOW + timedelta(seconds=seconds + 4)).look() == 0
    await store.open_call(OpenCallRow(name, living._process))
    assert await left(store) == 0


async def test_s6_10_after_an_outage_of_the_storage_each_is_heard_of_again(
    store: ConversationStore, tenant: str
) -> None:
    """§6.10: none could say that it lives; the first that looked billed the running requests of all others."""
    living, looking = of(store, f"living-{tenant}"), of(store, f"looking-{tenant}")
    await opened(living, tenant, f"req_{tenant}")
    assert await looking.look() == 0
    for seconds, beats, billed in ((60, False, 0), (65, True, 0), (78, False, 0), (81, False, 1)):
        looking._clock.at = living._clock.at = NOW + timedelta(seconds=seconds)  # type: ignore[attr-defined]
        assert await looking.look() == billed, seconds
        if beats:
            assert await living.look() == 0


async def test_s6_10_a_process_that_was_only_thought_dead_stores_no_turn_and_no_second_bill(
    store: ConversationStore, other_store: ConversationStore, tenant: str
) -> None:
    """§6.10: its client gets an error, and those that commit beside it do not suffer."""
    paused, mine = of(store, f"paused-{tenant}"), turn(tenant, "conv_" + tenant, created=True)
    await opened(paused, tenant, mine.ledger.request_id)
    assert await of(other_store, f"other-{tenant}", NOW + 2 * OPEN_CALLS_ALIVE_FOR).look() == 1
    alone = turn(tenant, "conv_other_" + tenant, created=True)
    done = await asyncio.gather(store.commit(mine), store.commit(alone), return_exceptions=True)
    assert isinstance(done[0], StorageUnavailable)
    assert done[1] is None
    assert [each.ledger.status for each in await listed(store, tenant, "conv_other_" + tenant)] == ["complete"]
    found = await store.find_completion(tenant, mine.ledger.request_id)
    assert found is not None
    assert found.ledger.error_code == "process_killed"


async def test_s6_10_a_bill_closes_its_call(store: ConversationStore, tenant: str) -> None:
    """§6.10: in one transaction with it, so that nobody bills it again."""
    entry, calls = bill(tenant, None), of(store, f"mine-{tenant}")
    await opened(calls, tenant, entry.request_id)
    commit = turn(tenant, "conv_" + tenant, created=True)
    await opened(calls, tenant, commit.ledger.request_id)
    await store.commit(commit)
    assert await left(store) == 1
    await store.open_call(OpenCallRow(entry.request_id, calls._process))
    assert await of(store, f"other-{tenant}", NOW + 2 * OPEN_CALLS_ALIVE_FOR).look() == 0
    assert contents(await rebuilt(store, tenant, _ref(tenant))) == ["question", "answer"]


@pytest.mark.skipif(sys.platform != "linux", reason="there it is known by heartbeats")
def test_s6_10_on_its_own_machine_the_end_of_a_process_is_seen_at_once() -> None:
    """§6.10: whatever its heartbeat said; another with its number is not taken for it."""
    until = NOW + OPEN_CALLS_ALIVE_FOR
    mine = process_name()
    assert not is_dead(mine, None, NOW)
    assert is_dead(mine.rpartition(":")[0] + ":1", until, NOW)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_dead(f"{mine.partition(':')[0]}:{ended.pid}:1", until, NOW)
    elsewhere = f"elsewhere:{os.getpid()}:1"
    assert (is_dead(elsewhere, until, NOW), is_dead(elsewhere, NOW, NOW)) == (False, True)


def _ref(tenant: str) -> ConversationRef:
    return ConversationRef("conv_" + tenant)
