"""Exports a conversation as one document, and imports it under new ids (`docs/api.md`, Moving conversations)."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from gateway.core import ids, jsons, names, ports
from gateway.core.frozen_records import record
from gateway.core.jsons import Fragment, Json, picked
from gateway.core.types import audit_log, omitted_records, records, tool_steps
from gateway.storage import audit_events, rows
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, insert_if_new
from gateway.storage.encryption.columns import RowInsert, for_row
from gateway.storage.entities.entity_rows import insert_things, thing_row
from gateway.storage.large_documents import ArrivingTexts, whole_text, write_text
from gateway.storage.lookup.locate import ChainEnd, digest_columns, linked, write_links
from gateway.storage.lookup.segments import pinned_ids
from gateway.storage.turns.message_rows import message_row
from gateway.storage.turns.questions import question_columns
from gateway.storage.turns.standing import StoredPaths, needed_messages, whole
from gateway.storage.turns.steps import INSERT_STEPS, OpenToolCalls, results_apart, step_row

BATCH = 500
INSERT_MESSAGES = RowInsert(schema.messages)
Row = dict[str, Any]


@record
class ImportRows:
    """The rows of a new conversation."""

    conversation: Row
    instructions: list[Row]
    messages: list[Row]
    steps: list[Row]
    attachments: list[Row]
    requests: list[Row]
    links: dict[bytes, str]
    pins: list[Row]
    sessions: tuple[str, ...]
    things: list[Row]
    large: dict[str, str]
    """The texts of large documents by their digests."""


def rows_of(
    tenant: str, made: records.ImportedConversation, now: datetime, index_chars: int | None = None
) -> ImportRows:
    """Builds the rows to be written. Attachments of `index_chars` and more are large documents. Slow for many messages:
    not to be run in the event loop."""
    conversation_id = ids.new_id(ids.CONVERSATION)
    message_ids = sorted(ids.new_id("msg_") for _ in made.messages)  # so that ids of the same moment keep their order
    renamed = {each.name: message_id for each, message_id in zip(made.messages, message_ids, strict=True)}
    requests = {old: ids.new_id("req_") for old in {*made.requests, *(each.request for each in made.messages)}}
    bodies = [jsons.dumps_stored(instructions) for instructions in made.instructions]
    names = [ids.content_digest(body) for body in bodies]
    shared = {"conversation_id": conversation_id}
    digests, links = _chains(made, message_ids)

    def digest(index: int | None) -> str | None:
        return None if index is None else names[index]

    def row(each: records.ImportedMessage, message_id: str) -> Row:
        parent = None if each.parent is None else message_ids[each.parent]
        shown_in_full = tuple(renamed.get(name, name) for name in each.message.shown_in_full)  # artifacts, or messages
        return {
            **message_row(each.message, message_id, parent, each.message.sequence_number or 0, now),
            **shared,
            "status": each.message.status,
            "standing": jsons.dumps_text(shown_in_full) if shown_in_full else None,
            "instructions_digest": digest(each.instructions),
            "request_id": requests[each.request],
            "choice": each.choice,
            "restored": each.restored,
            **digests.get(message_id, {}),
        }

    messages = [row(each, message_id) for each, message_id in zip(made.messages, message_ids, strict=True)]
    conversation = {
        "id": conversation_id,
        "tenant": tenant,
        "head_id": None if made.head is None else message_ids[made.head],
        "attachments": max((each.number + 1 for each in made.attachments), default=0),
        "created_at": made.created_at,
        "updated_at": now,
        "metadata": None if made.metadata is None else jsons.dumps_text(made.metadata),
        "instructions_digest": digest(made.in_force),
        "team_task": made.team_task,
        "pins": sum(each.message.pinned for each in made.messages) or None,
        **question_columns(each.message.body for each in sorted(made.messages, key=_age)),
    }
    large = {
        each.number: ids.content_digest(each.document["content"])
        for each in made.attachments
        if index_chars is not None and len(each.document["content"]) >= index_chars
    }
    attachments = [
        {
            **shared,
            "number": each.number,
            "artifact_id": each.artifact_id,
            "size": len(each.document["content"]),
            "body": jsons.dumps_text({**each.document, "content": ""} if each.number in large else each.document),
            "created_at": each.created_at,
            "said_digest": each.said,
            "document": large.get(each.number),
        }
        for each in made.attachments
    ]
    known = [
        {**shared, "request_id": new, "body": jsons.dumps_stored(made.requests.get(old, {"id": old}))}
        for old, new in requests.items()
    ]
    return ImportRows(
        conversation=conversation,
        instructions=[{**shared, "digest": d, "body": b} for d, b in dict(zip(names, bodies, strict=True)).items()],
        messages=messages,
        steps=_steps(made, messages),
        attachments=attachments,
        requests=known,
        links=links,
        pins=[
            {**shared, "message_id": message_id}
            for each, message_id in zip(made.messages, message_ids, strict=True)
            if each.message.pinned
        ],
        sessions=made.sessions,
        things=[thing_row(tenant, conversation_id, thing) for thing in made.things],
        large={large[each.number]: each.document["content"] for each in made.attachments if each.number in large},
    )


def _steps(made: records.ImportedConversation, messages: list[Row]) -> list[Row]:
    """Builds the tool steps, which take results' bodies from the messages' rows. Answers are found by request."""
    answers: dict[str, tuple[int, str]] = {}
    for row in messages:
        if row["choice"] is not None:
            found = (row["choice"], row["id"])
            answers[row["request_id"]] = min(found, answers.get(row["request_id"], found))
    calls: dict[int | None, OpenToolCalls] = {}
    steps: list[Row] = []
    for index, each in sorted(enumerate(made.messages), key=lambda pair: _age(pair[1])):
        row, body = messages[index], each.message.body
        if each.message.role not in tool_steps.RESULT_ROLES:
            calls[index] = OpenToolCalls(row["id"], body, row["created_at"])
            continue
        calls[index] = calls[each.parent].branched() if each.parent in calls else OpenToolCalls()
        answer = answers.get(row["request_id"], (0, None))[1]
        steps.append(step_row(calls[index], body, row, answer, apart=True))
    return steps


def _into_messages(made: ImportRows) -> None:
    """Moves the bodies of results back into messages, for a database that an older version may read."""
    rows = {row["id"]: row for row in made.messages}
    for step in made.steps:
        if step["result"] is not None:
            rows[step["message_id"]]["body"], step["result"] = step["result"], None


def _chains(made: records.ImportedConversation, ids: list[str]) -> tuple[dict[str, Row], dict[bytes, str]]:
    """Returns the digest columns of messages by id, and their links (ADR 8). Failed turns are in no chain."""
    ends: dict[int | None, ChainEnd] = {None: ChainEnd()}
    columns: dict[str, Row] = {}
    links: dict[bytes, str] = {}
    for index, each in sorted(enumerate(made.messages), key=lambda pair: _age(pair[1])):
        message, before = each.message, ends.get(each.parent)
        if before is None or message.status == "failed":
            continue
        reworded = message.rendered is not None
        end = ends[index] = before.followed_by(message.body, status=message.status, reworded=reworded)
        columns[ids[index]] = {"sequence_number": before.length, **digest_columns(end.digest)}
        links |= dict.fromkeys(linked(before.digest, end.digest), ids[index])
    return columns, links


def _age(each: records.ImportedMessage) -> tuple[int, datetime]:
    """Returns a sort key that puts parents before children: an import whose numbers contradict this is refused."""
    return each.message.sequence_number or 0, each.message.created_at or datetime.max.replace(tzinfo=UTC)


def write_import(connection: sa.Connection, made: ImportRows, now: datetime) -> records.ImportResult:
    """Writes all rows of an import. A session name that the tenant has already stays with its conversation."""
    if not results_apart(connection):
        _into_messages(made)
    connection.execute(schema.conversations.insert().values(**for_row(schema.conversations, made.conversation)))
    for digest, text in sorted(made.large.items()):  # the order in which they are locked
        write_text(connection, made.conversation["tenant"], digest, text, now)
    for start in range(0, len(made.messages), BATCH):
        INSERT_MESSAGES(connection, made.messages[start : start + BATCH])
    for start in range(0, len(made.steps), BATCH):
        INSERT_STEPS(connection, made.steps[start : start + BATCH])
    for table, found in (
        (schema.instructions, made.instructions),
        (schema.attachments, made.attachments),
        (schema.imported_requests, made.requests),
        (schema.pins, made.pins),
    ):
        for start in range(0, len(found), BATCH):
            connection.execute(table.insert(), [for_row(table, row) for row in found[start : start + BATCH]])
    write_links(connection, made.conversation["id"], made.links.items())
    insert_things(connection, made.things)
    owner = {"tenant": made.conversation["tenant"], "conversation_id": made.conversation["id"]}
    claim = insert_if_new(connection, schema.sessions)
    taken = [name for name in made.sessions if connection.execute(claim.values(**owner, name=name)).rowcount != 1]
    return records.ImportResult(made.conversation["id"], tuple(taken))


PAGE = 500
TRANSFER_BATCH_PIECES = 50
"""Pieces of a large document's text that are sent together: 400,000 characters."""


