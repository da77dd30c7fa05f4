"""Stored completions with their bills: one by id, a page of a tenant's, changed or deleted singly (guarantee §6)."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from gateway.core import ids, jsons, names
from gateway.core.types import items, report_lists, turn
from gateway.storage import rows
from gateway.storage.cache.deleted_places import ListPlace
from gateway.storage.database import schema
from gateway.storage.encryption.columns import for_row, vault_of
from gateway.storage.lookup.locate import MESSAGES, messages_of, upwards
from gateway.storage.turns.bills import calls_of
from gateway.storage.turns.standing import whole_entries

Condition = sa.ColumnElement[bool]
BATCH = 500
_CHAIN = messages_of(upwards())


def read_completion(connection: sa.Connection, tenant: str, completion_id: str) -> turn.StoredCompletion | None:
    """Returns a completion by `chatcmpl-…` (`resp_…`, `msg_…`) or `req_…` (guarantee §6); None if there is none."""
    found = _read(connection, [_is(tenant, completion_id)], (), 1)
    return found[0] if found else None


def read_requests(connection: sa.Connection, tenant: str, request_ids: Sequence[str]) -> list[turn.StoredCompletion]:
    """Returns the tenant's completions of the given requests."""
    of_them = (schema.ledger.c.tenant == tenant, schema.ledger.c.request_id.in_(request_ids))
    return _read(connection, of_them, (), len(request_ids))


def read_page(
    connection: sa.Connection, tenant: str, query: turn.CompletionQuery, last: ListPlace | None = None
) -> report_lists.QueryPage[turn.StoredCompletion] | None:
    """Returns a page in the order of the requests' arrival, or reversed; None if `after` is none of the tenant's.
    `last`: where `after` stood, if it is deleted."""
    table = schema.ledger.c
    columns = (table.created_at, table.request_id)
    where: list[Condition] = [table.tenant == tenant, table.completion_id.is_not(None)]
    if query.conversation_id is not None:
        where.append(table.conversation_id == query.conversation_id)
    if query.model is not None:
        where.append(table.model == query.model)
    if query.agent is not None:
        where.append(table.agent == query.agent)
    if query.after is not None:
        place = last or connection.execute(sa.select(*columns).where(_is(tenant, query.after))).first()
        if place is None:
            return None
        where.append(rows.behind(columns, place, is_down=query.newest_first))
    order = [column.desc() if query.newest_first else column.asc() for column in columns]
    if query.metadata:
        kept = schema.completions.c.metadata
        rows_of = sa.select(table.request_id, kept).select_from(schema.ledger.join(schema.completions))
        pairs, most = query.metadata, query.limit + 1
        where += having(connection, rows_of.where(*where).order_by(*order), (table.request_id, kept), pairs, most)
    found = _read(connection, where, order, query.limit + 1)
    return report_lists.QueryPage.of(found, query.limit)


def write_metadata(
    connection: sa.Connection, tenant: str, completion_id: str, metadata: dict[str, str]
) -> turn.StoredCompletion | None:
    """Replaces a completion's metadata and returns it; None if the tenant has no such completion with content."""
    request_id = _stored(connection, tenant, completion_id)
    if request_id is None:
        return None
    table = schema.completions
    text = jsons.dumps_text(metadata)
    values = for_row(table, {"metadata": text}, request_id)
    connection.execute(table.update().where(table.c.request_id == request_id).values(**values))
    return read_completion(connection, tenant, request_id)


def delete_completion(connection: sa.Connection, tenant: str, completion_id: str) -> ListPlace | None:
    """Deletes a stored completion. Its bill stays, under the request's id alone; its messages belong to the
    conversation. Returns where it stood in the list; None if the tenant has no such completion with content."""
    request_id = _stored(connection, tenant, completion_id)
    if request_id is None:
        return None
    table, ledger = schema.completions, schema.ledger
    at = connection.execute(sa.select(ledger.c.created_at).where(ledger.c.request_id == request_id)).scalar_one()
    connection.execute(table.delete().where(table.c.request_id == request_id))
    gone = {"completion_id": None, "failure": None}
    connection.execute(ledger.update().where(ledger.c.request_id == request_id).values(**gone))
    return rows.utc(at), request_id


def read_input(
    connection: sa.Connection, tenant: str, completion_id: str, *, said: bool = True, answered: bool = False
) -> list[tuple[str, dict[str, Any]]] | None:
    """Returns the messages that a stored completion answers, with their ids, from the system messages in force to the
    last before the answer; None if the tenant has no such completion with content.
    `said` False: the system messages alone; `answered`: the answer, too."""
    request_id = _stored(connection, tenant, completion_id)
    if request_id is None:
        return None
    answers = MESSAGES.select().where(MESSAGES.c.request_id == request_id, MESSAGES.c.choice.is_not(None))
    answer = connection.execute(answers.order_by(MESSAGES.c.choice).limit(1)).first()
    if answer is None:
        return []
    table = schema.instructions
    of_it = (table.c.conversation_id == answer.conversation_id, table.c.digest == answer.instructions_digest)
    text = connection.execute(sa.select(table.c.body).where(*of_it)).scalar()
    instructions = list(jsons.loads_stored(text)) if text else []
    ids = (item["id"] for item in items.instruction_items(answer.conversation_id, instructions))
    found = list(zip(ids, instructions, strict=False))
    chain = connection.execute(_CHAIN, {"from": answer.parent_id}).all()[::-1] if answer.parent_id and said else []
    return found + [(row.id, rows.body_of(row)) for row in (*chain, *([answer] if answered else ()))]


