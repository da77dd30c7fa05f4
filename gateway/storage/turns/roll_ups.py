"""Daily roll-ups of the ledger, and sums of conversations, kept in the ledger's own transaction (guarantee §13.1).

All that a ledger row adds to sums is in its columns, so it can be subtracted again exactly.
"""

import hashlib
import os
import socket
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.types import bill
from gateway.storage.database import schema
from gateway.storage.encryption.columns import RowInsert
from gateway.storage.rows import MAX_INT, lock_name, utc

SHARDS = 16
"""Rows over which processes spread what they add to one sum, so that they do not wait for each other."""
WHO = ("tenant", "model", "key_id", "project", "end_user", "agent", "endpoint")
"""The ledger's columns by which roll-ups are grouped, beside the day."""
SUMS = tuple(column.name for column in schema.usage_days.columns if isinstance(column.type, sa.BigInteger))
OF_A_CONVERSATION = (
    "requests",
    "prompt_tokens",
    "completion_tokens",
    "cost_picousd",
    "planning_cost_picousd",
    "unpriced",
    "estimated",
    "metered",
    "direct_cost_picousd",
    "net_saving_picousd",
)
SUMS_OF, who_of, sums_of_conversation = itemgetter(*SUMS), itemgetter(*WHO), itemgetter(*OF_A_CONVERSATION)
DIGESTS = 1000
"""Digests that are cached: most bills have the same `WHO` as the previous one."""
CONVERSATIONS = schema.conversations
Row = Mapping[str, Any]


def _plus(column: str) -> str:
    """Returns the SQL that adds both values within a column's range: a hostile upstream may report any number of
    tokens. An older version leaves newer columns empty."""
    old, new = f"COALESCE(usage_days.{column}, 0)", f"excluded.{column}"
    over, under = f"{new} > 0 AND {old} > {MAX_INT} - {new}", f"{new} < 0 AND {old} < -{MAX_INT} - {new}"
    return f"{column} = CASE WHEN {over} THEN {MAX_INT} WHEN {under} THEN -{MAX_INT} ELSE {old} + {new} END"


ADD_DAYS = RowInsert(schema.usage_days, f"ON CONFLICT (day, digest) DO UPDATE SET {', '.join(map(_plus, SUMS))}")


def add_to_days(connection: sa.Connection, ledger_rows: Sequence[Row], sign: int = 1) -> None:
    """Adds ledger rows to the sums of their days; with `sign` -1 subtracts them."""
    alike: dict[tuple[Any, ...], list[dict[str, int]]] = {}
    for row in ledger_rows:
        at: datetime = row["created_at"]
        day = (at if at.tzinfo is None or at.tzinfo is UTC else at.astimezone(UTC)).date()
        alike.setdefault((day, *who_of(row)), []).append(sums_of(row))
    found: dict[tuple[Any, ...], Mapping[str, int]] = {}
    for group, sums in alike.items():
        added = dict(zip(SUMS, map(sum, zip(*map(SUMS_OF, sums), strict=True)), strict=True))
        if sign < 0 or len(sums) > 1:
            added = {name: _bounded(sign * value) for name, value in added.items()}
        found[group] = added
    add_sums(connection, found)


def add_sums(connection: sa.Connection, groups: Mapping[tuple[Any, ...], Mapping[str, int]]) -> None:
    """Adds to the sums of days and of who asked for what (`WHO`)."""
    shard = _shard(connection)
    found = [
        {"digest": _digest(shard, day, *who), "day": day, **dict(zip(WHO, who, strict=True)), **added}
        for (day, *who), added in groups.items()
    ]
    ADD_DAYS(connection, sorted(found, key=itemgetter("digest")))


def sums_of(row: Row) -> dict[str, int]:
    """Computes what a ledger row adds to each of `SUMS`; no figure exceeds its column."""
    known, held_out = row["known_cost_picousd"], row["held_out"]
    return {
        "requests": 1,
        "partial": int(row["status"] == "partial"),
        "failed": int(row["status"] == "failed"),
        "prompt_tokens": row["prompt_tokens"],
        "completion_tokens": row["completion_tokens"],
        "cached_tokens": row["cached_tokens"] or 0,
        "cache_write_tokens": row["cache_write_tokens"] or 0,
        "cost_picousd": known or 0,
        "priced": int(known is not None),
        "unpriced": int(row["total_cost_picousd"] is None),
        "planning_cost_picousd": row["planning_cost_picousd"] or 0,
        "planning_unpriced": row["planning_unpriced"] or 0,
        "estimated": int(row["estimated"]),
        "saved_picousd": row["saved_picousd"] or 0,
        "metered": int(row["net_saving_picousd"] is not None),
        "direct_cost_picousd": row["direct_cost_picousd"] or 0,
        "net_saving_picousd": row["net_saving_picousd"] or 0,
        "held_out_requests": int(held_out is True),
        "held_out_cost_picousd": (known or 0) if held_out is True else 0,
        "economised_requests": int(held_out is False),
        "economised_cost_picousd": (known or 0) if held_out is False else 0,
        "bounced_tokens": row["bounced_tokens"] or 0,
        "bounced_cost_picousd": row["bounced_cost_picousd"] or 0,
    }


