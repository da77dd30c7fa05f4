"""Office files that are a ZIP of XML: opened within bounds, nothing in them executed or fetched (guarantee §14.10)."""

import io
import lzma
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree

from gateway.core.types import places
from gateway.documents.document import LeftOut, UnreadableDocument, unpackable
from gateway.documents.sniff import OLE_MAGIC, ole_kind

PROTECTED = "it is protected by a password; save it without one and send it again"
MAX_PACKAGE_UNPACKED = 2**30
"""Bytes of all files in a package once unpacked: a few kilobytes can unpack to gigabytes."""
MAX_XML_BYTES = 64 * 2**20
"""Bytes of one XML file once unpacked."""
MANIFEST = "META-INF/manifest.xml"
"""ODF's list of files, with those that a password protects."""
MAX_PACKAGE_FILES = 100_000
MAX_RELATIONS = 300
"""Files of relations that are searched for links of a package."""
XML_ENCODINGS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"<\0", "utf-16-le"), (b"\0<", "utf-16-be"))
EMBEDDED = ("package", "oleObject", "aFChunk")
"""Relations to whole files inside of this one."""
BREAK = "\f"
"""Stands for a page break until pages are counted; XML cannot hold it."""
BROKEN_FILE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError),
    *(ElementTree.ParseError, LookupError, ValueError, TypeError, AttributeError, OverflowError),
    *(NotImplementedError, RecursionError, RuntimeError),
)
"""What libraries raise for broken files; all mean the same to the client."""


class PackageRelation(NamedTuple):
    """A reference from a part of a package. `target`: a name in the package, or a URL where it is `external`."""

    kind: str
    target: str
    external: bool


@contextmanager
def reading(what: str, *others: type[Exception]) -> Iterator[None]:
    """Translates what a reader raises for a broken file into UnreadableDocument.
    `others`: what its library raises beside `BROKEN_FILE`."""
    faults: tuple[type[Exception], ...] = (*BROKEN_FILE, *others)
    try:
        yield
    except UnreadableDocument:
        raise
    except faults as error:
        raise UnreadableDocument(f"it is no readable {what}") from error


class ZipPackage:
    """A ZIP of XML.
    Raises UnreadableDocument: it needs a password, or would be too large when unpacked; BROKEN_FILE: it is no ZIP, or a
    part of it is broken."""

    def __init__(self, raw: bytes) -> None:
        refuse_ole(raw)
        self._zip = zipfile.ZipFile(io.BytesIO(raw))
        entries = self._zip.infolist()
        if len(entries) > MAX_PACKAGE_FILES or sum(entry.file_size for entry in entries) > unpackable(
            len(raw), MAX_PACKAGE_UNPACKED
        ):
            raise UnreadableDocument("unpacked it would be too large")
        if any(entry.flag_bits & 1 for entry in entries):
            raise UnreadableDocument(PROTECTED)
        self.names = [entry.filename for entry in entries if not entry.is_dir()]
        self._known = frozenset(self.names)
        if MANIFEST in self and b"encryption-data" in self.content(MANIFEST):
            raise UnreadableDocument(PROTECTED)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def content(self, name: str) -> bytes:
        """Reads a file of the package. Raises UnreadableDocument: it is too large."""
        with self._zip.open(name) as entry:
            found = entry.read(MAX_XML_BYTES + 1)
        if len(found) > MAX_XML_BYTES:
            raise UnreadableDocument("its text is too large")
        return found

    def pieces(self, name: str, size: int, most: int) -> Iterator[bytes]:
        """Yields a large file of the package, `size` bytes at a time, at most `most` bytes in all."""
        with self._zip.open(name) as entry:
            while most > 0 and (piece := entry.read(min(size, most))):
                most -= len(piece)
                yield piece

    def xml(self, name: str) -> ElementTree.Element:
        """Parses a file of the package. Raises UnreadableDocument: it is too large, or as for `xml_of`."""
        return xml_of(self.content(name))

    def optional_xml(self, name: str) -> ElementTree.Element:
        """Parses a file of the package, as `xml`; returns an empty element where the package does not have it."""
        return self.xml(name) if name in self else ElementTree.Element("none")

    def relations(self, part: str) -> dict[str, PackageRelation]:
        """Returns the references of a part (a name in the package; "": the package itself), by id."""
        folder, _, name = part.rpartition("/")
        root = self.optional_xml(posixpath.join(folder, "_rels", f"{name}.rels"))
        return {each.get("Id", ""): _relation(each, folder) for each in root}

    def notes(self) -> tuple[str, ...]:
        """Returns notes on what the package holds beside its text: macros, embedded files, links to other files."""
        macros = any(name.lower().endswith(("vbaproject.bin", "/script-lc.xml")) for name in self.names)
        outside, embedded = self._others()
        return (
            *([LeftOut("It holds macros, which were not read.")] if macros else []),
            *([LeftOut(f"It holds {embedded} embedded files, which were not read.")] if embedded > 1 else []),
            *([LeftOut("It holds an embedded file, which was not read.")] if embedded == 1 else []),
            *(["It points to other files, which were not fetched."] if outside else []),
        )

    def _others(self) -> tuple[bool, int]:
        """Returns whether the package points to other files, and how many it embeds, charts' figures excepted."""
        outside, embedded = False, set()
        for name in [name for name in self.names if name.endswith(".rels")][:MAX_RELATIONS]:
            for each in self.relations(name.replace("_rels/", "").removesuffix(".rels")).values():
                outside |= each.external and each.kind != "hyperlink"
                if each.kind in EMBEDDED and not each.external and "/charts/" not in f"/{name}":
                    embedded.add(each.target)
        return outside, len(embedded)


