"""What SQLite lets pass when somebody writes past the gateway, and PostgreSQL refuses: values that nobody can read, and
calls of no bill (guarantee §6)."""

from collections.abc import Iterator
from itertools import islice

import sqlalchemy as sa

from gateway.storage.database import schema
from gateway.storage.turns.roll_ups import OF_A_CONVERSATION

MAX_SPOILT = 100
"""What is named of each at most."""
LAST_DAY = "9999-12-31"
"""No time of this day can be reckoned with."""
COLUMNS_READ = (
    *schema.admin_events.c,
    *schema.ledger.c,
    *schema.ledger_calls.c,
    *schema.usage_days.c,
    *(schema.conversations.c[name] for name in ("id", "tenant", *OF_A_CONVERSATION)),
)


def spoilt_values(connection: sa.Connection) -> list[str]:
    """The values of bills, sums and events that nobody can read, by table, row and column."""
    return list(islice(_spoilt(connection), MAX_SPOILT)) if connection.dialect.name == "sqlite" else []


def calls_of_no_bill(connection: sa.Connection) -> list[str]:
    """The requests of which there are calls, but no bill."""
    if connection.dialect.name != "sqlite":
        return []
    calls, bills = schema.ledger_calls.c.request_id, schema.ledger.c.request_id
    query = sa.select(calls).where(~sa.exists().where(bills == calls)).distinct().limit(MAX_SPOILT)
    return [str(each) for each in connection.execute(query).scalars()]


def _spoilt(connection: sa.Connection) -> Iterator[str]:
    for column in COLUMNS_READ:
        row = sa.type_coerce(next(iter(column.table.primary_key)), sa.LargeBinary)  # as it stands there
        for name in connection.execute(sa.select(sa.cast(row, sa.Text)).where(~_readable(column)).limit(MAX_SPOILT)):
            yield f"{column.table.name} {name[0]!s}: {column.name}"


def _readable(column: sa.Column[object]) -> sa.ColumnElement[bool]:
    kind = sa.func.typeof(column)
    if isinstance(column.type, sa.Date | sa.DateTime):
        when = sa.type_coerce(column, sa.Text)
        return sa.and_(kind == "text", sa.func.date(when).is_not(None), when < LAST_DAY)
    if isinstance(column.type, sa.Integer | sa.Boolean):
        return kind.in_(("integer", "null"))
    return kind.in_(("blob" if isinstance(column.type, sa.LargeBinary) else "text", "null"))
