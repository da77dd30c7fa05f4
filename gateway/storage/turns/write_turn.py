"""Writes a turn and its bill, as the only place that does (guarantee §3.6, §3.7)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core import clock, ids, jsons
from gateway.core.types import artifacts, tool_steps, turn
from gateway.storage.claims import settle_claims
from gateway.storage.conversations.delete import anonymise_bills, unheld_groups
from gateway.storage.database import schema
from gateway.storage.encryption.columns import RowInsert, RowRead, RowUpdate, for_row
from gateway.storage.entities.entity_rows import are_remembered, write_things
from gateway.storage.large_documents import delete_unheld, write_text
from gateway.storage.lookup.frame_rows import write_frame
from gateway.storage.lookup.locate import INSERT_LINKS, write_links
from gateway.storage.lookup.segments import pin
from gateway.storage.rows import utc_or_none
from gateway.storage.turns.bills import failure_text, write_bills
from gateway.storage.turns.message_rows import (
    Row,
    attach_point,
    message_rows,
    without_deleted_files,
    without_known,
    without_quotes,
)
from gateway.storage.turns.questions import question_columns
from gateway.storage.turns.roll_ups import (
    OF_A_CONVERSATION,
    add_to_conversation,
    conversation_sums,
    lock_users,
    with_more,
)
from gateway.storage.turns.steps import INSERT_STEPS, results_apart, step_rows

NOTHING_MORE = dict.fromkeys(column.name for column in schema.conversations.columns)
"""A row without values, for columns that a turn does not set in a new conversation."""

INSERT_CONVERSATION = RowInsert(schema.conversations)
UPDATE_CONVERSATION = RowUpdate(schema.conversations)
CONVERSATION_FOR_UPDATE = RowRead(
    schema.conversations,
    "head_id",
    "attachments",
    "forgotten_at",
    "question",
    "retention_days",
    *OF_A_CONVERSATION,
    lock=True,
)
INSERT_MESSAGES = RowInsert(schema.messages)
INSERT_COMPLETION = RowInsert(schema.completions)
INSERT_INSTRUCTIONS = RowInsert(schema.instructions, "ON CONFLICT DO NOTHING")
INSERT_NEW_LINKS = RowInsert(schema.message_links, "ON CONFLICT DO NOTHING")
"""For a replay: a client that resends a message continues where it was said first."""
INSERT_CACHED = RowInsert(schema.cached_contents, "ON CONFLICT DO NOTHING")


def write_turns(connection: sa.Connection, commits: Sequence[turn.TurnCommit], now: datetime) -> list[str]:
    """Writes everything that requests leave. Turns are appended whole, in the order in which they commit: a turn that
    began at the head is appended to the present head (guarantee §3.7).

    Returns the cache groups to evict, as the conversations that they were filled for are gone."""
    gone: list[str] = []
    # Conversations are locked before the sums of days, as deletions and summaries do: two that lock in different orders
    # wait for each other, and no bill of this process waits for a turn that waits for its conversation.
    named = sorted(set(map(_conversation_of, commits)) - {""})
    read = {name: CONVERSATION_FOR_UPDATE(connection, name) for name in named}
    lock_users(connection, {each.ledger.tenant for each in commits if _is_gone(each, read) and each.ledger.end_user})
    bills = write_bills(connection, commits, now)
    for commit, bill in zip(commits, bills, strict=True):
        name = _conversation_of(commit)
        if not name:
            continue
        row = read.pop(name) if name in read else CONVERSATION_FOR_UPDATE(connection, name)
        if commit.turn is not None:
            gone += _write_turn(connection, commit.turn, commit.ledger, bill, row, now)
        else:
            _without_turn(connection, commit.ledger, bill, row)
    settle_claims(connection, commits, now)
    return gone


def _conversation_of(commit: turn.TurnCommit) -> str:
    return (commit.turn.conversation_id if commit.turn is not None else commit.ledger.conversation_id) or ""


def _is_gone(commit: turn.TurnCommit, read: Mapping[str, Any]) -> bool:
    """Returns whether a bill loses its user's name, as its conversation is not there."""
    name = _conversation_of(commit)
    return bool(name) and read[name] is None and not (commit.turn is not None and commit.turn.created)


def left_behind(connection: sa.Connection, turn: turn.StoredTurn, tenant: str) -> tuple[str, ...]:
    """Returns the cache groups to evict for a turn recorded before: none while its conversation exists."""
    if CONVERSATION_FOR_UPDATE(connection, turn.conversation_id) is not None:
        return ()
    return unheld_groups(connection, tenant, turn.cached, but=[turn.conversation_id])


def _without_turn(connection: sa.Connection, entry: turn.LedgerEntry, bill: Row, row: Any) -> None:
    """Writes a bill without its turn: if its conversation is gone, or was never stored, the bill names nothing.
    `row`: the conversation's, locked."""
    if row is None:
        anonymise_bills(connection, schema.ledger.c.request_id == bill["request_id"])
        return
    if row.forgotten_at is not None:  # the request may have read what was deleted
        _forget_words(connection, entry)
    add_to_conversation(connection, bill)


