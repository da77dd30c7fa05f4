"""What every store of keys promises, on each kind of storage (guarantee §12.1, §12.2)."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.core.clock import SystemClock
from gateway.core.config.setting_sections import KeyFields
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.store import ConversationStore
from gateway.storage.stored_keys import KEPT_SECONDS, KeyQuery, KeyStore, is_well_formed
from gateway.storage.turns.roll_ups import SUMS, add_sums
from tests.support.answers import there
from tests.support.hand_clock import DayClock

ZERO, HOUR = timedelta(0), timedelta(hours=1)
FIELDS = {
    "name": "Ann's",
    "owner": "ann@example.com",
    "project": "search",
    "roles": ["user", "viewer"],
    "models": ["gpt-*"],
    "expires_at": "2099-01-31T12:00:00+02:00",
    "budgets": [{"usd": 0.1, "period": "day"}],
    "limits": {"rpm": 60},
    "context": {"mode": "simple"},
    "retention_days": 30,
}


@pytest.fixture
def keys(transactions: DatabaseTransactions, store: ConversationStore) -> KeyStore:
    return KeyStore(transactions, SystemClock(), store.secret)


def fields(tenant: str, **more: Any) -> KeyFields:
    return KeyFields.model_validate({"tenant": tenant, **more})


async def found(keys: KeyStore, key: str) -> Any:
    return await keys.find(await keys.digest(key))


async def test_s12_1_a_key_is_stored_as_a_keyed_digest(
    keys: KeyStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """What is in the row is no key, neither as it is nor in hex; all that was said of it is there again."""
    made, key = await keys.create(fields(tenant, **FIELDS), "key_admin")
    assert is_well_formed(key)
    again = await found(keys, key)
    assert again == made
    assert (again.policy.budgets[0].usd, again.policy.limits.rpm) == (Decimal("0.1"), 60)
    assert again.policy.expires_at == datetime(2099, 1, 31, 10, tzinfo=UTC)
    assert (again.hint, again.created_by) == (key[-4:], "key_admin")
    query = sa.select(schema.api_keys).where(schema.api_keys.c.id == made.key_id)
    row = await transactions.run(lambda connection: connection.execute(query).one())
    assert all(key not in str(value) and key.encode() not in bytes(str(value), "utf-8") for value in row)
    for stolen in (bytes(row.digest).hex(), f"sk-gw-{bytes(row.digest).hex()[:43]}", made.key_id):
        assert await found(keys, stolen) is None


async def test_s12_1_nothing_that_is_like_a_key_is_one(keys: KeyStore, tenant: str) -> None:
    _, key = await keys.create(fields(tenant))
    likes = [key[:-1], key + "A", key + " ", key.upper(), key.swapcase(), key[:20], key[:-1] + "!", "", key + "\x00"]
    for like in [each for each in likes if each != key]:
        assert await found(keys, like) is None


async def test_a_revoked_key_stays_revoked(keys: KeyStore, tenant: str) -> None:
    made, key = await keys.create(fields(tenant))
    now = datetime.now(UTC)
    assert made.counts(now)
    revoked = there(await keys.revoke(made.key_id))
    assert not revoked.counts(now)
    again = await keys.revoke(made.key_id)
    assert again == revoked
    assert (await found(keys, key)).revoked_at is not None
    assert await keys.update(made.key_id, lambda was: was.model_copy(update={"name": "x"})) == revoked
    rotated = await keys.rotate(made.key_id, HOUR)
    assert rotated == (revoked, None)
    assert await keys.revoke("key_of_nobody") is None


async def test_a_rotated_key_keeps_its_id(keys: KeyStore, tenant: str) -> None:
    """With grace the one before counts until then, and the one before that not any more."""
    made, first = await keys.create(fields(tenant))
    _, second = await keys.rotate(made.key_id, HOUR) or (None, None)
    assert second is not None
    old, new = await found(keys, first), await found(keys, second)
    assert old.key_id == new.key_id == made.key_id
    now = datetime.now(UTC)
    assert old.counts(now)
    assert not old.counts(now + 2 * HOUR)
    assert new.counts(now + 2 * HOUR)
    _, third = await keys.rotate(made.key_id, ZERO) or (None, None)
    assert third is not None
    assert [await found(keys, each) for each in (first, second)] == [None, None]
    assert (await found(keys, third)).rotated_at is not None


async def test_sessions_end_with_the_key_that_began_them(
    keys: KeyStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    sessions, now = schema.ui_sessions, datetime.now(UTC)
    made = [(await keys.create(fields(tenant, roles=["viewer"])))[0] for _ in range(3)]
    rows = [
        {"digest": each.key_id.encode(), "key_id": each.key_id, "created_at": now, "expires_at": now + HOUR}
        for each in made
    ]
    await transactions.run(lambda connection: connection.execute(sessions.insert(), rows), write=True)
    await keys.revoke(made[0].key_id)
    await keys.rotate(made[1].key_id, HOUR)
    query = sa.select(sessions.c.key_id).where(sessions.c.revoked_at.is_(None))
    left = await transactions.run(lambda connection: connection.execute(query).scalars().all())
    assert {each.key_id for each in made} & set(left) == {made[2].key_id}


async def test_changes_are_recorded_in_their_transaction(keys: KeyStore, tenant: str) -> None:
    told: list[tuple[str, str, dict[str, Any]]] = []
    owners: set[str] = set()

    def record(connection: sa.Connection, action: str, key_id: str, owner: str, details: dict[str, Any]) -> None:
        assert connection.in_transaction()
        told.append((action, key_id, details))
        owners.add(owner)

    def refuse(*_: Any) -> None:
        raise ValueError("no")

    made, key = await keys.create(fields(tenant, name="a"), None, record)
    changed = await keys.update(made.key_id, lambda was: was.model_copy(update={"name": "b"}), record)
    assert await keys.update(made.key_id, lambda was: was.model_copy(), record) == changed, "nothing to change"
    _, other = await keys.rotate(made.key_id, HOUR, record) or (None, "")
    await keys.revoke(made.key_id, record)
    assert [each[0] for each in told] == ["key.created", "key.updated", "key.rotated", "key.revoked"]
    assert {each[1] for each in told} == {made.key_id}
    assert owners == {tenant}
    assert told[1][2] == {"name": "b"}
    assert key not in str(told)
    assert str(other) not in str(told)
    another, _ = await keys.create(fields(tenant))
    with pytest.raises(ValueError, match="no"):
        await keys.revoke(another.key_id, refuse)
    kept = there(await keys.get(another.key_id))
    assert kept.revoked_at is None


async def test_lists_by_tenant_and_owner(keys: KeyStore, tenant: str) -> None:
    made = [(await keys.create(fields(tenant, owner=owner)))[0] for owner in ("ann", "bob", "ann", "ann")]
    await keys.revoke(made[3].key_id)
    page = there(await keys.page(KeyQuery(tenant=tenant, limit=2)))
    assert page.has_more
    assert [each.key_id for each in page.found] == [made[2].key_id, made[1].key_id]
    rest = there(await keys.page(KeyQuery(tenant=tenant, after=made[1].key_id, limit=2)))
    assert not rest.has_more
    assert [each.key_id for each in rest.found] == [made[0].key_id]
    anns = there(await keys.page(KeyQuery(tenant=tenant, owner="ann", include_revoked=True)))
    assert len(anns.found) == 3
    assert await keys.page(KeyQuery(tenant=tenant, after="key_of_nobody")) is None


async def test_changes_at_once_are_all_there(keys: KeyStore, tenant: str) -> None:
    """Each sees what the one before it left."""
    made, _ = await keys.create(fields(tenant))

    def with_model(name: str) -> Any:
        return lambda was: was.model_copy(update={"models": (*was.models, name)})

    await asyncio.gather(*(keys.update(made.key_id, with_model(f"m-{number}")) for number in range(8)))
    after = there(await keys.get(made.key_id))
    assert set(after.policy.models) == {f"m-{number}" for number in range(8)}


async def test_s12_1_what_was_spent_in_all_is_read_anew_for_new_days_alone(
    transactions: DatabaseTransactions, store: ConversationStore, tenant: str
) -> None:
    """Of more keys than one query takes, too; a bill of yesterday may still come."""
    clock = DayClock(datetime(2026, 6, 1, 12, tzinfo=UTC))  # a Monday: day, week and month begin together
    keys = KeyStore(transactions, clock, store.secret)
    ids = [f"key_{tenant}_{number}" for number in range(600)]
    starts = dict.fromkeys(("day", "week", "month"), date(2026, 6, 1))

    async def spend(day: date, picousd: int) -> None:
        sums = {**dict.fromkeys(SUMS, 0), "requests": 1, "cost_picousd": picousd}
        groups = {(day, tenant, "small", each, None, None, None, None): sums for each in (ids[0], ids[-1])}
        await transactions.run(lambda connection: add_sums(connection, groups), write=True)

    async def told(*, in_all: bool = True) -> list[tuple[int, int | None]]:
        found = await keys.use(ids, starts, in_all=in_all)
        assert set(found) == {ids[0], ids[-1]}
        return [
            (int(use.spent["day"] * 10**12), int(use.spent["total"] * 10**12) if "total" in use.spent else None)
            for use in found.values()
        ]

    await spend(date(2025, 1, 1), 1000)
    assert await told() == [(0, 1000)] * 2
    await spend(date(2026, 5, 31), 100)
    await spend(date(2026, 6, 1), 10)
    await spend(date(2025, 1, 2), 1)
    assert await told() == [(10, 1110)] * 2, "earlier days are not read again"
    assert await told(in_all=False) == [(10, None)] * 2
    clock.at += timedelta(seconds=KEPT_SECONDS)
    assert await told() == [(10, 1111)] * 2
