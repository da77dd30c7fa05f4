"""What was spent with keys, and when they were used last, out of the daily roll-ups (guarantee §12.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from gateway.core.types import bill
from gateway.storage.database.schema import usage_days

DAYS = usage_days.c
TOTAL = "total"


@dataclass(frozen=True, slots=True)
class KeyUse:
    """`spent`: USD by period, of calls whose price is known; `last_day`: the last day (UTC) on which a request came
    that called a model."""

    spent: Mapping[str, Decimal]
    last_day: date | None = None


def read_key_use(
    connection: sa.Connection,
    key_ids: Sequence[str],
    starts: Mapping[str, date],
    first: date,
    before: Mapping[str, int] | None,
) -> dict[str, KeyUse]:
    """The use of each of these keys that was used at all.
    `starts`: the first day of each period that is told; `first`: days before it are not read; `before`: picodollars
    that were spent before `first`, as `read_spent_before` tells them; with them all that was spent is told as the
    period `total`."""
    sums = [
        sa.func.sum(sa.case((DAYS.day >= start, DAYS.cost_picousd), else_=0)).label(period)
        for period, start in {**starts, TOTAL: first}.items()
    ]
    query = sa.select(DAYS.key_id, *sums).where(DAYS.key_id.in_(key_ids), DAYS.day >= first).group_by(DAYS.key_id)
    spent = {row.key_id: row._mapping for row in connection.execute(query)}
    last = [sa.select(sa.literal(each), sa.func.max(DAYS.day)).where(DAYS.key_id == each) for each in key_ids]
    found: dict[str, KeyUse] = {}
    for key_id, day in connection.execute(sa.union_all(*last)) if last else ():
        if day is not None:
            row: Mapping[Any, Any] = spent.get(key_id, {})
            told = {period: int(row.get(period) or 0) * bill.PICO for period in starts}
            if before is not None:
                told[TOTAL] = (before.get(key_id, 0) + int(row.get(TOTAL) or 0)) * bill.PICO
            found[key_id] = KeyUse(told, day)
    return found


def read_spent_before(connection: sa.Connection, key_ids: Sequence[str], day: date) -> dict[str, int]:
    """Picodollars that were spent with each of these keys before that day; all of its days are read."""
    query = sa.select(DAYS.key_id, sa.func.sum(DAYS.cost_picousd)).where(DAYS.key_id.in_(key_ids), DAYS.day < day)
    found = {key_id: int(spent or 0) for key_id, spent in connection.execute(query.group_by(DAYS.key_id))}
    return {each: found.get(each, 0) for each in key_ids}
