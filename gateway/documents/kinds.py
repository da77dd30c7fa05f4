"""Reads a document of any kind."""

from importlib import import_module

from gateway.core.types.files import DOCUMENT_KINDS
from gateway.documents.document import DocumentFile, Reading, ReadOptions

INLINE_BYTES = 2**18
"""A longer document is read apart, whatever it is; plain text needs no reading."""


def read(file: DocumentFile, options: ReadOptions = ReadOptions()) -> Reading:  # noqa: B008 - it is frozen
    """What the document says. Raises UnreadableDocument: the bytes are no document of that kind."""
    reader = import_module(f"gateway.documents.{DOCUMENT_KINDS[file.kind].reader}")
    reading: Reading = reader.read(file.raw, options)
    return reading


def is_slow(file: DocumentFile) -> bool:
    """Whether it is read in a process apart, and its text kept."""
    kind = DOCUMENT_KINDS[file.kind]
    return kind.apart or (file.kind != "text" and len(file.raw) > INLINE_BYTES)
