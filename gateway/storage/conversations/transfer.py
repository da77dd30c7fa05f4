"""Exports a conversation as one document and imports it again (`docs/api.md`, Moving conversations)."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.jsons import Fragment
from gateway.core.names import has_nul
from gateway.core.ports import Clock
from gateway.core.types.audit_log import AuditActor
from gateway.core.types.omitted_records import UNLISTED, MessageRecord, said_by
from gateway.core.types.records import KIND, VERSION, ImportedConversation, ImportResult
from gateway.storage import rows
from gateway.storage.audit_log.append import recorded
from gateway.storage.conversations.import_rows import rows_of, write_import
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.large.arriving import ArrivingTexts
from gateway.storage.large.write_text import whole_text
from gateway.storage.lookup.pins import pinned_ids
from gateway.storage.turns.standing import StoredPaths, needed_messages, whole

PAGE = 500
PIECES = 50
"""Of a large document's text, that are sent at once: 400,000 characters."""
Json = dict[str, Any]


class ConversationTransfer:
    """Export and import, each in one transaction. JSON is made and read on threads, a piece at a time.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """

    def __init__(
        self,
        transactions: DatabaseTransactions,
        clock: Clock,
        index_chars: int | None = None,
        large_stored: Callable[[], None] | None = None,
    ) -> None:
        """`index_chars`: from how many characters an attachment is a large document; None: none is. `large_stored` is
        told that one was stored."""
        self._index_chars = index_chars
        self._large_stored = large_stored
        self._arriving = ArrivingTexts(transactions, clock)
        self._transactions = transactions
        self._clock = clock

    async def export_conversation(self, tenant: str | None, conversation_id: str) -> Iterator[bytes] | None:
        """The document, of one moment, in pieces made as they are asked for; None for an unknown conversation.

        Args:
            tenant: whose conversation it must be; None: anybody's.
        """
        if has_nul(conversation_id):
            return None
        found = await self._transactions.run(lambda connection: _read(connection, tenant, conversation_id))
        return None if found is None else _document(found)

    async def import_conversation(
        self, tenant: str, made: ImportedConversation, by: AuditActor | None = None, retention_days: float | None = None
    ) -> ImportResult:
        """Stores a new conversation: all of it, or nothing. `by` is who does it, as the trail tells it;
        `retention_days` is that of the key."""
        now = self._clock.now()
        rows = await asyncio.to_thread(rows_of, tenant, made, now, self._index_chars)
        rows.conversation["retention_days"] = retention_days

        def work(connection: sa.Connection) -> ImportResult:
            imported = write_import(connection, rows, now)
            recorded(connection, by, now, "conversation.imported", imported.conversation_id, tenant)
            return imported

        if rows.large:
            await self._arriving.store(tenant, rows.large)
        imported = await self._transactions.run(work, write=True)
        if rows.large and self._large_stored is not None:
            self._large_stored()
        return imported


@dataclass(frozen=True, slots=True)
class ConversationRows:
    """A conversation's rows, of one moment."""

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
    """One consistent snapshot; None if the tenant (None: anybody) has no such conversation."""
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
    """An attachment's row, of a large document with the text that stands elsewhere."""
    if row.document is None:
        return row
    text = tuple(whole_text(connection, tenant, row.document))
    return _AttachedLarge(row.number, row.artifact_id, row.body, row.said_digest, row.created_at, text)


class _AttachedLarge(NamedTuple):
    """What an export tells of a large document, as a row has it, and its text in pieces."""

    number: int
    artifact_id: str
    body: str
    said_digest: bytes | None
    created_at: Any
    text: tuple[str, ...]


def _pages(connection: sa.Connection, query: sa.Select[Any]) -> list[Any]:
    """All rows, in steps: nobody else is to wait for the whole."""
    found: list[Any] = []
    with connection.execute(query.execution_options(yield_per=PAGE)) as result:
        for page in result.partitions():
            found += page
    return found


