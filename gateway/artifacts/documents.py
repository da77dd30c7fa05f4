"""Text out of files, and documents found inside over-long messages (contract §2 `file` parts, §4 I4)."""

import base64
import binascii
import hashlib
import io
from dataclasses import dataclass
from typing import Any

from gateway import jsons
from gateway.artifacts.hypertext import html_text
from gateway.artifacts.markup import is_tagged, marked_spans
from gateway.artifacts.over_long import middle
from gateway.artifacts.unreadable import UnreadableDocument

PROSE_ENDINGS = ("txt", "md", "markdown", "rst", "tex", "log", "srt", "vtt", "diff", "patch", "ipynb")
DATA_ENDINGS = (
    "csv",
    "tsv",
    "json",
    "jsonl",
    "ndjson",
    "xml",
    "yaml",
    "yml",
    "toml",
    "ini",
    "cfg",
    "conf",
    "env",
    "sql",
)
CODE_ENDINGS = (
    *("py", "js", "mjs", "ts", "jsx", "tsx", "java", "kt", "c", "h", "cc", "cpp", "hpp", "cs", "go", "rs", "rb", "php"),
    *("swift", "scala", "r", "lua", "pl", "css", "scss", "sh", "bat", "ps1"),
)
TEXT_ENDINGS = tuple(f".{ending}" for ending in (*PROSE_ENDINGS, *DATA_ENDINGS, *CODE_ENDINGS))
HTML_ENDINGS = (".html", ".htm", ".xhtml")
TEXT_SUBTYPES = ("json", "xml", "yaml", "x-yaml", "x-ndjson", "jsonl", "toml", "sql", "javascript", "x-sh", "csv")
TEXT_TYPES = frozenset(f"application/{kind}" for kind in TEXT_SUBTYPES)
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
PART_CHARS = 1000
MARKED_CHARS = 200


@dataclass(frozen=True, slots=True)
class InlineFile:
    """A document inside a `file` part: its bytes, and what kind of document they claim to be."""

    raw: bytes
    kind: str

    @property
    def digest(self) -> str:
        """The same for the same bytes read in the same way."""
        return f"{self.kind}:{hashlib.sha256(self.raw).hexdigest()}"

    @property
    def is_slow(self) -> bool:
        """Whether reading it takes so long that its text is worth keeping."""
        return self.kind in ("pdf", "docx")

    def text(self) -> str:
        """
        Raises:
            UnreadableDocument: the data is no document of that kind.
        """
        return _decode(self.raw, self.kind)


def inline_file(file: dict[str, Any], *, decode_pdf: bool) -> InlineFile | None:
    """The document of a `file` part's inline data, or None for what is to be forwarded as it is.

    Raises:
        UnreadableDocument: the data is not base64.
    """
    data = file.get("file_data")
    if not isinstance(data, str):
        return None
    header, comma, encoded = data.partition(",")
    is_url = data.startswith("data:") and bool(comma)
    media = header[5:].split(";")[0].strip().lower() if is_url else ""
    kind = _kind(str(file.get("filename") or "").lower(), media)
    if kind is None or (kind == "pdf" and not decode_pdf):
        return None
    try:
        return InlineFile(base64.b64decode(encoded if is_url else data, validate=True), kind)
    except (binascii.Error, ValueError):
        raise UnreadableDocument("its data is not base64") from None


def stored_document(name: str, media_type: str, content: bytes) -> InlineFile:
    """A stored file as a document.

    Raises:
        UnreadableDocument: neither its name nor its content says that it is text.
    """
    kind = _kind(name.lower(), media_type.split(";")[0].strip().lower())
    if kind is None:
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            raise UnreadableDocument("it is no text document") from None
    return InlineFile(content, kind or "text")


def _kind(name: str, media: str) -> str | None:
    if media == "application/pdf" or name.endswith(".pdf"):
        return "pdf"
    if media in ("text/html", "application/xhtml+xml") or name.endswith(HTML_ENDINGS):
        return "html"
    if media.endswith("wordprocessingml.document") or name.endswith(".docx"):
        return "docx"
    is_text = media.startswith("text/") or media in TEXT_TYPES or media.endswith("+json")
    if is_text or (name.endswith(TEXT_ENDINGS) and not media.startswith(("image/", "audio/", "video/"))):
        return "text"
    return None


def _decode(raw: bytes, kind: str) -> str:
    if kind == "pdf":
        return _pdf_text(raw)
    if kind == "docx":
        from gateway.artifacts.docx import docx_text

        return docx_text(raw)
    text = raw.decode("utf-16" if raw.startswith(UTF_16) else "utf-8-sig", "replace")
    return html_text(text) if kind == "html" else text


def _pdf_text(raw: bytes) -> str:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        pages = PdfReader(io.BytesIO(raw)).pages
        return "\n\n".join(f"[page {n}]\n{page.extract_text()}" for n, page in enumerate(pages, 1))
    # pypdf lets many kinds of error through for broken files; all mean the same here.
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise UnreadableDocument("it is no readable PDF") from error


def document_spans(text: str, min_chars: int, *, beside: bool) -> list[tuple[int, int]]:
    """Where documents stand in a text of an over-long user message: fences, tagged blocks, else the middle of an
    over-long text; its first and last paragraph are the user's own words and stay (I4).

    Args:
        min_chars: what counts as over-long.
        beside: the text is a content part of its own beside the question: all of it is a document, unless it is short
            and nothing marks it as one.
    """
    if beside and (len(text) > PART_CHARS or (len(text) > MARKED_CHARS and _is_marked(text))):
        return [(0, len(text))]
    if len(text) <= min_chars:
        return []
    spans = marked_spans(text, PART_CHARS)
    between = middle(text, min_chars)
    if sum(end - start for start, end in spans) > len(text) / 2 and not _is_json(text[slice(*between)]):
        return spans
    return [between]


def _is_json(text: str) -> bool:
    """Whether a text is JSON as a whole: tags inside its strings mark nothing."""
    if text.strip()[:1] not in ("{", "["):
        return False
    try:
        jsons.loads(text)
    except jsons.JSONDecodeError:
        return False
    return True


def _is_marked(text: str) -> bool:
    stripped = text.strip()
    return stripped.startswith("```") or is_tagged(stripped)