def conversation_sums(row: Row) -> dict[str, int]:
    """Computes what a ledger row adds to the sums of its conversation: 0 while no roll-up includes it."""
    if not row["rolled_up"]:
        return dict.fromkeys(OF_A_CONVERSATION, 0)
    return dict(zip(OF_A_CONVERSATION, sums_of_conversation(sums_of(row)), strict=True))


def kept_sums(row: Any) -> bill.CostSums:
    """Returns the sums of a conversation. With a cost, it has a price; without, its models are free or unknown."""
    kept = {name: int(getattr(row, name) or 0) for name in OF_A_CONVERSATION}
    return bill.CostSums(**kept, priced=int(kept["cost_picousd"] > 0 or kept["unpriced"] < kept["requests"]))


def with_more(row: Any, more: Row) -> dict[str, int]:
    """Adds `more` to the sums of a conversation, which this transaction has locked."""
    return {name: _bounded((getattr(row, name) or 0) + more[name]) for name in OF_A_CONVERSATION}


def add_to_conversation(connection: sa.Connection, row: Row) -> None:
    """Adds a bill without a turn to the sums of its conversation."""
    if row["conversation_id"] is not None and row["rolled_up"]:
        _add(connection, row["conversation_id"], conversation_sums(row))


def replaced(connection: sa.Connection, before: Row, after: Row) -> None:
    """Replaces the figures of an amended bill in the sums of its day and its conversation."""
    if not before["rolled_up"]:
        return
    add_to_days(connection, [before], -1)
    add_to_days(connection, [after])
    if after["conversation_id"] is not None:
        old, new = conversation_sums(before), conversation_sums(after)
        _add(connection, after["conversation_id"], {name: new[name] - old[name] for name in OF_A_CONVERSATION})


def lock_users(connection: sa.Connection, tenants: Iterable[str]) -> None:
    """Locks the tenants' users against other renames: of two that lock the sums of all processes, each after changing
    its own, one would fail. A transaction that changes sums before it renames calls this first."""
    for tenant in sorted(tenants):
        lock_name(connection, f"users\0{tenant}")


def rename_users(connection: sa.Connection, where: sa.ColumnElement[bool], name: str | None) -> None:
    """Renames the user in the matching ledger rows, or removes it; the sums of their days follow, and keep nothing of
    the old name."""
    table = schema.ledger
    named = sa.and_(where, table.c.end_user.is_not(None))
    columns = [column for column in table.columns if column.name not in ("response_metadata", "error_code", "failure")]
    query = sa.select(*columns).where(named).with_for_update()
    found = [row._asdict() for row in connection.execute(query)]
    if not found:
        return
    connection.execute(table.update().where(named).values(end_user=name))
    counted = [row for row in found if row["rolled_up"]]
    lock_users(connection, {row["tenant"] for row in counted})
    add_to_days(connection, counted, -1)
    add_to_days(connection, [{**row, "end_user": name} for row in counted])
    _forget_empty(connection, {(row["tenant"], utc(row["created_at"]).date(), row["end_user"]) for row in counted})


def _forget_empty(connection: sa.Connection, named: Iterable[tuple[str, date, str]]) -> None:
    """Deletes roll-ups of users of whom they count nothing any more."""
    table = schema.usage_days
    for tenant, day, user in sorted(named):
        of_user = (table.c.tenant == tenant, table.c.day == day, table.c.end_user == user)
        left: dict[tuple[Any, ...], list[Any]] = {}
        for row in connection.execute(sa.select(table).where(*of_user).order_by(table.c.digest).with_for_update()):
            left.setdefault(tuple(getattr(row, name) for name in WHO), []).append(row)
        gone = [row.digest for group in left.values() if not sum(row.requests for row in group) for row in group]
        if gone:
            connection.execute(table.delete().where(table.c.day == day, table.c.digest.in_(gone)))


def _add(connection: sa.Connection, conversation_id: str, more: Row) -> None:
    columns = CONVERSATIONS.c
    of_it = columns.id == conversation_id
    query = sa.select(*(columns[name] for name in OF_A_CONVERSATION)).where(of_it).with_for_update()
    if (row := connection.execute(query).first()) is not None:
        connection.execute(CONVERSATIONS.update().where(of_it).values(**with_more(row, more)))


def _bounded(value: int) -> int:
    return max(-MAX_INT, min(MAX_INT, value))


@lru_cache(DIGESTS)
def _digest(shard: int, day: date, *who: str | None) -> bytes:
    text = jsons.dumps_text([shard, day.isoformat(), *who])
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _shard(connection: sa.Connection) -> int:
    if connection.dialect.name == "sqlite":
        return 0  # SQLite has one writer at a time anyway
    return zlib.crc32(f"{socket.gethostname()}:{os.getpid()}".encode()) % SHARDS
