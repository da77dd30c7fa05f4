"""The text of DOCX files: paragraphs, headings, tables."""

import io
import re
import zipfile
from collections.abc import Iterator
from xml.etree import ElementTree

from gateway.documents.document import Reading, ReadOptions, UnreadableDocument

MOST_XML_BYTES = 64 * 2**20
"""Bytes of a DOCX's text once unpacked: a few kilobytes can unpack to gigabytes."""
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
HEADING = re.compile(r"(?:heading|überschrift|titre|título)\s*([1-6])\Z", re.IGNORECASE)
TITLES = frozenset({"title", "titel"})
SPACES = {f"{WORD}tab": "\t", f"{WORD}br": "\n", f"{WORD}cr": "\n"}


def read(raw: bytes, _options: ReadOptions) -> Reading:
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
    return Reading("\n\n".join(_blocks(root if body is None else body)))


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
