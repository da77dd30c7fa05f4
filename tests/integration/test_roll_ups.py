"""§13.1: the sums that reports are made of, and what reports add up, kept with the ledger, on both databases."""

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

from gateway.api.conversations.import_check import parse_export
from gateway.billing.cost import ledger_figures, with_figures
from gateway.billing.ledger_verification import LedgerAudit
from gateway.billing.metadata import amended
from gateway.core.clock import SystemClock
from gateway.core.scheduler import Scheduler
from gateway.core.types.bill import PICO, SUM_NAMES, CallCost, CostQuery, CostSums
from gateway.core.types.records import NewConversation
from gateway.core.types.turn import LedgerQuery, TurnCommit
from gateway.operations.audit import CheckedSums, checked_sums
from gateway.operations.storage_upkeep import schedule_older_bills
from gateway.storage.cache.memory_cache import MemoryCache
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.conversations.transfers import ConversationTransfer
from gateway.storage.database import schema
from gateway.storage.database.finish import finish
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.ledger import ledger_pages
from gateway.storage.reports.costs import CostReports, compare_sums
from gateway.storage.store import ConversationStore
from gateway.storage.turns.bills import add_older, count_older
from gateway.storage.turns.roll_ups import SUMS, sums_of
from tests.integration.commits import bill, message
from tests.integration.paid_turns import PLANNER, PRICED, UNPRICED, conversation, paid
from tests.support.random_bills import random_entry
from tests.support.schemas import bring_up


@pytest.fixture
async def store(transactions: DatabaseTransactions) -> ConversationStore:
    """A store on an empty database."""
    await bring_up(transactions)
    return ConversationStore(transactions, SystemClock())


async def days(transactions: DatabaseTransactions, conversation: str) -> list[dict[str, Any]]:
    """The roll-ups of the tenant that has that conversation."""
    table = schema.usage_days
    query = sa.select(table).where(table.c.tenant == f"t-{conversation}").order_by(table.c.day, table.c.end_user)
    rows = await transactions.run(lambda connection: connection.execute(query).all())
    return [row._asdict() for row in rows]


def sums(row: dict[str, Any]) -> dict[str, int]:
    """The sums of a roll-up that are not 0."""
    return {name: row[name] for name in SUMS if row[name]}


ONE = {"requests": 1, "prompt_tokens": 7, "completion_tokens": 3, "cached_tokens": 4, "cost_picousd": 12, "priced": 1,
       "planning_cost_picousd": 2, "metered": 1, "direct_cost_picousd": 10, "net_saving_picousd": -2}  # fmt: skip


