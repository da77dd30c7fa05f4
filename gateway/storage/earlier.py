"""Reads what is older than the end of a path that was read for the window: something in it may have to be recalled."""

from typing import Any

import sqlalchemy as sa

from gateway.models.conversation import Earlier
from gateway.storage import rows, schema

MESSAGES = schema.messages


def read_earlier(connection: sa.Connection, tenant: str, message_id: str, max_bytes: int) -> Earlier:
    """See `ports.ConversationStore`."""
    of_tenant = schema.conversations.c.tenant == tenant
    joined = MESSAGES.join(schema.conversations, schema.conversations.c.id == MESSAGES.c.conversation_id)
    columns = (MESSAGES.c.parent_id, MESSAGES.c.conversation_id, MESSAGES.c.sequence_number)
    query = sa.select(*columns).select_from(joined).where(MESSAGES.c.id == message_id, of_tenant)
    behind = connection.execute(query).first()
    if behind is None or behind.parent_id is None:
        return Earlier()
    found = connection.execute(_EARLIER, {"last": behind.parent_id, "limit": max_bytes}).all()
    results: dict[str, object] = {}
    messages = tuple(rows.message_of(row, results) for row in reversed(found))
    return Earlier(messages, _turns_before(connection, found[-1] if found else behind))


def _turns_before(connection: sa.Connection, row: Any) -> int:
    """How many turns began before a message: counted along its path if there are branches, or gaps where something was
    deleted."""
    if row.parent_id is None:
        return 0
    number = MESSAGES.c.sequence_number
    before = (MESSAGES.c.conversation_id == row.conversation_id, number < row.sequence_number)
    counts = sa.select(sa.func.count(), sa.func.count(number.distinct())).where(*before)
    if tuple(connection.execute(counts).one()) == (row.sequence_number, row.sequence_number):
        users = sa.select(sa.func.count()).where(*before, MESSAGES.c.role == "user")
        return int(connection.execute(users).scalar_one())
    return int(connection.execute(_USERS, {"last": row.parent_id}).scalar_one())


def _earlier() -> sa.Select[tuple[object, ...]]:
    """Walks up from `:last` over small columns while the weights add up to no more than `:limit`; only then reads the
    bodies."""
    table, limit = MESSAGES, sa.bindparam("limit", type_=sa.BigInteger)
    weight = sa.cast(table.c.weight, sa.BigInteger).label("total")
    walk = sa.select(table.c.id, table.c.parent_id, sa.literal(1).label("depth"), weight)
    begin = sa.and_(table.c.id == sa.bindparam("last", type_=sa.String), table.c.weight <= limit)
    cte = walk.where(begin).cte("earlier", recursive=True)
    total = cte.c.total + table.c.weight
    step = sa.select(table.c.id, table.c.parent_id, cte.c.depth + 1, total)
    cte = cte.union_all(step.where(sa.and_(table.c.id == cte.c.parent_id, total <= limit)))
    return sa.select(table).join(cte, cte.c.id == table.c.id).order_by(cte.c.depth)


def _users() -> sa.Select[int]:
    """Counts the user messages of the path that ends with `:last`."""
    table = MESSAGES
    walk = sa.select(table.c.id, table.c.parent_id, table.c.role)
    cte = walk.where(table.c.id == sa.bindparam("last", type_=sa.String)).cte("path", recursive=True)
    cte = cte.union_all(sa.select(table.c.id, table.c.parent_id, table.c.role).where(table.c.id == cte.c.parent_id))
    return sa.select(sa.func.count()).select_from(cte).where(cte.c.role == "user")


_EARLIER, _USERS = _earlier(), _users()
