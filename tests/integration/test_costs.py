"""§13.1: what reports add up, beside the ledger added up in Python, on both databases."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.billing.cost import ledger_figures
from gateway.core.scheduler import Scheduler
from gateway.core.types.bill import SUM_NAMES, CallCost, CostQuery, CostSums
from gateway.core.types.turn import TurnCommit
from gateway.operations.audit import CheckedSums, checked_sums
from gateway.operations.storage_upkeep import schedule_older_bills
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.reports.costs import CostReports
from gateway.storage.store import ConversationStore
from gateway.storage.turns.bills import count_older
from gateway.storage.turns.roll_ups import sums_of
from tests.integration.commits import bill
from tests.support.random_bills import random_entry

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
WHEN = [BEGIN + timedelta(minutes=minutes) for minutes in (0, 1, 59, 60, 1439, 1440, 3000, 4321)]
WHEN += [when + timedelta(microseconds=1) for when in WHEN]
TIMES: dict[str, Callable[[datetime], str]] = {
    "day": lambda when: f"{when:%Y-%m-%d}",
    "hour": lambda when: f"{when:%Y-%m-%d %H}",
    "minute": lambda when: f"{when:%Y-%m-%d %H:%M}",
}
GROUPS: list[tuple[str, ...]] = [
    (), ("day",), ("model", "user"), ("key", "project_id", "endpoint"), ("hour",), ("minute", "agent"),
    ("conversation",), ("day", "conversation"),
]  # fmt: skip
PERIODS = [
    (None, None), (WHEN[1], None), (None, WHEN[4]), (WHEN[1], WHEN[3]), (WHEN[2], WHEN[6]), (BEGIN, WHEN[5]),
]  # fmt: skip
NAMES = {"key": "key_id", "user": "end_user", "conversation": "conversation_id"}


async def rows_of(transactions: DatabaseTransactions, tenants: list[str]) -> list[dict[str, Any]]:
    """The ledger of these tenants."""
    table = schema.ledger
    found = await transactions.run(
        lambda connection: connection.execute(sa.select(table).where(table.c.tenant.in_(tenants))).all()
    )
    return [row._asdict() for row in found]


def named(row: dict[str, Any], group: str) -> str | None:
    """What a row of the ledger says of a group."""
    if group in TIMES:
        return TIMES[group](row["created_at"].replace(tzinfo=UTC))
    if group == "project_id":
        return str(row["project"] or row["tenant"])
    found = row[NAMES.get(group, group)]
    return None if found is None else str(found)


def added(rows: list[dict[str, Any]], query: CostQuery) -> dict[tuple[str | None, ...], CostSums]:
    """What the query must find, by the book."""
    sums: dict[tuple[str | None, ...], CostSums] = defaultdict(CostSums)
    for row in rows:
        came = row["created_at"].replace(tzinfo=UTC)
        if (query.since and came < query.since) or (query.until and came >= query.until):
            continue
        listed = ((query.models, "model"), (query.users, "user"), (query.projects, "project_id"))
        if any(wanted and named(row, group) not in wanted for wanted, group in listed):
            continue
        if (query.tenant and row["tenant"] != query.tenant) or (
            query.endpoints and row["endpoint"] not in query.endpoints
        ):
            continue
        sums[tuple(named(row, group) for group in query.by)] += CostSums(**sums_of(row))
    return sums


@pytest.fixture
async def tenants(store: ConversationStore, tenant: str) -> list[str]:
    """Two that have bills of every kind."""
    both = [tenant, f"{tenant}-2"]
    chance = random.Random(7)
    for _ in range(60):
        await store.commit(TurnCommit(random_entry(chance, both, WHEN, chance.choice([None, "conv_a", "conv_b"]))))
    return both


async def test_s13_1_sums_are_those_of_the_ledger(transactions: DatabaseTransactions, tenants: list[str]) -> None:
    rows = await rows_of(transactions, tenants)
    reports = CostReports(transactions)
    filters: list[dict[str, Any]] = [
        {}, {"models": ("o3",), "users": ("ann", "bob")}, {"projects": ("shop", tenants[0])},
        {"endpoints": (None, "responses")},
    ]  # fmt: skip
    for number, by in enumerate(GROUPS):
        for place, (since, until) in enumerate(PERIODS):  # with a filter in turn: each of two meet
            query = CostQuery(by, since, until, tenants[0], **filters[(number + place) % len(filters)])
            report = await reports.report(query)
            assert {row.names: row.sums for row in report.rows} == added(rows, query), query


async def test_s13_1_all_tenants_are_those_of_each(transactions: DatabaseTransactions, tenants: list[str]) -> None:
    report = await CostReports(transactions).report(CostQuery(("tenant", "day")))
    mine = {row.names: row.sums for row in report.rows if row.names[0] in tenants}
    assert mine == added(await rows_of(transactions, tenants), CostQuery(("tenant", "day")))


async def test_s13_1_a_sum_beyond_64_bits_is_exact(
    transactions: DatabaseTransactions, store: ConversationStore, tenant: str
) -> None:
    dear = CallCost("primary", "m", {"prompt_tokens": 1, "completion_tokens": 1}, Decimal(9_000_000), Decimal("1e-12"))
    for user in ("a", "b", "c"):
        metadata = {"cost": {"total_cost": dear.total}}
        entry = bill(tenant, None, metadata=metadata, calls=(dear,), end_user=user)
        await store.commit(TurnCommit(replace(entry, figures=ledger_figures(metadata, entry.calls))))
    reports = CostReports(transactions)
    for since in (None, entry.created_at):
        assert (await reports.report(CostQuery(since=since, tenant=tenant))).total.cost == Decimal(
            "27000000.000000000003"
        )


async def test_s13_1_the_audit_finds_a_sum_that_is_not_the_ledgers(
    transactions: DatabaseTransactions, tenants: list[str]
) -> None:
    assert not (await checked_sums(transactions)).differ
    days = schema.usage_days
    spoilt = sa.select(sa.func.min(days.c.digest)).where(days.c.tenant == tenants[0]).scalar_subquery()
    change = {"cost_picousd": days.c.cost_picousd + 1}
    await transactions.run(
        lambda connection: connection.execute(days.update().where(days.c.digest == spoilt).values(change)), write=True
    )
    found = await checked_sums(transactions)
    assert (found.differ, found.named[0].figure, found.named[0].kept - found.named[0].found) == (1, "cost_picousd", 1)
    assert any("cost_picousd: kept" in line for line in found.lines())
    back = {"cost_picousd": days.c.cost_picousd - 1}
    await transactions.run(
        lambda connection: connection.execute(days.update().where(days.c.digest == spoilt).values(back)), write=True
    )


async def test_s13_1_what_is_in_no_sums_yet_is_told_and_added(
    transactions: DatabaseTransactions, store: ConversationStore, tenant: str
) -> None:
    await store.commit(TurnCommit(bill(tenant, None)))
    reports, query = CostReports(transactions), CostQuery(tenant=tenant)
    report = await reports.report(query)
    assert (report.missing, report.total) == (1, CostSums())
    assert any("in no sums yet" in line for line in (await checked_sums(transactions)).lines())
    jobs = Scheduler()
    schedule_older_bills(jobs, transactions, 300, 0.01)
    try:
        async with asyncio.timeout(20):
            while await count_older(transactions):  # noqa: ASYNC110 - the database alone says when it is done
                await asyncio.sleep(0.02)
    finally:
        await jobs.close()
    report = await reports.report(query)
    assert (report.missing, report.total.requests, report.total.cost) == (0, 1, Decimal("0.000047500001"))


async def test_s13_1_nothing_is_compared_where_nothing_was_asked() -> None:
    assert not list(CheckedSums().lines())
    assert set(SUM_NAMES) == set(sums_of(dict.fromkeys(schema.ledger.c.keys(), 0)))
