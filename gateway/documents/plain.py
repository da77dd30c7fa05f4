"""Plain text in any encoding (guarantee §14.11)."""

import codecs
import re

from gateway.documents.document import Reading, ReadOptions, UnreadableDocument
from gateway.documents.encodings import MARKS, decodes, encoding_of

HEAD_BYTES = 4096
"""Where a text declares its encoding."""
DECLARED = re.compile(
    rb"<\?xml[^>]{0,200}?\bencoding\s*=\s*[\"']([\w.:-]{1,40})"
    rb"|<meta\b[^>]{0,300}?\bcharset\s*=\s*[\"']?([\w.:-]{1,40})"
    rb"|\A[^\n]{0,200}\n?[^\n]{0,200}coding[:=]\s*([\w.-]{1,40})",
    re.IGNORECASE,
)
"""In XML, HTML and programs."""
NOT_PLAIN_TEXT = "it is no text"


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """The text itself. Raises UnreadableDocument: it is no text."""
    return Reading(checked_text(raw))


def checked_text(raw: bytes) -> str:
    """The bytes as text. Raises UnreadableDocument: they are none."""
    text = text_of(raw)
    if text is None:
        raise UnreadableDocument(NOT_PLAIN_TEXT)
    return text


def decoded(raw: bytes, charset: str = "") -> str:
    """The bytes as text, whatever they are; what cannot be decoded is U+FFFD."""
    text = text_of(raw, charset)
    return raw.decode("utf-8-sig", "replace") if text is None else text


def text_of(raw: bytes, charset: str = "") -> str | None:
    """The bytes as text; None if they are none.
    `charset`: what the sender says that the encoding is. It counts if the bytes are valid in it. What the text says of
    itself counts after UTF-8: programs that convert texts forget to change it."""
    marked = any(raw.startswith(mark) for mark, _ in MARKS)
    for name in ("" if marked else _known(charset), "" if marked else "utf-8", "" if marked else _declared(raw)):
        if name and b"\x00" not in raw and b"\x1b$" not in raw and decodes(raw, name):
            found = encoding_of(raw) if name == "utf-8" and raw.isascii() else name
            return None if found is None else raw.decode(name)
    found = encoding_of(raw)
    return None if found is None else raw.decode(found, "replace")


def _declared(raw: bytes) -> str:
    found = DECLARED.search(raw[:HEAD_BYTES])
    return _known(next(name for name in found.groups() if name).decode()) if found else ""


def _known(charset: str) -> str:
    """The name of a text encoding; Latin-1 stands for CP1252, as in browsers."""
    try:
        info = codecs.lookup(charset)
    except (LookupError, ValueError):
        return ""
    if not getattr(info, "_is_text_encoding", True):
        return ""
    return "cp1252" if info.name in ("iso8859-1", "ascii") else info.name
