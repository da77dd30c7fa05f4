"""Checks an exported conversation that is to be imported; whatever is wrong, the field is named (contract §7)."""

import re
from typing import Any

from gateway import jsons
from gateway.errors import InvalidRequest
from gateway.http.fields import Fields
from gateway.http.imported_frames import frames_of
from gateway.http.imported_messages import instructions_of, messages_of
from gateway.http.wire import is_session_name, keeps_metadata_rules
from gateway.models.transfer import KIND, VERSION, ImportedAttachment, ImportedConversation

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
