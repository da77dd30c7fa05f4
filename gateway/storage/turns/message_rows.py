"""The rows of a turn's messages: a chain of new ones with their digests and links, and the answers as siblings."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from gateway.core import ids, jsons
from gateway.core.frozen_records import record
from gateway.core.types import chain, tool_steps, turn
from gateway.core.types.chain import ChainDigest
from gateway.core.types.conversation import ConversationMessage
from gateway.storage.database import schema
from gateway.storage.database.schema import files
from gateway.storage.encryption.columns import RowRead
from gateway.storage.lookup.locate import MESSAGES, chain_digest, leads_to, linked, whole_messages
from gateway.storage.rows import message_of

REDUCIBLE_BYTES = 8000
REDUCED_BYTES = 500
Row = dict[str, Any]
NOTHING_SAID: Row = dict.fromkeys(column.name for column in MESSAGES.columns)
"""A row without values."""


@record
class AttachPoint:
    """The stored message that a turn is appended to, with the digest and length of its chain.

    `branch_restores`: what a client does not send is restored in this branch. `client_agrees`: the message also ends
    the chain as the client sent it."""

    parent: str | None
    number: int
    digest: ChainDigest
    branch_restores: bool
    client_agrees: bool


def attach_point(connection: sa.Connection, turn: turn.StoredTurn, head: str | None) -> AttachPoint:
    """Finds where to append a turn: at the head if it began there, else behind the message that it continues, even if
    the head has moved to another branch meanwhile."""
    follows = turn.at_head and (turn.parent_id in (head, None) or leads_to(connection, turn.parent_id, head))
    parent = head if follows else turn.parent_id
    row = _PARENT(connection, parent) if parent is not None else None
    if row is None and parent is not None and parent != head:  # deleted while the model was answering
        parent = head
        row = None if parent is None else _PARENT(connection, parent)
    if row is None:
        return AttachPoint(
            None, 0, chain.CHAIN_START, branch_restores=turn.branch_restores, client_agrees=turn.parent_id is None
        )
    restores = bool(row.restored) or turn.branch_restores
    client_agrees = parent == turn.parent_id
    return AttachPoint(parent, row.sequence_number + 1, chain_digest(row), restores, client_agrees=client_agrees)


def without_known(
    connection: sa.Connection, turn: turn.StoredTurn, point: AttachPoint
) -> tuple[turn.StoredTurn, AttachPoint]:
    """Removes messages that another request has stored meanwhile; returns the rest and where to append it. Two requests
    with the same edit at the same time store it once (guarantee §3.4). A message that differs in white space was
    forwarded differently, and stays a message of its own (§4 I7)."""
    if turn.at_head or not point.client_agrees or not turn.digests or point.digest.path != turn.base.path:
        return turn, point
    table = schema.message_links
    digests = [digest.path for digest in turn.digests]
    where = (table.c.conversation_id == turn.conversation_id, table.c.digest.in_(digests))
    known = {bytes(row.digest): row.message_id for row in connection.execute(sa.select(table).where(*where))}
    if turn.branch is not None and not _hangs_on(connection, known.get(digests[0]), point.parent):
        return turn, point  # an equal message on the replayed branch stays there
    there_first = _forwarded_as(connection, known.values()) if digests[0] in known else {}
    pairs = zip(digests, turn.new_messages, strict=False)
    count = len(list(takewhile(lambda pair: there_first.get(known.get(pair[0])) == _form(pair[1]), pairs)))
    if not count:
        return turn, point
    parent, base = known[digests[count - 1]], turn.digests[count - 1]
    row = _PARENT(connection, parent)
    there = {m.message_id: known[each] for m, each in zip(turn.new_messages[:count], digests, strict=False)}
    stored = [replace(m, message_id=there[m.message_id]) for m in turn.new_messages[:count]]
    rest = replace(
        turn,
        frame=None if turn.frame is None else replace(turn.frame, frame=turn.frame.frame.renamed(there)),
        pins=tuple(there.get(name, name) for name in turn.pins),
        parent_id=parent,
        new_messages=turn.new_messages[count:],
        digests=turn.digests[count:],
        base=base,
        open_step=tool_steps.open_step((*turn.open_step, *stored)),
    )
    restores = bool(row.restored) or point.branch_restores
    return rest, AttachPoint(parent, row.sequence_number + 1, chain_digest(row), restores, client_agrees=True)


def _hangs_on(connection: sa.Connection, message_id: str | None, parent: str | None) -> bool:
    """Returns whether a message follows `parent`."""
    row = connection.execute(sa.select(MESSAGES.c.parent_id).where(MESSAGES.c.id == message_id)).first()
    return row is not None and row.parent_id == parent


def _form(message: ConversationMessage) -> dict[str, Any]:
    """Returns what is forwarded of a message."""
    return message.body if message.rendered is None else message.rendered


def _forwarded_as(connection: sa.Connection, names: Iterable[str]) -> dict[str | None, dict[str, Any]]:
    """Returns what is forwarded of each stored message, by its id."""
    found = connection.execute(whole_messages().where(MESSAGES.c.id.in_(list(names))))
    return {row.id: _form(message_of(row)) for row in found}


def without_quotes(turn: turn.StoredTurn) -> turn.StoredTurn:
    """Removes from a turn what may repeat a deleted item that its request may have read: blocks, stored calls, frames,
    what a planner said. What its client and its model said stays."""
    new = [replace(message, rendered=None, shown_in_full=(), tokens=None) for message in turn.new_messages]
    things = replace(turn.things, recalled=()) if turn.things is not None else None
    turn = replace(turn, new_messages=tuple(new), things=things)
    return replace(turn, open_step=(), counts=(), frame=None, completion_plan=None)


def without_deleted_files(
    connection: sa.Connection, turn: turn.StoredTurn, tenant: str, *, failed: bool
) -> tuple[turn.StoredTurn, bool]:
    """Removes files from a turn that were deleted while its request ran. Returns the turn, and whether what was read of
    files must not be cached: true if any was deleted, as its deletion could not find that; true for a failed turn with
    attachments, as these are not stored (guarantee §14.5). Files are locked, so that a deletion finds what is written
    here. The cache holds nothing for the turn then."""
    attached = {each.metadata.get("file_id") for each in turn.attachments} - {None}
    named = attached | {each for each in turn.cached if each.startswith(ids.FILE)}  # beside digests
    if not named:
        return turn, False
    own = sa.select(files.c.id).where(files.c.tenant == tenant, files.c.id.in_(named)).order_by(files.c.id)
    gone = named - set(connection.execute(own.with_for_update(read=True)).scalars())
    if gone:
        kept = tuple(each for each in turn.attachments if each.metadata.get("file_id") not in gone)
        turn = replace(turn, attachments=kept, cached=())
    return turn, bool(gone or (failed and attached))


def message_rows(
    turn: turn.StoredTurn, entry: turn.LedgerEntry, point: AttachPoint, instructions_digest: str | None, now: datetime
) -> tuple[list[Row], dict[bytes, str], str | None]:
    """Builds the rows of new messages as a chain, then of the answers as siblings. Returns the rows; links to them by
    digest (the first of several equal messages has it); and the message that the next turn continues."""
    found: list[Row] = []
    links: dict[bytes, str] = {}
    failed = entry.status == "failed"
    shared = NOTHING_SAID | {
        "conversation_id": turn.conversation_id,
        "request_id": entry.request_id,
        "instructions_digest": instructions_digest,
        "restored": point.branch_restores or None,
        "status": "failed" if failed else "complete",
    }
    before, sent_before, parent, number = point.digest, turn.base, point.parent, point.number
    for message, sent_digest in zip(turn.new_messages, turn.digests, strict=True):
        message_id = message.message_id or ids.new_id("msg_")
        row = message_row(message, message_id, parent, number, now, shared)
        if turn.unproven and chain.call_ids(message.body):
            row["restored"] = False
        digest = _stored_digest(message, before, sent_before, sent_digest)
        if not failed:  # a failed turn is in no chain (guarantee §3.6)
            row["path_digest"], row["said_digest"], row["plain"] = digest
        for link in linked(before, digest):
            links.setdefault(link, message_id)
        if point.client_agrees and sent_digest is not digest:
            for link in linked(sent_before, sent_digest):
                links.setdefault(link, message_id)
        found.append(row)
        before, sent_before, parent, number = digest, sent_digest, message_id, number + 1
    latest = parent
    for answer in turn.answers:
        message = answer.message
        message_id = message.message_id or ids.new_id("msg_")
        row = message_row(message, message_id, parent, number, now, shared)
        digest = _stored_digest(message, before, sent_before, answer.digest)
        row["choice"], row["status"] = answer.choice, message.status
        row["path_digest"], row["said_digest"], row["plain"] = digest
        for link in linked(before, digest):
            links.setdefault(link, message_id)
        for sent_digest in (answer.digest, *answer.other_digests) if point.client_agrees else ():
            for link in linked(sent_before, sent_digest):
                links.setdefault(link, message_id)
        found.append(row)
        if answer is turn.answers[0]:
            latest = message_id
    return found, links, latest


def _stored_digest(
    message: ConversationMessage, before: ChainDigest, sent_before: ChainDigest, sent_digest: ChainDigest
) -> ChainDigest:
    """Returns the digest of the chain as it is stored: the client's, if the chain before the message is the same."""
    reworded = message.rendered is not None
    if before.path != sent_before.path or before.said != sent_before.said:
        return chain.extended(before, message.body, status=message.status, reworded=reworded)
    plain = before.plain and not reworded and (sent_digest == sent_before or chain.is_bare(message.body))
    return sent_digest if plain == sent_digest.plain else sent_digest._replace(plain=plain)


