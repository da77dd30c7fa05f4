"""Checks an exported conversation that is to be imported; whatever is wrong, the field is named (guarantee §7)."""

import re
from datetime import UTC, datetime
from typing import Any

from gateway.base import jsons
from gateway.errors import InvalidRequest
from gateway.http.chat.messages import check_message, invalid
from gateway.http.chat.validation import is_session_name, keeps_metadata_rules
from gateway.models.artifacts import ProcessingStrategy
from gateway.models.chain import message_digest
from gateway.models.conversation import INSTRUCTION_ROLES, ConversationMessage
from gateway.models.frames import Form, Frame, NewFrame, frame_of
from gateway.models.records import (
    KIND,
    VERSION,
    ImportedAttachment,
    ImportedConversation,
    ImportedFrame,
    ImportedMessage,
    Instructions,
)
from gateway.models.tool_steps import parse_reasoning_events_to_steps

# Reads fields of a document that anybody may have written; each that breaks its rule is named (guarantee §7).


MOST_NUMBER = 2**31 - 1


class Fields:
    """An object at a place of the document, such as `messages[3]`; the document itself is at no place."""

    def __init__(self, value: Any, where: str = "") -> None:
        if not isinstance(value, dict):
            raise invalid(where, "must be an object")
        self._value = value
        self._prefix = f"{where}." if where else ""

    def invalid(self, name: str, rule: str) -> InvalidRequest:
        """A 400 that names the field and its rule."""
        return invalid(self._prefix + name, rule)

    def __call__(self, name: str) -> Any:
        """The field as it is, None if it is not there."""
        return self._value.get(name)

    def text(self, name: str, most: int | None = None) -> str:
        """A string that a database takes."""
        value = self._value.get(name)
        if not isinstance(value, str) or "\x00" in value:
            raise self.invalid(name, "must be a string")
        if most is not None and not 1 <= len(value) <= most:
            raise self.invalid(name, f"must be a string of 1 to {most} characters")
        return value

    def maybe_text(self, name: str, most: int | None = None) -> str | None:
        """The same, or null."""
        return None if self._value.get(name) is None else self.text(name, most)

    def one_of(self, name: str, known: tuple[str, ...]) -> str:
        """One of these words."""
        value = self._value.get(name)
        if not isinstance(value, str) or value not in known:
            raise self.invalid(name, f"must be one of {', '.join(known)}")
        return value

    def number(self, name: str, below: int = MOST_NUMBER + 1) -> int:
        """A whole number from 0 on."""
        value = self._value.get(name)
        if type(value) is not int or not 0 <= value < below:
            raise self.invalid(name, f"must be a whole number from 0 to {below - 1}" if below else "names nothing")
        return value

    def maybe_number(self, name: str, below: int = MOST_NUMBER + 1) -> int | None:
        """The same, or null."""
        return None if self._value.get(name) is None else self.number(name, below)

    def maybe_flag(self, name: str) -> bool | None:
        """True, false or null."""
        value = self._value.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.invalid(name, "must be true, false or null")
        return value

    def time(self, name: str) -> datetime:
        """A point in time, in UTC."""
        value = self._value.get(name)
        try:
            found = datetime.fromisoformat(value if isinstance(value, str) else "")
            if found.tzinfo is not None:
                return found.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        raise self.invalid(name, "must be a time with its zone, such as 2026-01-31T12:00:00.000000Z")

    def members(self, name: str, most: int | None = None) -> list[Any]:
        """The members of a list, so many at most."""
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self.invalid(name, "must be a list")
        if most is not None and len(value) > most:
            raise self.invalid(name, f"may have {most} members")
        return value

    def objects(self, name: str, most: int | None = None) -> list["Fields"]:
        """The objects of a list."""
        return [Fields(value, f"{self._prefix}{name}[{i}]") for i, value in enumerate(self.members(name, most))]

    def where(self, name: str) -> str:
        """The place of a field."""
        return self._prefix + name


