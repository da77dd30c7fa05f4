"""Mails: headers, body, and each attachment read by its own kind (guarantee §14.9)."""

import email
from collections.abc import Iterator, Sequence
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.policy import Compat32
from typing import Any

from gateway.core.types import places
from gateway.documents.document import UnreadableDocument
from gateway.documents.html import html_text
from gateway.documents.nested_documents import NestedPlace
from gateway.documents.plain import decoded, text_of

SHOWN = ("From", "To", "Cc", "Date", "Subject")
MAX_HEADER = 4000
"""Characters of one header that are read: its parser takes quadratic time."""
MAX_MAIL_PARTS = 10_000
MAX_NAMED_ATTACHMENTS = 50
"""Attachments that are named below the headers."""


class _HeaderPolicy(Compat32):
    """Cuts long headers before they are parsed."""

    def header_source_parse(self, sourcelines: Sequence[str]) -> tuple[str, str]:
        name, _, value = sourcelines[0].partition(":")
        lines, size = [value.lstrip(" \t")[:MAX_HEADER]], 0
        for line in sourcelines[1:]:
            size += len(line)
            if size > MAX_HEADER:
                break
            lines.append(line)
        return name, "".join(lines).rstrip("\r\n")


class _MailPart(Message):
    """A part whose parameters may be given both whole and in pieces, which the library cannot put in order."""

    def get_param(self, param: str, failobj: Any = None, header: str = "content-type", unquote: bool = True) -> Any:
        """Returns a parameter of a header; `failobj` if it is not there, or the parameters have no order."""
        try:
            return super().get_param(param, failobj, header, unquote)
        except TypeError:
            return failobj


def read_nested(raw: bytes, nesting: NestedPlace) -> str:
    """Reads headers, body and attachments, within the bounds that are left.
    Raises UnreadableDocument: it is no mail."""
    try:
        message = email.message_from_bytes(raw, _MailPart, policy=_HeaderPolicy())
    except (MessageError, ValueError, RecursionError) as error:
        raise UnreadableDocument("it is no readable mail") from error
    if not any(message.get(name) for name in (*SHOWN, "Received", "MIME-Version", "Content-Type")):
        raise UnreadableDocument("it is no mail: it has no headers")
    return _mail(message, nesting)


def assembled(headers: list[tuple[str, str]], body: str, names: list[str], attachments: list[str]) -> str:
    """Joins a mail's text: headers, the names of its attachments, body, attachments with their markers, with empty
    lines between."""
    named = ", ".join(names[:MAX_NAMED_ATTACHMENTS]) + (", …" if len(names) > MAX_NAMED_ATTACHMENTS else "")
    told = [*headers, ("Attachments", named)]
    head = "\n".join(f"{name}: {' '.join(value.split())}" for name, value in told if value.strip())
    return "\n\n".join(each for each in (head, places.plain_lines(body.strip()), *attachments) if each)


def _mail(message: Message, nesting: NestedPlace) -> str:
    headers = [(name, header_text(message.get(name, ""))) for name in SHOWN]
    bodies: list[str] = []
    attached: list[Message] = []
    for part, is_body in _leaves(message):
        if is_body:
            bodies.append(_body(part))
        else:
            attached.append(part)
    texts = [_attachment(part, number, nesting) for number, part in enumerate(attached, 1)]
    names = [_name(part, number) for number, part in enumerate(attached, 1)]
    return assembled(headers, "\n\n".join(filter(None, bodies)), names, texts)


def header_text(value: object) -> str:
    """Decodes a header to one readable line."""
    text = str(value)[:MAX_HEADER]
    try:
        text = str(make_header(decode_header(text)))
    except (MessageError, ValueError, LookupError):
        pass
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split())


def _leaves(message: Message) -> Iterator[tuple[Message, bool]]:
    """Yields the parts that hold content, and whether each is the body or an attachment.

    Of several forms of the same text, plain text counts, else HTML.
    """
    waiting = [message]
    for _ in range(MAX_MAIL_PARTS):
        if not waiting:
            return
        part = waiting.pop()
        kind = part.get_content_type()
        if kind == "message/rfc822" or not part.is_multipart():
            plain = part.get_content_disposition() != "attachment" and part.get_filename() is None
            yield part, plain and kind in ("text/plain", "text/html")
            continue
        inner = [each for each in part.get_payload() if isinstance(each, Message)]
        if kind == "multipart/alternative":
            inner = _chosen(inner)
        waiting.extend(reversed(inner))


def _chosen(forms: list[Message]) -> list[Message]:
    for wanted in ("text/plain", "text/html"):
        found = [each for each in forms if each.get_content_type() == wanted and _payload(each).strip()]
        if found:
            others = [each for each in forms if each.get_content_type() not in ("text/plain", "text/html")]
            # An alternative with parts of its own is HTML with pictures, or holds the attachments.
            return found[:1] + [leaf for each in others for leaf, is_body in _leaves(each) if not is_body]
    return forms


def _payload(part: Message) -> bytes:
    found = part.get_payload(decode=True)
    return found if isinstance(found, bytes) else b""


def _body(part: Message) -> str:
    raw, charset = _payload(part), part.get_content_charset() or ""
    text = decoded(raw, charset)
    return html_text(text) if part.get_content_type() == "text/html" else text.replace("\r\n", "\n")


def _name(part: Message, number: int) -> str:
    name = header_text(part.get_filename() or "").replace("/", "_")
    if name:
        return name
    ending = {"message/rfc822": ".eml", "text/calendar": ".ics", "text/plain": ".txt", "text/html": ".html"}
    return f"attachment {number}{ending.get(part.get_content_type(), '')}"


def _attachment(part: Message, number: int, nesting: NestedPlace) -> str:
    name = _name(part, number)
    if not nesting.can_take(name):
        return ""
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload()
        message = inner[0] if isinstance(inner, list) and inner else None
        try:
            raw = message.as_bytes() if isinstance(message, Message) else _payload(part)
        except (MessageError, ValueError, LookupError, RecursionError):
            nesting.leave_out("damaged", name)
            return ""
        return nesting.member(name if name.endswith(".eml") else f"{name}.eml", raw, "message/rfc822")
    raw = _payload(part)
    charset = part.get_content_charset()
    if charset and part.get_content_maintype() == "text" and (text := text_of(raw, charset)) is not None:
        raw = text.encode("utf-8", "replace")
    return nesting.member(name, raw, part.get_content_type())