def _document(found: ConversationRows) -> Iterator[bytes]:
    """The document in pieces. JSON that is stored as a text goes into it as it stands, every number as written."""
    imported: dict[str, Json] = {row.request_id: jsons.loads_decimal(row.body) for row in found.imported}
    origins = {new: str(request["id"]) for new, request in imported.items()}
    numbers = {row.digest: number for number, row in enumerate(found.instructions)}
    head = {
        "object": KIND,
        "version": VERSION,
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
    yield from _list(
        "messages", order, lambda row: {**_message(row, steps.get(row.id), numbers, origins), **_pin(row, found.pins)}
    )
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


def _message(row: Any, step: Any, numbers: dict[str, int], origins: dict[str, str]) -> Json:
    """A message; `step` is the row of the tool step whose result it is."""
    body = _body_text(row, step)
    return {
        "id": row.id,
        "parent": row.parent_id,
        "sequence_number": row.sequence_number,
        "role": row.role,
        "status": row.status,
        "body": Fragment(body) if body is not None else rows.lost_result(row.role),
        "rendered": _text(row.rendered),
        "standing": _text(row.standing),
        "reasoning_events": None if step is None else [_step(step)],
        "instructions": numbers.get(row.instructions_digest),
        "request": origins.get(row.request_id, row.request_id),
        "choice": row.choice,
        "origin": row.origin,
        **({} if row.agent is None else {"agent": row.agent}),
        "restored": row.restored,
        "created_at": _time(row.created_at),
    }


def _pin(row: Any, pins: frozenset[str]) -> Json:
    return {"pinned": True} if row.id in pins else {}


def _body_text(row: Any, step: Any) -> str | None:
    text: str | None = row.body or (step.result if step is not None else None)
    return text


def _step(row: Any) -> Json:
    return {
        "type": "tool_step",
        "tool": row.tool,
        "tool_call_id": row.tool_call_id,
        "arguments": row.arguments,
        "call_message_id": row.call_message_id,
        "position": row.position,
        "result_message_id": row.message_id,
        "answer_id": row.answer_id,
        "called_at": None if row.called_at is None else _time(row.called_at),
        "answered_at": _time(row.answered_at),
    }


def _attachment(row: Any) -> Json:
    return {
        "number": row.number,
        "artifact_id": row.artifact_id,
        "document": Fragment(row.body),
        "said": bytes(row.said_digest).hex() if row.said_digest is not None else None,
        "created_at": _time(row.created_at),
    }


def _attachments(found: Sequence[Any]) -> Iterator[bytes]:
    """A large document's text is made into JSON piece by piece: nothing holds it a second time."""
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
        for start in range(0, len(row.text), PIECES):
            yield jsons.dumps("".join(row.text[start : start + PIECES]))[1:-1]
        yield b'"}}'
    yield b"]"


def _thing(row: Any) -> Json:
    return {
        "type": row.type,
        "thing_id": row.thing_id,
        "name": row.name,
        "aliases": Fragment(row.aliases),
        "action": row.action,
        "times": row.times,
        "created_at": _time(row.created_at),
        "mentioned_at": _time(row.mentioned_at),
        "expires_at": None if row.expires_at is None else _time(row.expires_at),
    }


def _request(row: Any, bills: "_ExportedBills") -> Json:
    return {
        "id": row.request_id,
        "completion_id": row.completion_id,
        "model": row.model,
        "status": row.status,
        "stream": row.stream,
        "error_code": row.error_code,
        "created_at": _time(row.created_at),
        "response_metadata": bills.whole(row.response_metadata),
        "completion": _text(row.completion),
        "metadata": _text(row.completion_metadata),
    }


class _ExportedBills:
    """Bills with all artifacts in their lists, told by the messages of the same export (ADR 19)."""

    def __init__(self, messages: Sequence[Any], steps: Mapping[str, Any]) -> None:
        self._rows = {row.id: row for row in messages}
        self._steps = steps
        self._paths = StoredPaths({row.id: (row.parent_id, row.sequence_number) for row in messages})
        self._said: dict[str, MessageRecord] = {}

    def whole(self, text: str) -> Fragment:
        """A stored bill as JSON; one that has everything stays as it stands, to the letter."""
        if f'"{UNLISTED}":' not in text:
            return Fragment(text)
        try:
            metadata = jsons.loads_decimal(text)
        except ValueError:  # somebody has spoilt it, which an audit finds
            return Fragment(text)
        for name in needed_messages(metadata, self._paths):
            if name not in self._said:
                self._said[name] = self._read(name)
        return Fragment(jsons.dumps_text(whole(metadata, self._paths, self._said)))

    def _read(self, name: str) -> MessageRecord:
        row = self._rows[name]
        body = _body_text(row, self._steps.get(name))
        return said_by(rows.lost_result(row.role) if body is None else jsons.loads_stored(body))


def _text(value: str | None) -> Fragment | None:
    return None if value is None else Fragment(value)


def _time(value: Any) -> str:
    return rows.utc(value).isoformat(timespec="microseconds").replace("+00:00", "Z")
