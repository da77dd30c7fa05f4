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
    """The use of each of these keys that was used at all.

    Args:
        starts: the first day of each period that is told.
    """
    sums = [
        sa.func.sum(sa.case((DAYS.day >= start, DAYS.cost_picousd), else_=0)).label(f"spent_{period}")
        for period, start in starts.items()
    ]
    query = sa.select(DAYS.key_id, sa.func.max(DAYS.day).label("last_day"), *sums)
    rows = connection.execute(query.where(DAYS.key_id.in_(key_ids)).group_by(DAYS.key_id))
    return {
        row.key_id: KeyUse(
            {period: int(getattr(row, f"spent_{period}") or 0) * PICO for period in starts}, row.last_day
        )
        for row in rows
    }
