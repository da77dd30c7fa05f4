"""The text of EPUB files: chapters in the order of the book."""

import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree import ElementTree

from gateway.core.types import places
from gateway.documents.document import Reading, ReadOptions, UnreadableDocument
from gateway.documents.html import html_text
from gateway.documents.packages import ZipPackage, children, local, reading, xml_of
from gateway.documents.plain import decoded

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
DOCTYPE = re.compile(rb"<!DOCTYPE[^<>\[\]]{0,1000}+>")
"""A document type that is only named, as in older books; one with entities is refused."""
HEAD_TAG = re.compile(r"<head\b")
PAGES = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml", "image/svg+xml"})
EPUB_METADATA = {"title": "Title", "creator": "By", "date": "Date", "publisher": "Publisher"}


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads the book's title and author, and its chapters below their markers, headings marked as in Markdown.
    Raises UnreadableDocument: it is no EPUB, its chapters are encrypted, or it would be too large."""
    with reading("EPUB"):
        package = ZipPackage(raw)
        container = package.xml(CONTAINER)
        paths = [node.get("full-path", "") for node in container.iter() if local(node.tag) == "rootfile"]
        path = paths[0]
        book = xml_of(DOCTYPE.sub(b"", package.content(path)))
        chapters = _chapters(book, posixpath.dirname(path))
        _refuse_encrypted(package, chapters)
        texts = (html_text(_body(decoded(package.content(name)))) for name in chapters if name in package)
        numbered = enumerate((text for text in texts if text), 1)
        about = "\n".join(_about(book))
        body = (f"{places.marker('chapter', str(number))}\n{places.plain_lines(text)}" for number, text in numbered)
        return Reading("\n\n".join((*([about] if about else []), *body)), package.notes())


def _chapters(book: ElementTree.Element, folder: str) -> list[str]:
    """Returns the chapters' names in the package, each once."""
    items = {
        item.get("id", ""): posixpath.normpath(posixpath.join(folder, unquote(item.get("href", "").partition("#")[0])))
        for manifest in children(book, "manifest")
        for item in manifest
        if item.get("media-type", "") in PAGES
    }
    spine = (each.get("idref", "") for spine in children(book, "spine") for each in spine)
    return list(dict.fromkeys(items[each] for each in spine if each in items))


def _body(page: str) -> str:
    """Returns the page without its head, whose title is often the name of the file."""
    head = HEAD_TAG.search(page)
    end = page.find("</head>", head.end()) if head else -1
    return page[end:] if end >= 0 else page


def _about(book: ElementTree.Element) -> Iterator[str]:
    for metadata in children(book, "metadata"):
        for node in metadata:
            name, said = local(node.tag), " ".join((node.text or "").split())
            if name in EPUB_METADATA and said:
                yield f"{EPUB_METADATA[name]}: {said}"


def _refuse_encrypted(package: ZipPackage, chapters: list[str]) -> None:
    """Raises UnreadableDocument: a chapter is encrypted; fonts may be."""
    encrypted = {
        unquote(node.get("URI", ""))
        for node in package.optional_xml(ENCRYPTION).iter()
        if local(node.tag) == "CipherReference"
    }
    if encrypted & set(chapters):
        raise UnreadableDocument("its chapters are encrypted for one reader; send it without that protection")