def message_row(
    message: ConversationMessage,
    message_id: str,
    parent: str | None,
    number: int,
    now: datetime,
    shared: Row = NOTHING_SAID,
) -> Row:
    """Builds a message's row. `shared`: the columns that all messages of a turn have in common."""
    body = jsons.dumps_stored(message.body)
    row = shared.copy()
    row["id"], row["parent_id"], row["sequence_number"] = message_id, parent, number
    row["role"], row["body"] = message.role, body
    row["digest"] = message.digest or chain.message_digest(message.body)
    row["weight"] = _weight(message, len(body))
    row["created_at"] = message.created_at or now
    row["origin"], row["agent"], row["costs"] = message.origin, message.agent, message.costs
    if message.rendered is not None:
        row["rendered"] = jsons.dumps_stored(message.rendered)
    if message.shown_in_full:
        row["standing"] = jsons.dumps_text(message.shown_in_full)
    tokens = message.tokens
    if tokens is not None and tokens.by and tokens.of is _form(message):  # counts of any other form are useless
        row["tokens"] = jsons.dumps_text(tokens.by)
    return row


def _weight(message: ConversationMessage, size: int) -> int:
    """Returns the least bytes that a message takes in a window: tool results and documents shrink to a label."""
    reducible = message.role in tool_steps.RESULT_ROLES or (message.role == "user" and size > REDUCIBLE_BYTES)
    return min(size, REDUCED_BYTES) if reducible else size


_PARENT = RowRead(MESSAGES, "sequence_number", "path_digest", "said_digest", "plain", "restored")
