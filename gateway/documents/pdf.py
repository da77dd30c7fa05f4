"""The text of PDF files, page by page."""

import io

from gateway.documents.document import Reading, ReadOptions, UnreadableDocument
from gateway.models.places import marker


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """
    Raises:
        UnreadableDocument: it is no PDF, or needs a password.
    """
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

    try:
        pages = PdfReader(io.BytesIO(raw)).pages
        texts = (f"{marker('page', str(n))}\n{page.extract_text()}" for n, page in enumerate(pages, 1))
        return Reading("\n\n".join(texts))
    except (FileNotDecryptedError, DependencyError) as error:  # it lacks the password, or the cipher to try none
        raise UnreadableDocument("it is protected by a password; save it without one and send it again") from error
    # pypdf lets many kinds of error through for broken files; all mean the same here.
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise UnreadableDocument("it is no readable PDF") from error
