"""Bills and the keyed digests of chains, which outlive the content (guarantee §3.2, §6).

Adds to the sums what they lack: rows of the ledger that an older version wrote (guarantee §13.1, ADR 26).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.types import bill, turn
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.encryption.columns import RowInsert, for_row
from gateway.storage.keyed_hashes import storable, user_name
from gateway.storage.rows import pico, whole
from gateway.storage.turns.questions import FORGOTTEN, question_columns
from gateway.storage.turns.roll_ups import add_to_conversation, add_to_days, replaced

INSERT_LEDGER = RowInsert(schema.ledger)
INSERT_CALLS = RowInsert(schema.ledger_calls)
INSERT_CHAINS = RowInsert(
    schema.chains,
    "ON CONFLICT (digest, calls, conversation_id, whole) DO UPDATE"
    " SET request_id = excluded.request_id, created_at = excluded.created_at",
)
"""If several answers end the same chain, the latest counts."""
Row = dict[str, Any]
Amend = Callable[[turn.LedgerEntry], turn.LedgerEntry]
"""Returns a bill with its additions. It may be called more than once."""


def write_bills(connection: sa.Connection, commits: Sequence[turn.TurnCommit], now: datetime) -> list[Row]:
    """Writes requests' bills, the sums of their days and the digests of their chains. Returns the bills' rows."""
    ledger_rows = [ledger_row(commit.ledger) for commit in commits]
    INSERT_LEDGER(connection, ledger_rows)
    add_to_days(connection, [row for row in ledger_rows if row["rolled_up"]])
    INSERT_CALLS(connection, [row for commit in commits for row in _call_rows(commit.ledger)])
    INSERT_CHAINS(connection, _chain_rows(commits, now))
    return ledger_rows


def _chain_rows(commits: Sequence[turn.TurnCommit], now: datetime) -> list[Row]:
    """Builds the rows in one fixed order, so that transactions that write the same rows do not deadlock."""
    found = {
        (key.digest, key.calls, commit.turn.conversation_id if commit.turn else "", key.whole): commit.ledger
        for commit in commits
        for key in commit.chains
    }
    names = ("digest", "calls", "conversation_id", "whole")
    return [{**dict(zip(names, key, strict=True)), **_answered(found[key]), "created_at": now} for key in sorted(found)]


def _answered(entry: turn.LedgerEntry) -> Row:
    return {"tenant": entry.tenant, "request_id": entry.request_id}


def ledger_row(entry: turn.LedgerEntry) -> dict[str, Any]:
    """Builds a bill's row of the ledger."""
    usage = entry.metadata.get("usage") or {}
    total = entry.metadata.get("cost", {}).get("total_cost")
    return {
        "request_id": entry.request_id,
        "tenant": entry.tenant,
        "conversation_id": entry.conversation_id,
        "completion_id": entry.completion_id,
        "model": storable(entry.model),
        "status": entry.status,
        "stream": entry.stream,
        "error_code": storable(entry.error_code) if entry.error_code else None,
        "prompt_tokens": whole(usage.get("prompt_tokens", 0)),
        "completion_tokens": whole(usage.get("completion_tokens", 0)),
        "total_cost_picousd": pico(total),
        "estimated": any(call.estimated for call in entry.calls),
        "response_metadata": entry.document.decode() if entry.document else jsons.dumps_text(entry.metadata),
        "created_at": entry.created_at,
        "end_user": user_name(entry.end_user) if entry.end_user else None,
        "agent": entry.agent,
        "endpoint": entry.endpoint,
        "key_id": entry.key_id,
        "project": entry.project,
        "http_status": entry.failure.status if entry.failure is not None else None,
        "total_ms": total_ms(entry.metadata),
        "failure": failure_text(entry.failure),
        **figure_columns(entry.figures),
    }


def total_ms(metadata: Mapping[str, Any]) -> int | None:
    """Returns the milliseconds from a request's arrival to its end, from its bill; None if not recorded."""
    took = (metadata.get("timings_ms") or {}).get("total")
    return whole(int(took)) if isinstance(took, int | float | Decimal) else None


