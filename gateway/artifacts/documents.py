"""The text of documents: plain text, HTML, DOCX, PDF (guarantee §2, `file` parts)."""

import base64
import binascii
import contextlib
import hashlib
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree

PROSE = "txt md markdown rst tex log srt vtt diff patch ipynb"
DATA = "csv tsv json jsonl ndjson xml yaml yml toml ini cfg conf env sql"
CODE = """py js mjs ts jsx tsx java kt c h cc cpp hpp cs go rs rb php swift scala r lua pl css scss sh bat ps1"""
TEXT_ENDINGS = tuple(f".{ending}" for ending in f"{PROSE} {DATA} {CODE}".split())
TEXT_SUBTYPES = "json xml yaml x-yaml x-ndjson jsonl toml sql javascript x-sh csv"
TEXT_TYPES = frozenset(f"application/{subtype}" for subtype in TEXT_SUBTYPES.split())
NOT_TEXT = ("image/", "audio/", "video/")
"""Media types that outweigh the ending of a name: a picture called `chart.csv` is no text."""
DATA_URL = re.compile(r"\s*data:([\w.+-]+/[\w.+-]+)?((?:;[\w-]+=[^;,\s]{0,100})*)(;base64)?,(?<!data:,)", re.IGNORECASE)
CHARSET = re.compile(r";charset=\"?([\w.:-]+)", re.IGNORECASE)
HTML_HEAD = 4096
"""Characters at the beginning of a text that tell whether it is HTML."""
HTML_START = re.compile(
    r"\ufeff?(?:\s|<!--(?:(?!-->).)*-->|<\?xml[^<>]*>)*+<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
TAG_START = re.compile(r"\s*<[A-Za-z!]")
STARTS = {"pdf": b"%PDF", "docx": b"PK"}
"""How documents begin that are no text."""
HEAD_CHARS = 1400
"""Of encoded data, in which that stands; a PDF may have something before it. Whole groups of four."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
MOST_XML_BYTES = 64 * 2**20
"""Bytes of a DOCX's text once unpacked: a few kilobytes can unpack to gigabytes."""


class UnreadableDocument(Exception):
    """The file claims to be a document but cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class InlineFile:
    """A document's bytes and the kind of document that they claim to be: a key of `KINDS`."""

    raw: bytes
    kind: str

    @property
    def digest(self) -> str:
        """The same for the same bytes read in the same way."""
        return f"{self.kind}:{hashlib.sha256(self.raw).hexdigest()}"

    @property
    def is_slow(self) -> bool:
        """Whether it is read in a process apart, and its text kept."""
        return KINDS[self.kind].apart

    def text(self) -> str:
        """
        Raises:
            UnreadableDocument: the bytes are no document of that kind.
        """
        return KINDS[self.kind].read(self.raw)


def inline_file(file: dict[str, Any], *, decode_pdf: bool) -> InlineFile | None:
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
    kind = _kind(str(file.get("filename") or ""), media_type)
    if kind in STARTS and _is_text(media_type, encoded, STARTS[kind]):
        kind = "text"
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
    kind = _kind(name, media_type)
    if kind is None:
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            raise UnreadableDocument("it is no text document") from None
    return InlineFile(content, kind or "text")


def encoded_document(content: str, media_type: str = "", name: str = "") -> InlineFile | None:
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
        return InlineFile(content.encode("utf-8", "replace"), "html")
    return None


def _of_data_url(url: re.Match[str], data: str) -> InlineFile:
    media_type, parameters, is_base64 = url.groups()
    kind = _kind("", media_type or "text/plain")
    if kind is None:
        raise UnreadableDocument(f"{media_type} is no kind of document that has a text")
    try:
        raw = base64.b64decode("".join(data.split()), validate=True) if is_base64 else unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        raise UnreadableDocument("its data is not base64") from None
    charset = CHARSET.search(parameters)
    if charset is not None and not KINDS[kind].apart:
        with contextlib.suppress(LookupError):  # a name that nobody knows
            raw = raw.decode(charset[1], "replace").encode("utf-8", "replace")
    return InlineFile(raw, kind)


def _kind(name: str, media_type: str) -> str | None:
    name, media = name.lower(), media_type.split(";")[0].strip().lower()
    for kind, known in KINDS.items():
        if media in known.media_types or name.endswith(known.endings):
            return None if kind == "text" and media.startswith(NOT_TEXT) else kind
    return "text" if media.startswith("text/") or media.endswith("+json") else None


def _is_text(media_type: str, encoded: str, start: bytes) -> bool:
    """Whether data that its sender calls text is that, whatever its name says."""
    if not media_type.strip().lower().startswith("text/"):
        return False
    try:
        return start not in base64.b64decode(encoded[:HEAD_CHARS])
    except (binascii.Error, ValueError):
        return False


def _plain_text(raw: bytes) -> str:
    return raw.decode("utf-16" if raw.startswith(UTF_16) else "utf-8-sig", "replace")


def _pdf_text(raw: bytes) -> str:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

    try:
        pages = PdfReader(io.BytesIO(raw)).pages
        return "\n\n".join(f"[page {n}]\n{page.extract_text()}" for n, page in enumerate(pages, 1))
    except (FileNotDecryptedError, DependencyError) as error:  # it lacks the password, or the cipher to try none
        raise UnreadableDocument("it is protected by a password; save it without one and send it again") from error
    # pypdf lets many kinds of error through for broken files; all mean the same here.
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise UnreadableDocument("it is no readable PDF") from error


WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
HEADING = re.compile(r"(?:heading|überschrift|titre|título)\s*([1-6])\Z", re.IGNORECASE)
TITLES = frozenset({"title", "titel"})
SPACES = {f"{WORD}tab": "\t", f"{WORD}br": "\n", f"{WORD}cr": "\n"}


def docx_text(raw: bytes) -> str:
    """Paragraphs, headings marked as in Markdown, and a table's rows with their cells between tabs.

    Raises:
        UnreadableDocument: it is no DOCX, or its text would be too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive, archive.open("word/document.xml") as entry:
            xml = entry.read(MOST_XML_BYTES + 1)
        if len(xml) > MOST_XML_BYTES or b"<!DOCTYPE" in xml[:1024]:
            raise UnreadableDocument("its text is too large or carries a document type")
        root = ElementTree.fromstring(xml)  # noqa: S314 - no document type, so no entities to expand
    except (zipfile.BadZipFile, KeyError, ElementTree.ParseError, NotImplementedError) as error:
        raise UnreadableDocument("it is no readable DOCX") from error
    body = root.find(f"{WORD}body")
    return "\n\n".join(_blocks(root if body is None else body))


def _blocks(body: ElementTree.Element) -> Iterator[str]:
    """Paragraphs and tables in their order, also inside of other elements."""
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
    """Markdown's signs of a heading, if the paragraph's style says that it is one."""
    style = paragraph.find(f"{WORD}pPr/{WORD}pStyle")
    name = style.get(f"{WORD}val", "") if style is not None else ""
    level = HEADING.match(name)
    return "#" * int(level[1]) + " " if level else "# " if name.lower() in TITLES else ""


def _text(paragraph: ElementTree.Element) -> str:
    return "".join(node.text or "" if node.tag == f"{WORD}t" else SPACES.get(node.tag, "") for node in paragraph.iter())


HIDDEN = frozenset({"script", "style", "noscript", "template"})
RAW = frozenset({"script", "style"})
BLOCKS = frozenset({"p", "div", "li", "tr", "br", "section", "article", "table", "ul", "ol", "pre"})
HEADINGS = {f"h{n}": "#" * n + " " for n in range(1, 7)}
TAG = re.compile(r"<(/?)([A-Za-z][^\s/<>]*+)(?:[^<>\"']|\"[^\"]{0,4000}+\"|'[^']{0,4000}+')*+>")
SPACE = re.compile(r"\s+")


def html_text(text: str) -> str:
    """Visible text, with a line break after each block and `#` before headings.

    It takes one pass whatever the markup: the standard library's parser takes quadratic time for millions of tags that
    never end.
    """
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
    """Position after a comment or a declaration (to the end if it is never closed), or after a mere `<`."""
    if text.startswith("<!--", at):
        end, mark = text.find("-->", at + 4), 3
    elif text.startswith(("<!", "<?"), at):
        end, mark = text.find(">", at), 1
    else:
        return at + 1
    return end + mark if end >= 0 else len(text)


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """How one kind of document is known and read.

    `read` gives the text of a file's bytes and raises `UnreadableDocument`. `apart`: it is read in a process of its own
    with limits of memory and time (`artifacts/reading.py`), since a valid file may be made to take all of both.
    """

    read: Callable[[bytes], str]
    endings: tuple[str, ...]
    media_types: frozenset[str]
    apart: bool = True


KINDS = {
    "pdf": DocumentKind(_pdf_text, (".pdf",), frozenset({"application/pdf"})),
    "html": DocumentKind(
        lambda raw: html_text(_plain_text(raw)),
        (".html", ".htm", ".xhtml"),
        frozenset({"text/html", "application/xhtml+xml"}),
        apart=False,
    ),
    "docx": DocumentKind(
        docx_text, (".docx",), frozenset({"application/vnd.openxmlformats-officedocument.wordprocessingml.document"})
    ),
    "text": DocumentKind(_plain_text, TEXT_ENDINGS, TEXT_TYPES, apart=False),
}
"""The first kind that a name or a media type belongs to counts."""
