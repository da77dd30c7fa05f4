"""Extracts the texts of documents of all kinds, and manages the files that clients upload.

Offers readings; `files/`, a package with its own exports, offers uploads. Read first: `document.py` (what a reading is)
and `process.py` (the sandboxed process that runs readers). Never runs a reader on untrusted bytes in the server's own
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
    __getattr__ = lazy_face(__name__)
