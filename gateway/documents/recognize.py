"""Which documents requests hold: in `file` parts, data URLs, stored files, and texts that are HTML (guarantee §2)."""

import base64
import binascii
import contextlib
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from gateway.documents.document import DocumentFile, UnreadableDocument
from gateway.documents.kinds import KINDS
from gateway.documents.sniff import OTHER_ZIP, may_be_known, sniffed

NOT_TEXT = ("image/", "audio/", "video/")
"""Media types that outweigh the ending of a name: a picture called `chart.csv` is no text."""
MERE_TEXT = ("text", "xml", "subtitles")
DATA_URL = re.compile(r"\s*data:([\w.+-]+/[\w.+-]+)?((?:;[\w-]+=[^;,\s]{0,100})*)(;base64)?,(?<!data:,)", re.IGNORECASE)
CHARSET = re.compile(r";charset=\"?([\w.:-]+)", re.IGNORECASE)
HTML_HEAD = 4096
"""Characters at the beginning of a text that tell whether it is HTML."""
HTML_START = re.compile(
    r"\ufeff?(?:\s|<!--(?:(?!-->).)*-->|<\?xml[^<>]*>)*+<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
TAG_START = re.compile(r"\s*<[A-Za-z!]")
HEAD_CHARS = 1400
"""Of encoded data, in which its start stands; a PDF may have something before it. Whole groups of four."""


def inline_file(file: dict[str, Any], *, decode_pdf: bool) -> DocumentFile | None:
    """The document in a `file` part's inline data; None if the part is to be forwarded as it is.

    Raises:
        UnreadableDocument: the data is not base64.
    """
    data = file.get("file_data")
    if not isinstance(data, str):
        return None
    header, comma, encoded = data.partition(",")
    is_url = data.startswith("data:") and bool(comma)
    media_type = header[5:] if is_url else ""
    name = str(file.get("filename") or "")
    kind = _kind(name, media_type)
    if kind is not None and KINDS[kind].starts and _is_text(media_type, encoded, KINDS[kind].starts):
        kind = "text"
    content = encoded if is_url else data
    if kind is None and (media_type.startswith(NOT_TEXT) or not _is_worth_a_look(content)):
        return None
    if kind == "pdf" and not decode_pdf:
        return None
    try:
        raw = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableDocument("its data is not base64") from None
    kind = _by_content(kind, raw)
    return None if kind is None or (kind == "pdf" and not decode_pdf) else DocumentFile(raw, kind, name)


def sent_document(data: str, name: str) -> DocumentFile:
    """A file that a client sent as base64, or as a data URL.

    Raises:
        UnreadableDocument: it is not base64, or no kind of document that has a text.
    """
    header, comma, encoded = data.partition(",")
    is_url = bool(comma) and header.lower().startswith("data:")
    media_type = header[5:].split(";")[0] if is_url else ""
    try:
        if is_url and ";base64" not in header.lower():
            raw = unquote_to_bytes(encoded)
        else:
            raw = base64.b64decode("".join((encoded if is_url else data).split()), validate=True)
    except (binascii.Error, ValueError):
        raise UnreadableDocument("its data is not base64") from None
    return stored_document(name, media_type, raw)


def stored_document(name: str, media_type: str, content: bytes) -> DocumentFile:
    """A stored file as a document.

    Raises:
        UnreadableDocument: neither its name nor its content says that it is text.
    """
    kind = _by_content(_kind(name, media_type), content)
    if kind is None:
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            raise UnreadableDocument("it is no text document, and of no other kind that is read") from None
    return DocumentFile(content, kind or "text", name)


def encoded_document(content: str, media_type: str = "", name: str = "") -> DocumentFile | None:
    """The document that a text holds if it is a data URL or HTML; None for any other text.

    Args:
        media_type: what its client says that it is, or `html`; `name`: its title. They count for parts of HTML.

    Raises:
        UnreadableDocument: the data URL cannot be decoded, or is of a kind that has no text.
    """
    url = DATA_URL.match(content)
    if url is not None:
        return _of_data_url(url, content[url.end() :])
    named = _kind(name, media_type) == "html" or media_type.strip().lower() == "html"
    head = content[:HTML_HEAD]
    if HTML_START.match(head) or (named and TAG_START.match(head)):
        return DocumentFile(content.encode("utf-8", "replace"), "html")
    return None


def _of_data_url(url: re.Match[str], data: str) -> DocumentFile:
    media_type, parameters, is_base64 = url.groups()
    try:
        raw = base64.b64decode("".join(data.split()), validate=True) if is_base64 else unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        raise UnreadableDocument("its data is not base64") from None
    kind = _by_content(_kind("", media_type or "text/plain"), raw)
    if kind is None:
        raise UnreadableDocument(f"{media_type} is no kind of document that has a text")
    charset = CHARSET.search(parameters)
    if charset is not None and not KINDS[kind].apart:
        with contextlib.suppress(LookupError):  # a name that nobody knows
            raw = raw.decode(charset[1], "replace").encode("utf-8", "replace")
    return DocumentFile(raw, kind)


def _kind(name: str, media_type: str) -> str | None:
    name, media = name.lower(), media_type.split(";")[0].strip().lower()
    for kind, known in KINDS.items():
        if media in known.media_types or name.endswith(known.endings):
            return None if kind in MERE_TEXT and media.startswith(NOT_TEXT) else kind
    return "text" if media.startswith("text/") or media.endswith("+json") else None


def _by_content(kind: str | None, raw: bytes) -> str | None:
    """The kind that the bytes tell where name and media type say nothing, or only what it is packed in."""
    return sniffed(raw) or kind if kind is None or kind == OTHER_ZIP else kind


def _is_worth_a_look(encoded: str) -> bool:
    try:
        return may_be_known(base64.b64decode(encoded[:HEAD_CHARS]))
    except (binascii.Error, ValueError):
        return False


def _is_text(media_type: str, encoded: str, start: bytes) -> bool:
    """Whether data that its sender calls text is that, whatever its name says."""
    if not media_type.strip().lower().startswith("text/"):
        return False
    try:
        return start not in base64.b64decode(encoded[:HEAD_CHARS])
    except (binascii.Error, ValueError):
        return False
