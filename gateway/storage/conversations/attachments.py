"""A conversation's attached documents: lists, reads and deletes them one by one (guarantee §2)."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core import errors, ids
from gateway.core.types import records, report_lists
from gateway.core.types.artifacts import Artifact
from gateway.core.types.places import LargeIndex
from gateway.storage import rows
from gateway.storage.cache.deleted_places import ItemPlace
from gateway.storage.conversations.delete import anonymise_bills, forget_blocks, held_groups
from gateway.storage.conversations.delete_item import delete_plans
from gateway.storage.conversations.item_store import require_conversation
from gateway.storage.database import schema
from gateway.storage.large_documents import delete_unheld, held_by, read_indexes, read_part

TABLE = schema.attachments
PART_CHARS = 1_000_000
"""Characters of a large document's text that one request reads."""


def read_page(
    connection: sa.Connection,
    tenant: str,
    conversation_id: str,
    query: records.ItemQuery,
    place: ItemPlace | None = None,
) -> report_lists.QueryPage[records.AttachmentRecord]:
    """Returns a page of documents, in the order in which they came or reversed; each content once.
    `place`: where `after` stood, if it is deleted.
    Raises ConversationNotFound: the tenant has none of that id; NotFound: `after` is none of its documents."""
    require_conversation(connection, tenant, conversation_id)
    number = sa.func.min(TABLE.c.number)
    first = sa.select(number.label("number")).where(TABLE.c.conversation_id == conversation_id)
    first = first.group_by(TABLE.c.artifact_id)
    if query.after is not None:
        last = place[0] if place is not None else first_number(connection, conversation_id, query.after, "after")
        first = first.having(number < last if query.newest_first else number > last)
    chosen = first.order_by(number.desc() if query.newest_first else number).limit(query.limit + 1)
    numbers = list(connection.execute(chosen).scalars())
    found = _read(connection, tenant, conversation_id, numbers[: query.limit])
    return report_lists.QueryPage(tuple(found[each] for each in numbers[: query.limit]), len(numbers) > query.limit)


def read_one(
    connection: sa.Connection, tenant: str, conversation_id: str, name: str, part: records.TextPart = records.WHOLE_TEXT
) -> records.AttachmentRecord:
    """Returns one document with its text or a part of that; of a large document `PART_CHARS` at most.
    Raises ConversationNotFound: the tenant has none of that id; NotFound: the conversation has no such document."""
    require_conversation(connection, tenant, conversation_id)
    number = first_number(connection, conversation_id, name, "attachment_id")
    found = _read(connection, tenant, conversation_id, [number])[number]
    if found.index is not None:
        limit = min(part.limit or PART_CHARS, PART_CHARS)
        text = read_part(connection, tenant, found.index.digest, part.offset, limit)
    elif part == records.WHOLE_TEXT:
        return found
    else:
        end = None if part.limit is None else part.offset + part.limit
        text = found.document.content[part.offset : end]
    return replace(found, document=replace(found.document, content=text), part=part.offset)


def delete(connection: sa.Connection, tenant: str, conversation_id: str, name: str, now: datetime) -> tuple[str, ...]:
    """Deletes a document: its text, what was forwarded of it beside questions, what planners said, its names on bills.
    A model's answers belong to the conversation and stay. Numbers are not reused.
    Returns the cache groups to evict: those of all contents that this conversation alone holds.
    Raises ConversationNotFound: the tenant has none of that id; NotFound: the conversation has no such document."""
    require_conversation(connection, tenant, conversation_id, lock=True)
    first_number(connection, conversation_id, name, "attachment_id")
    content_id = content_id_of(name)
    own = (TABLE.c.conversation_id == conversation_id, TABLE.c.artifact_id == content_id)
    large = held_by(connection, *own)
    connection.execute(TABLE.delete().where(*own))
    delete_unheld(connection, tenant, large)
    forget_blocks(connection, tenant, conversation_id, now)
    delete_plans(connection, conversation_id)
    ledger = schema.ledger.c
    billed = sa.and_(ledger.tenant == tenant, ledger.conversation_id == conversation_id)
    anonymise_bills(connection, billed, content_id)
    groups, held = held_groups(connection, tenant, [conversation_id]), schema.cached_contents.c
    begins = content_id.removeprefix(ids.ARTIFACT)
    of_document = (held.conversation_id == conversation_id, held.digest >= begins, held.digest < f"{begins}g")
    connection.execute(schema.cached_contents.delete().where(*of_document))
    return groups


def content_id_of(name: str) -> str:
    """Returns the id of a content from its name on bills, where a repeat has a number appended."""
    return name.partition("-")[0]


def first_number(connection: sa.Connection, conversation_id: str, name: str, param: str) -> int:
    """Returns the number by which a document is listed. Raises NotFound: the conversation has no such document."""
    where = (TABLE.c.conversation_id == conversation_id, TABLE.c.artifact_id == content_id_of(name))
    number = connection.execute(sa.select(sa.func.min(TABLE.c.number)).where(*where)).scalar()
    if number is None:
        raise errors.NotFound("No such attachment.", param=param, code="attachment_not_found")
    return int(number)


def _read(
    connection: sa.Connection, tenant: str, conversation_id: str, numbers: list[int]
) -> dict[int, records.AttachmentRecord]:
    where = (TABLE.c.conversation_id == conversation_id, TABLE.c.number.in_(numbers))
    found = connection.execute(sa.select(TABLE).where(*where)).all()
    large = sorted({row.document for row in found if row.document is not None})
    indexes = {each.digest: each for each in read_indexes(connection, tenant, large)} if large else {}
    return {row.number: _record(row, rows.attachment_of(row), indexes.get(row.document)) for row in found}


def _record(row: Any, document: Artifact, index: LargeIndex | None) -> records.AttachmentRecord:
    kind = document.metadata["attachment_type"]
    return records.AttachmentRecord(document, row.number, kind, rows.utc(row.created_at), index, file_id=row.file_id)