class ConversationTransfer:
    """Exports and imports conversations, each in one transaction. JSON is made and read on threads, in pieces."""

    def __init__(
        self,
        transactions: DatabaseTransactions,
        clock: ports.Clock,
        index_chars: int | None = None,
        large_stored: Callable[[], None] | None = None,
    ) -> None:
        """`index_chars`: from how many characters an attachment is a large document; None: none is. `large_stored` is
        called after one was stored."""
        self._index_chars = index_chars
        self._large_stored = large_stored
        self._arriving = ArrivingTexts(transactions, clock)
        self._transactions = transactions
        self._clock = clock

    async def export_conversation(self, tenant: str | None, conversation_id: str) -> Iterator[bytes] | None:
        """Exports a conversation as of one moment, in pieces made on demand; None for an unknown conversation.
        `tenant`: whose conversation it must be; None: anybody's."""
        if names.has_nul(conversation_id):
            return None
        found = await self._transactions.run(lambda connection: _read(connection, tenant, conversation_id))
        return None if found is None else _document(found)

    async def owners(self, most: int) -> list[str]:
        """Returns tenants that have conversations, at most `most` of them."""
        tenant = schema.conversations.c.tenant
        query = sa.select(tenant).distinct().order_by(tenant).limit(most)
        return list(await self._transactions.run(lambda connection: connection.execute(query).scalars().all()))

    async def import_conversation(
        self,
        tenant: str,
        made: records.ImportedConversation,
        by: audit_log.AuditActor | None = None,
        retention_days: float | None = None,
    ) -> records.ImportResult:
        """Stores a new conversation: all of it, or nothing. `by`: the actor in the audit trail; `retention_days`: that
        of the key."""
        now = self._clock.now()
        rows = await asyncio.to_thread(rows_of, tenant, made, now, self._index_chars)
        rows.conversation["retention_days"] = retention_days

        def work(connection: sa.Connection) -> records.ImportResult:
            imported = write_import(connection, rows, now)
            audit_events.recorded(connection, by, now, "conversation.imported", imported.conversation_id, tenant)
            return imported

        if rows.large:
            await self._arriving.store(tenant, rows.large)
        imported = await self._transactions.run(work, write=True)
        if rows.large and self._large_stored is not None:
            self._large_stored()
        return imported


