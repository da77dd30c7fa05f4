"""`DatabaseTransactions`: what is tried again, what is cancelled, what a connection survives (guarantee §3.6, §3.7)."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.billing.cost import ledger_figures
from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.errors import ConversationNotFound, StorageUnavailable
from gateway.core.types.conversation import ConversationRef, NewFrame, PromptFrame
from gateway.core.types.past_turns import ReplayChanges, ReplayRun
from gateway.storage.conversations.delete import forget_blocks
from gateway.storage.conversations.replay_store import ReplayStore
from gateway.storage.database.migrate import migrate
from gateway.storage.database.postgres import ATTEMPTS, PostgresTransactions
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.rows import lock_name
from gateway.storage.store import ConversationStore
from gateway.storage.turns import roll_ups
from tests.integration.commits import NOW, bill, contents, rebuilt, turn
from tests.support.postgres import Postgres

POOL = 3
HERE = "SELECT pg_backend_pid()"
OTHERS = "pid <> pg_backend_pid() AND datname = current_database() AND application_name = 'gateway'"


@pytest.fixture(scope="module")
def url(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture
async def pool(url: str) -> AsyncIterator[PostgresTransactions]:
    """A small pool that waits for a second."""
    opened = open_transactions(StorageSettings(url=url, pool_size=POOL, timeout=1.0))
    assert isinstance(opened, PostgresTransactions)
    yield opened
    await opened.close()


@pytest.fixture
async def patient(url: str) -> AsyncIterator[DatabaseTransactions]:
    """Connections of their own, which wait for as long as the default is."""
    opened = open_transactions(StorageSettings(url=url))
    yield opened
    await opened.close()


def ask(sql: str) -> Any:
    """A transaction of one question."""
    return lambda connection: result.scalar() if (result := connection.execute(sa.text(sql))).returns_rows else None


def summed_entry(tenant: str, name: str, **more: Any) -> dict[str, Any]:
    """What makes a turn's bill count in the sums of its day."""
    made = bill(tenant, name)
    return {"figures": ledger_figures(made.metadata, made.calls), **more}


def always(number: int) -> Callable[[object], int]:
    return lambda _: number


async def fill(pool: PostgresTransactions) -> set[int]:
    """Opens all connections of the pool; their backends' ids."""
    return set(await asyncio.gather(*(pool.run(ask(f"{HERE} FROM pg_sleep(0.2)")) for _ in range(POOL))))


UNTIL = "DO $$ BEGIN WHILE NOT {} LOOP PERFORM pg_sleep(0.01); END LOOP; END $$"
UNTIL_ONE_WAITS = UNTIL.format("EXISTS (SELECT FROM pg_locks WHERE NOT granted)")


@contextlib.asynccontextmanager
async def holding(pool: DatabaseTransactions, take: Callable[[sa.Connection], object]) -> AsyncIterator[None]:
    """A transaction that has taken a lock, and is committed at the end."""
    executed, done = asyncio.Event(), asyncio.Event()

    def work(connection: sa.Connection) -> None:
        take(connection)
        executed.set()
        while not done.is_set():
            connection.execute(sa.text("SELECT pg_sleep(0.01)"))

    held = asyncio.create_task(pool.run(work, write=True))
    await executed.wait()
    try:
        yield
    finally:
        done.set()
        await held


