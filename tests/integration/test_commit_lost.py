"""A connection that is cut while a turn is stored: whole or not at all, and its bill once (guarantee §3.6, §6)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.errors import StorageUnavailable
from gateway.core.types.turn import TurnCommit
from gateway.storage.database.sqlite import open_transactions
from gateway.storage.store import ConversationStore
from tests.integration.commits import bill, contents, listed, rebuilt, turn
from tests.support.postgres import Postgres
from tests.support.proxies import CuttingProxy, Moment


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture
def proxy(database: str) -> Iterator[CuttingProxy]:
    made = CuttingProxy(database)
    yield made
    made.close()


@pytest.fixture
async def store(proxy: CuttingProxy) -> AsyncIterator[ConversationStore]:
    """A store behind the proxy."""
    transactions = open_transactions(StorageSettings(url=proxy.url, timeout=1.0))
    yield ConversationStore(transactions, SystemClock())
    await transactions.close()


async def history(store: ConversationStore, tenant: str) -> list[str]:
    return contents(await rebuilt(store, tenant, "conv_" + tenant))


async def error_codes(store: ConversationStore, commit: TurnCommit) -> list[str | None]:
    """What the rows of one request's bill say; there may be one."""
    entry = commit.ledger
    found = await listed(store, entry.tenant, entry.conversation_id or "")
    return [each.ledger.error_code for each in found if each.ledger.request_id == entry.request_id]


def late_bill(lost: TurnCommit) -> TurnCommit:
    """What is recorded of a turn whose client got an error instead of the acknowledgement."""
    return TurnCommit(replace(lost.ledger, error_code="turn_not_stored"), again=True)


@pytest.mark.parametrize("moment", ["within", "before the commit", "after the commit"])
async def test_a_cut_connection_costs_no_turn_and_doubles_none(
    proxy: CuttingProxy, store: ConversationStore, tenant: str, moment: Moment
) -> None:
    """§3.6: what was certainly rolled back is tried again; after a COMMIT without an answer the ledger is asked."""
    await store.commit(turn(tenant, "conv_" + tenant, created=True))
    proxy.cut(moment)
    await store.commit(turn(tenant, "conv_" + tenant, "q2", ["a2"]))
    assert proxy.has_cut.wait(proxy.SECONDS)
    await store.commit(turn(tenant, "conv_" + tenant, "q3", ["a3"]))
    assert await history(store, tenant) == ["question", "answer", "q2", "a2", "q3", "a3"]
    assert len(await listed(store, tenant, "conv_" + tenant)) == 3


@pytest.mark.parametrize("moment", ["within", "before the commit", "after the commit"])
async def test_a_storage_that_goes_at_the_commit_keeps_the_turn_whole_or_not_at_all(
    proxy: CuttingProxy, store: ConversationStore, tenant: str, moment: Moment
) -> None:
    """§3.6: an error instead of the acknowledgement. Its bill, recorded later, is there once, and says that the turn
    was not stored only where it was not."""
    await store.commit(turn(tenant, "conv_" + tenant, created=True))
    proxy.cut(moment, then_refuse=True)
    lost = turn(tenant, "conv_" + tenant, "q2", ["a2"])
    with pytest.raises(StorageUnavailable):
        await store.commit(lost)
    proxy.let_through()
    await store.commit(late_bill(lost))
    await store.commit(late_bill(lost))
    stored = moment == "after the commit"
    assert await history(store, tenant) == ["question", "answer", *(["q2", "a2"] if stored else [])]
    assert await error_codes(store, lost) == [None if stored else "turn_not_stored"]


async def test_a_commit_that_is_still_on_its_way_is_not_overtaken(
    proxy: CuttingProxy, store: ConversationStore, tenant: str
) -> None:
    """§3.6: the server may come to a COMMIT after its client is gone. Until then nobody can say, so it is an error;
    afterwards the turn stands once, with its own bill."""
    await store.commit(turn(tenant, "conv_" + tenant, created=True))
    proxy.cut("commit on its way")
    lost = turn(tenant, "conv_" + tenant, "q2", ["a2"])
    with pytest.raises(StorageUnavailable):
        await store.commit(lost)
    proxy.release()
    await store.commit(late_bill(lost))
    assert await history(store, tenant) == ["question", "answer", "q2", "a2"]
    assert await error_codes(store, lost) == [None]


async def test_late_bills_are_recorded_whatever_of_them_is_there(store: ConversationStore, tenant: str) -> None:
    """§6: one row for each request, also where some of a batch went through before."""
    bills = [TurnCommit(bill(tenant, None), again=True) for _ in range(4)]
    await store.commit(bills[1])
    await asyncio.gather(*(store.commit(each) for each in bills))
    for each in bills:
        assert await store.find_completion(tenant, each.ledger.request_id) is not None
