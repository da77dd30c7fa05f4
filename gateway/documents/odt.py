"""The text of ODT and ODP files: headings, lists, tables, notes; slides with their notes."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from xml.etree import ElementTree

from gateway.core.types import places
from gateway.documents.document import LeftOut, Reading, ReadOptions
from gateway.documents.packages import BREAK, ZipPackage, attribute, child, children, local, paged, reading

MAX_REPEATED = 200
"""Spaces, or cells of a table, that one element may stand for."""
MAX_ODT_DEPTH = 60
"""Levels of lists, frames and tables inside each other; deeper ones are left out."""
ODT_LEFT_OUT = frozenset(
    {"tracked-changes", "title", "desc", "notes", "sequence-decls", "forms", "page-number", "table-of-content-source"}
)
ODT_WHITESPACE = {"tab": "\t", "line-break": "\n", "soft-page-break": BREAK}


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads paragraphs, headings marked as in Markdown, table rows with tabs between cells; slides and pages below
    their markers, pages only where the file has page breaks.
    Raises UnreadableDocument: it is no ODF, needs a password, or would be too large."""
    with reading("ODT or ODP"):
        package = ZipPackage(raw)
        root = package.xml("content.xml")
        styles = _OdtStyles(root)
        body = child(root, "body")
        slides = child(body, "presentation")
        if slides is None:
            slides = child(body, "drawing")
        if slides is not None:
            return _slides(slides, styles, package)
        text = "\n\n".join(_OdtBlocks(styles).of(root if body is None else body))
        return Reading("\n\n".join(_around(package, paged(text))), _notes(package))


class _OdtStyles:
    """The properties of a document's own styles that matter to its text."""

    def __init__(self, root: ElementTree.Element) -> None:
        self.numbered: set[tuple[str, int]] = set()
        self.breaks: set[str] = set()
        self.hidden: set[str] = set()
        for group in (node for node in root if local(node.tag) in ("automatic-styles", "styles")):
            for style in group:
                name = attribute(style, "name")
                for properties in style:
                    kind = local(properties.tag)
                    if kind == "list-level-style-number" and attribute(properties, "num-format"):
                        self.numbered.add((name, int(attribute(properties, "level", "1"))))
                    elif attribute(properties, "break-before") == "page":
                        self.breaks.add(name)
                    elif attribute(properties, "visibility") == "hidden":
                        self.hidden.add(name)


class _OdtList(NamedTuple):
    style: str
    level: int