def xml_of(content: bytes) -> ElementTree.Element:
    """Parses XML. Raises UnreadableDocument: it has a document type, whose entities may swell."""
    encoding = next((encoding for start, encoding in XML_ENCODINGS if content.startswith(start)), "")
    text = content.decode(encoding) if encoding else ""
    if b"<!DOCTYPE" in content or "<!DOCTYPE" in text:
        raise UnreadableDocument("its XML carries a document type")
    return ElementTree.fromstring(text or content)  # noqa: S314 - no document type, so no entities to expand


def refuse_ole(raw: bytes) -> None:
    """Raises UnreadableDocument: it is of an older program, or needs a password."""
    if raw.startswith(OLE_MAGIC):
        protected = ole_kind(raw) == "protected"
        raise UnreadableDocument(PROTECTED if protected else "it is a file of an older program under a newer name")


def local(tag: object) -> str:
    """Returns an element's name without its namespace: strict and transitional files differ in that."""
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(node: ElementTree.Element, name: str, default: str = "") -> str:
    """Returns an attribute's value, whatever its namespace."""
    found = node.get(name)
    if found is not None:
        return found
    return next((value for key, value in node.items() if local(key) == name), default)


def children(node: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """Returns the children of a node with that local name."""
    return [child for child in node if local(child.tag) == name]


def below(
    nodes: Iterable[ElementTree.Element], names: Container[str], left_out: Container[str] = ()
) -> Iterator[ElementTree.Element]:
    """Yields the elements with these local names, in order, at any depth; none inside another one, and none inside what
    is left out."""
    waiting = list(reversed(list(nodes)))
    while waiting:
        node = waiting.pop()
        name = local(node.tag)
        if name in names:
            yield node
        elif name not in left_out:
            waiting.extend(reversed(node))


def child(node: ElementTree.Element | None, *path: str) -> ElementTree.Element | None:
    """Returns the element at this path of local names, taking the first of each; None where there is none."""
    for name in path:
        node = None if node is None else next((each for each in node if local(each.tag) == name), None)
    return node


def _relation(node: ElementTree.Element, folder: str) -> PackageRelation:
    target, external = node.get("Target", ""), node.get("TargetMode") == "External"
    if not external:
        target = posixpath.normpath(posixpath.join("/" + folder, unquote(target))).lstrip("/")
    return PackageRelation(node.get("Type", "").rpartition("/")[2], target, external)


def paged(text: str) -> str:
    """Inserts a marker for each page, where the text has page breaks."""
    if BREAK not in text:
        return places.plain_lines(text)
    pages = (places.plain_lines(page.strip()) for page in text.split(BREAK))
    return "\n\n".join(f"{places.marker('page', str(n))}\n{page}" for n, page in enumerate(pages, 1))
