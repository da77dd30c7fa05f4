"""Restores standing artifacts into stored bills, from the messages that hold them (ADR 19)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.types import omitted_records, tool_steps, turn
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.encryption.columns import OfRow, sealed, vault_of
from gateway.storage.lookup.locate import MESSAGES, body_of_message, upwards

BATCH = 500
"""Bodies that one statement reads; of a result only the id and size are retained."""
Metadata = dict[str, Any]
SPOILT = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a tampered bill raises: it is shown as stored, and an audit finds it."""


class StoredPaths:
    """Messages by id, each with its parent's id and its number in the path."""

    def __init__(self, places: Mapping[str, tuple[str | None, int]] | None = None) -> None:
        self.places = dict(places or {})

    def up_to(self, message_id: str | None) -> list[tuple[int, str]]:
        """Returns numbers and ids of the known messages up to `message_id`, oldest first."""
        found = []
        while message_id is not None and message_id in self.places:
            parent, number = self.places[message_id]
            found.append((number, message_id))
            message_id = parent
        return found[::-1]


def whole_entries(connection: sa.Connection, entries: Sequence[turn.LedgerEntry]) -> list[turn.LedgerEntry]:
    """Returns the bills with all artifacts in their lists. Each message that they name is read once."""
    short = [entry for entry in entries if entry.conversation_id and omitted_records.unlisted_of(entry.metadata)]
    if not short:
        return list(entries)
    paths = StoredPaths()
    for conversation_id in {str(entry.conversation_id) for entry in short}:
        own = [
            omitted_records.unlisted_of(entry.metadata) or {}
            for entry in short
            if entry.conversation_id == conversation_id
        ]
        _walk(connection, paths, conversation_id, own)
    needed = dict.fromkeys(name for entry in short for name in needed_messages(entry.metadata, paths))
    said = _read(connection, list(needed))
    return [replace(entry, metadata=whole(entry.metadata, paths, said)) for entry in entries]


def needed_messages(metadata: Metadata, paths: StoredPaths) -> list[str]:
    """Returns the ids of the messages that hold what the bill leaves out."""
    unlisted = omitted_records.unlisted_of(metadata)
    try:
        return omitted_records.messages_in_runs(unlisted, _path_of(unlisted, paths)) if unlisted else []
    except SPOILT:
        return []


def whole(metadata: Metadata, paths: StoredPaths, said: Mapping[str, omitted_records.MessageRecord]) -> Metadata:
    """Returns the bill with all artifacts in its list, except deleted ones.
    `said`: the records of the messages that `needed_messages` names, by id."""
    unlisted = omitted_records.unlisted_of(metadata)
    if unlisted is None:
        return metadata
    try:
        path = _path_of(unlisted, paths)
        return omitted_records.with_standing(metadata, [(number, said[name]) for number, name in path if name in said])
    except SPOILT:
        return metadata


def note_deletion(connection: sa.Connection, tenant: str, deleted: Any, below: Iterable[str]) -> None:
    """Notes a message's deletion in the bills whose paths lead through it.
    `deleted`: the row of the message, still in its place; `below`: the ids of all messages behind it."""
    table, ends = schema.ledger, {deleted.id, *below}
    calls = bool(tool_steps.calls_of(rows.body_of(deleted)))
    of_it = (table.c.tenant == tenant, table.c.conversation_id == deleted.conversation_id)
    marked = table.c.response_metadata.contains(f'"{omitted_records.UNLISTED}":', autoescape=True)
    if vault_of(connection.dialect) is not None:
        marked = sa.or_(marked, sealed(table.c.response_metadata))
    query = sa.select(table.c.request_id, table.c.response_metadata).where(*of_it, marked)
    query, after = query.order_by(table.c.request_id), ""
    while page := connection.execute(query.where(table.c.request_id > after).limit(BATCH)).all():
        changed = []
        for row in page:
            try:
                metadata = jsons.loads_decimal(row.response_metadata)
                behind = metadata["context_utilization"][omitted_records.UNLISTED]["behind"]
                if behind not in ends:
                    continue
                is_last = behind == deleted.id
                short = omitted_records.without_message(
                    metadata, deleted.sequence_number, deleted.parent_id, ends=is_last, calls=calls
                )
            except SPOILT:
                continue
            changed.append({"request": row.request_id, "text": OfRow(jsons.dumps_text(short), row.request_id)})
        if changed:
            connection.execute(UPDATE_METADATA, changed)
        after = page[-1].request_id


def _path_of(unlisted: dict[str, Any], paths: StoredPaths) -> list[tuple[int, str]]:
    return omitted_records.as_numbered_then(unlisted, paths.up_to(unlisted["behind"]))


def _walk(
    connection: sa.Connection, paths: StoredPaths, conversation_id: str, unlisted: Iterable[dict[str, Any]]
) -> None:
    """Reads the paths of one conversation's bills. Most are part of a later one's path, so the longest comes first."""
    ends = []
    for each in unlisted:
        try:
            last, first = int(each["runs"][-1][1]), int(each["runs"][0][0])
            ends.append((last, first - len(each.get("gone", ())), str(each["behind"])))
        except SPOILT:
            continue
    floor = min((first for _, first, _ in ends), default=0)
    for _, _, name in sorted(ends, reverse=True):
        if name not in paths.places:
            where = {"from": name, "conversation": conversation_id, "floor": floor}
            for row in connection.execute(_WAY, where):
                paths.places[row.id] = (row.parent_id, row.sequence_number)


def _read(connection: sa.Connection, ids: list[str]) -> dict[str, omitted_records.MessageRecord]:
    found: dict[str, omitted_records.MessageRecord] = {}
    for start in range(0, len(ids), BATCH):
        for row in connection.execute(_BODIES, {"ids": ids[start : start + BATCH]}):
            found[row.id] = omitted_records.said_by(rows.body_of(row))
    return found


def _way_query() -> sa.Select[Any]:
    """Selects the messages from `:from` upwards, to the one with the number `:floor`."""
    here = MESSAGES.c.conversation_id == sa.bindparam("conversation", type_=sa.String)
    inside = MESSAGES.c.sequence_number >= sa.bindparam("floor", type_=sa.Integer)
    chain = upwards(MESSAGES.c.sequence_number, first=sa.and_(here, inside), onwards=lambda _: inside)
    return sa.select(chain.c.id, chain.c.parent_id, chain.c.sequence_number)


_WAY = _way_query()
UPDATE_METADATA = (
    schema.ledger.update()
    .where(schema.ledger.c.request_id == sa.bindparam("request"))
    .values(response_metadata=sa.bindparam("text"))
)
_BODIES = sa.select(MESSAGES.c.id, MESSAGES.c.role, body_of_message()).where(
    MESSAGES.c.id.in_(sa.bindparam("ids", expanding=True))
)
