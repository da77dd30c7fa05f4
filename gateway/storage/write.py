"""The one place where a turn and its bill are written (contract §3.6, §3.7)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway import jsons
from gateway.ids import content_digest, new_id
from gateway.models.conversation import ConversationMessage
from gateway.models.turn import LedgerEntry, StoredTurn, TurnCommit
from gateway.storage import schema
from gateway.storage.deletion import forget_names, held_by_none
from gateway.storage.engine import insert_if_new
from gateway.storage.inserts import RowInsert
from gateway.storage.rows import pico, whole

REDUCIBLE_BYTES = 8000
REDUCED_BYTES = 500
NOTHING_MORE = {"metadata": None, "instructions_digest": None}
"""Of a conversation that a turn begins: these come with `POST /v1/conversations` alone."""


INSERT_LEDGER = RowInsert(schema.ledger)
INSERT_CALLS = RowInsert(schema.ledger_calls)
INSERT_CONVERSATION = RowInsert(schema.conversations)
INSERT_MESSAGES = RowInsert(schema.messages)
INSERT_COMPLETION = RowInsert(schema.completions)


def write_turns(connection: sa.Connection, commits: Sequence[TurnCommit], now: datetime) -> list[str]:
    """Everything that requests leave behind. Turns are appended whole in the order in which they commit: a turn that
    began at the head is hung on what the head is now.

    Returns the groups of the cache that must go, as the conversation that they were filled for is gone.
    """
    gone: list[str] = []
    INSERT_LEDGER(connection, [_ledger_row(commit.ledger) for commit in commits])
    INSERT_CALLS(connection, [row for commit in commits for row in _call_rows(commit.ledger)])
    for commit in commits:
        if commit.turn is not None:
            gone += _write_turn(connection, commit.turn, commit.ledger, now)
        elif commit.ledger.conversation_id is not None:
            _keep_bill(connection, commit.ledger.request_id, commit.ledger.conversation_id)
    return gone


def _keep_bill(connection: sa.Connection, request_id: str, conversation_id: str) -> None:
    """A bill that comes without its turn: of a conversation that is gone, or never came to be, it names nothing."""
    if connection.execute(_LOCK, {"id": conversation_id}).first() is None:
        forget_names(connection, schema.ledger.c.request_id == request_id)


def _write_turn(connection: sa.Connection, turn: StoredTurn, entry: LedgerEntry, now: datetime) -> tuple[str, ...]:
    row = connection.execute(_LOCK, {"id": turn.conversation_id}).first()
    if row is None and not turn.created:
        forget_names(connection, schema.ledger.c.request_id == entry.request_id)
        # Deleted while the model was answering: deleted is deleted, the bill stays.
        return held_by_none(connection, entry.tenant, turn.cached, but=turn.conversation_id)
    failed = entry.status == "failed"
    head, attached = (row.head_id, row.attachments) if row is not None else (None, 0)
    digest, instructions = _instructions(turn)
    parent = head if turn.at_head else turn.parent_id
    messages, latest = _message_rows(turn, entry, parent, _next_number(connection, parent), digest, now)
    values = {
        "head_id": head if failed else latest,
        "attachments": attached if failed else attached + len(turn.attachments),
        "updated_at": now,
    }
    if row is None:
        named = {"id": turn.conversation_id, "tenant": entry.tenant, "created_at": now, **NOTHING_MORE}
        INSERT_CONVERSATION(connection, [{**values, **named}])
    else:
        connection.execute(_UPDATE, {**values, "conversation": turn.conversation_id})
    if instructions is not None:
        connection.execute(insert_if_new(connection, schema.instructions), instructions)
    INSERT_MESSAGES(connection, messages)
    if not failed:
        _write_attachments(connection, turn, attached, now)
    if turn.completion is not None:
        _write_completion(connection, turn, entry.request_id)
    if turn.cached:
        shared = {"conversation_id": turn.conversation_id, "tenant": entry.tenant}
        held = [{**shared, "digest": digest} for digest in turn.cached]
        connection.execute(insert_if_new(connection, schema.cached_contents), held)
    return ()


def _message_rows(
    turn: StoredTurn, entry: LedgerEntry, parent: str | None, number: int, digest: str | None, now: datetime
) -> tuple[list[dict[str, Any]], str | None]:
    """New messages as a chain, then the answers as siblings; and the message that the next turn continues."""
    values: list[dict[str, Any]] = []
    shared = {"conversation_id": turn.conversation_id, "request_id": entry.request_id, "instructions_digest": digest}
    status = "failed" if entry.status == "failed" else "complete"
    for message in turn.new_messages:
        message_id = message.message_id or new_id("msg_")
        values.append({**shared, **message_row(message, message_id, parent, number, now), "status": status})
        parent, number = message_id, number + 1
    latest = parent
    for answer in turn.answers:
        message_id = answer.message.message_id or new_id("msg_")
        row = {**shared, **message_row(answer.message, message_id, parent, number, now), "choice": answer.choice}
        events = jsons.dumps_stored(answer.reasoning_events) if answer.reasoning_events else None
        values.append({**row, "reasoning_events": events, "status": answer.message.status})
        if answer is turn.answers[0]:
            latest = message_id
    return values, latest


def message_row(
    message: ConversationMessage, message_id: str, parent: str | None, number: int, now: datetime
) -> dict[str, Any]:
    """The columns that the message itself fills."""
    body = jsons.dumps_stored(message.body)
    return {
        "id": message_id,
        "parent_id": parent,
        "sequence_number": number,
        "role": message.role,
        "body": body,
        "digest": message.digest,
        "weight": _weight(message, len(body)),
        "rendered": jsons.dumps_stored(message.rendered) if message.rendered is not None else None,
        "standing": jsons.dumps_text(message.standing) if message.standing else None,
        "reasoning_events": None,
        "choice": None,
        "origin": message.origin,
        "created_at": message.created_at or now,
        "path_digest": None,
        "said_digest": None,
        "plain": None,
        "restored": None,
        "tokens": None,
    }


def _weight(message: ConversationMessage, size: int) -> int:
    """Bytes that a message takes up in a window at least: tool results and documents can be reduced to a label."""
    reducible = message.role == "tool" or (message.role == "user" and size > REDUCIBLE_BYTES)
    return min(size, REDUCED_BYTES) if reducible else size


def _next_number(connection: sa.Connection, parent: str | None) -> int:
    if parent is None:
        return 0
    table = schema.messages
    return int(connection.execute(sa.select(table.c.sequence_number).where(table.c.id == parent)).scalar_one()) + 1


def _instructions(turn: StoredTurn) -> tuple[str | None, dict[str, Any] | None]:
    """System messages are kept once per conversation; the messages of a turn name those in force."""
    if not turn.instructions:
        return None, None
    body = jsons.dumps_stored(turn.instructions)
    digest = content_digest(body)
    return digest, {"conversation_id": turn.conversation_id, "digest": digest, "body": body}


def _write_attachments(connection: sa.Connection, turn: StoredTurn, first: int, now: datetime) -> None:
    values = [
        {
            "conversation_id": turn.conversation_id,
            "number": number,
            "artifact_id": artifact.artifact_id.partition("-")[0],
            "size": artifact.size_chars,
            "body": jsons.dumps_text(
                {
                    "title": artifact.title,
                    "source": artifact.source,
                    "content": artifact.content,
                    "label": artifact.metadata.get("label"),
                    "attachment_type": artifact.metadata.get("attachment_type", "document"),
                }
            ),
            "created_at": now,
        }
        for number, artifact in enumerate(turn.attachments, first)
    ]
    if values:
        connection.execute(schema.attachments.insert(), values)


def _write_completion(connection: sa.Connection, turn: StoredTurn, request_id: str) -> None:
    """The answer's envelope; what its messages say stands in `messages` alone, here only their empty fields."""
    completion = turn.completion or {}
    choices = [
        {**choice, "message": _told_apart(choice.get("message") or {}, whole=turn.prefilled)}
        for choice in completion.get("choices", ())
    ]
    values = {
        "request_id": request_id,
        "conversation_id": turn.conversation_id,
        "body": jsons.dumps_stored({**completion, "choices": choices}),
        "metadata": jsons.dumps_text(turn.completion_metadata) if turn.completion_metadata is not None else None,
    }
    INSERT_COMPLETION(connection, [values])


