"""What was spent with keys, and when they were used last, out of the daily roll-ups (guarantee §12.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import sqlalchemy as sa

from gateway.core.types.bill import PICO
from gateway.storage.database.schema import usage_days

DAYS = usage_days.c


@dataclass(frozen=True, slots=True)
class KeyUse:
    """`spent`: USD by period, of calls whose price is known; `last_day`: the last day (UTC) on which a request came
    that called a model."""

    spent: Mapping[str, Decimal]
    last_day: date | None = None


def read_key_use(connection: sa.Connection, key_ids: Sequence[str], starts: Mapping[str, date]) -> dict[str, KeyUse]:
    """The use of each of these keys that was used at all. Days before the first of `starts` are not read.

    Args:
        starts: the first day of each period that is told.
    """
    sums = [
        sa.func.sum(sa.case((DAYS.day >= start, DAYS.cost_picousd), else_=0)).label(f"spent_{period}")
        for period, start in starts.items()
    ]
    where = (DAYS.key_id.in_(key_ids), DAYS.day >= min(starts.values()))
    query = sa.select(DAYS.key_id, *sums).where(*where).group_by(DAYS.key_id)
    spent = {row.key_id: row for row in connection.execute(query)}
    last = [sa.select(sa.literal(each), sa.func.max(DAYS.day)).where(DAYS.key_id == each) for each in key_ids]
    return {
        key_id: KeyUse(
            {period: int(getattr(spent.get(key_id), f"spent_{period}", 0) or 0) * PICO for period in starts}, day
        )
        for key_id, day in (connection.execute(sa.union_all(*last)) if last else ())
        if day is not None
    }
