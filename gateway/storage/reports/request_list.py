"""Lists conversations, latest activity first, and arrivals of requests, and reads requests by id (guarantee §13.9).
An index finds each part of a list, however long the list is: a part begins where the previous one ended."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from gateway.core import ids
from gateway.core.types import report_lists
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.keyed_hashes import storable
from gateway.storage.turns.questions import folded
from gateway.storage.turns.roll_ups import OF_A_CONVERSATION, kept_sums

T = TypeVar("T")
Place = tuple[sa.Column[Any], sa.Column[Any]]
"""The columns that order a list: a time and an id."""


def page_of(
    query: report_lists.ListPart[Any] | report_lists.RequestQuery,
    found: Sequence[T],
    position: Callable[[T], report_lists.ListPosition],
    end: report_lists.ListPosition | None = None,
) -> report_lists.ListPage[T]:
    """Builds a page of a list from what was read. `found`: in the order of reading, one more than `query.limit` if
    there are more; `position`: of a row; `end`: where reading ended early."""
    more, shown = len(found) > query.limit, found[: query.limit]
    onwards, ended = (position(shown[-1]), None) if more else (end, end)
    back = position(shown[0]) if query.at is not None and shown else None
    if query.direction == "newer":
        return report_lists.ListPage(tuple(reversed(shown)), back or query.at, onwards, ended)
    return report_lists.ListPage(tuple(shown), onwards, back, ended)


def in_part(place: Place, part: report_lists.ListPart[Any]) -> Iterable[sa.ColumnElement[bool]]:
    """Yields the conditions for rows within the requested times and behind the requested position."""
    time = place[0]
    if part.since is not None:
        yield time >= part.since
    if part.until is not None:
        yield time < part.until
    if part.at is not None:
        yield rows.behind(place, (part.at.time, storable(part.at.id)), is_down=part.direction == "older")


def read_order(place: Place, part: report_lists.ListPart[Any]) -> Iterable[sa.ColumnElement[Any]]:
    """Returns the order in which a part is read: away from its position."""
    return [column.desc() if part.direction == "older" else column.asc() for column in place]


TABLE = schema.ledger
CONVERSATIONS = schema.conversations
DAYS = schema.usage_days
PLACE = (TABLE.c.created_at, TABLE.c.request_id)
CONVERSATION_PLACE = (CONVERSATIONS.c.updated_at, CONVERSATIONS.c.id)
KEPT_OUT = ("response_metadata", "failure")
COLUMNS = [column for column in TABLE.columns if column.name not in KEPT_OUT]
OF_MONEY = ("known_cost", "planning_cost", "saved", "direct_cost", "net_saving")
"""Fields of a line whose columns hold picodollars."""
REQUEST_IDS_PER_QUERY = 500
"""Requests that one query reads by id."""


def read_request(connection: sa.Connection, tenant: str | None, request_id: str) -> report_lists.RequestLine | None:
    """Reads one request by `req_…`, or by its completion's id; None if there is none, or it is not this tenant's (None:
    of any tenant)."""
    column = TABLE.c.request_id if request_id.startswith("req_") else TABLE.c.completion_id
    row = connection.execute(sa.select(*COLUMNS).where(column == storable(request_id))).first()
    return None if row is None or tenant not in (None, row.tenant) else line_of(row)


def read_arrivals(
    connection: sa.Connection, part: report_lists.ListPart[report_lists.RequestChoice]
) -> list[report_lists.ListPosition]:
    """Lists the positions of requests in the order of arrival, newest first or, if newer ones are asked for, oldest
    first: for a caller that has seen most of them. They are chosen by tenant, model and user alone."""
    having = part.having
    named = ((TABLE.c.tenant, having.tenant), (TABLE.c.model, having.model), (TABLE.c.end_user, having.user))
    where = [*(column == storable(name) for column, name in named if name is not None), *in_part(PLACE, part)]
    query = sa.select(*PLACE).where(*where).order_by(*read_order(PLACE, part)).limit(part.limit)
    found = connection.execute(query)
    return [report_lists.ListPosition.of_time(rows.utc(row.created_at), row.request_id) for row in found]


def read_named(connection: sa.Connection, request_ids: Sequence[str]) -> list[report_lists.RequestLine]:
    """Reads the given requests, in order of arrival."""
    found: list[report_lists.RequestLine] = []
    for first in range(0, len(request_ids), REQUEST_IDS_PER_QUERY):
        named = TABLE.c.request_id.in_(request_ids[first : first + REQUEST_IDS_PER_QUERY])
        found += [line_of(row) for row in connection.execute(sa.select(*COLUMNS).where(named))]
    return sorted(found, key=lambda line: (line.created_at, line.id))


def read_metadata(connection: sa.Connection, request_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Reads the `response_metadata` of each request, in the given order; {} where it is missing or unreadable."""
    found: dict[str, dict[str, Any]] = {}
    columns = (TABLE.c.request_id, TABLE.c.response_metadata)
    for first in range(0, len(request_ids), REQUEST_IDS_PER_QUERY):
        named = TABLE.c.request_id.in_(request_ids[first : first + REQUEST_IDS_PER_QUERY])
        for row in connection.execute(sa.select(*columns).where(named)):
            found[row.request_id] = rows.figures_of(row.response_metadata)
    return [found.get(each, {}) for each in request_ids]


def tenant_of(connection: sa.Connection, name: str) -> str | None:
    """Returns the tenant of a conversation (`conv_…`), request (`req_…`) or completion; None if the id is unknown."""
    if name.startswith(ids.CONVERSATION):
        query = sa.select(CONVERSATIONS.c.tenant).where(CONVERSATIONS.c.id == storable(name))
        found = connection.execute(query).scalar()
        return found if found is not None else _tenant_by_bills(connection, name)
    line = read_request(connection, None, name)
    return line.tenant if line is not None else None


