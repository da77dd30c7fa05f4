"""`ports.RateStore`, one suite for all: memory, tables in SQLite and PostgreSQL, Valkey (guarantee §12.4)."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.errors import LimitsUnavailable
from gateway.core.ids import new_id
from gateway.core.ports import RateStore
from gateway.core.types.keys import RateWindow
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.quota import library_rates
from gateway.storage.quota.library_rates import TableRates, ValkeyRates
from gateway.storage.quota.local import LocalRates, open_rates
from tests.support.postgres import Postgres
from tests.support.process import free_port
from tests.support.schemas import bring_up, sqlite_url
from tests.support.valkey import Valkey, ValkeyProcess

KINDS = ["memory", "sqlite", "postgres", "valkey"]


@pytest.fixture(scope="module")
def postgres_url(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture(params=KINDS)
async def rates(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RateStore]:
    """Nothing is counted there."""
    transactions: DatabaseTransactions | None = None
    found: RateStore
    if request.param == "memory":
        found = LocalRates()
    elif request.param == "valkey":
        server: Valkey = request.getfixturevalue("valkey")
        found = ValkeyRates(server.url, 5.0)
    else:
        url = sqlite_url(tmp_path) if request.param == "sqlite" else request.getfixturevalue("postgres_url")
        transactions = open_transactions(StorageSettings(url=url))
        await bring_up(transactions)
        found = TableRates(transactions, SystemClock())
    yield found
    await found.close()
    if transactions is not None:
        await transactions.close()


async def done(work: Coroutine[Any, Any, None] | None) -> None:
    """What is done at once is None."""
    if work is not None:
        await work


def counted(window: RateWindow) -> int:
    """Of both windows: a test may run over the end of a minute."""
    return window.previous + window.current


async def test_s12_4_no_more_than_the_limit_is_counted(rates: RateStore) -> None:
    key = new_id("k")
    found = [await rates.take(key, 3, 1) for _ in range(5)]
    assert [fits for fits, _ in found] == [True, True, True, False, False]
    assert [counted(window) for _, window in found] == [1, 2, 3, 3, 3]
    assert (await rates.take(new_id("k"), 3, 1))[0]


async def test_s12_4_many_at_once_get_no_more_than_the_limit(rates: RateStore) -> None:
    key = new_id("k")
    found = await asyncio.gather(*(rates.take(key, 100, 7) for _ in range(30)))
    assert sum(fits for fits, _ in found) == 14


async def test_what_is_more_than_the_limit_never_fits(rates: RateStore) -> None:
    assert not (await rates.take(new_id("k"), 10, 11))[0]


async def test_a_count_is_corrected_both_ways(rates: RateStore) -> None:
    key, at = new_id("k"), time.time()
    assert (await rates.take(key, 100, 90))[0]
    await done(rates.correct(key, -80, at))
    fits, window = await rates.take(key, 100, 20)
    assert (fits, counted(window)) == (True, 30)
    await done(rates.correct(key, 500, at))  # also beyond the limit
    fits, window = await rates.take(key, 100, 1)
    assert (fits, counted(window)) == (False, 530)


async def test_what_was_counted_in_an_earlier_minute_is_not_taken_out_of_this_one(rates: RateStore) -> None:
    key = new_id("k")
    assert (await rates.take(key, 100, 90))[0]
    await done(rates.correct(key, -80, time.time() - 61))
    assert counted((await rates.take(key, 100, 1))[1]) == 91


async def test_the_seconds_of_a_window(rates: RateStore) -> None:
    _, window = await rates.take(new_id("k"), 10, 1)
    assert 60 <= window.current_seconds <= 120
    assert 0 <= window.previous_seconds <= 60


async def test_s12_4_so_many_run_at_once_and_no_more(rates: RateStore) -> None:
    key, ids = new_id("k"), [new_id("req_") for _ in range(20)]
    entered = await asyncio.gather(*(rates.enter(key, each, 3) for each in ids))
    assert sum(entered) == 3
    running = [each for each, is_in in zip(ids, entered, strict=True) if is_in]
    assert await rates.enter(key, running[0], 3)  # it is there already
    await done(rates.leave(key, running[0]))
    await done(rates.leave(key, running[0]))
    assert await rates.enter(key, new_id("req_"), 3)
    assert not await rates.enter(key, new_id("req_"), 3)
    assert await rates.enter(new_id("k"), ids[0], 1)


async def test_s12_4_requests_of_a_killed_process_end_by_themselves(
    rates: RateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(rates, LocalRates):
        pytest.skip("what is in memory ends with its process")
    key, dead, alive = new_id("k"), new_id("req_"), new_id("req_")
    monkeypatch.setattr(library_rates, "SLOT_SECONDS", 0.5)
    assert await rates.enter(key, dead, 2)
    assert await rates.enter(key, alive, 2)
    monkeypatch.setattr(library_rates, "SLOT_SECONDS", 60.0)
    await rates.renew([(key, alive), (key, new_id("req_"))])
    assert not await rates.enter(key, new_id("req_"), 2)
    await asyncio.sleep(0.6)
    assert await rates.enter(key, new_id("req_"), 2)
    assert not await rates.enter(key, new_id("req_"), 2)


async def test_what_is_over_is_swept(rates: RateStore) -> None:
    assert (await rates.take(new_id("k"), 3, 1))[0]
    await rates.sweep()


async def test_s12_4_a_valkey_that_is_not_there_is_told_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at one address; at the other all connections are cut, and counted."""
    monkeypatch.setattr("gateway.storage.quota.library_rates.PAUSE_SECONDS", 60.0)  # a busy machine may stop
    nobody = ValkeyRates(f"redis://127.0.0.1:{free_port()}/0", 0.5)
    tried = 0

    async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tried
        tried += 1
        writer.close()

    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
        cutting = ValkeyRates(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", 0.5)
        for rates in (nobody, cutting):
            with pytest.raises(LimitsUnavailable):
                await rates.take("k", 3, 1)
        before = tried
        assert before > 0
        for rates in (nobody, cutting):
            for _ in range(50):
                with pytest.raises(LimitsUnavailable):
                    await rates.enter("k", "req_1", 1)
            await rates.close()
        assert tried == before, "it is left alone"


async def test_s12_4_a_valkey_that_hangs_holds_up_one_request(chaos_valkey: ValkeyProcess) -> None:
    rates = ValkeyRates(chaos_valkey.url, 0.5)
    assert (await rates.take("k", 3, 1))[0]
    chaos_valkey.pause()
    for _ in range(5):
        with pytest.raises(LimitsUnavailable):
            await rates.take("k", 3, 1)
    chaos_valkey.resume()
    await asyncio.sleep(2.1)
    assert (await rates.take("k", 3, 1))[0]
    await rates.close()


async def test_where_it_is_counted(module_storage_url: str) -> None:
    """In Valkey where there is one, in PostgreSQL without, in memory without either."""
    transactions = open_transactions(StorageSettings(url=module_storage_url))
    found = open_rates(None, 1.0, transactions, SystemClock())
    assert type(found) is (TableRates if transactions.remote else LocalRates)
    valkey = open_rates("redis://127.0.0.1:1/0", 1.0, transactions, SystemClock())
    assert isinstance(valkey, ValkeyRates)
    await valkey.close()
    await transactions.close()


async def test_a_restart_of_valkey_is_one_fault_however_many_connections_it_leaves(
    chaos_valkey: ValkeyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each idle connection is a fault when it is used next, and a pause in which nothing is limited."""
    monkeypatch.setattr(f"{ValkeyRates.__module__}.PAUSE_SECONDS", 0.0)
    rates, key = ValkeyRates(chaos_valkey.url, 5.0), new_id("k")
    try:
        await asyncio.gather(*(rates.take(key, 100, 1) for _ in range(8)))
        chaos_valkey.kill9()
        chaos_valkey.start()
        with contextlib.suppress(LimitsUnavailable):
            await rates.take(key, 100, 1)
        assert all(fits for fits, _ in await asyncio.gather(*(rates.take(key, 100, 1) for _ in range(8))))
    finally:
        await rates.close()