def _write_turn(
    connection: sa.Connection, turn: turn.StoredTurn, entry: turn.LedgerEntry, bill: Row, row: Any, now: datetime
) -> tuple[str, ...]:
    """Writes a turn. `row`: the conversation's, locked; None if there is none. Returns the cache groups to evict."""
    if row is None and not turn.created:  # deleted while the model was answering: it stays deleted, the bill stays
        anonymise_bills(connection, schema.ledger.c.request_id == entry.request_id)
        delete_unheld(
            connection, entry.tenant, [each.metadata[artifacts.LARGE] for each in turn.attachments if each.is_excerpt]
        )
        return unheld_groups(connection, entry.tenant, turn.cached, but=[turn.conversation_id])
    is_stale = row is not None and utc_or_none(row.forgotten_at) != turn.forgotten_at
    if is_stale and turn.branch is not None:  # the replay may ask again what was deleted
        _forget_names(connection, entry)
        _without_turn(connection, entry, bill, row)
        return unheld_groups(connection, entry.tenant, turn.cached, but=[turn.conversation_id])
    failed, read = entry.status == "failed", turn
    turn, may_quote = without_deleted_files(connection, turn, entry.tenant, failed=failed)
    recalled = turn.things.recalled if turn.things is not None else ()
    if recalled and (failed or not are_remembered(connection, entry.tenant, recalled)):
        may_quote = True  # a failed turn is about nothing, so that a later deletion could not find its block
    if turn is not read or is_stale:
        may_quote, turn = True, _without_deleted_instructions(connection, replace(turn, cached=()))
        _forget_names(connection, entry)
    if may_quote:
        turn = without_quotes(turn)
        _forget_words(connection, entry)
    head, attached = (row.head_id, row.attachments) if row is not None else (None, 0)
    digest, instructions = _instructions(turn)
    point = attach_point(connection, turn, head)
    if not failed:
        turn, point = without_known(connection, turn, point)
    messages, links, latest = message_rows(turn, entry, point, digest, now)
    branch = turn.branch
    values = {
        "head_id": head if failed or branch is not None else latest,
        "attachments": attached if failed else attached + len(turn.attachments),
        "updated_at": now,
        "used_until": None,
    }
    if turn.frame is not None and not failed:
        values["framed"] = True
    if turn.profile is not None and not failed and branch is None:
        values["profile"] = turn.profile
    told, sums = _told(turn, bill, row), conversation_sums(bill)
    if row is None:
        named = {"id": turn.conversation_id, "tenant": entry.tenant, "created_at": now}
        named["retention_days"] = turn.retention_days
        INSERT_CONVERSATION(connection, [{**NOTHING_MORE, **values, **told, **sums, **named}])
    else:
        values |= told | with_more(row, sums)
        if turn.retention_days is not None:
            values["retention_days"] = clock.fewest_days(row.retention_days, turn.retention_days)
        UPDATE_CONVERSATION(connection, turn.conversation_id, values)
    if instructions is not None:
        INSERT_INSTRUCTIONS(connection, [instructions])
    steps = _steps(connection, turn, messages)
    INSERT_MESSAGES(connection, messages)
    INSERT_STEPS(connection, steps)
    if turn.counts:
        connection.execute(_COUNTS, [{"message": key, "counts": jsons.dumps_text(by)} for key, by in turn.counts])
    if not failed:
        insert = INSERT_LINKS if branch is None else INSERT_NEW_LINKS
        write_links(connection, turn.conversation_id, links.items(), insert)
        _write_attachments(connection, turn, entry.tenant, attached, now)
        pin(connection, turn.conversation_id, turn.pins)
    if turn.frame is not None and not failed:
        anchor = turn.new_messages[-1].message_id if turn.new_messages else point.parent
        write_frame(
            connection, turn.conversation_id, anchor, point.number + len(turn.new_messages) - 1, turn.frame, now
        )
    if turn.things is not None and not failed:
        write_things(connection, entry.tenant, turn.things, now)
    if branch is not None and entry.status == "complete":
        at = {"at": latest, "on_turn": branch.turn, "on_request": branch.request, "now": now}
        connection.execute(_REPLAYED, {**at, "replay": branch.replay_id})
    if turn.completion is not None:
        _write_completion(connection, turn, entry.request_id)
    if turn.cached:
        shared = {"conversation_id": turn.conversation_id, "tenant": entry.tenant}
        held = [{**shared, "digest": digest} for digest in turn.cached]
        INSERT_CACHED(connection, held)
    gone = () if turn.cached == read.cached else read.cached
    return tuple(artifacts.cache_group(entry.tenant, each) for each in gone)


def _forget_names(connection: sa.Connection, entry: turn.LedgerEntry) -> None:
    """Removes the names of documents and tools from a bill that was just written."""
    of_it = schema.ledger.c.request_id == entry.request_id
    anonymise_bills(connection, of_it, keeping=[entry.end_user or ""])


