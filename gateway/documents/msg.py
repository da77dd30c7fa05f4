"""Outlook's mails (MSG), read by python-oxmsg (guarantee §14.9)."""

import io
from typing import Any

from oxmsg import Message

from gateway.documents.html import html_text
from gateway.documents.mail import assembled, header_text
from gateway.documents.nested_documents import NestedPlace
from gateway.documents.packages import reading

MAX_ATTACHMENTS = 10_000


def read_nested(raw: bytes, nesting: NestedPlace) -> str:
    """Reads headers, body and attachments, as of other mails, within the bounds that are left.
    Raises UnreadableDocument: it is no mail of Outlook's."""
    with reading("mail of Outlook's", AssertionError):
        message = Message.load(io.BytesIO(raw))
        headers, body = _headers(message), _body(message)
        attached = [(_name(each), each.file_bytes, each.mime_type) for each in message.attachments[:MAX_ATTACHMENTS]]
    texts, names = [], [given or f"attachment {number}" for number, (given, _, _) in enumerate(attached, 1)]
    for name, (_, content, media_type) in zip(names, attached, strict=True):
        if content is None:
            nesting.leave_out("attached by reference or as an item of Outlook's", name)
        elif nesting.can_take(name):
            texts.append(nesting.member(name, content, media_type or ""))
    return assembled(headers, body, names, texts)


def _headers(message: Any) -> list[tuple[str, str]]:
    given = {name.lower(): value for name, value in message.message_headers.items()}
    recipients = ", ".join(f"{each.name} <{each.email_address}>" for each in message.recipients[:200])
    sent = message.sent_date
    return [
        ("From", header_text(given.get("from") or message.sender or "")),
        ("To", header_text(given.get("to") or recipients)),
        ("Cc", header_text(given.get("cc", ""))),
        ("Date", header_text(given.get("date") or (sent.isoformat() if sent else ""))),
        ("Subject", header_text(message.subject)),
    ]


def _body(message: Any) -> str:
    plain = message.body
    if plain and plain.strip():
        return str(plain).replace("\r\n", "\n")
    return html_text(message.html_body or "")


def _name(attachment: Any) -> str:
    return header_text(attachment.file_name or "").replace("/", "_")
