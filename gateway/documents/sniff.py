"""The kind of a document by its bytes, where neither its name nor its media type gives it (guarantee §14.10).

Two tables decide: what files begin with, and names in containers. Nothing is unpacked, and of a ZIP's directory only a
beginning is read, so that a check costs next to nothing.
"""

import re
import struct
from collections.abc import Iterator

from gateway.core.types.files import DOCUMENT_KINDS

SNIFFED_HEAD_BYTES = 1024
"""Bytes at the beginning of a file that `MAGICS` are matched with."""
MAGICS: tuple[tuple[str, re.Pattern[bytes]], ...] = (
    ("pdf", re.compile(rb"%PDF-")),
    ("rtf", re.compile(rb"\{\\rtf")),
    ("sqlite", re.compile(rb"SQLite format 3\x00")),
    ("parquet", re.compile(rb"PAR1")),
    ("tar", re.compile(rb"\x1f\x8b\x08|BZh[1-9]1AY|\xfd7zXZ\x00|[^\x00].{256}ustar", re.DOTALL)),
    ("mail", re.compile(rb"(?:Return-Path|Received|Delivered-To|MIME-Version|Message-ID|DKIM-Signature): ")),
)
"""Kind, and what such files begin with. The first that matches counts."""

PICTURES = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|II\*\x00|MM\x00\*")
"""PNG, JPEG, TIFF. Only these reach the program that recognizes text: it would take a text for a list of files."""
ZIP_MAGIC = b"PK\x03\x04"
ZIP_NAMES: tuple[tuple[str, bytes], ...] = (
    ("docx", b"word/document"),
    ("xlsx", b"xl/workbook"),
    ("pptx", b"ppt/presentation"),
)
"""Kind, and how the name of a file in such a ZIP begins."""
ZIP_TYPES: tuple[tuple[str, bytes], ...] = (
    ("ods", b"application/vnd.oasis.opendocument.spreadsheet"),
    ("odp", b"application/vnd.oasis.opendocument.presentation"),
    ("odt", b"application/vnd.oasis.opendocument.text"),
    ("epub", b"application/epub+zip"),
)
"""Kind, and how the first file of such a ZIP, named `mimetype` and not packed, begins."""
OTHER_ZIP = "zip"
MAX_SNIFFED_NAMES = 2000
"""Names of a ZIP's directory that are examined."""

OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
OLE_NAMES: tuple[tuple[str, str], ...] = (
    ("protected", "EncryptedPackage"),
    ("msg", "__properties_version1.0"),
    ("doc", "WordDocument"),
    ("ppt", "PowerPoint Document"),
    ("xls", "Workbook"),
    ("xls", "Book"),
)
"""Kind, and the name of a stream in such a container of Microsoft's."""


def sniffed(raw: bytes) -> str | None:
    """Detects the kind (a key of `DOCUMENT_KINDS`) of the bytes; None if it is not known."""
    found = _found(raw)
    return found if found in DOCUMENT_KINDS else None


def is_picture(raw: bytes) -> bool:
    return PICTURES.match(raw) is not None


def may_be_known(head: bytes) -> bool:
    """Returns whether a file that begins so may be of a kind that `sniffed` detects, and is worth decoding."""
    return head.startswith((ZIP_MAGIC, OLE_MAGIC)) or any(magic.match(head[:SNIFFED_HEAD_BYTES]) for _, magic in MAGICS)


def ole_kind(raw: bytes) -> str | None:
    """Returns the kind of a container of Microsoft's older programs; None if it is none, or another."""
    if not raw.startswith(OLE_MAGIC):
        return None
    return next((kind for kind, name in OLE_NAMES if name.encode("utf-16-le") + b"\0\0" in raw), None)


def _found(raw: bytes) -> str | None:
    if raw.startswith(ZIP_MAGIC):
        return _zip_kind(raw)
    if raw.startswith(OLE_MAGIC):
        return ole_kind(raw)
    return next((kind for kind, magic in MAGICS if magic.match(raw[:SNIFFED_HEAD_BYTES])), None)


def _zip_kind(raw: bytes) -> str:
    size, extra = struct.unpack_from("<HH", raw, 26) if len(raw) >= 30 else (0, 0)
    if raw[30 : 30 + size] == b"mimetype":
        content = raw[30 + size + extra :][:100]
        kind = next((kind for kind, media_type in ZIP_TYPES if content.startswith(media_type)), None)
        if kind is not None:
            return kind
    names = list(_zip_names(raw))
    return next((kind for kind, start in ZIP_NAMES if any(name.startswith(start) for name in names)), OTHER_ZIP)


def _zip_names(raw: bytes) -> Iterator[bytes]:
    """Yields the names in a ZIP's directory; fewer, or none, if it is broken."""
    end = raw.rfind(b"PK\x05\x06", max(0, len(raw) - 65_557))
    if end < 0 or end + 20 > len(raw):
        return
    at = struct.unpack_from("<I", raw, end + 16)[0]
    for _ in range(MAX_SNIFFED_NAMES):
        if raw[at : at + 4] != b"PK\x01\x02" or at + 46 > len(raw):
            return
        name, extra, comment = struct.unpack_from("<HHH", raw, at + 28)
        yield raw[at + 46 : at + 46 + name]
        at += 46 + name + extra + comment