def _tenant_by_bills(connection: sa.Connection, conversation_id: str) -> str | None:
    """Returns whose a deleted conversation was: its bills outlive it."""
    of_it = (TABLE.c.conversation_id == storable(conversation_id), TABLE.c.tenant.in_(sa.select(DAYS.c.tenant)))
    found: str | None = connection.execute(sa.select(TABLE.c.tenant).where(*of_it).limit(1)).scalar()
    return found


def line_of(row: Any) -> report_lists.RequestLine:
    money: dict[str, Any] = {name: rows.usd(getattr(row, f"{name}_picousd")) for name in OF_MONEY}
    return report_lists.RequestLine(
        **rows.alike(row, report_lists.RequestLine, "id", "user", "cost", *OF_MONEY),
        id=row.request_id,
        user=row.end_user,
        cost=rows.usd(row.total_cost_picousd),
        **money,
    )


SESSIONS = schema.sessions
CONVERSATION_LIST_COLUMNS = (
    "id",
    "tenant",
    "question",
    "end_user",
    "model",
    "created_at",
    "updated_at",
    *OF_A_CONVERSATION,
)
CONVERSATION_ID_CHARS = len(ids.new_id(ids.CONVERSATION))


def list_conversations(
    connection: sa.Connection, part: report_lists.ListPart[report_lists.ConversationChoice]
) -> report_lists.ListPage[report_lists.ConversationLine]:
    """Lists a part of the conversations, in the order of the latest activity, to which `since` and `until` apply."""
    place = CONVERSATION_PLACE
    ended = _end_of_search(connection, part)
    where = [*_conversations_chosen(connection, part.having), *in_part(place, part)]
    if ended is not None:
        where += rows.up_to(place, (ended.time, storable(ended.id)), is_down=part.direction == "older")
    query = sa.select(*(CONVERSATIONS.c[name] for name in CONVERSATION_LIST_COLUMNS)).where(*where)
    found = connection.execute(query.order_by(*read_order(place, part)).limit(part.limit + 1)).all()
    sessions = _sessions(connection, [row.id for row in found])
    lines = [_line(row, tuple(sessions.get(row.id, ()))) for row in found]
    return page_of(part, lines, lambda line: line.position, ended)


def _end_of_search(
    connection: sa.Connection, part: report_lists.ListPart[report_lists.ConversationChoice]
) -> report_lists.ListPosition | None:
    """Returns the last conversation that this part checks; None if it need not check: an index leads to the wanted
    ones, or there are no more."""
    choice, place = part.having, CONVERSATION_PLACE
    is_led = choice.id or choice.session or not (choice.text or choice.user or choice.model)
    if part.searched is None or is_led:
        return None
    of_tenant = () if choice.tenant is None else (CONVERSATIONS.c.tenant == storable(choice.tenant),)
    query = sa.select(*place).where(*of_tenant, *in_part(place, part)).order_by(*read_order(place, part))
    last = connection.execute(query.limit(1).offset(part.searched)).first()
    return None if last is None else report_lists.ListPosition.of_time(rows.utc(last.updated_at), last.id)


def read_conversation(
    connection: sa.Connection, tenant: str | None, conversation_id: str
) -> report_lists.ConversationLine | None:
    """Reads one conversation as a line of the list; None if there is none of that id, or it is not this tenant's (None:
    of any tenant)."""
    query = sa.select(*(CONVERSATIONS.c[name] for name in CONVERSATION_LIST_COLUMNS)).where(
        CONVERSATIONS.c.id == conversation_id
    )
    row = connection.execute(query).first()
    if row is None or tenant not in (None, row.tenant):
        return None
    return _line(row, tuple(_sessions(connection, [row.id]).get(row.id, ())))


def _conversations_chosen(
    connection: sa.Connection, choice: report_lists.ConversationChoice
) -> Iterable[sa.ColumnElement[bool]]:
    named = (("tenant", choice.tenant), ("end_user", choice.user), ("model", choice.model))
    yield from (CONVERSATIONS.c[name] == storable(value) for name, value in named if value is not None)
    if choice.id and len(choice.id) >= CONVERSATION_ID_CHARS:
        yield CONVERSATIONS.c.id == storable(choice.id)
    elif choice.id:
        yield sa.func.substr(CONVERSATIONS.c.id, 1, len(choice.id)) == storable(choice.id)
    if choice.session is not None:
        of_name = sa.select(SESSIONS.c.conversation_id).where(SESSIONS.c.name == storable(choice.session))
        if choice.tenant is not None:
            of_name = of_name.where(SESSIONS.c.tenant == storable(choice.tenant))
        yield CONVERSATIONS.c.id.in_(of_name)
    if choice.text and (text := folded(choice.text)):
        find = sa.func.instr if connection.dialect.name == "sqlite" else sa.func.strpos
        yield find(CONVERSATIONS.c.question_folded, text) > 0


def _sessions(connection: sa.Connection, ids: list[str]) -> dict[str, list[str]]:
    query = sa.select(SESSIONS.c.conversation_id, SESSIONS.c.name).where(SESSIONS.c.conversation_id.in_(ids))
    found: dict[str, list[str]] = {}
    for row in connection.execute(query.order_by(SESSIONS.c.name)) if ids else ():
        found.setdefault(row.conversation_id, []).append(row.name)
    return found


def _line(row: Any, sessions: tuple[str, ...]) -> report_lists.ConversationLine:
    return report_lists.ConversationLine(
        **rows.alike(row, report_lists.ConversationLine, "sessions", "user", "sums"),
        sessions=sessions,
        user=row.end_user,
        sums=kept_sums(row),
    )
