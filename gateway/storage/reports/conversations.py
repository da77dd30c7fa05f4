"""The list of conversations, those that were active last in front (guarantee §13.9)."""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from gateway.core.ids import new_id
from gateway.core.types.bill import PICO
from gateway.core.types.report_lists import ConversationChoice, ConversationLine, KeptSums, ListPage, ListPart, rows_of
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.reports.list_parts import in_part, read_order
from gateway.storage.stored_keys import storable
from gateway.storage.turns.questions import folded
from gateway.storage.turns.roll_ups import OF_A_CONVERSATION

TABLE, SESSIONS = schema.conversations, schema.sessions
COLUMNS = ("id", "tenant", "question", "end_user", "model", "created_at", "updated_at", *OF_A_CONVERSATION)
WHOLE_ID = len(new_id("conv_"))


def list_conversations(connection: sa.Connection, part: ListPart[ConversationChoice]) -> ListPage[ConversationLine]:
    """A part of the list, in the order of the latest activity; `since` and `until` are of that."""
    place = (TABLE.c.updated_at, TABLE.c.id)
    where = [*_chosen(connection, part.having), *in_part(place, part)]
    query = sa.select(*(TABLE.c[name] for name in COLUMNS)).where(*where)
    found = connection.execute(query.order_by(*read_order(place, part)).limit(part.limit + 1)).all()
    sessions = _sessions(connection, [row.id for row in found])
    lines = [_line(row, tuple(sessions.get(row.id, ()))) for row in found]
    return rows_of(part, lines, lambda line: line.position)


def read_conversation(connection: sa.Connection, tenant: str | None, conversation_id: str) -> ConversationLine | None:
    """One conversation as the list has it; None if there is none of that id, or it is not this tenant's (None: of any
    tenant)."""
    query = sa.select(*(TABLE.c[name] for name in COLUMNS)).where(TABLE.c.id == conversation_id)
    row = connection.execute(query).first()
    if row is None or tenant not in (None, row.tenant):
        return None
    return _line(row, tuple(_sessions(connection, [row.id]).get(row.id, ())))


def _chosen(connection: sa.Connection, choice: ConversationChoice) -> Iterable[sa.ColumnElement[bool]]:
    named = (("tenant", choice.tenant), ("end_user", choice.user), ("model", choice.model))
    yield from (TABLE.c[name] == storable(value) for name, value in named if value is not None)
    if choice.id and len(choice.id) >= WHOLE_ID:
        yield TABLE.c.id == storable(choice.id)
    elif choice.id:
        yield sa.func.substr(TABLE.c.id, 1, len(choice.id)) == storable(choice.id)
    if choice.session is not None:
        of_name = sa.select(SESSIONS.c.conversation_id).where(SESSIONS.c.name == storable(choice.session))
        if choice.tenant is not None:
            of_name = of_name.where(SESSIONS.c.tenant == storable(choice.tenant))
        yield TABLE.c.id.in_(of_name)
    if choice.text and (text := folded(choice.text)):
        find = sa.func.instr if connection.dialect.name == "sqlite" else sa.func.strpos
        yield find(TABLE.c.question_folded, text) > 0


def _sessions(connection: sa.Connection, ids: list[str]) -> dict[str, list[str]]:
    query = sa.select(SESSIONS.c.conversation_id, SESSIONS.c.name).where(SESSIONS.c.conversation_id.in_(ids))
    found: dict[str, list[str]] = {}
    for row in connection.execute(query.order_by(SESSIONS.c.name)) if ids else ():
        found.setdefault(row.conversation_id, []).append(row.name)
    return found


def _line(row: Any, sessions: tuple[str, ...]) -> ConversationLine:
    return ConversationLine(
        id=row.id,
        tenant=row.tenant,
        sessions=sessions,
        question=row.question,
        user=row.end_user,
        model=row.model,
        created_at=rows.utc(row.created_at),
        updated_at=rows.utc(row.updated_at),
        sums=KeptSums(
            requests=row.requests or 0,
            prompt_tokens=row.prompt_tokens or 0,
            completion_tokens=row.completion_tokens or 0,
            cost=(row.cost_picousd or 0) * PICO,
            planning_cost=(row.planning_cost_picousd or 0) * PICO,
            unpriced=row.unpriced or 0,
            estimated=row.estimated or 0,
            metered=row.metered or 0,
            net_saving=(row.net_saving_picousd or 0) * PICO,
        ),
    )