def _told_apart(message: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """What the remembered message does not say: its empty fields; after a prefill all, as remembered is both."""
    return {k: v for k, v in message.items() if whole or not v}


def _storable(text: str) -> str:
    """PostgreSQL takes no NUL in a text; everything else that is kept stands in JSON, which escapes it."""
    return text.replace("\x00", "\ufffd")


def _ledger_row(entry: LedgerEntry) -> dict[str, Any]:
    usage = entry.metadata.get("usage") or {}
    total = entry.metadata.get("cost", {}).get("total_cost")
    return {
        "request_id": entry.request_id,
        "tenant": entry.tenant,
        "conversation_id": entry.conversation_id,
        "completion_id": entry.completion_id,
        "model": _storable(entry.model),
        "status": entry.status,
        "stream": entry.stream,
        "error_code": _storable(entry.error_code) if entry.error_code else None,
        "prompt_tokens": whole(usage.get("prompt_tokens", 0)),
        "completion_tokens": whole(usage.get("completion_tokens", 0)),
        "total_cost_picousd": pico(total),
        "estimated": any(call.estimated for call in entry.calls),
        "response_metadata": entry.document.decode() if entry.document else jsons.dumps_text(entry.metadata),
        "created_at": entry.created_at,
    }


def _call_rows(entry: LedgerEntry) -> list[dict[str, Any]]:
    return [
        {
            "request_id": entry.request_id,
            "number": number,
            "purpose": call.purpose,
            "model": _storable(call.model),
            "usage": jsons.dumps_text(call.usage),
            "rates": jsons.dumps_text(call.rates),
            "prompt_cost_picousd": pico(call.prompt_cost),
            "completion_cost_picousd": pico(call.completion_cost),
            "estimated": call.estimated,
        }
        for number, call in enumerate(entry.calls)
    ]


def _lock_query() -> sa.Select[tuple[Any, ...]]:
    table = schema.conversations
    return sa.select(table.c.head_id, table.c.attachments).where(table.c.id == sa.bindparam("id")).with_for_update()


_LOCK = _lock_query()
_UPDATE = schema.conversations.update().where(schema.conversations.c.id == sa.bindparam("conversation"))
