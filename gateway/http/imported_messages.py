"""Checks the messages of an exported conversation: each by itself, and their places in the tree."""

from typing import Any

from gateway.http.fields import Fields
from gateway.http.messages import check_message
from gateway.models.chain import message_digest
from gateway.models.conversation import INSTRUCTION_ROLES, ConversationMessage
from gateway.models.reasoning import parse_reasoning_events_to_steps
from gateway.models.transfer import ImportedMessage, Instructions

MOST_MESSAGES = 100_000
STATUSES = ("complete", "partial", "failed")


def instructions_of(document: Fields, most: int) -> tuple[Instructions, ...]:
    """The system messages that messages name by their numbers."""
    found: list[Instructions] = []
    for index, messages in enumerate(document.members("instructions", most)):
        where = f"instructions[{index}]"
        if not isinstance(messages, list) or not messages:
            raise document.invalid(where, "must be a list of at least one message")
        for number, message in enumerate(messages):
            check_message(message, f"{where}[{number}]")
            if message["role"] not in INSTRUCTION_ROLES:
                raise document.invalid(f"{where}[{number}].role", f"must be one of {', '.join(INSTRUCTION_ROLES)}")
        found.append(tuple(messages))
    return tuple(found)


def messages_of(document: Fields, instructions: int) -> tuple[ImportedMessage, ...]:
    """The messages, whose parents come before them in the sequence: so there is no circle."""
    each = document.objects("messages", MOST_MESSAGES)
    names: dict[str, int] = {}
    for index, fields in enumerate(each):
        name = fields.text("id", 64)
        if names.setdefault(name, index) != index:
            raise fields.invalid("id", "must not stand twice")
    found = [_message(fields, names, instructions) for fields in each]
    for fields, message in zip(each, found, strict=True):
        if message.parent is not None:
            _check_parent(fields, message.message, found[message.parent].message)
    return tuple(found)


def _message(fields: Fields, names: dict[str, int], instructions: int) -> ImportedMessage:
    body = fields("body")
    check_message(body, fields.where("body"))
    if fields("role") != body["role"]:
        raise fields.invalid("role", "must be that of the body")
    message = ConversationMessage(
        role=body["role"],
        body=body,
        sequence_number=fields.number("sequence_number"),
        status=fields.one_of("status", STATUSES),
        digest=message_digest(body),
        rendered=_rendered(fields, body["role"]),
        standing=_standing(fields),
        created_at=fields.time("created_at"),
        origin=fields.maybe_text("origin"),
    )
    return ImportedMessage(
        message=message,
        name=fields.text("id"),
        parent=_parent(fields, names),
        instructions=fields.maybe_number("instructions", below=instructions),
        request=fields.text("request", 64),
        choice=fields.maybe_number("choice"),
        restored=fields.maybe_flag("restored"),
        events=_events(fields),
    )


def _parent(fields: Fields, names: dict[str, int]) -> int | None:
    name = fields("parent")
    if name is None:
        return None
    index = names.get(name) if isinstance(name, str) else None
    if index is None:
        raise fields.invalid("parent", "must be the id of one of the messages, or null")
    return index


def _check_parent(fields: Fields, message: ConversationMessage, parent: ConversationMessage) -> None:
    if (parent.sequence_number or 0) >= (message.sequence_number or 0):
        raise fields.invalid("parent", "must be a message with a smaller sequence_number")
    if parent.status == "failed" and message.status != "failed":
        raise fields.invalid("parent", "must not be a failed message, unless this one is of a failed turn, too")


def _rendered(fields: Fields, role: str) -> dict[str, Any] | None:
    value: dict[str, Any] | None = fields("rendered")
    if value is not None:
        check_message(value, fields.where("rendered"))
        if value["role"] != role:
            raise fields.invalid("rendered", "must be of the same role as the body")
    return value


def _standing(fields: Fields) -> tuple[str, ...]:
    value = fields("standing")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise fields.invalid("standing", "must be a list of strings, or null")
    return tuple(value)


def _events(fields: Fields) -> list[dict[str, Any]] | None:
    """Reasoning events that can be read again, by whoever will."""
    value = fields("reasoning_events")
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(event, dict) for event in value):
        raise fields.invalid("reasoning_events", "must be a list of objects, or null")
    try:
        parse_reasoning_events_to_steps(value)
    except (TypeError, ValueError, OverflowError):
        raise fields.invalid("reasoning_events", "hold a step that cannot be read") from None
    return value
