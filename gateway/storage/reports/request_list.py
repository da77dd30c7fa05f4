"""The list of requests, out of the ledger: those that arrived last in front (guarantee §13.9)."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from gateway.core.types.report_lists import CHAT, ListPage, ListPart, ListPosition, RequestChoice, RequestLine, rows_of
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.reports.list_parts import in_part, read_order
from gateway.storage.stored_keys import storable

TABLE, CONVERSATIONS, DAYS = schema.ledger, schema.conversations, schema.usage_days
PLACE = (TABLE.c.created_at, TABLE.c.request_id)
KEPT_OUT = ("response_metadata", "failure")
COLUMNS = [column for column in TABLE.columns if column.name not in KEPT_OUT]
COMPLETE: sa.ColumnElement[str] = sa.literal_column("'complete'")
MAX_AT_ONCE = 500
"""Requests that are asked for by their ids in one query."""


def list_requests(connection: sa.Connection, part: ListPart[RequestChoice]) -> ListPage[RequestLine]:
    """A part of the list, in the order in which requests arrived."""
    where = [*_chosen(connection, part.having), *in_part(PLACE, part)]
    query = sa.select(*COLUMNS).where(*where).order_by(*read_order(PLACE, part)).limit(part.limit + 1)
    lines = [line_of(row) for row in connection.execute(query)]
    return rows_of(part, lines, lambda line: line.position)


def read_request(connection: sa.Connection, tenant: str | None, request_id: str) -> RequestLine | None:
    """One request by `req_…`, or by the id of its completion; None if there is none, or it is not this tenant's (None:
    of any tenant)."""
    column = TABLE.c.request_id if request_id.startswith("req_") else TABLE.c.completion_id
    row = connection.execute(sa.select(*COLUMNS).where(column == storable(request_id))).first()
    return None if row is None or tenant not in (None, row.tenant) else line_of(row)


def read_arrivals(connection: sa.Connection, part: ListPart[RequestChoice]) -> list[ListPosition]:
    """Where requests stand in the list, the newest first or, if asked for newer ones, the oldest: for whoever wants to
    know which there are, and has seen most of them."""
    where = [*_chosen(connection, part.having), *in_part(PLACE, part)]
    query = sa.select(*PLACE).where(*where).order_by(*read_order(PLACE, part)).limit(part.limit)
    return [ListPosition(rows.utc(row.created_at), row.request_id) for row in connection.execute(query)]


def read_named(connection: sa.Connection, request_ids: Sequence[str]) -> list[RequestLine]:
    """These requests, in the order in which they arrived."""
    found: list[RequestLine] = []
    for first in range(0, len(request_ids), MAX_AT_ONCE):
        named = TABLE.c.request_id.in_(request_ids[first : first + MAX_AT_ONCE])
        found += [line_of(row) for row in connection.execute(sa.select(*COLUMNS).where(named))]
    return sorted(found, key=lambda line: (line.created_at, line.id))


def read_metadata(connection: sa.Connection, request_ids: Sequence[str]) -> list[dict[str, Any]]:
    """The `response_metadata` of these requests, in their order; {} where there is none that can be read."""
    found: dict[str, dict[str, Any]] = {}
    columns = (TABLE.c.request_id, TABLE.c.response_metadata)
    for first in range(0, len(request_ids), MAX_AT_ONCE):
        named = TABLE.c.request_id.in_(request_ids[first : first + MAX_AT_ONCE])
        for row in connection.execute(sa.select(*columns).where(named)):
            found[row.request_id] = rows.figures_of(row.response_metadata)
    return [found.get(each, {}) for each in request_ids]


def tenant_of(connection: sa.Connection, name: str) -> str | None:
    """Whose a conversation (`conv_…`), a request (`req_…`) or a completion is; None if there is none of that id."""
    if name.startswith("conv_"):
        query = sa.select(CONVERSATIONS.c.tenant).where(CONVERSATIONS.c.id == storable(name))
        found = connection.execute(query).scalar()
        return found if found is not None else _tenant_by_bills(connection, name)
    line = read_request(connection, None, name)
    return line.tenant if line is not None else None


def _tenant_by_bills(connection: sa.Connection, conversation_id: str) -> str | None:
    """Whose a deleted conversation was: its bills outlive it."""
    of_it = (TABLE.c.conversation_id == storable(conversation_id), TABLE.c.tenant.in_(sa.select(DAYS.c.tenant)))
    found: str | None = connection.execute(sa.select(TABLE.c.tenant).where(*of_it).limit(1)).scalar()
    return found


def _chosen(connection: sa.Connection, choice: RequestChoice) -> Iterable[sa.ColumnElement[bool]]:
    tenant = choice.tenant
    if choice.conversation is not None:
        if tenant is None:  # the index by conversation begins with the tenant
            tenant = tenant_of(connection, choice.conversation)
            if tenant is None:
                yield sa.false()
        yield TABLE.c.conversation_id == storable(choice.conversation)
    named = (
        ("tenant", tenant),
        ("model", choice.model),
        ("end_user", choice.user),
        ("agent", choice.agent),
        ("status", choice.status),
    )
    yield from (TABLE.c[name] == storable(value) for name, value in named if value is not None)
    if choice.status not in (None, "complete"):
        yield TABLE.c.status != COMPLETE  # by which SQLite sees that the index of these will do
    if choice.endpoint == CHAT:
        yield TABLE.c.endpoint.is_(None)
    elif choice.endpoint is not None:
        yield TABLE.c.endpoint == storable(choice.endpoint)


def line_of(row: Any) -> RequestLine:
    return RequestLine(
        id=row.request_id,
        completion_id=row.completion_id,
        tenant=row.tenant,
        conversation_id=row.conversation_id,
        model=row.model,
        status=row.status,
        stream=row.stream,
        error_code=row.error_code,
        created_at=rows.utc(row.created_at),
        user=row.end_user,
        agent=row.agent,
        endpoint=row.endpoint,
        project=row.project,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cached_tokens=row.cached_tokens,
        cache_write_tokens=row.cache_write_tokens,
        cost=rows.usd(row.total_cost_picousd),
        known_cost=rows.usd(row.known_cost_picousd),
        planning_cost=rows.usd(row.planning_cost_picousd),
        saved=rows.usd(row.saved_picousd),
        direct_cost=rows.usd(row.direct_cost_picousd),
        net_saving=rows.usd(row.net_saving_picousd),
        estimated=row.estimated,
        counted=bool(row.rolled_up),
        key_id=row.key_id,
        http_status=row.http_status,
        total_ms=row.total_ms,
    )
