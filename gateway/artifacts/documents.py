"""Text out of files, and documents found inside over-long messages (guarantee §2 `file` parts, §4 I4)."""

import base64
import binascii
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any
from xml.etree import ElementTree

from gateway.artifacts.in_messages import is_tagged, marked_spans, middle
from gateway.base import jsons

# The visible text of HTML, in one pass whatever the markup: the standard library's parser takes quadratic time for
# millions of tags that never end.


HIDDEN = frozenset({"script", "style", "noscript", "template"})
RAW = frozenset({"script", "style"})
BLOCKS = frozenset({"p", "div", "li", "tr", "br", "section", "article", "table", "ul", "ol", "pre"})
HEADINGS = {f"h{n}": "#" * n + " " for n in range(1, 7)}
TAG = re.compile(r"<(/?)([A-Za-z][^\s/<>]*+)(?:[^<>\"']|\"[^\"]{0,4000}+\"|'[^']{0,4000}+')*+>")
SPACE = re.compile(r"\s+")


def html_text(text: str) -> str:
    """Visible text, with a line break after each block and `#` before headings."""
    out: list[str] = []
    depth = position = 0
    while position < len(text):
        at = text.find("<", position)
        end = at if at >= 0 else len(text)
        if end > position and not depth:
            out.append(SPACE.sub(" ", unescape(text[position:end])))
        if at < 0:
            break
        tag = TAG.match(text, at)
        if tag is None:
            position = _after_odd(text, at)
            if position == at + 1 and not depth:
                out.append("<")
            continue
        position = tag.end()
        name = tag.group(2).lower()
        if tag.group(1):
            depth -= name in HIDDEN and depth > 0
            out.append("\n" if name in HEADINGS or name in BLOCKS else "")
        elif name in RAW:
            close = re.compile(rf"</{name}\b[^<>]*+>", re.IGNORECASE).search(text, position)
            position = close.end() if close else len(text)
        else:
            depth += name in HIDDEN
            out.append(_opened(name))
    lines = (line.strip() for line in "".join(out).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _opened(name: str) -> str:
    if name in HEADINGS:
        return "\n\n" + HEADINGS[name]
    return "\n" if name in BLOCKS else "\t" if name in ("td", "th") else ""


def _after_odd(text: str, at: int) -> int:
    """Where the text goes on after a comment or a declaration (one that never ends takes all), or after a mere `<`."""
    if text.startswith("<!--", at):
        end, mark = text.find("-->", at + 4), 3
    elif text.startswith(("<!", "<?"), at):
        end, mark = text.find(">", at), 1
    else:
        return at + 1
    return end + mark if end >= 0 else len(text)


# A document that cannot be read.


class UnreadableDocument(Exception):
    """The file claims to be a document but cannot be read; the message says why."""


# The text of a DOCX: paragraphs, headings marked as in Markdown, a table's rows with their cells between tabs.


MOST_BYTES = 64 * 2**20
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
HEADING = re.compile(r"(?:heading|überschrift|titre|título)\s*([1-6])\Z", re.IGNORECASE)
TITLES = frozenset({"title", "titel"})
SPACES = {f"{WORD}tab": "\t", f"{WORD}br": "\n", f"{WORD}cr": "\n"}


def docx_text(raw: bytes) -> str:
    """
    Raises:
        UnreadableDocument: it is no DOCX, or one that would grow beyond all measure.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive, archive.open("word/document.xml") as entry:
            xml = entry.read(MOST_BYTES + 1)
        if len(xml) > MOST_BYTES or b"<!DOCTYPE" in xml[:1024]:
            raise UnreadableDocument("its text is too large or carries a document type")
        root = ElementTree.fromstring(xml)  # noqa: S314 - no document type, so no entities to expand
    except (zipfile.BadZipFile, KeyError, ElementTree.ParseError, NotImplementedError) as error:
        raise UnreadableDocument("it is no readable DOCX") from error
    body = root.find(f"{WORD}body")
    return "\n\n".join(_blocks(root if body is None else body))


def _blocks(body: ElementTree.Element) -> Iterator[str]:
    """Paragraphs and tables in their order, also where something holds them together."""
    waiting = list(reversed(body))
    while waiting:
        node = waiting.pop()
        if node.tag == f"{WORD}p":
            yield _heading(node) + _text(node)
        elif node.tag == f"{WORD}tbl":
            yield "\n".join("\t".join(_cells(row)) for row in node.iter(f"{WORD}tr"))
        else:
            waiting.extend(reversed(node))


def _cells(row: ElementTree.Element) -> Iterator[str]:
    for cell in row.findall(f"{WORD}tc"):
        yield " ".join(" ".join(_text(paragraph) for paragraph in cell.iter(f"{WORD}p")).split())


def _heading(paragraph: ElementTree.Element) -> str:
    """The signs of a heading of its level, if its style says that it is one."""
    style = paragraph.find(f"{WORD}pPr/{WORD}pStyle")
    name = style.get(f"{WORD}val", "") if style is not None else ""
    level = HEADING.match(name)
    return "#" * int(level[1]) + " " if level else "# " if name.lower() in TITLES else ""


def _text(paragraph: ElementTree.Element) -> str:
    return "".join(node.text or "" if node.tag == f"{WORD}t" else SPACES.get(node.tag, "") for node in paragraph.iter())


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