@record
class ConversationRows:
    """A conversation's rows, all of the same moment."""

    conversation: Any
    sessions: Sequence[Any]
    instructions: Sequence[Any]
    messages: Sequence[Any]
    steps: Sequence[Any]
    attachments: Sequence[Any]
    requests: Sequence[Any]
    imported: Sequence[Any]
    pins: frozenset[str]
    things: Sequence[Any]


def _read(connection: sa.Connection, tenant: str | None, conversation_id: str) -> ConversationRows | None:
    """Reads one consistent snapshot; None if the tenant (None: anybody) has no such conversation."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
    table = schema.conversations
    query = sa.select(table).where(table.c.id == conversation_id)
    found = connection.execute(query if tenant is None else query.where(table.c.tenant == tenant)).first()
    if found is None:
        return None

    def those_of(table: sa.Table, *order: str) -> list[Any]:
        where = table.c.conversation_id == conversation_id
        query = sa.select(table).where(where).order_by(*(table.c[name] for name in order))
        return _pages(connection, query)

    ledger, kept = schema.ledger, schema.completions
    requests = sa.select(ledger, kept.c.body.label("completion"), kept.c.metadata.label("completion_metadata"))
    requests = requests.select_from(ledger.outerjoin(kept))
    requests = requests.where(ledger.c.tenant == found.tenant, ledger.c.conversation_id == conversation_id)
    return ConversationRows(
        found,
        those_of(schema.sessions, "name"),
        those_of(schema.instructions, "digest"),
        those_of(schema.messages, "sequence_number", "id"),
        those_of(schema.reasoning_events),
        [_with_text(connection, found.tenant, each) for each in those_of(schema.attachments, "number")],
        _pages(connection, requests.order_by(ledger.c.created_at, ledger.c.request_id)),
        those_of(schema.imported_requests, "request_id"),
        pinned_ids(connection, found),
        those_of(schema.things, "id"),
    )


def _with_text(connection: sa.Connection, tenant: str, row: Any) -> Any:
    """Returns an attachment's row; for a large document with its text, which is stored elsewhere."""
    if row.document is None:
        return row
    text = tuple(whole_text(connection, tenant, row.document))
    return _AttachedLarge(row.number, row.artifact_id, row.body, row.said_digest, row.created_at, text)