# Checks what models were sent of an exported conversation: it is forwarded again as it stands there.


MOST_FRAMES = 100_000
PAIRED = ("role", "tool_call_id", "tool_calls", "function_call")


def frames_of(document: Fields, messages: tuple[ImportedMessage, ...]) -> tuple[ImportedFrame, ...]:
    """The frames of a document; versions before there were any wrote none."""
    if document("frames") is None:
        return ()
    numbers = {each.name: index for index, each in enumerate(messages)}
    return tuple(_frame(fields, numbers, messages) for fields in document.objects("frames", MOST_FRAMES))


def _frame(fields: Fields, numbers: dict[str, int], messages: tuple[ImportedMessage, ...]) -> ImportedFrame:
    anchor = numbers.get(fields.text("message", 64))
    if anchor is None:
        raise fields.invalid("message", "must be the id of one of the messages")
    frame = _read(fields)
    for name, form in frame.forms.items():
        if name not in numbers:
            raise fields.invalid(f"frame.forms.{name}", "must be of one of the messages")
        _check_form(fields, name, form, messages[numbers[name]])
    new = NewFrame(fields.text("model"), fields.maybe_flag("full") is True, frame)
    return ImportedFrame(new, anchor, fields.time("created_at"))


def _read(fields: Fields) -> Frame:
    value = Fields(fields("frame"), fields.where("frame"))
    for name in ("left", "decided", "foreign"):
        if not all(isinstance(each, str) for each in _members(value, name)):
            raise value.invalid(name, "must be a list of strings")
    for name in ("forms", "standing", "decisions", "counts"):
        Fields(value(name) if value(name) is not None else {}, value.where(name))
    value.maybe_text("first", 64)
    try:
        frame = frame_of(fields("frame"))
        names = [name for found in frame.standing.values() for name in found]
        names += [each.artifact_id for found in frame.decisions.values() for each in found]
        _ = [ProcessingStrategy(each.strategy) for found in frame.decisions.values() for each in found]
        chars = [each.shown_chars for found in frame.decisions.values() for each in found]
        chars += [count for counts in frame.counts.values() for count in counts.values()]
    except (AttributeError, TypeError, ValueError):
        raise fields.invalid("frame", "cannot be read") from None
    if not all(isinstance(each, str) for each in names):
        raise fields.invalid("frame", "must name artifacts by strings")
    if not all(type(each) is int and each >= 0 for each in chars):
        raise fields.invalid("frame", "must count in whole numbers from 0 on")
    return frame


def _members(value: Fields, name: str) -> list[object]:
    return value.members(name) if value(name) is not None else []


def _check_form(fields: Fields, name: str, form: Form, message: ImportedMessage) -> None:
    """It takes the place of that message, so it has to be paired as that is."""
    where = f"frame.forms.{name}"
    if form is None:
        return
    check_message(form, fields.where(where))
    body = message.message.body
    if any(form.get(key) != body.get(key) for key in PAIRED):
        raise fields.invalid(where, f"must have the same {', '.join(PAIRED)} as the message")


# Checks the messages of an exported conversation: each by itself, and their places in the tree.


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


MOST_SESSIONS, MOST_ATTACHMENTS, MOST_REQUESTS, MOST_INSTRUCTIONS = 1000, 10_000, 100_000, 10_000
MOST_DEEP = jsons.MAX_DEPTH + 20
"""A document holds messages that are as deep as they may be, a little further down."""
MANY_DIGITS = re.compile(rb"\d{4}\.\d{9}")
ARTIFACT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
DOCUMENT_FIELDS = frozenset(("title", "source", "content", "label", "attachment_type"))