def failure_text(failure: turn.RequestFailure | None) -> str | None:
    """Renders a failure as its column stores it."""
    return jsons.dumps_text(asdict(failure)) if failure is not None else None


def figure_columns(figures: turn.LedgerFigures | None) -> dict[str, Any]:
    """Returns the columns that sums are made of, and `rolled_up`: whether the sums include them. All are None where the
    figures are not known."""
    found = figures or turn.LedgerFigures()
    columns = {
        "cached_tokens": whole(found.cached_tokens),
        "cache_write_tokens": whole(found.cache_write_tokens),
        "known_cost_picousd": pico(found.known_cost),
        "planning_cost_picousd": pico(found.planning_cost),
        "planning_unpriced": found.planning_unpriced,
        "saved_picousd": pico(found.saved),
        "direct_cost_picousd": pico(found.direct_cost),
        "net_saving_picousd": pico(found.net_saving),
        "held_out": found.held_out,
        "bounced_tokens": whole(found.bounced_tokens),
        "bounced_cost_picousd": pico(found.bounced_cost),
        "rolled_up": True,
    }
    return columns if figures is not None else dict.fromkeys(columns)


def _call_rows(entry: turn.LedgerEntry) -> list[dict[str, Any]]:
    return [
        {
            "request_id": entry.request_id,
            "number": number,
            "purpose": call.purpose,
            "model": storable(call.model),
            "usage": jsons.dumps_text(call.usage),
            "rates": jsons.dumps_text(call.rates),
            "prompt_cost_picousd": pico(call.prompt_cost),
            "completion_cost_picousd": pico(call.completion_cost),
            "estimated": call.estimated,
        }
        for number, call in enumerate(entry.calls)
    ]


def amend_bill(connection: sa.Connection, request_id: str, amend: Amend) -> None:
    """Adds what was paid for a request after its answer, to its bill and to its branch's cost; only figures change.
    Does nothing if there is no such bill."""
    table = schema.ledger
    row = connection.execute(sa.select(table).where(table.c.request_id == request_id).with_for_update()).first()
    if row is None:
        return
    before = rows.entry_of(row, tuple(calls_of(connection, [request_id]).get(request_id, ())))
    fresh = amend(before)
    values = ledger_row(fresh)
    changed = {name: values[name] for name in ("total_cost_picousd", "estimated", "response_metadata")}
    if row.rolled_up:  # else whichever process adds it to the sums later reads its figures then
        changed |= figure_columns(fresh.figures)
    of_it = for_row(table, changed, request_id)
    connection.execute(table.update().where(table.c.request_id == request_id).values(**of_it))
    replaced(connection, row._asdict(), {**row._asdict(), **changed})
    INSERT_CALLS(connection, _call_rows(fresh)[len(before.calls) :])
    _add_to_branch(
        connection, before, sum((call.total or Decimal(0) for call in fresh.calls[len(before.calls) :]), Decimal(0))
    )


def _add_to_branch(connection: sa.Connection, entry: turn.LedgerEntry, cost: Decimal) -> None:
    """Adds to the sums of a request's answers, and of those that followed them meanwhile."""
    table = schema.messages
    of_it = table.c.conversation_id == entry.conversation_id
    answers = sa.select(sa.func.min(table.c.sequence_number)).where(
        of_it, table.c.request_id == entry.request_id, table.c.choice.is_not(None)
    )
    columns = (table.c.id, table.c.parent_id, table.c.request_id, table.c.choice, table.c.costs)
    query = sa.select(*columns).where(of_it, table.c.sequence_number >= answers.scalar_subquery())
    behind: set[str] = set()
    for row in connection.execute(query.order_by(table.c.sequence_number)) if cost else ():
        if row.parent_id in behind or (row.request_id == entry.request_id and row.choice is not None):
            behind.add(row.id)
            if row.costs is not None and (known := bill.BranchCosts.of_text(row.costs)) is not None:
                costs = replace(known, billed=known.billed + cost).as_text()
                connection.execute(table.update().where(table.c.id == row.id).values(costs=costs))


