"""Which documents requests hold: in `file` parts, data URLs, stored files, and texts that are HTML (guarantee §2)."""

import base64
import binascii
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from gateway.core.types.files import KINDS
from gateway.documents.document import DocumentFile, UnreadableDocument
from gateway.documents.encodings import decodes
from gateway.documents.plain import text_of
from gateway.documents.sniff import OTHER_ZIP, is_picture, may_be_known, sniffed

PICTURE = "image"
NOT_TEXT = ("image/", "audio/", "video/")
"""Media types that outweigh the ending of a name: a picture called `chart.csv` is no text."""
MERE_TEXT = ("text", "xml", "subtitles")
IN_CHARSETS = (*MERE_TEXT, "html")
"""Kinds that come in whichever encoding, which their sender may tell."""
DATA_URL = re.compile(r"\s*data:([\w.+-]+/[\w.+-]+)?((?:;[\w-]+=[^;,\s]{0,100})*)(;base64)?,(?<!data:,)", re.IGNORECASE)
CHARSET = re.compile(r";\s*charset=\"?([\w.:-]+)", re.IGNORECASE)
HTML_HEAD = 4096
"""Characters at the beginning of a text that tell whether it is HTML."""
HTML_START = re.compile(
    r"\ufeff?(?:\s|<!--(?:(?!-->).)*-->|<\?xml[^<>]*>)*+<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
TAG_START = re.compile(r"\s*<[A-Za-z!]")
CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""What short data of programs has that looks like UTF-16."""
HEAD_CHARS = 1400
"""Of encoded data, in which its start stands; a PDF may have something before it. Whole groups of four."""


def inline_file(file: dict[str, Any], *, decode_pdf: bool) -> DocumentFile | None:
    """The document in a `file` part's inline data; None if the part is to be forwarded as it is.
    Raises UnreadableDocument: the data is not base64."""
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
    if kind is None or (kind == "pdf" and not decode_pdf):
        return None
    return DocumentFile(_in_utf8(kind, raw, media_type), kind, name)


def sent_document(data: str, name: str) -> DocumentFile:
    """A file that a client sent as base64, or as a data URL.
    Raises UnreadableDocument: it is not base64, or no kind of document that has a text."""
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
    if is_url:
        raw = _in_utf8(_kind(name, media_type), raw, header)
    return stored_document(name, media_type, raw, pictures=True)


def stored_document(name: str, media_type: str, content: bytes, *, pictures: bool = False) -> DocumentFile:
    """A stored file as a document.
    `pictures`: those of text are documents, too, as they are where a file is attached.
    Raises UnreadableDocument: neither its name nor its content says that it is text."""
    kind = _by_content(_kind(name, media_type), content)
    if kind is None and pictures and is_picture(content):
        kind = PICTURE
    if kind is None and not _reads_as_text(content, media_type):
        raise UnreadableDocument("it is no text document, and of no other kind that is read")
    return DocumentFile(content, kind or "text", name)


def may_be_document(name: str, media_type: str, head: bytes) -> bool:
    """Whether `stored_document` may find one, as far as the beginning of its content tells."""
    return _kind(name, media_type) is not None or may_be_known(head) or _reads_as_text(head, media_type)


def encoded_document(content: str, media_type: str = "", name: str = "") -> DocumentFile | None:
    """The document that a text holds if it is a data URL or HTML; None for any other text.
    `media_type`: what its client says that it is, or `html`; `name`: its title. They count for parts of HTML, and the
    name for a data URL that tells no media type.
    Raises UnreadableDocument: the data URL cannot be decoded, or is of a kind that has no text."""
    url = DATA_URL.match(content)
    if url is not None:
        return _of_data_url(url, content[url.end() :], name)
    named = _kind(name, media_type) == "html" or media_type.strip().lower() == "html"
    head = content[:HTML_HEAD]
    if HTML_START.match(head) or (named and TAG_START.match(head)):
        return DocumentFile(content.encode("utf-8", "replace"), "html")
    return None


def _of_data_url(url: re.Match[str], data: str, name: str) -> DocumentFile:
    media_type, parameters, is_base64 = url.groups()
    try:
        raw = base64.b64decode("".join(data.split()), validate=True) if is_base64 else unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        raise UnreadableDocument("its data is not base64") from None
    kind = _by_content(_kind("", media_type) if media_type else _named(name, raw), raw)
    if kind is None and is_picture(raw):
        kind = PICTURE
    if kind is None:
        raise UnreadableDocument(f"{media_type} is no kind of document that has a text")
    return DocumentFile(_in_utf8(kind, raw, parameters), kind)


def _named(name: str, raw: bytes) -> str:
    """The kind of data without a media type: what its name says, unless its bytes do not; else text (RFC 2397)."""
    kind = _kind(name, "") or "text"
    return kind if KINDS[kind].starts in raw[:HTML_HEAD] else "text"


def _in_utf8(kind: str | None, raw: bytes, parameters: str) -> bytes:
    """A text in UTF-8, if a media type's parameters tell its charset; it counts if the bytes are valid in it."""
    charset = CHARSET.search(parameters)
    text = text_of(raw, charset[1]) if charset is not None and kind in IN_CHARSETS else None
    return raw if text is None else text.encode("utf-8", "replace")


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


def _reads_as_text(content: bytes, media_type: str) -> bool:
    """Whether content of which nothing else is known is text: in any encoding, but of a picture (SVG) in UTF-8."""
    if media_type.startswith(NOT_TEXT):
        return decodes(content, "utf-8")
    text = text_of(content)
    return text is not None and (b"\x00" not in content or CONTROLS.search(text[:HEAD_CHARS]) is None)


def _is_text(media_type: str, encoded: str, start: bytes) -> bool:
    """Whether data that its sender calls text is that, whatever its name says."""
    if not media_type.strip().lower().startswith("text/"):
        return False
    try:
        return start not in base64.b64decode(encoded[:HEAD_CHARS])
    except (binascii.Error, ValueError):
        return False
