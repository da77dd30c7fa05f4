"""How sums are worded in SQL, over the daily roll-ups and over the ledger itself; exact in both databases.

SQLite breaks off a sum that leaves 64 bits. There the halves of a figure are added up apart, and joined in Python.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from gateway.core.types.costs import FIGURES, CostQuery
from gateway.storage.database import schema

LEDGER, DAYS = schema.ledger, schema.usage_days
COUNTS = frozenset(
    (
        *("requests", "partial", "failed", "priced", "unpriced", "planning_unpriced", "estimated"),
        *("metered", "held_out_requests", "economised_requests"),
    )
)
"""Figures that grow by one or a few a request: their sums stay within 64 bits."""
HALF = 32
LOW = (1 << HALF) - 1
Expression = sa.ColumnElement[Any]


def _flag(condition: Expression) -> Expression:
    return sa.case((condition, sa.literal_column("1")), else_=sa.literal_column("0"))


def _of_ledger() -> dict[str, Expression]:
    """What a row of the ledger adds to each sum, as `turns.roll_ups.sums_of` says it."""
    columns = LEDGER.c
    same = ("prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens", "planning_cost_picousd")
    bounced = ("bounced_tokens", "bounced_cost_picousd")
    savings = ("saved_picousd", "direct_cost_picousd", "net_saving_picousd", *bounced)
    is_held, is_other = columns.held_out.is_(sa.true()), columns.held_out.is_(sa.false())
    return {
        **{name: columns[name] for name in (*same, "planning_unpriced", *savings)},
        "requests": sa.literal_column("1"),
        "partial": _flag(columns.status == "partial"),
        "failed": _flag(columns.status == "failed"),
        "cost_picousd": columns.known_cost_picousd,
        "priced": _flag(columns.known_cost_picousd.is_not(None)),
        "unpriced": _flag(columns.total_cost_picousd.is_(None)),
        "estimated": _flag(columns.estimated),
        "metered": _flag(columns.net_saving_picousd.is_not(None)),
        "held_out_requests": _flag(is_held),
        "held_out_cost_picousd": sa.case((is_held, columns.known_cost_picousd)),
        "economised_requests": _flag(is_other),
        "economised_cost_picousd": sa.case((is_other, columns.known_cost_picousd)),
    }


OF_LEDGER: Mapping[str, Expression] = _of_ledger()
OF_DAYS: Mapping[str, Expression] = {name: DAYS.c[name] for name in FIGURES}


def summed(dialect: sa.Dialect, figures: Mapping[str, Expression]) -> list[sa.Label[Any]]:
    """The columns of a query that adds these figures up, in the order of `FIGURES`; `whole_sums` reads them."""
    found = []
    for name in (name for name in FIGURES if name in figures):
        figure = figures[name]
        if dialect.name == "sqlite" and name not in COUNTS:
            found.append(sa.func.sum(figure.op(">>")(sa.literal_column(str(HALF)))).label(f"{name}_high"))
            found.append(sa.func.sum(figure.op("&")(sa.literal_column(str(LOW)))).label(f"{name}_low"))
        else:
            found.append(sa.func.sum(figure).label(name))
    return found


def whole_sums(row: Any, names: Any = FIGURES) -> dict[str, int]:
    """The sums of a row that `summed` asked for."""
    found = row._mapping
    whole = {name: int(found[name] or 0) for name in names if name in found}
    halves = {
        name: (int(found[f"{name}_high"] or 0) << HALF) + int(found[f"{name}_low"] or 0)
        for name in names
        if f"{name}_low" in found
    }
    return whole | halves


def time_of(dialect: sa.Dialect, unit: str) -> Expression:
    """When a request came, in UTC, as text: `2026-03-01`, `2026-03-01 23`, `2026-03-01 23:59`."""
    if dialect.name == "sqlite":
        size = {"day": 10, "hour": 13, "minute": 16}[unit]
        return sa.func.substr(sa.type_coerce(LEDGER.c.created_at, sa.String), *_constants("1", str(size)))
    form = {"day": "YYYY-MM-DD", "hour": "YYYY-MM-DD HH24", "minute": "YYYY-MM-DD HH24:MI"}[unit]
    zone, shape = _constants("'UTC'", f"'{form}'")
    return sa.func.to_char(sa.func.timezone(zone, LEDGER.c.created_at), shape)


def group_of(dialect: sa.Dialect, table: sa.Table, group: str) -> Expression:
    """What a group is told apart by, in the roll-ups or in the ledger."""
    if group == "day" and table is DAYS:
        return DAYS.c.day
    if group in ("day", "hour", "minute"):
        return time_of(dialect, group)
    if group == "project_id":
        return sa.func.coalesce(table.c.project, table.c.tenant)
    return table.c[{"key": "key_id", "user": "end_user", "conversation": "conversation_id"}.get(group, group)]


def conditions(table: sa.Table, query: CostQuery) -> list[Expression]:
    """The filters of a query, without its times."""
    columns, found = table.c, []
    if query.tenant is not None:
        found.append(columns.tenant == query.tenant)
    listed = (("model", query.models), ("end_user", query.users), ("agent", query.agents), ("key_id", query.keys))
    found += [columns[name].in_(values) for name, values in listed if values]
    if query.projects:
        found.append(sa.func.coalesce(columns.project, columns.tenant).in_(query.projects))
    if query.endpoints:
        named = [name for name in query.endpoints if name is not None]
        chats = [columns.endpoint.is_(None)] if None in query.endpoints else []
        found.append(sa.or_(columns.endpoint.in_(named), *chats))
    if query.conversation is not None:
        found.append(LEDGER.c.conversation_id == query.conversation)
    return found


def _constants(*texts: str) -> list[Expression]:
    """Not as parameters: PostgreSQL would not see that what it groups by is what it selects."""
    return [sa.literal_column(text) for text in texts]