def parse_export(raw: bytes) -> ImportedConversation:
    """The conversation that a document holds. Takes a while for a large one.

    Raises:
        InvalidRequest: it is no JSON, or a field breaks its rule; names the field, as in `messages[3].parent`.
    """
    try:
        value = jsons.checked(raw, jsons.loads(raw), most_deep=MOST_DEEP)
    except jsons.JSONDecodeError as error:
        raise InvalidRequest(f"The document is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The document must be a JSON object.", code="invalid_json")
    if MANY_DIGITS.search(raw):  # costs that a double does not hold; nobody reckons with them, but they are kept
        value["requests"] = jsons.loads_decimal(raw).get("requests")
    document = Fields(value)
    if document("object") != KIND:
        raise document.invalid("object", f"must be {KIND}")
    if document("version") != VERSION or isinstance(document("version"), bool):
        raise document.invalid("version", f"must be {VERSION}, which this version of the gateway reads")
    instructions = instructions_of(document, MOST_INSTRUCTIONS)
    messages = messages_of(document, len(instructions))
    return ImportedConversation(
        created_at=document.time("created_at"),
        metadata=_metadata(document),
        head=_head(document, {each.name: index for index, each in enumerate(messages)}, messages),
        in_force=document.maybe_number("instructions_in_force", below=len(instructions)),
        sessions=_sessions(document),
        instructions=instructions,
        messages=messages,
        attachments=_attachments(document),
        requests=_requests(document),
        frames=frames_of(document, messages),
    )


def _head(document: Fields, numbers: dict[str, int], messages: Any) -> int | None:
    name = document("head")
    if name is None:
        return None
    index = numbers.get(name) if isinstance(name, str) else None
    if index is None:
        raise document.invalid("head", "must be the id of one of the messages, or null")
    if messages[index].message.status == "failed":
        raise document.invalid("head", "must not be a failed message")
    return index


def _metadata(document: Fields) -> dict[str, str] | None:
    value = document("metadata")
    if value is None:
        return None
    if not keeps_metadata_rules(value):
        rule = "must be null or at most 16 pairs of strings, keys of 64 and values of 512 characters at most"
        raise document.invalid("metadata", rule)
    return dict(value)


def _sessions(document: Fields) -> tuple[str, ...]:
    names = document.members("sessions", MOST_SESSIONS)
    for index, name in enumerate(names):
        if not is_session_name(name):
            raise document.invalid(f"sessions[{index}]", "must be a string of 1 to 256 printable characters")
    return tuple(dict.fromkeys(names))


def _attachments(document: Fields) -> tuple[ImportedAttachment, ...]:
    found = []
    last = -1
    for each in document.objects("attachments", MOST_ATTACHMENTS):
        number = each.number("number", below=2**31 - 1)
        if number <= last:
            raise each.invalid("number", "must be greater than that of the attachment before")
        last = number
        artifact_id = each.text("artifact_id")
        if not ARTIFACT_ID.fullmatch(artifact_id):
            raise each.invalid("artifact_id", "must be 1 to 64 letters, digits, - or _")
        found.append(ImportedAttachment(number, artifact_id, _content(each), each.time("created_at"), _said(each)))
    return tuple(found)


def _content(attachment: Fields) -> dict[str, Any]:
    value = attachment("document")
    inner = Fields(value, attachment.where("document"))
    if unknown := set(value) - DOCUMENT_FIELDS:
        raise inner.invalid(min(unknown), "is unknown")
    for name in DOCUMENT_FIELDS:
        nullable = name in ("title", "label")
        if not isinstance(value.get(name), str) and not (nullable and value.get(name) is None):
            raise inner.invalid(name, "must be a string")
    return {name: value.get(name) for name in ("title", "source", "content", "label", "attachment_type")}


def _said(attachment: Fields) -> bytes | None:
    text = attachment.maybe_text("said", 64)
    if text is None:
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise attachment.invalid("said", "must be a digest in hex, or null") from None


def _requests(document: Fields) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for index, each in enumerate(document.objects("requests", MOST_REQUESTS)):
        name = each.text("id", 64)
        if name in found:
            raise each.invalid("id", "must not stand twice")
        found[name] = document("requests")[index]
    return found