class _OdtBlocks:
    """Blocks of text in order."""

    def __init__(self, styles: _OdtStyles) -> None:
        self._styles = styles

    def of(self, node: Iterable[ElementTree.Element], depth: int = 0) -> Iterator[str]:
        if depth > MAX_ODT_DEPTH:
            return
        for each in node:
            name = local(each.tag)
            if name in ("p", "h"):
                yield from self._paragraph(each, depth)
            elif name == "list":
                yield "\n".join(self._list(each, _OdtList("", 0), depth + 1))
            elif name == "table":
                yield "\n".join(self._rows(each, depth + 1))
            elif name == "soft-page-break":
                yield BREAK
            elif name == "frame":
                yield from self._frame(each, depth + 1)
            elif name not in ODT_LEFT_OUT:
                yield from self.of(each, depth + 1)

    def _paragraph(self, node: ElementTree.Element, depth: int) -> Iterator[str]:
        text, frames = self.said(node, depth)
        before = BREAK if attribute(node, "style-name") in self._styles.breaks else ""
        level = attribute(node, "outline-level", "1") if local(node.tag) == "h" else ""
        signs = "#" * min(int(level), 6) + " " if level.isdigit() and text.strip() else ""
        if text.strip(" \n\t"):
            yield before + signs + text
        for frame in frames:
            yield from self._frame(frame, depth + 1)

    def _frame(self, node: ElementTree.Element, depth: int) -> Iterator[str]:
        kind = attribute(node, "class")
        blocks = [block for block in self.of(node, depth) if block.strip(" \n\t")]
        if kind == "title" and blocks:
            blocks = ["# " + " ".join(" ".join(blocks).split())]
        yield from blocks
        about = child(node, "desc")
        if about is None:
            about = child(node, "title")
        if about is not None and (about.text or "").strip():
            yield f"(Picture: {' '.join((about.text or '').split())})"

    def _list(self, node: ElementTree.Element, outer: _OdtList, depth: int) -> Iterator[str]:
        if depth > MAX_ODT_DEPTH:
            return
        own = _OdtList(attribute(node, "style-name") or outer.style, outer.level + 1)
        numbered = (own.style, own.level) in self._styles.numbered
        for number, item in enumerate(children(node, "list-item"), 1):
            sign = "  " * (own.level - 1) + (f"{number}. " if numbered else "- ")
            for each in item:
                if local(each.tag) == "list":
                    yield from self._list(each, own, depth + 1)
                else:
                    for block in self.of([each], depth + 1):
                        yield sign + block
                        sign = "  " * own.level

    def _rows(self, table: ElementTree.Element, depth: int) -> Iterator[str]:
        for node in table:
            name = local(node.tag)
            if name == "table-row":
                cells: list[str] = []
                for cell in (each for each in node if local(each.tag) in ("table-cell", "covered-table-cell")):
                    said = " ".join(" ".join(self.of(cell, depth)).replace(BREAK, " ").split())
                    count = attribute(cell, "number-columns-repeated", "1")
                    cells += [said] * min(int(count) if count.isdigit() else 1, MAX_REPEATED)
                yield "\t".join(cells).rstrip("\t")
            elif name == "soft-page-break":
                yield BREAK
            elif name in ("table-rows", "table-header-rows", "table-row-group"):
                yield from self._rows(node, depth)

    def said(self, node: ElementTree.Element, depth: int) -> tuple[str, list[ElementTree.Element]]:
        """Returns a paragraph's own text, and the frames in it."""
        out: list[str] = [node.text or ""]
        frames = []
        waiting: list[ElementTree.Element | str] = [*reversed(node)]
        while waiting:
            each = waiting.pop()
            if isinstance(each, str):
                out.append(each)
                continue
            waiting.append(each.tail or "")
            name = local(each.tag)
            if name == "s":
                count = attribute(each, "c", "1")
                out.append(" " * min(int(count) if count.isdigit() else 1, MAX_REPEATED))
            elif name in ODT_WHITESPACE:
                out.append(ODT_WHITESPACE[name])
            elif name in ("note", "annotation"):
                out.append(self._note(each, depth + 1))
            elif name in ("frame", "custom-shape"):
                frames.append(each)
            elif name not in ODT_LEFT_OUT:
                out.append(each.text or "")
                waiting.extend(reversed(each))
        return "".join(out), frames

    def _note(self, node: ElementTree.Element, depth: int) -> str:
        """Renders a footnote or comment, in its place."""
        if depth > MAX_ODT_DEPTH:
            return ""
        if local(node.tag) == "annotation":
            author = child(node, "creator")
            who = "" if author is None or not author.text else f" by {author.text}"
            return f" (Comment{who}: {' '.join(' '.join(self.of(node, depth)).split())})"
        sign, body = child(node, "note-citation"), child(node, "note-body")
        said = "" if body is None else " ".join(" ".join(self.of(body, depth)).split())
        return f" (Footnote {'' if sign is None else sign.text or ''}: {said})"


def _slides(body: ElementTree.Element, styles: _OdtStyles, package: ZipPackage) -> Reading:
    hidden, slides = [], []
    blocks = _OdtBlocks(styles)
    for number, page in enumerate(children(body, "page"), 1):
        if attribute(page, "style-name") in styles.hidden:
            hidden.append(number)
        found = [block for block in blocks.of(page) if block.strip()]
        titles = [block for block in found if block.startswith("# ")]
        others = [block for block in found if not block.startswith("# ")]
        for notes in children(page, "notes"):
            said = "\n".join(block for block in blocks.of(notes) if block.strip())
            others += [f"Notes: {said}"] if said else []
        text = "\n\n".join((*titles, *others))
        slides.append(f"{places.marker('slide', str(number))}\n{places.plain_lines(text)}".rstrip())
    about = (f"Hidden in the presentation: slides {places.page_list(hidden)}.",) if hidden else ()
    return Reading("\n\n".join(slides), (*about, *_notes(package)))


def _around(package: ZipPackage, text: str) -> Iterator[str]:
    """Yields the text between headers and footers, which are in the styles."""
    styles = package.optional_xml("styles.xml")
    blocks = _OdtBlocks(_OdtStyles(styles))
    found: dict[str, dict[str, None]] = {"header": {}, "footer": {}}
    for node in styles.iter():
        name = local(node.tag)
        if name in found:
            found[name][" ".join(" ".join(blocks.of(node)).replace(BREAK, " ").split())] = None
    yield from (f"(Header: {said})" for said in found["header"] if said)
    yield text
    yield from (f"(Footer: {said})" for said in found["footer"] if said)


def _notes(package: ZipPackage) -> tuple[str, ...]:
    macros = any(name.startswith(("Basic/", "Scripts/")) for name in package.names)
    found = package.notes()
    if macros and not any("macros" in note for note in found):
        return (LeftOut("It holds macros, which were not read."), *found)
    return found