def _stored(connection: sa.Connection, tenant: str, completion_id: str) -> str | None:
    """Returns the request of a completion that was stored with its content."""
    joined = schema.ledger.join(schema.completions)
    query = sa.select(schema.ledger.c.request_id).select_from(joined).where(_is(tenant, completion_id))
    found: str | None = connection.execute(query).scalar()
    return found


def _is(tenant: str, completion_id: str) -> Condition:
    table = schema.ledger.c
    if names.has_nul(completion_id):
        return sa.false()
    if completion_id.startswith("req_"):
        return sa.and_(table.tenant == tenant, table.request_id == completion_id)
    return sa.and_(table.tenant == tenant, table.completion_id == ids.completion_of(completion_id))


def holds(connection: sa.Connection, column: sa.ColumnElement[Any], pair: tuple[str, str]) -> Condition:
    """Returns the condition that stored metadata, an object of strings in compact JSON, holds the pair.

    It searches the text: as quotes inside strings are escaped, `{"key":"value"` or `,"key":"value"` occurs only where
    the pair is a member. Databases differ in their JSON functions, and PostgreSQL refuses some valid JSON."""
    member = jsons.dumps_text(dict([pair]))[1:-1]
    found = sa.func.instr if connection.dialect.name == "sqlite" else sa.func.strpos
    return sa.or_(found(column, "{" + member) > 0, found(column, "," + member) > 0)


def having(
    connection: sa.Connection,
    found: sa.Select[Any],
    columns: tuple[sa.ColumnElement[Any], sa.ColumnElement[Any]],
    pairs: Sequence[tuple[str, str]],
    most: int,
) -> list[Condition]:
    """Builds conditions for rows whose metadata holds all the pairs. Where metadata may be sealed, it reads row by row.
    `found`: ids and metadata of the rows to choose from, in order; `columns`: those two; `most`: how many are
    wanted."""
    if vault_of(connection.dialect) is None:
        return [holds(connection, columns[1], pair) for pair in pairs]
    ids: list[str] = []
    with connection.execute(found.where(columns[1].is_not(None)).execution_options(yield_per=BATCH)) as result:
        for name, text in result:
            metadata = jsons.loads(text)
            if all(metadata.get(key) == value for key, value in pairs):
                ids.append(name)
                if len(ids) == most:
                    break
    return [columns[0].in_(ids)]


def _read(
    connection: sa.Connection, where: Iterable[Condition], order: Iterable[Any], limit: int
) -> list[turn.StoredCompletion]:
    joined = schema.ledger.outerjoin(schema.completions)
    of_answer = schema.completions.c
    columns = (schema.ledger, of_answer.body, of_answer.metadata, of_answer.plan)
    query = sa.select(*columns).select_from(joined).where(*where).order_by(*order).limit(limit)
    found = connection.execute(query).all()
    ids = [row._mapping["request_id"] for row in found]
    calls = calls_of(connection, ids)
    answers = _answers(connection, ids)
    entries = [rows.entry_of(row, tuple(calls.get(each, ()))) for each, row in zip(ids, found, strict=True)]
    return [
        _completion(row, entry, answers.get(entry.request_id, {}))
        for row, entry in zip(found, whole_entries(connection, entries), strict=True)
    ]


def _answers(connection: sa.Connection, request_ids: list[str]) -> dict[str, dict[int, Any]]:
    """Returns the stored answers of each request, by choice."""
    table = schema.messages
    query = sa.select(table.c.request_id, table.c.choice, table.c.body)
    found: dict[str, dict[int, Any]] = {}
    for row in connection.execute(query.where(table.c.request_id.in_(request_ids), table.c.choice.is_not(None))):
        found.setdefault(row.request_id, {})[row.choice] = jsons.loads_stored(row.body)
    return found


def _completion(row: Any, entry: turn.LedgerEntry, messages: dict[int, Any]) -> turn.StoredCompletion:
    if row._mapping["body"] is None:
        return turn.StoredCompletion(entry)
    body = jsons.loads_stored(row._mapping["body"])
    for choice in body.get("choices", ()):
        message = choice["message"]
        if not any(message.values()):  # else it is whole, as after a prefill
            message = {**messages.get(choice.get("index"), {}), **message}
        message.pop(items.BOUND, None)
        choice["message"] = message
    metadata, plan, asked = row._mapping["metadata"], row._mapping["plan"], body.pop(turn.ASKED, None)
    beside = jsons.loads_stored(plan) if plan else {}
    cited = {name: beside.pop(name) for name in turn.CITED_FIELDS if name in beside} or None
    kept = jsons.loads(metadata) if metadata else None
    return turn.StoredCompletion(entry, body, kept, beside or None, asked, cited)
