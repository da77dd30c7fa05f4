"""`ports.BudgetStore` on each kind of storage: spent is what the ledger says (guarantee §12.3)."""

import asyncio
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gateway.billing.cost import ledger_figures
from gateway.billing.quota.gate import account_of
from gateway.core.config.setting_sections import Period
from gateway.core.config.settings import StorageSettings
from gateway.core.ids import new_id
from gateway.core.processes import process_name
from gateway.core.types.bill import CallCost
from gateway.core.types.keys import LEASE_SECONDS, LimitHolder, SpendingAccount
from gateway.core.types.turn import TurnCommit
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.keyed_hashes import Users
from gateway.storage.quota.budget_rows import SqlBudgets
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, bill
from tests.support.hand_clock import DayClock

USD = 10**12


@pytest.fixture
def clock() -> DayClock:
    return DayClock(NOW)


@pytest.fixture
def budgets(transactions: DatabaseTransactions, clock: DayClock, store: ConversationStore) -> list[SqlBudgets]:
    """Of two processes."""
    return [SqlBudgets(transactions, clock, store.secret, new_id("proc_")) for _ in range(2)]


def account(name: str, period: Period = "month", at: datetime = NOW) -> SpendingAccount:
    return account_of(LimitHolder("key", name), period, at, hard=True)


async def spend(store: ConversationStore, usd: str, at: datetime = NOW, **who: Any) -> None:
    """A bill of so much."""
    call = CallCost("primary", "openai/gpt-4o", {"prompt_tokens": 1}, Decimal(usd), Decimal(0), False, {})
    entry = bill(who.pop("tenant", "t"), None, created_at=at, calls=(call,), **who)
    entry = replace(entry, figures=ledger_figures(entry.metadata, entry.calls))
    await store.commit(TurnCommit(entry))


@pytest.mark.parametrize("kind", ["key", "user", "model", "project", "all"])
async def test_s12_3_what_was_spent_is_what_the_ledger_says(
    budgets: list[SqlBudgets], store: ConversationStore, tenant: str, kind: str
) -> None:
    name, other = new_id("n"), new_id("n")
    fields = {"key": "key_id", "user": "end_user", "model": "model", "project": "project"}
    holder = LimitHolder(kind, name if kind != "all" else "", tenant if kind == "user" else "")  # type: ignore[arg-type]
    asked = account_of(holder, "month", NOW, hard=True)
    before = await budgets[0].spent(asked)
    for who in (name, name, other):
        named: dict[str, Any] = {"tenant": tenant, **({fields[kind]: who} if kind != "all" else {})}
        await spend(store, "0.000000000007", **named)
    if kind == "user":  # of the same name, and somebody else
        await spend(store, "1", end_user=name, tenant=tenant + "-2")
    assert await budgets[0].spent(asked) - before == (21 if kind == "all" else 14)


@pytest.mark.parametrize(("period", "cents"), [("day", 1), ("week", 11), ("month", 111), ("total", 1111)])
async def test_s12_3_a_period_begins_with_its_first_day(
    budgets: list[SqlBudgets], store: ConversationStore, tenant: str, period: Period, cents: int
) -> None:
    """`NOW` is a Saturday, the 21st."""
    days = {"0.01": 21, "0.10": 16, "1.00": 1}
    for usd, day in days.items():
        await spend(store, usd, NOW.replace(day=day, hour=0, minute=0), key_id=tenant)
    await spend(store, "10", datetime(2026, 10, 31, 23, 59, tzinfo=UTC), key_id=tenant)
    assert await budgets[0].spent(account(tenant, period)) == cents * USD // 100


async def test_todays_spend_is_always_read_and_past_days_are_kept_a_while(
    budgets: list[SqlBudgets], store: ConversationStore, tenant: str, clock: DayClock
) -> None:
    assert await budgets[0].spent(account(tenant)) == 0
    await spend(store, "1", key_id=tenant)
    await spend(store, "2", NOW - timedelta(days=1), key_id=tenant)
    await spend(store, "4", NOW - timedelta(days=5), key_id=tenant)
    assert await budgets[0].spent(account(tenant)) == 3 * USD
    clock.at += timedelta(seconds=31)
    assert await budgets[0].spent(account(tenant)) == 7 * USD