class _AttachedLarge(NamedTuple):
    """What an export holds of a large document: columns as in its row, and its text in pieces."""

    number: int
    artifact_id: str
    body: str
    said_digest: bytes | None
    created_at: Any
    text: tuple[str, ...]


def _pages(connection: sa.Connection, query: sa.Select[Any]) -> list[Any]:
    """Reads all rows in steps, so that nothing else has to wait for all of them."""
    found: list[Any] = []
    with connection.execute(query.execution_options(yield_per=PAGE)) as result:
        for page in result.partitions():
            found += page
    return found


def _document(found: ConversationRows) -> Iterator[bytes]:
    """Yields the document in pieces. Stored JSON is copied verbatim, every number as written."""
    imported: dict[str, Json] = {row.request_id: jsons.loads_decimal(row.body) for row in found.imported}
    origins = {new: str(request["id"]) for new, request in imported.items()}
    numbers = {row.digest: number for number, row in enumerate(found.instructions)}
    head = {
        "object": records.EXPORT_KIND,
        "version": records.EXPORT_VERSION,
        "id": found.conversation.id,
        "created_at": _time(found.conversation.created_at),
        "metadata": _text(found.conversation.metadata),
        "head": found.conversation.head_id,
        "instructions_in_force": numbers.get(found.conversation.instructions_digest),
        "sessions": [row.name for row in found.sessions],
        **({} if found.conversation.team_task is None else {"team_task": found.conversation.team_task}),
        "instructions": [Fragment(row.body) for row in found.instructions],
    }
    yield jsons.dumps(head)[:-1]
    order = sorted(found.messages, key=lambda row: (row.sequence_number, rows.utc(row.created_at), row.id))
    steps = {row.message_id: row for row in found.steps}
    yield from _list("messages", order, lambda row: _message(row, steps.get(row.id), numbers, origins, found.pins))
    yield from _attachments(found.attachments)
    if found.things:
        yield from _list("things", found.things, _thing)
    bills = _ExportedBills(order, steps)
    requests = [request for request in imported.values() if len(request) > 1] + [
        _request(row, bills) for row in found.requests
    ]
    yield from _list("requests", sorted(requests, key=lambda request: (str(request.get("created_at")), request["id"])))
    yield b"}"


def _list(name: str, found: Sequence[Any], make: Callable[[Any], Json] = lambda each: each) -> Iterator[bytes]:
    yield b',"%b":[' % name.encode()
    for start in range(0, len(found), PAGE):
        piece = jsons.dumps([make(each) for each in found[start : start + PAGE]])[1:-1]
        yield b"," + piece if start else piece
    yield b"]"


def _message(row: Any, step: Any, numbers: dict[str, int], origins: dict[str, str], pins: frozenset[str]) -> Json:
    """Renders a message; `step`: the row of the tool step whose result it is."""
    body = _body_text(row, step)
    return {
        "id": row.id,
        "parent": row.parent_id,
        **picked(row, "sequence_number", "role", "status"),
        "body": Fragment(body) if body is not None else rows.lost_result(row.role),
        "rendered": _text(row.rendered),
        "standing": _text(row.standing),
        "reasoning_events": None if step is None else [_step(step)],
        "instructions": numbers.get(row.instructions_digest),
        "request": origins.get(row.request_id, row.request_id),
        **picked(row, "choice", "origin"),
        **({} if row.agent is None else {"agent": row.agent}),
        "restored": row.restored,
        "created_at": _time(row.created_at),
        **({"pinned": True} if row.id in pins else {}),
    }


