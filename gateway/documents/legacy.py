"""Files of Microsoft's older programs, and protected ones: refused with a hint; wrongly named ones are read."""

from gateway.documents import document
from gateway.documents.document import DocumentFile, Reading, ReadOptions, UnreadableDocument
from gateway.documents.packages import PROTECTED
from gateway.documents.sniff import sniffed

SAVE_AS = {"doc": "DOCX", "ppt": "PPTX", "xls": "XLSX"}


def read(raw: bytes, options: ReadOptions) -> Reading:
    """Reads a file that is named `.doc` or `.ppt` but is of another readable kind, such as RTF.
    Raises UnreadableDocument: it is what its name says, or needs a password."""
    kind = sniffed(raw)
    if kind == "protected":
        raise UnreadableDocument(PROTECTED)
    if kind in SAVE_AS:
        name = SAVE_AS[kind]
        raise UnreadableDocument(f"it is a file of the old format {kind.upper()}; save it as {name} and send it again")
    if kind is None:
        raise UnreadableDocument("it is no readable document of an office program")
    return document.read(DocumentFile(raw, kind), options)
