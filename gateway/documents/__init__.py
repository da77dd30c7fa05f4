"""Documents of all kinds: their texts, and the files that clients upload.

Offers readings; `files/`, with a face of its own, offers uploads. Read first: `document.py` (what a reading is) and
`process.py` (the confined process that readers run in). Never runs a reader on hostile bytes in the server's own
process, and knows nothing of budgets.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.documents import file_reader, process
    from gateway.documents.document import DocumentFile, DocumentOwner, PageFacts, Reading, UnreadableDocument
    from gateway.documents.file_reader import AttachmentReader
    from gateway.documents.process import DocumentReader
else:
    __getattr__ = lazy_face(
        __name__,
        {
            "document": "DocumentFile DocumentOwner PageFacts Reading UnreadableDocument",
            "file_reader": "AttachmentReader",
            "process": "DocumentReader",
        },
    )

__all__ = [
    "AttachmentReader",
    "DocumentFile",
    "DocumentOwner",
    "DocumentReader",
    "PageFacts",
    "Reading",
    "UnreadableDocument",
    "file_reader",
    "process",
]