def _body_text(row: Any, step: Any) -> str | None:
    text: str | None = row.body or (step.result if step is not None else None)
    return text


def _step(row: Any) -> Json:
    return {
        "type": "tool_step",
        **picked(row, "tool", "tool_call_id", "arguments", "call_message_id", "position"),
        "result_message_id": row.message_id,
        "answer_id": row.answer_id,
        "called_at": None if row.called_at is None else _time(row.called_at),
        "answered_at": _time(row.answered_at),
    }


def _attachment(row: Any) -> Json:
    return {
        **picked(row, "number", "artifact_id"),
        "document": Fragment(row.body),
        "said": bytes(row.said_digest).hex() if row.said_digest is not None else None,
        "created_at": _time(row.created_at),
    }


def _attachments(found: Sequence[Any]) -> Iterator[bytes]:
    """Renders attachments; a large document's text becomes JSON piece by piece, so that nothing holds it twice."""
    yield b',"attachments":['
    for number, row in enumerate(found):
        before = b"," if number else b""
        if not isinstance(row, _AttachedLarge):
            yield before + jsons.dumps(_attachment(row))
            continue
        about = _attachment(row)
        del about["document"]
        document = {name: value for name, value in jsons.loads(row.body).items() if name != "content"}
        yield before + jsons.dumps(about)[:-1] + b',"document":' + jsons.dumps(document)[:-1] + b',"content":"'
        for start in range(0, len(row.text), TRANSFER_BATCH_PIECES):
            yield jsons.dumps("".join(row.text[start : start + TRANSFER_BATCH_PIECES]))[1:-1]
        yield b'"}}'
    yield b"]"


def _thing(row: Any) -> Json:
    return {
        **picked(row, "type", "thing_id", "name"),
        "aliases": Fragment(row.aliases),
        **picked(row, "action", "times"),
        "created_at": _time(row.created_at),
        "mentioned_at": _time(row.mentioned_at),
        "expires_at": None if row.expires_at is None else _time(row.expires_at),
    }


def _request(row: Any, bills: "_ExportedBills") -> Json:
    return {
        "id": row.request_id,
        **picked(row, "completion_id", "model", "status", "stream", "error_code"),
        "created_at": _time(row.created_at),
        "response_metadata": bills.whole(row.response_metadata),
        "completion": _text(row.completion),
        "metadata": _text(row.completion_metadata),
    }


class _ExportedBills:
    """Bills with all artifacts in their lists, restored from the messages of the same export (ADR 19)."""

    def __init__(self, messages: Sequence[Any], steps: Mapping[str, Any]) -> None:
        self._rows = {row.id: row for row in messages}
        self._steps = steps
        self._paths = StoredPaths({row.id: (row.parent_id, row.sequence_number) for row in messages})
        self._said: dict[str, omitted_records.MessageRecord] = {}

    def whole(self, text: str) -> Fragment:
        """Renders a stored bill as JSON; one that is complete stays verbatim."""
        if f'"{omitted_records.UNLISTED}":' not in text:
            return Fragment(text)
        try:
            metadata = jsons.loads_decimal(text)
        except ValueError:  # the bill is damaged, which an audit finds
            return Fragment(text)
        for name in needed_messages(metadata, self._paths):
            if name not in self._said:
                self._said[name] = self._read(name)
        return Fragment(jsons.dumps_text(whole(metadata, self._paths, self._said)))

    def _read(self, name: str) -> omitted_records.MessageRecord:
        row = self._rows[name]
        body = _body_text(row, self._steps.get(name))
        return omitted_records.said_by(rows.lost_result(row.role) if body is None else jsons.loads_stored(body))


def _text(value: str | None) -> Fragment | None:
    return None if value is None else Fragment(value)


def _time(value: Any) -> str:
    return rows.utc(value).isoformat(timespec="microseconds").replace("+00:00", "Z")