def calls_of(connection: sa.Connection, request_ids: list[str]) -> dict[str, list[bill.CallCost]]:
    """Returns the priced calls of each request, in the order in which they were made."""
    table = schema.ledger_calls
    query = sa.select(table).where(table.c.request_id.in_(request_ids)).order_by(table.c.request_id, table.c.number)
    found: dict[str, list[bill.CallCost]] = {}
    for row in connection.execute(query) if request_ids else ():
        found.setdefault(row.request_id, []).append(rows.call_of(row))
    return found


BATCH = 200
"""Rows that one transaction adds, and so the most that a writer waits for."""
LEDGER = schema.ledger
CONVERSATIONS = schema.conversations
MESSAGES = schema.messages
WithFigures = Callable[[turn.LedgerEntry], turn.LedgerEntry]


async def count_older(transactions: DatabaseTransactions, tenant: str | None = None) -> int:
    """Counts ledger rows that no sums include yet, up to `MAX_UNCOUNTED_BILLS` over all tenants."""
    few = sa.select(LEDGER.c.tenant).where(LEDGER.c.rolled_up.is_(None)).limit(bill.MAX_UNCOUNTED_BILLS).subquery()
    query = sa.select(sa.func.count()).select_from(few)
    if tenant is not None:
        query = query.where(few.c.tenant == tenant)
    return await transactions.run(lambda connection: int(connection.execute(query).scalar_one()))


async def add_older(transactions: DatabaseTransactions, with_figures: WithFigures) -> int:
    """Adds a batch of older rows to the sums; any number of processes may do this at once. Returns how many.
    `with_figures`: completes a bill with its figures (`billing.cost`)."""
    return await transactions.run(lambda connection: _add(connection, with_figures), write=True)


def _add(connection: sa.Connection, with_figures: WithFigures) -> int:
    query = sa.select(LEDGER).where(LEDGER.c.rolled_up.is_(None)).order_by(LEDGER.c.request_id).limit(BATCH)
    found = connection.execute(query.with_for_update(skip_locked=True)).all()
    calls = calls_of(connection, [row.request_id for row in found])
    fresh: list[dict[str, Any]] = []
    for row in found:
        entry = with_figures(rows.entry_of(row, tuple(calls.get(row.request_id, ()))))
        figures = figure_columns(entry.figures)
        connection.execute(LEDGER.update().where(LEDGER.c.request_id == row.request_id).values(**figures))
        fresh.append({**row._asdict(), **figures})
    for each in sorted(fresh, key=lambda bill: bill["conversation_id"] or ""):  # locked in the order of `write_turns`
        add_to_conversation(connection, each)
    _name(connection, fresh)
    add_to_days(connection, fresh)
    return len(fresh)


def _name(connection: sa.Connection, bills: Sequence[dict[str, Any]]) -> None:
    """Stores how the conversations of these bills begin, and their latest model and user, where that is unknown."""
    latest = {bill["conversation_id"]: bill for bill in sorted(bills, key=lambda bill: rows.utc(bill["created_at"]))}
    unnamed = sa.select(CONVERSATIONS.c.id).where(
        CONVERSATIONS.c.id.in_([each for each in latest if each is not None]), CONVERSATIONS.c.question.is_(None)
    )
    for conversation_id in list(connection.execute(unnamed.with_for_update()).scalars()):
        bill = latest[conversation_id]
        told = {name: bill[name] for name in ("model", "end_user")} | _question(connection, conversation_id)
        told = for_row(CONVERSATIONS, told, conversation_id)
        connection.execute(CONVERSATIONS.update().where(CONVERSATIONS.c.id == conversation_id).values(**told))


def _question(connection: sa.Connection, conversation_id: str) -> dict[str, str | None]:
    of_it = (MESSAGES.c.conversation_id == conversation_id, MESSAGES.c.role == "user", MESSAGES.c.body != "")
    first = sa.select(MESSAGES.c.body).where(*of_it).order_by(MESSAGES.c.sequence_number).limit(1)
    body = connection.execute(first).scalar()
    found = question_columns([jsons.loads_stored(body)] if body else [])
    return found if found["question"] else FORGOTTEN
