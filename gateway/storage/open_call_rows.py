"""Requests that are asking a model: what their bill would say if their process died (guarantee §6.10, ADR 32)."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.types.turn import LedgerEntry, OpenCallRow, TurnCommit
from gateway.storage.claims import beat
from gateway.storage.database import schema
from gateway.storage.database.transactions import RowInsert, driver_of
from gateway.storage.rows import utc

OPEN = RowInsert(schema.open_calls, "ON CONFLICT (request_id) DO UPDATE SET facts = excluded.facts")
calls, processes = schema.open_calls.c, schema.processes.c


def write_open(connection: sa.Connection, opened: Sequence[OpenCallRow]) -> None:
    """Writes down that these ask models; of one that asks a further model, what it has asked by now. Of each the
    last counts: one without facts has asked nobody."""
    if not opened:
        return
    for process, until in {each.process: each.alive_until for each in opened if each.alive_until}.items():
        beat(connection, process, until)
    latest = {each.request_id: each for each in opened}
    asked = [each for each in latest.values() if each.facts is not None]
    OPEN(connection, [{"request_id": each.request_id, "process": each.process, "facts": _text(each)} for each in asked])
    if len(asked) < len(latest):
        close_open(connection, [each.request_id for each in latest.values() if each.facts is None])


def _text(call: OpenCallRow) -> str:
    return jsons.dumps_text(call.facts)


def close_open(connection: sa.Connection, request_ids: Sequence[str]) -> None:
    """In the transaction that writes their bills, or where there is nothing to bill."""
    if connection.dialect.name == "sqlite":
        driver = driver_of(connection)
        driver.executemany("DELETE FROM open_calls WHERE request_id = ?", [(each,) for each in request_ids]).close()
    else:
        text = "DELETE FROM open_calls WHERE request_id = ANY($1::varchar[])"
        connection.exec_driver_sql(text, (list(request_ids),))


def holders(connection: sa.Connection) -> dict[str, datetime | None]:
    """The processes that have open calls, each with the time until which it said that it lives."""
    joined = schema.open_calls.outerjoin(schema.processes, processes.id == calls.process)
    query = sa.select(calls.process, processes.alive_until).select_from(joined).distinct()
    return {row.process: utc(row.alive_until) if row.alive_until else None for row in connection.execute(query)}


def take_open(
    connection: sa.Connection, dead: Sequence[str], limit: int, bill: Callable[[str, dict[str, Any]], LedgerEntry]
) -> list[TurnCommit]:
    """Takes calls of processes that died out of the table, and gives their bills, those that nobody has written."""
    ids = sa.select(calls.request_id).where(calls.process.in_(dead)).limit(limit)
    found = schema.open_calls.delete().where(calls.request_id.in_(ids)).returning(calls.request_id, calls.facts)
    rows = {row.request_id: row.facts for row in connection.execute(found)}
    billed = sa.select(schema.ledger.c.request_id).where(schema.ledger.c.request_id.in_(rows))
    for request_id in connection.execute(billed).scalars():
        rows.pop(request_id)
    return [TurnCommit(bill(request_id, jsons.loads_decimal(facts))) for request_id, facts in rows.items()]
