"""Checks an exported conversation that is to be imported; a 400 names the field that is wrong (guarantee §7)."""

import codecs
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, FailFast, Field, TypeAdapter

from gateway.api.fields import Metadata, RequestFields, SessionName, read
from gateway.api.request.remembered_entities import ThingAction, ThingId, ThingName, ThingType
from gateway.api.request.validation import check_message
from gateway.core import errors, ids, jsons, names
from gateway.core.jsons import Json, picked
from gateway.core.types import agents, chain, conversation, memory, records
from gateway.core.types.conversation import ConversationMessage
from gateway.pipeline import entity_memory

MAX_INTEGER = 2**31 - 1
"""Largest number that the storage's integer columns hold."""
MAX_COUNTED = 2**30
"""Largest number from which the conversation counts on, in columns that hold `MAX_INTEGER`."""
MAX_IMPORT_DEPTH = jsons.MAX_DEPTH + 20
"""Levels of nesting: a message may have as many as in a request, and lies some levels down itself."""
MANY_DIGITS = re.compile(rb"\d{4}\.\d{9}")
"""A cost that may have more digits than a double holds."""


# Validators of fields. Their errors go on after "must".


def _without_nul(text: str) -> str:
    if names.has_nul(text):
        raise ValueError("not hold a NUL character")
    return text


def _version(value: int | None) -> int:
    if value != records.EXPORT_VERSION:
        raise ValueError(f"be {records.EXPORT_VERSION}, which this version of the gateway reads")
    return value


def _time(value: Any) -> datetime:
    try:
        found = datetime.fromisoformat(value if isinstance(value, str) else "")
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError("be a time with its zone, such as 2026-01-31T12:00:00.000000Z")


def _digest(value: Any) -> Any:
    try:
        return bytes.fromhex(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("be a digest in hex, or null") from None


def _events(value: list[dict[str, Any]]) -> list[dict[str, Any]]:
    try:
        for step in (each for each in value if each.get("type") == "tool_step"):
            int(step.get("step", 0))
            for at in filter(None, (step.get("called_at"), step.get("answered_at"))):
                datetime.fromisoformat(at)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("hold steps that can be read") from None
    return value


def _at_most(members: int) -> BeforeValidator:
    """Counts before any member is looked at."""

    def check(value: Any) -> Any:
        if isinstance(value, list) and len(value) > members:
            raise ValueError(f"have at most {members} members")
        return value

    return BeforeValidator(check)


Text = Annotated[str, AfterValidator(_without_nul)]
Id = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_without_nul)]
Number = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Time = Annotated[datetime, BeforeValidator(_time)]


class ImportedDocument(RequestFields):
    """The text of an attachment, and what it is called."""

    model_config = ConfigDict(extra="forbid")

    title: str | None = None
    source: str
    content: str
    label: str | None = None
    attachment_type: str


class AttachmentDocument(RequestFields):
    number: Annotated[int, Field(ge=0, le=MAX_COUNTED)]
    artifact_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}\z")]
    document: ImportedDocument
    said: Annotated[bytes, Field(min_length=1, max_length=32), BeforeValidator(_digest)] | None = None
    created_at: Time


class MessageDocument(RequestFields):
    """A message and its position in the tree. Its `reasoning_events` are made anew. `standing` names the
    artifacts that it shows in full, `parent` is the id of another message, `instructions` an index into
    those of the document."""

    id: Id
    parent: str | None = None
    instructions: Number | None = None
    role: str
    body: Json
    rendered: Json | None = None
    standing: list[str] | None = None
    reasoning_events: Annotated[list[Json], AfterValidator(_events)] | None = None
    sequence_number: Number
    status: Literal["complete", "partial", "failed"]
    request: Id
    choice: Number | None = None
    restored: bool | None = None
    origin: Text | None = None
    agent: Text | None = None
    pinned: bool = False
    created_at: Time