@pytest.mark.parametrize("users", ["plain", "hashed"])
async def test_a_user_is_found_as_bills_have_it(
    transactions: DatabaseTransactions, clock: DayClock, tenant: str, users: Users
) -> None:
    store = ConversationStore(transactions, clock, users=users)
    budgets = SqlBudgets(transactions, clock, store.secret, "proc_1", users)
    await spend(store, "3", end_user="ann", tenant=tenant)
    assert await budgets.spent(account_of(LimitHolder("user", "ann", tenant), "day", NOW, hard=True)) == 3 * USD


async def test_s12_3_what_one_process_holds_the_other_cannot(budgets: list[SqlBudgets], tenant: str) -> None:
    one, two = budgets
    first = await one.lease(account(tenant), 1000, 0, 500)
    assert (first.fits, first.granted, first.others) == (True, 550, 0)
    second = await two.lease(account(tenant), 1000, 0, 500)
    assert (second.fits, second.granted, second.others) == (False, 0, 550)
    third = await two.lease(account(tenant), 1000, 0, 400)
    assert (third.fits, third.granted) == (True, 405)
    assert (await one.lease(account(tenant), 1000, 550, 100)).fits is False
    assert (await one.lease(account(tenant, "day"), 1000, 0, 1000)).fits  # another budget


async def test_s12_3_a_request_that_alone_exceeds_what_is_left_does_not_fit(
    budgets: list[SqlBudgets], tenant: str
) -> None:
    one, two = budgets
    found = await one.lease(account(tenant), 1000, 0, 1001)
    assert (found.fits, found.granted, found.spent) == (False, 0, 0)
    assert (await two.lease(account(tenant), 1000, 0, 1000)).fits
    assert not (await one.lease(account(tenant), 1000, 0, 1)).fits


async def test_a_spent_budget_has_no_room_for_a_lone_request(
    budgets: list[SqlBudgets], store: ConversationStore, tenant: str
) -> None:
    await spend(store, "1", key_id=tenant)
    found = await budgets[0].lease(account(tenant), USD, 0, 1)
    assert (found.fits, found.spent, found.granted) == (False, USD, 0)


async def test_s12_3_a_lease_ends_with_its_process(budgets: list[SqlBudgets], tenant: str, clock: DayClock) -> None:
    one, two = budgets
    assert (await one.lease(account(tenant), 1000, 0, 900)).fits
    clock.at += timedelta(seconds=LEASE_SECONDS - 1)
    assert not (await two.lease(account(tenant), 1000, 0, 900)).fits
    clock.at += timedelta(seconds=2)
    assert (await two.lease(account(tenant), 1000, 0, 900)).fits
    clock.at += timedelta(seconds=2 * LEASE_SECONDS)
    await two.sweep()


@pytest.mark.skipif(sys.platform != "linux", reason="there it is known by the lease's end")
async def test_s12_3_a_process_killed_on_this_machine_holds_nothing(
    transactions: DatabaseTransactions, store: ConversationStore, tenant: str, clock: DayClock
) -> None:
    """Its successor need not wait for the end of the lease; one that lives, under whatever name, keeps its own."""
    mine = process_name("1")
    machine, number, started, _ = mine.split(":")
    names = f"{machine}:{number}:{int(started) - 1}:1", mine, process_name("2")
    killed, living, new = (SqlBudgets(transactions, clock, store.secret, name) for name in names)
    assert (await killed.lease(account(tenant), 1000, 0, 900)).fits
    assert (await living.lease(account(tenant), 1000, 0, 800)).fits
    found = await new.lease(account(tenant), 1000, 0, 500)
    assert (found.fits, found.others) == (False, 820)


async def test_s12_3_many_at_once_hold_no_more_than_there_is(
    module_storage_url: str, transactions: DatabaseTransactions, store: ConversationStore, tenant: str, clock: DayClock
) -> None:
    """Each process over connections of its own."""
    opened = [open_transactions(StorageSettings(url=module_storage_url)) for _ in range(3)]
    many = [SqlBudgets(each, clock, store.secret, new_id("proc_")) for each in opened for _ in range(8)]
    found = await asyncio.gather(*(each.lease(account(tenant), 1000, 0, 70) for each in many))
    assert sum(each.granted for each in found) <= 1000
    assert sum(each.fits for each in found) >= 3
    for each in opened:
        await each.close()
