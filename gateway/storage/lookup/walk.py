"""Walks from a stored message towards the first of its chain, in one recursive query."""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from gateway.storage.database import schema
from gateway.storage.encryption.columns import SealedText

MESSAGES, STEPS = schema.messages, schema.reasoning_events
Condition = sa.ColumnElement[bool]
BODY = SealedText("messages.body", source=MESSAGES.c.id)
"""Of a message, wherever it stands."""


def upwards(
    *columns: sa.ColumnElement[Any],
    first: Condition | None = None,
    onwards: Callable[[sa.CTE], Condition] | None = None,
    weighed: bool = False,
) -> sa.CTE:
    """The chain that ends with the message `:from`, as a table of its messages' `id`, `parent_id` and `depth`.

    Args:
        columns: further columns of `messages`.
        first: a condition on the message `:from`; without it the chain is empty.
        onwards: the condition to go on to the next message, of the chain so far and `messages`.
        weighed: a column `total`, the sum of the weights up to and with each message.
    """
    weight = sa.cast(MESSAGES.c.weight, sa.BigInteger).label("total")
    own = (MESSAGES.c.id, MESSAGES.c.parent_id, *columns)
    begin = sa.select(*own, sa.literal(1).label("depth"), *([weight] if weighed else []))
    begin = begin.where(MESSAGES.c.id == sa.bindparam("from", type_=sa.String))
    chain = (begin if first is None else begin.where(first)).cte("chain", recursive=True)
    total = [chain.c.total + MESSAGES.c.weight] if weighed else []
    step = sa.select(*own, chain.c.depth + 1, *total).where(MESSAGES.c.id == chain.c.parent_id)
    return chain.union_all(step if onwards is None else step.where(onwards(chain)))


def fewer_than(chain: sa.CTE) -> Condition:
    """Goes on to at most `:count` messages."""
    return chain.c.depth < sa.bindparam("count", type_=sa.Integer)


def body_of_message() -> sa.Label[str]:
    """The body of a message wherever it stands: a tool's result is read from its step. NULL where that is gone."""
    of_it = (STEPS.c.conversation_id == MESSAGES.c.conversation_id, STEPS.c.message_id == MESSAGES.c.id)
    result = sa.select(STEPS.c.result).where(*of_it).scalar_subquery()
    found = sa.case((MESSAGES.c.body != "", MESSAGES.c.body), else_=result)
    return sa.type_coerce(found, BODY).label("body")


def whole_messages() -> sa.Select[Any]:
    """All that is stored of messages."""
    columns = [column for column in MESSAGES.c if column.name not in ("body", "reasoning_events")]
    return sa.select(*columns, body_of_message())


def messages_of(chain: sa.CTE) -> sa.Select[Any]:
    """The whole rows of a chain, the latest first. Bodies are read only once small columns have said which."""
    return whole_messages().join(chain, chain.c.id == MESSAGES.c.id).order_by(chain.c.depth)
