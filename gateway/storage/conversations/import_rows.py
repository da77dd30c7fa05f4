"""The rows of an imported conversation, under new ids, and the transaction that writes them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.ids import content_digest, new_id
from gateway.core.types.records import ImportedConversation, ImportedMessage, ImportResult
from gateway.core.types.tool_steps import RESULT_ROLES
from gateway.storage.database import schema
from gateway.storage.database.engine import insert_if_new
from gateway.storage.database.transactions import RowInsert
from gateway.storage.encryption.columns import for_row
from gateway.storage.entities.write_entities import insert_things, thing_row
from gateway.storage.large.write_text import write_text
from gateway.storage.lookup.digests import INSERT_LINKS, ChainEnd, digest_columns, link_rows
from gateway.storage.turns.message_rows import message_row
from gateway.storage.turns.questions import question_columns
from gateway.storage.turns.steps import INSERT_STEPS, OpenToolCalls, results_apart, step_row

BATCH = 500
INSERT_MESSAGES = RowInsert(schema.messages)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ImportRows:
    """The rows of a conversation that is new."""

    conversation: Row
    instructions: list[Row]
    messages: list[Row]
    steps: list[Row]
    attachments: list[Row]
    requests: list[Row]
    links: list[Row]
    pins: list[Row]
    sessions: tuple[str, ...]
    things: list[Row]
    large: dict[str, str]
    """The texts of large documents by their digests."""


def rows_of(tenant: str, made: ImportedConversation, now: datetime, index_chars: int | None = None) -> ImportRows:
    """The rows that are to be written. Attachments of `index_chars` and more are large documents. It takes a while for
    many messages: not for the loop that streams share."""
    conversation_id = new_id("conv_")
    ids = sorted(new_id("msg_") for _ in made.messages)  # so that those of one moment keep their order
    renamed = {each.name: message_id for each, message_id in zip(made.messages, ids, strict=True)}
    requests = {old: new_id("req_") for old in {*made.requests, *(each.request for each in made.messages)}}
    bodies = [jsons.dumps_stored(instructions) for instructions in made.instructions]
    names = [content_digest(body) for body in bodies]
    shared = {"conversation_id": conversation_id}
    digests, links = _chains(made, ids, conversation_id)

    def digest(index: int | None) -> str | None:
        return None if index is None else names[index]

    def row(each: ImportedMessage, message_id: str) -> Row:
        parent = None if each.parent is None else ids[each.parent]
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

    messages = [row(each, message_id) for each, message_id in zip(made.messages, ids, strict=True)]
    conversation = {
        "id": conversation_id,
        "tenant": tenant,
        "head_id": None if made.head is None else ids[made.head],
        "attachments": max((each.number + 1 for each in made.attachments), default=0),
        "created_at": made.created_at,
        "updated_at": now,
        "metadata": None if made.metadata is None else jsons.dumps_text(made.metadata),
        "instructions_digest": digest(made.in_force),
        "framed": None,
        "team_task": made.team_task,
        "profile": None,
        "summarized": None,
        "pins": sum(each.message.pinned for each in made.messages) or None,
        **question_columns(each.message.body for each in sorted(made.messages, key=_age)),
    }
    large = {
        each.artifact_id: content_digest(each.document["content"])
        for each in made.attachments
        if index_chars is not None and len(each.document["content"]) >= index_chars
    }
    attachments = [
        {
            **shared,
            "number": each.number,
            "artifact_id": each.artifact_id,
            "size": len(each.document["content"]),
            "body": jsons.dumps_text({**each.document, "content": ""} if each.artifact_id in large else each.document),
            "created_at": each.created_at,
            "said_digest": each.said,
            "document": large.get(each.artifact_id),
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
            for each, message_id in zip(made.messages, ids, strict=True)
            if each.message.pinned
        ],
        sessions=made.sessions,
        things=[thing_row(tenant, conversation_id, thing) for thing in made.things],
        large={
            large[each.artifact_id]: each.document["content"] for each in made.attachments if each.artifact_id in large
        },
    )


def _steps(made: ImportedConversation, messages: list[Row]) -> list[Row]:
    """The tool steps, which take the bodies of results from the rows of messages. An answer is found by its request."""
    answers: dict[str, tuple[int, str]] = {}
    for row in messages:
        if row["choice"] is not None:
            found = (row["choice"], row["id"])
            answers[row["request_id"]] = min(found, answers.get(row["request_id"], found))
    calls: dict[int | None, OpenToolCalls] = {}
    steps: list[Row] = []
    for index, each in sorted(enumerate(made.messages), key=lambda pair: _age(pair[1])):
        row, body = messages[index], each.message.body
        if each.message.role not in RESULT_ROLES:
            calls[index] = OpenToolCalls(row["id"], body, row["created_at"])
            continue
        calls[index] = calls[each.parent].branched() if each.parent in calls else OpenToolCalls()
        answer = answers.get(row["request_id"], (0, None))[1]
        steps.append(step_row(calls[index], body, row, answer, apart=True))
    return steps


def _into_messages(made: ImportRows) -> None:
    """Puts the bodies of results back, for a database that an older version may read."""
    rows = {row["id"]: row for row in made.messages}
    for step in made.steps:
        if step["result"] is not None:
            rows[step["message_id"]]["body"], step["result"] = step["result"], None


def _chains(made: ImportedConversation, ids: list[str], conversation_id: str) -> tuple[dict[str, Row], list[Row]]:
    """The digest columns of messages by id, and their links (ADR 8). Failed turns are in no chain."""
    ends: dict[int | None, ChainEnd] = {None: ChainEnd()}
    columns: dict[str, Row] = {}
    links: dict[bytes, Row] = {}
    for index, each in sorted(enumerate(made.messages), key=lambda pair: _age(pair[1])):
        message, before = each.message, ends.get(each.parent)
        if before is None or message.status == "failed":
            continue
        reworded = message.rendered is not None
        end = ends[index] = before.followed_by(message.body, status=message.status, reworded=reworded)
        columns[ids[index]] = {"sequence_number": before.length, **digest_columns(end.digest)}
        for link in link_rows(conversation_id, ids[index], before.digest, end.digest):
            links[link["digest"]] = link
    return columns, list(links.values())


def _age(each: ImportedMessage) -> tuple[int, datetime]:
    """Parents come before their children: an import whose numbers say otherwise is refused."""
    return each.message.sequence_number or 0, each.message.created_at or datetime.max.replace(tzinfo=UTC)


def write_import(connection: sa.Connection, made: ImportRows, now: datetime) -> ImportResult:
    """All of it. A session's name that the tenant has already stays with the conversation that has it."""
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
    INSERT_LINKS(connection, made.links)
    insert_things(connection, made.things)
    owner = {"tenant": made.conversation["tenant"], "conversation_id": made.conversation["id"]}
    claim = insert_if_new(connection, schema.sessions)
    taken = [name for name in made.sessions if connection.execute(claim.values(**owner, name=name)).rowcount != 1]
    return ImportResult(made.conversation["id"], tuple(taken))