class RememberedThing(RequestFields):
    """A thing that the conversation is about. Its `aliases` are made anew, beside those that it has."""

    type: ThingType
    thing_id: ThingId
    name: ThingName
    aliases: Annotated[list[Text], Field(max_length=memory.MAX_ALIASES)]
    action: ThingAction
    times: Annotated[int, Field(ge=0, le=MAX_COUNTED)]
    created_at: Time
    mentioned_at: Time
    expires_at: Time | None = None


class ImportedBill(RequestFields):
    """A bill; all but its id is kept as it is."""

    id: Id


class ExportDocument(RequestFields):
    """The document that an export writes. `frames`, which earlier versions wrote, are ignored."""

    object: Literal["conversation.export"]
    version: Annotated[int | None, AfterValidator(_version), Field(validate_default=True)] = None
    created_at: Time
    metadata: Metadata | None = None
    team_task: Annotated[Text, AfterValidator(agents.cut_team_task)] | None = None
    head: str | None = None
    instructions_in_force: Number | None = None
    sessions: Annotated[list[SessionName], FailFast(), _at_most(1000)]
    instructions: Annotated[list[Annotated[list[Any], Field(min_length=1)]], FailFast(), _at_most(10_000)]
    messages: Annotated[list[MessageDocument], FailFast(), _at_most(100_000)]
    attachments: Annotated[list[AttachmentDocument], FailFast(), _at_most(10_000)]
    requests: Annotated[list[ImportedBill], FailFast(), _at_most(100_000)]
    things: Annotated[list[RememberedThing] | None, _at_most(100_000)] = None


EXPORT = TypeAdapter(ExportDocument)