@pytest.mark.parametrize("state", ["40001", "40P01"])
@pytest.mark.parametrize("write", [True, False])
async def test_what_was_rolled_back_is_tried_again_a_few_times(
    pool: PostgresTransactions, state: str, write: bool
) -> None:
    """§3.6: a deadlock or serialization failure is no error of the request; one that does not end is a 503."""
    tried = 0

    def fails(times: int) -> Any:
        def work(connection: sa.Connection) -> int:
            nonlocal tried
            tried += 1
            if tried <= times:
                connection.execute(sa.text(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$"))
            return tried

        return work

    assert await pool.run(fails(ATTEMPTS - 1), write=write) == ATTEMPTS
    tried = 0
    with pytest.raises(StorageUnavailable):
        await pool.run(fails(ATTEMPTS), write=write)
    assert tried == ATTEMPTS


@pytest.mark.parametrize(("sql", "error"), [("SELECT 1/0", sa.exc.DBAPIError), ("SELECT * FROM no_such_table",
    StorageUnavailable), ("SELECT no_such_column FROM pg_class", StorageUnavailable)])  # fmt: skip
async def test_what_would_fail_again_is_tried_once(
    pool: PostgresTransactions, sql: str, error: type[Exception]
) -> None:
    """§9: a schema that this version's tables or columns are not in is a storage that cannot be used."""
    tried = 0

    def work(connection: sa.Connection) -> None:
        nonlocal tried
        tried += 1
        connection.execute(sa.text(sql))

    with pytest.raises(error):
        await pool.run(work, write=True)
    assert tried == 1


async def test_two_transactions_that_lock_each_other_out_both_come_through(
    pool: PostgresTransactions, patient: DatabaseTransactions
) -> None:
    """§3.6: the database ends one of them, and that one is tried again."""
    create = "CREATE TABLE IF NOT EXISTS pairs AS SELECT n, 0 AS seen FROM generate_series(1, 2) AS n"
    await pool.run(ask(create), write=True)
    both = [asyncio.Event(), asyncio.Event()]

    def crossing(first: int, second: int) -> Any:
        def work(connection: sa.Connection) -> None:
            connection.execute(sa.text("UPDATE pairs SET seen = seen + 1 WHERE n = :n"), {"n": first})
            both[first - 1].set()
            while not all(each.is_set() for each in both):
                connection.execute(sa.text("SELECT pg_sleep(0.01)"))
            connection.execute(sa.text("UPDATE pairs SET seen = seen + 1 WHERE n = :n"), {"n": second})

        return work

    await asyncio.gather(patient.run(crossing(1, 2), write=True), patient.run(crossing(2, 1), write=True))
    assert await pool.run(ask("SELECT sum(seen) FROM pairs")) == 4


async def test_s3_7_a_read_sees_what_was_committed_when_it_began(pool: PostgresTransactions) -> None:
    """In all its statements: what another deletes between two of them was there for both."""
    create = "CREATE TABLE read_twice AS SELECT 7 AS n"
    await pool.run(ask(create), write=True)
    read, deleted = asyncio.Event(), asyncio.Event()

    def twice(connection: sa.Connection) -> list[Any]:
        first = connection.execute(sa.text("SELECT n FROM read_twice")).scalar()
        read.set()
        while not deleted.is_set():
            connection.execute(sa.text("SELECT pg_sleep(0.01)"))
        return [first, connection.execute(sa.text("SELECT n FROM read_twice")).scalar()]

    reading = asyncio.create_task(pool.run(twice))
    await read.wait()
    await pool.run(ask("DELETE FROM read_twice"), write=True)
    deleted.set()
    assert await reading == [7, 7]
    assert await pool.run(ask("SHOW transaction_isolation"), write=True) == "read committed"


async def test_connections_that_the_server_has_closed_fail_nobody(
    pool: PostgresTransactions, patient: DatabaseTransactions
) -> None:
    """§3.6: after a restart of the database the first requests work."""
    before = await fill(pool)
    await patient.run(ask(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {OTHERS}"), write=True)
    after = await asyncio.gather(*(pool.run(ask(HERE), write=n % 2 == 0) for n in range(4 * POOL)))
    assert not before & set(after)


async def test_a_connection_cut_within_a_transaction_is_not_the_callers_affair(pool: PostgresTransactions) -> None:
    """§3.6: what has not been committed was certainly rolled back."""
    pids: list[int] = []

    def work(connection: sa.Connection) -> int:
        pids.append(connection.execute(sa.text(HERE)).scalar_one())
        if len(pids) == 1:
            connection.execute(sa.text("SELECT pg_terminate_backend(pg_backend_pid())"))
        return pids[-1]

    assert await pool.run(work, write=True) == pids[1] != pids[0]


async def test_a_statement_prepared_before_a_migration_is_prepared_anew(
    pool: PostgresTransactions, patient: DatabaseTransactions
) -> None:
    """§9: a running server goes on when another version changes the type of a column."""
    await pool.run(ask("CREATE TABLE typed AS SELECT '7'::varchar(9) AS n"), write=True)
    asked = ask("SELECT n FROM typed, pg_sleep(0.1)")
    assert await asyncio.gather(*(pool.run(asked) for _ in range(POOL))) == ["7"] * POOL
    await patient.run(ask("ALTER TABLE typed ALTER n TYPE integer USING n::integer"), write=True)
    assert await asyncio.gather(*(pool.run(asked) for _ in range(POOL))) == [7] * POOL


async def test_a_lock_held_for_long_is_waited_for_within_the_timeout_and_once(
    pool: PostgresTransactions, patient: DatabaseTransactions
) -> None:
    """§3.6: storage.timeout, then a 503; whoever waits does not stop those who do not."""
    key = random.getrandbits(60)
    attempts = []

    def lock(connection: sa.Connection) -> None:
        attempts.append(connection)
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({key})"))

    async with holding(patient, ask(f"SELECT pg_advisory_xact_lock({key})")):
        waiting = asyncio.ensure_future(pool.run(lock, write=True))
        assert await pool.run(ask("SELECT 1")) == 1
        with pytest.raises(StorageUnavailable) as unavailable:
            await waiting
    assert "lock timeout" in str(unavailable.value.__cause__), "PostgreSQL ended the wait"
    assert await pool.run(ask("SHOW lock_timeout")) == "1s", "storage.timeout"
    assert len(attempts) == 1, "not again for each attempt"
    await pool.run(ask(f"SELECT pg_advisory_xact_lock({key})"), write=True)


async def test_a_pool_that_is_used_up_says_so_in_time_and_gets_free_again(pool: PostgresTransactions) -> None:
    """§3.6: many requests, few connections: who waits longer than storage.timeout gets a 503, nobody is lost."""
    await fill(pool)
    asked = [pool.run(ask("SELECT 1 FROM pg_sleep(0.6)"), write=n % 2 == 0) for n in range(5 * POOL)]
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert POOL <= done.count(1) <= 2 * POOL
    assert all(each == 1 or isinstance(each, StorageUnavailable) for each in done)
    assert await asyncio.gather(*(pool.run(ask("SELECT 1")) for _ in range(5 * POOL))) == [1] * 5 * POOL


async def test_cancelled_requests_leak_no_connection(pool: PostgresTransactions) -> None:
    """§3.7: two thousand requests cancelled at random moments cost the pool nothing, not even a new connection."""
    before = await fill(pool)
    chance = random.Random(4)

    async def one(number: int) -> None:
        work = pool.run(ask(f"SELECT 1 FROM pg_sleep({chance.choice([0, 0.001])})"), write=number % 3 == 0)
        task = asyncio.ensure_future(work)
        await asyncio.sleep(chance.random() * 0.02)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            assert task.exception() is None

    for first in range(0, 2000, 20):
        await asyncio.gather(*(one(number) for number in range(first, first + 20)))
    await asyncio.wait_for(pool._running.finish(), 10)
    assert await fill(pool) == before, "every connection of before, and no other"
    assert pool._free._value == POOL
    assert pool._engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert await pool.run(ask(f"SELECT count(*) FROM pg_stat_activity WHERE {OTHERS} AND state <> 'idle'")) == 0


async def test_a_write_goes_on_when_its_caller_has_left(
    transactions: DatabaseTransactions, store: ConversationStore, tenant: str
) -> None:
    """§3.6: also one that has to wait for its turn; and the storage's end waits for it."""
    first = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(connection: sa.Connection) -> None:
        loop.call_soon_threadsafe(first.set)
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            connection.execute(sa.text("SELECT 1"))

    left = [asyncio.ensure_future(transactions.run(slow, write=True)) for _ in range(5)]
    await first.wait()
    conversation = "conv_" + tenant
    claim = asyncio.ensure_future(store.claim_session(tenant, "s", conversation))
    await asyncio.sleep(0)
    for task in (*left, claim):
        task.cancel()
    await asyncio.wait({claim})
    assert claim.cancelled()

    for _ in range(200):
        if await store.find_conversation(tenant, ConversationRef(conversation), max_bytes=None) is not None:
            return
        await asyncio.sleep(0.05)
    pytest.fail("the write was dropped")


async def test_a_pooler_keeps_nothing_between_transactions(url: str) -> None:
    """With `statement_cache_size=0` no prepared statement stays, and no setting of the connection is needed."""
    pooled = open_transactions(StorageSettings(url=f"{url}?statement_cache_size=0", pool_size=1))
    assert await asyncio.gather(*(pooled.run(ask("SELECT 7")) for _ in range(3))) == [7] * 3
    assert await pooled.run(ask("SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT 7'")) == 0
    assert await pooled.run(ask("SHOW lock_timeout")) == "0"
    await pooled.close()


@pytest.mark.parametrize("said", ["-c%20search_path%3Dapart", "--search-path%3Dapart%20-cwork_mem=5MB"])
async def test_s9_a_url_names_a_schema_of_its_own(url: str, said: str) -> None:
    """As libpq has it. It was left out without a word, so that tables were made in the schema of somebody else."""
    apart = open_transactions(StorageSettings(url=f"{url}?options={said}&application_name=own", pool_size=1))
    await apart.run(ask("CREATE SCHEMA IF NOT EXISTS apart"), write=True)
    assert await apart.run(ask("SELECT current_schema()")) == "apart"
    assert await apart.run(ask("SHOW application_name")) == "own"
    assert await apart.run(ask("SHOW lock_timeout")) != "0"
    await migrate(apart)
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'apart' AND tablename = 'ledger'"
    assert await apart.run(ask(tables)) == 1
    await apart.close()


async def test_s3_7_a_turn_that_waits_for_its_conversation_holds_back_no_other(
    pool: PostgresTransactions, patient: DatabaseTransactions, tenant: str
) -> None:
    """Nor the sums of the day, which a deletion and a summary change after they have locked the conversation: each of
    the two would wait for the other."""
    store = ConversationStore(patient, SystemClock())
    held, free = (f"conv_{tenant}_{name}" for name in ("held", "free"))
    summed = summed_entry(tenant, held)
    for name in (held, free):
        await store.commit(turn(tenant, name, created=True, entry=summed))
    async with holding(pool, ask(f"SELECT id FROM conversations WHERE id = '{held}' FOR UPDATE")):
        waiting = asyncio.create_task(store.commit(turn(tenant, held, "later", entry=summed)))
        await pool.run(ask(UNTIL_ONE_WAITS))
        await store.commit(turn(tenant, free, "now", entry=summed))
        assert not waiting.done()
    await waiting


async def test_s13_1_two_deletions_of_what_one_user_said_take_turns(
    pool: PostgresTransactions, patient: DatabaseTransactions, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each changes the user's sums of its process, then looks at those of all: the second waits before it changes."""
    store = ConversationStore(patient, SystemClock())
    shard_of: dict[str, int] = {}
    for shard in range(3):
        monkeypatch.setattr(roll_ups, "_shard", always(shard))
        name = f"conv_{tenant}_{shard}"
        entry = summed_entry(tenant, name, end_user="ann")
        await store.commit(turn(tenant, name, created=True, entry=entry))
        every = f"SELECT string_agg(encode(digest, 'hex'), ' ') FROM usage_days WHERE tenant = '{tenant}'"
        shard_of = dict.fromkeys((await pool.run(ask(every))).split(), shard) | shard_of
    others, *own = sorted(shard_of)
    row = "SELECT 1 FROM usage_days WHERE digest = decode('{}', 'hex') FOR UPDATE NOWAIT"
    deletions: list[asyncio.Task[bool]] = []
    async with holding(pool, ask(row.format(others))):
        for number, mine in enumerate(own):
            monkeypatch.setattr(roll_ups, "_shard", always(shard_of[mine]))
            deletions.append(asyncio.create_task(store.delete_conversation(tenant, f"conv_{tenant}_{number}")))
            waiting = f"(SELECT count(*) FROM pg_locks WHERE NOT granted) > {number}"
            await pool.run(ask(UNTIL.format(waiting)))
        assert await pool.run(ask(row.format(own[-1])), write=True) == 1
    assert await asyncio.gather(*deletions) == [True, True]


async def test_s3_6_a_turn_whose_conversation_is_gone_waits_for_deletions_before_it_changes_sums(
    pool: PostgresTransactions, patient: DatabaseTransactions, tenant: str
) -> None:
    """Its bill loses the user's name, too: a deletion that looks at all sums of the user would wait for it."""
    store, name = ConversationStore(patient, SystemClock()), f"conv_{tenant}"
    entry = summed_entry(tenant, name, end_user="ann")
    await store.commit(turn(tenant, name, created=True, entry=entry, cached=("digest",)))
    async with holding(pool, lambda connection: lock_name(connection, f"users\0{tenant}")):
        waiting = asyncio.create_task(store.commit(turn(tenant, f"{name}_gone", entry=entry)))
        await pool.run(ask(UNTIL_ONE_WAITS))
        ann = f"SELECT 1 FROM usage_days WHERE tenant = '{tenant}' AND end_user = 'ann' FOR UPDATE NOWAIT"
        assert await pool.run(ask(ann), write=True) == 1
        deletion = asyncio.create_task(store.delete_conversation(tenant, name))
        await pool.run(ask(UNTIL.format("(SELECT count(*) FROM pg_locks WHERE NOT granted) > 1")))
        cached = f"SELECT 1 FROM cached_contents WHERE tenant = '{tenant}' FOR UPDATE NOWAIT"
        assert await pool.run(ask(cached), write=True) == 1  # what both lock after it
    await asyncio.gather(waiting, deletion)


async def test_s3_7_blocks_are_forgotten_of_a_conversation_that_is_locked(
    pool: PostgresTransactions, patient: DatabaseTransactions, tenant: str
) -> None:
    """As other deletions do it: who deletes frames first and then waits for the conversation locks them out."""
    store, name = ConversationStore(patient, SystemClock()), f"conv_{tenant}"
    await store.commit(turn(tenant, name, created=True, frame=NewFrame("m", True, PromptFrame())))
    async with holding(pool, ask(f"SELECT id FROM conversations WHERE id = '{name}' FOR UPDATE")):
        forgetting = asyncio.create_task(patient.run(lambda c: forget_blocks(c, tenant, name, NOW), write=True))
        await pool.run(ask(UNTIL_ONE_WAITS))
        assert await pool.run(
            ask(f"SELECT 1 FROM frames WHERE conversation_id = '{name}' FOR UPDATE NOWAIT"), write=True
        )
    await forgetting


async def test_s13_a_replay_of_what_is_being_deleted_is_not_found(
    pool: PostgresTransactions, patient: DatabaseTransactions, tenant: str
) -> None:
    store, replays = ConversationStore(patient, SystemClock()), ReplayStore(patient, SystemClock())
    name = f"conv_{tenant}"
    await store.commit(turn(tenant, name, created=True))
    made = ReplayRun(f"replay_{name}", name, "msg_1", 1, 1, ReplayChanges("gpt-4o", {}, {}))
    async with holding(pool, ask(f"DELETE FROM conversations WHERE id = '{name}'")):
        waiting = asyncio.create_task(replays.begin(tenant, made))
        await pool.run(ask(UNTIL_ONE_WAITS))
    with pytest.raises(ConversationNotFound):
        await waiting


async def test_turns_of_many_stores_on_one_conversation_stand_one_behind_the_other(
    store: ConversationStore, other_store: ConversationStore, tenant: str
) -> None:
    """§3.7: thirty turns at once from two processes: none lost, each whole."""
    conversation = "conv_" + tenant
    await store.commit(turn(tenant, conversation, created=True))
    stores = [store, other_store]
    await asyncio.gather(*(stores[n % 2].commit(turn(tenant, conversation, f"q{n}", [f"a{n}"])) for n in range(30)))
    said = contents(await rebuilt(store, tenant, conversation))[2:]
    assert [answer.replace("a", "q") for answer in said[1::2]] == said[0::2]
    assert sorted(said[0::2]) == sorted(f"q{n}" for n in range(30))