async def test_s13_1_a_bill_is_in_the_sums_of_its_day_and_its_conversation(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    await store.commit(paid("conv_abiitsoidaic", created=True))
    await store.commit(paid("conv_abiitsoidaic", (UNPRICED,)))
    await store.commit(paid("conv_abiitsoidaic", created_at=datetime(2026, 3, 2, tzinfo=UTC)))
    first, second = await days(transactions, "conv_abiitsoidaic")
    assert (str(first["day"]), first["end_user"]) == ("2026-03-01", "ann")
    more = {"requests": 2, "prompt_tokens": 8, "completion_tokens": 4, "unpriced": 1}
    assert (sums(first), sums(second)) == ({**ONE, **more}, ONE)
    row = await conversation(transactions, "conv_abiitsoidaic")
    assert (row["requests"], row["cost_picousd"], row["unpriced"], row["planning_cost_picousd"]) == (3, 24, 1, 4)
    assert (row["question"], row["end_user"], row["model"]) == ("question", "ann", "gpt-4o")
    assert await count_older(transactions) == 0


async def test_s13_1_what_an_older_version_wrote_is_added_once(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    for _ in range(3):
        await store.commit(paid("conv_waovwiao", created=True, rolled=False))
    assert (await days(transactions, "conv_waovwiao"), await count_older(transactions)) == ([], 3)
    assert [await add_older(transactions, with_figures) for _ in range(2)] == [3, 0]
    (row,) = await days(transactions, "conv_waovwiao")
    assert sums(row) == {name: 3 * value for name, value in ONE.items()}
    assert (await conversation(transactions, "conv_waovwiao"))["cost_picousd"] == 36


async def test_s13_1_an_amended_bill_takes_its_place_in_the_sums(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    made = paid("conv_aabtipits", created=True)
    await store.commit(made)
    further = (replace(PLANNER, purpose="summarizer"),)
    bill = made.ledger
    await store.add_summary(bill.tenant, "conv_aabtipits", bill.request_id, None, lambda entry: amended(entry, further))
    (row,) = await days(transactions, "conv_aabtipits")
    assert sums(row) == {**ONE, "cost_picousd": 14, "planning_cost_picousd": 4, "net_saving_picousd": -4}
    assert (await conversation(transactions, "conv_aabtipits"))["cost_picousd"] == 14


async def test_s6_an_audit_and_the_sums_say_the_same_of_what_an_older_version_wrote(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    """The version before had no columns for savings: its bills are in no net saving, nor once they are amended."""
    made = [paid("conv_aaatssts", created=True), paid("conv_aaatssts"), paid("conv_aaatssts")]
    for each in made:
        await store.commit(each)
    savings = ("direct_cost_picousd", "net_saving_picousd")

    def older(connection: sa.Connection) -> None:
        counted = (*savings, "metered")
        for table, names in ((schema.ledger, savings), (schema.usage_days, counted), (schema.conversations, counted)):
            mine = table.update().where(table.c.tenant == "t-conv_aaatssts")
            connection.execute(mine.values(**dict.fromkeys(names)))

    await transactions.run(older, write=True)
    bill = made[0].ledger
    summary = (replace(PLANNER, purpose="summarizer"),)
    await store.add_summary(bill.tenant, "conv_aaatssts", bill.request_id, None, lambda entry: amended(entry, summary))
    await store.commit(paid("conv_aaatssts"))
    audit = LedgerAudit()
    async for page in ledger_pages(transactions, LedgerQuery(tenant="t-conv_aaatssts")):
        assert not any("net_saving" in each.figure for row in page for each in audit.add(row))
    (row,) = await days(transactions, "conv_aaatssts")
    assert (audit.total.metered, audit.total.net_saving) == (row["metered"], row["net_saving_picousd"] * PICO)
    assert (audit.total.metered, audit.total.requests) == (1, 4)


async def test_s13_1_what_an_older_version_moved_without_its_savings_is_set_right(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    """It gives bills another user's name, and deletes the sums of the old one: `gateway migrate --finish` adds up anew,
    once, however often it is run."""
    for name in ("ann", "bob"):
        await store.commit(paid("conv_waomwisisr", created=name == "ann", end_user=name))
    table, ledger = schema.usage_days, schema.ledger
    of_it = {each: each.c.tenant == "t-conv_waomwisisr" for each in (table, ledger)}

    def older(connection: sa.Connection) -> None:
        connection.execute(ledger.update().where(of_it[ledger], ledger.c.end_user == "ann").values(end_user="u"))
        mine = sa.and_(of_it[table], table.c.end_user == "ann")
        row = connection.execute(table.select().where(mine)).one()
        lacks = dict.fromkeys(("metered", "direct_cost_picousd", "net_saving_picousd"))
        connection.execute(table.insert().values(**row._asdict() | {"digest": b"new", "end_user": "u"} | lacks))
        connection.execute(table.delete().where(mine))

    await transactions.run(older, write=True)
    for differing in (3, 0, 0):
        found = [each async for part in compare_sums(transactions) for each in part.differences]
        assert [each.kept for each in found] == [0] * differing
        await finish(transactions)


async def test_s13_1_a_deleted_conversation_keeps_its_sums_and_loses_its_user(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    await store.commit(paid("conv_gone", created=True))
    second = paid("conv_gone2", created=True)
    await store.commit(replace(second, ledger=replace(second.ledger, tenant="t-conv_gone")))
    await store.delete_conversation("t-conv_gone", "conv_gone")
    found = await days(transactions, "conv_gone")
    assert sorted((row["end_user"] or "", row["requests"]) for row in found) == [("", 1), ("ann", 1)]
    await store.delete_conversation("t-conv_gone", "conv_gone2")
    (row,) = await days(transactions, "conv_gone")
    assert (row["end_user"], row["requests"], row["cost_picousd"]) == (None, 2, 24)


async def test_s13_1_absurd_figures_fill_a_sum_and_break_nothing(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    absurd = replace(PRICED, usage={"prompt_tokens": 2**63 - 1, "completion_tokens": 1})
    for _ in range(3):
        await store.commit(paid("conv_affasabn", (absurd,), created=True))
    (row,) = await days(transactions, "conv_affasabn")
    assert (row["prompt_tokens"], row["requests"]) == (2**63 - 1, 3)


async def test_s13_1_a_question_is_one_line_and_found_whatever_its_case(
    store: ConversationStore, transactions: DatabaseTransactions
) -> None:
    text = "  ÄPFEL\n\tand \x00 " + "x" * 300
    await store.commit(paid("conv_aqiolafwic", created=True, question=text))
    row = await conversation(transactions, "conv_aqiolafwic")
    assert row["question"].startswith("ÄPFEL and ")
    assert row["question_folded"].startswith("äpfel and ")
    assert len(row["question"]) == 200


async def test_s13_1_a_conversation_made_or_imported_by_hand_has_its_question(
    transactions: DatabaseTransactions,
) -> None:
    await bring_up(transactions)
    clock = SystemClock()
    records = ConversationRecords(transactions, clock, MemoryCache(2**20, clock))
    asked = (message("system", "be brief"), message("user", "why?"))
    await records.create("t-by-hand", NewConversation("conv_by_hand", {}, asked), "req_1")
    assert (await conversation(transactions, "conv_by_hand"))["question"] == "why?"
    transfer = ConversationTransfer(transactions, clock)
    exported = await transfer.export_conversation("t-by-hand", "conv_by_hand")
    assert exported is not None
    imported = await transfer.import_conversation("t-by-hand", parse_export(b"".join(exported)))
    assert (await conversation(transactions, imported.conversation_id))["question"] == "why?"


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