def parse_export(raw: bytes) -> records.ImportedConversation:
    """Parses an exported conversation; slow for a large one. Raises InvalidRequest: it is not JSON, or a field breaks
    its rule; `param` names the field, as in `messages[3].parent`."""
    raw = raw.removeprefix(codecs.BOM_UTF8)  # which editors of other systems write
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # which their shells write
        raw = raw.decode("utf-16", "replace").encode()
    try:
        value = jsons.loads_mended(raw, MAX_IMPORT_DEPTH)
    except jsons.JSONDecodeError as error:
        raise errors.InvalidRequest(f"The document is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise errors.InvalidRequest("The document must be a JSON object.", code="invalid_json")
    document = read(EXPORT, value, required="invalid_value")
    if MANY_DIGITS.search(raw):
        value = jsons.loads_decimal(raw)
    _check_instructions(document)
    messages = _messages(document)
    return records.ImportedConversation(
        created_at=document.created_at,
        metadata=document.metadata,
        head=_head(document, messages),
        in_force=_instructions(document, document.instructions_in_force, "instructions_in_force"),
        team_task=document.team_task,
        sessions=tuple(dict.fromkeys(document.sessions)),
        instructions=tuple(records.Instructions(each) for each in document.instructions),
        messages=messages,
        attachments=_attachments(document),
        requests=_requests(document, value["requests"]),
        things=_things(document),
    )


def _check_instructions(document: ExportDocument) -> None:
    for index, messages in enumerate(document.instructions):
        for number, message in enumerate(messages):
            where = f"instructions[{index}][{number}]"
            check_message(message, where)
            if message["role"] not in conversation.INSTRUCTION_ROLES:
                raise errors.invalid(f"{where}.role", f"must be one of {', '.join(conversation.INSTRUCTION_ROLES)}")


def _messages(document: ExportDocument) -> tuple[records.ImportedMessage, ...]:
    """The messages. Parents have smaller sequence numbers, so there is no circle."""
    positions: dict[str, int] = {}
    for index, each in enumerate(document.messages):
        if positions.setdefault(each.id, index) != index:
            raise errors.invalid(f"messages[{index}].id", "must not be that of an earlier message")
    return tuple(_message(document, index, positions) for index in range(len(document.messages)))


def _message(document: ExportDocument, index: int, positions: dict[str, int]) -> records.ImportedMessage:
    each, where = document.messages[index], f"messages[{index}]"
    check_message(each.body, f"{where}.body")
    if each.role != each.body["role"]:
        raise errors.invalid(f"{where}.role", "must be that of the body")
    if each.rendered is not None:
        check_message(each.rendered, f"{where}.rendered")
        if each.rendered["role"] != each.role:
            raise errors.invalid(f"{where}.rendered", "must have the role of the body")
    message = ConversationMessage(
        **picked(each, "role", "body", "sequence_number", "status", "rendered", "created_at"),
        **picked(each, "origin", "agent", "pinned"),
        digest=chain.message_digest(each.body),
        shown_in_full=tuple(each.standing or ()),
    )
    return records.ImportedMessage(
        message=message,
        name=each.id,
        parent=_parent(document, each, positions, f"{where}.parent"),
        instructions=_instructions(document, each.instructions, f"{where}.instructions"),
        request=each.request,
        choice=each.choice,
        restored=each.restored,
    )


def _parent(document: ExportDocument, message: MessageDocument, positions: dict[str, int], where: str) -> int | None:
    if message.parent is None:
        return None
    if message.parent not in positions:
        raise errors.invalid(where, "must be the id of one of the messages, or null")
    parent = document.messages[positions[message.parent]]
    if parent.sequence_number >= message.sequence_number:
        raise errors.invalid(where, "must be a message with a smaller sequence_number")
    if parent.status == "failed" and message.status != "failed":
        raise errors.invalid(where, "must not be a failed message, unless this one has failed, too")
    return positions[message.parent]


def _instructions(document: ExportDocument, index: int | None, where: str) -> int | None:
    if index is not None and index >= len(document.instructions):
        raise errors.invalid(where, "must be an index into instructions, or null")
    return index


def _head(document: ExportDocument, messages: tuple[records.ImportedMessage, ...]) -> int | None:
    if document.head is None:
        return None
    for index, each in enumerate(messages):
        if each.name == document.head:
            if each.message.status == "failed":
                raise errors.invalid("head", "must not be a failed message")
            return index
    raise errors.invalid("head", "must be the id of one of the messages, or null")


def _attachments(document: ExportDocument) -> tuple[records.ImportedAttachment, ...]:
    last = -1
    for index, each in enumerate(document.attachments):
        if each.number <= last:
            raise errors.invalid(f"attachments[{index}].number", "must be greater than that of the attachment before")
        last = each.number
    return tuple(
        records.ImportedAttachment(
            each.number, each.artifact_id, each.document.model_dump(), each.created_at, each.said
        )
        for each in document.attachments
    )


def _things(document: ExportDocument) -> tuple[memory.MemoryEntity, ...]:
    found: dict[tuple[str, str], memory.MemoryEntity] = {}
    for index, each in enumerate(document.things or ()):
        thing = memory.MemoryEntity(
            memory_id=ids.new_id("mem_"),
            scope="conversation",
            conversation_id=None,
            aliases=entity_memory.aliases_of(each.type, each.thing_id, each.name, each.aliases),
            **picked(each, "type", "thing_id", "name", "action", "times", "created_at", "mentioned_at", "expires_at"),
        )
        if found.setdefault(thing.key, thing) is not thing:
            raise errors.invalid(f"things[{index}]", "must not be of the type and the id of an earlier one")
    return tuple(found.values())


def _requests(document: ExportDocument, values: list[Json]) -> dict[str, Json]:
    """The bills by their ids, with every digit that the document has."""
    found: dict[str, Json] = {}
    for index, (each, value) in enumerate(zip(document.requests, values, strict=True)):
        if each.id in found:
            raise errors.invalid(f"requests[{index}].id", "must not be that of an earlier request")
        found[each.id] = value
    return found