def _forget_words(connection: sa.Connection, entry: turn.LedgerEntry) -> None:
    """Removes what upstreams said from a failure that was just billed: it may quote what was deleted meanwhile."""
    if entry.failure is not None:
        values = {"failure": failure_text(entry.failure.without_words())}
        of_it = schema.ledger.update().where(schema.ledger.c.request_id == entry.request_id)
        connection.execute(of_it.values(**for_row(schema.ledger, values, entry.request_id)))


def _told(turn: turn.StoredTurn, bill: Row, row: Any) -> dict[str, Any]:
    """Returns what the list of conversations shows of one: its latest model and user, and how it begins."""
    told = {name: bill[name] for name in ("model", "end_user")}
    if row is None or row.question is None:
        told |= question_columns(message.body for message in turn.new_messages)
    return told


def _steps(connection: sa.Connection, turn: turn.StoredTurn, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Builds the rows of the turn's results; their bodies move there from the messages' rows."""
    new = turn.new_messages
    if not any(message.role in tool_steps.RESULT_ROLES for message in new):
        return []
    answer_id = messages[len(new)]["id"] if len(messages) > len(new) else None
    pairs = list(zip(new, messages, strict=False))
    return step_rows(turn.open_step, pairs, answer_id, apart=results_apart(connection))


def _without_deleted_instructions(connection: sa.Connection, turn: turn.StoredTurn) -> turn.StoredTurn:
    """Removes system messages that the request inherited from the conversation and that have been deleted since."""
    if not turn.inherited:
        return turn
    table = schema.instructions.c
    sets = connection.execute(sa.select(table.body).where(table.conversation_id == turn.conversation_id)).scalars()
    kept = [body for each in sets for body in jsons.loads_stored(each)]
    gone = [body for body in turn.inherited if body not in kept]
    return replace(turn, instructions=tuple(body for body in turn.instructions if body not in gone))


def _instructions(turn: turn.StoredTurn) -> tuple[str | None, dict[str, Any] | None]:
    """Returns digest and row of the system messages: stored once per conversation, named by a turn's messages."""
    if not turn.instructions:
        return None, None
    body = jsons.dumps_stored(turn.instructions)
    digest = ids.content_digest(body)
    return digest, {"conversation_id": turn.conversation_id, "digest": digest, "body": body}


def _write_attachments(
    connection: sa.Connection, turn: turn.StoredTurn, tenant: str, first: int, now: datetime
) -> None:
    large = [each for each in turn.attachments if each.is_excerpt]
    for artifact in sorted(
        large, key=lambda each: str(each.metadata[artifacts.LARGE])
    ):  # the order in which they are locked
        write_text(connection, tenant, artifact.metadata[artifacts.LARGE], artifact.content, now)
    values = [
        {
            "conversation_id": turn.conversation_id,
            "number": number,
            "artifact_id": artifact.content_id,
            "size": artifact.size_chars,
            "body": jsons.dumps_text(
                {
                    "title": artifact.title,
                    "source": artifact.source,
                    "content": "" if artifact.is_excerpt else artifact.content,
                    "label": artifact.metadata.get("label"),
                    "attachment_type": artifact.metadata.get("attachment_type", "document"),
                }
            ),
            "created_at": now,
            "document": artifact.metadata.get(artifacts.LARGE),
            "said_digest": turn.digests[-1].said if turn.digests else turn.base.said,
            "file_id": artifact.metadata.get("file_id"),
        }
        for number, artifact in enumerate(turn.attachments, first)
    ]
    if values:
        connection.execute(schema.attachments.insert(), [for_row(schema.attachments, row) for row in values])


def _write_completion(connection: sa.Connection, turn: turn.StoredTurn, request_id: str) -> None:
    """Stores the answer's envelope. Message content is in `messages` alone, so that only empty fields are stored here;
    after a prefill all fields are, as the message is stored merged with the prefill."""
    completion = turn.completion or {}
    choices = [
        {**choice, "message": {k: v for k, v in (choice.get("message") or {}).items() if turn.prefilled or not v}}
        for choice in completion.get("choices", ())
    ]
    values = {
        "request_id": request_id,
        "conversation_id": turn.conversation_id,
        "body": jsons.dumps_stored({**completion, "choices": choices}),
        "metadata": jsons.dumps_text(turn.completion_metadata) if turn.completion_metadata is not None else None,
        "plan": jsons.dumps_stored(turn.completion_plan) if turn.completion_plan is not None else None,
    }
    INSERT_COMPLETION(connection, [values])


_REPLAYED = (
    schema.replays.update()
    .where(schema.replays.c.id == sa.bindparam("replay"))
    .values(
        at_id=sa.bindparam("at"),
        turn=sa.bindparam("on_turn"),
        request=sa.bindparam("on_request"),
        updated_at=sa.bindparam("now", type_=sa.DateTime(timezone=True)),
    )
)
_COUNTS = (
    schema.messages.update()
    .where(schema.messages.c.id == sa.bindparam("message"), schema.messages.c.tokens.is_(None))
    .values(tokens=sa.bindparam("counts"))
)
"""A count is no content: it is added where it is missing, and never changed."""
