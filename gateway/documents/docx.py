"""The text of DOCX files: paragraphs, headings, lists, tables, notes, comments, headers, text boxes, page breaks."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from gateway.documents.document import Reading, ReadOptions
from gateway.documents.packages import (
    BREAK,
    PackageRelation,
    ZipPackage,
    attribute,
    below,
    child,
    children,
    local,
    paged,
    reading,
)
from gateway.documents.pptx import chart_lines, shape_texts

# What DOCX files store apart from their text: the heading levels of styles, and the numbers of lists.

HEADING_STYLE = re.compile(
    r"(?:heading|überschrift|berschrift|titre|título|titolo|kop|rubrik)\s*([1-6])\Z", re.IGNORECASE
)
DOCX_TITLE_STYLES = frozenset({"title", "titel"})
MAX_PARENTS = 10
"""Limit of a chain of styles that are based on each other."""
ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"))
SMALL_ROMAN = ((9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
MAX_DOCX_LEVELS = 9


class ParagraphStyles:
    """The styles of paragraphs by id."""

    def __init__(self, root: ElementTree.Element) -> None:
        self._styles = {attribute(style, "styleId"): style for style in children(root, "style")}

    def heading(self, style: str) -> str:
        """Returns Markdown's prefix of a heading, if the style is one; else ""."""
        for name in (style, *(attribute(each, "val") for each in self._found(style, "name"))):
            level = HEADING_STYLE.match(name)
            if level or name.lower() in DOCX_TITLE_STYLES:
                return "#" * (int(level[1]) if level else 1) + " "
        return ""

    def numbering(self, style: str) -> ElementTree.Element | None:
        """Returns the `numPr` of the list that the style's paragraphs belong to."""
        return next(iter(self._found(style, "pPr", "numPr")), None)

    def _found(self, style: str, *path: str) -> list[ElementTree.Element]:
        """Returns the elements at that path of the style and of those that it is based on."""
        found = []
        for _ in range(MAX_PARENTS):
            node = self._styles.get(style)
            if node is None:
                break
            found.append(child(node, *path))
            style = _value(node, "basedOn")
        return [each for each in found if each is not None]


class ListNumbering:
    """Numbers the paragraphs of lists in their order."""

    def __init__(self, root: ElementTree.Element) -> None:
        abstract = {attribute(each, "abstractNumId"): each for each in children(root, "abstractNum")}
        self._levels = {
            attribute(number, "numId"): {
                int(attribute(level, "ilvl", "0")): level
                for group in (abstract.get(_value(number, "abstractNumId"), number), *children(number, "lvlOverride"))
                for level in children(group, "lvl")
            }
            for number in children(root, "num")
        }
        self._counts: dict[str, list[int]] = {}

    def label(self, properties: ElementTree.Element | None) -> str:
        """Returns the label before a paragraph with this `numPr`: `2.1 `, `- `, or nothing."""
        if properties is None:
            return ""
        number, depth = _value(properties, "numId"), _value(properties, "ilvl") or "0"
        levels = self._levels.get(number)
        level = min(int(depth), MAX_DOCX_LEVELS - 1) if depth.isdigit() else 0
        if levels is None or level not in levels:
            return ""
        counts = self._counts.setdefault(number, [0] * MAX_DOCX_LEVELS)
        counts[level] = counts[level] + 1 if counts[level] else _start(levels[level])
        counts[level + 1 :] = [0] * (MAX_DOCX_LEVELS - level - 1)
        if _value(levels[level], "numFmt") == "bullet":
            return "  " * level + "- "
        shown = _value(levels[level], "lvlText")
        for each in range(level + 1):
            node = levels.get(each, levels[level])
            shown = shown.replace(f"%{each + 1}", _number(counts[each] or _start(node), _value(node, "numFmt")))
        return f"{shown} " if shown.strip() else ""


def _value(node: ElementTree.Element, name: str) -> str:
    found = child(node, name)
    return "" if found is None else attribute(found, "val")


def _start(level: ElementTree.Element) -> int:
    start = _value(level, "start")
    return int(start) if start.isdigit() and len(start) < 6 else 1


def _number(count: int, form: str) -> str:
    if form == "none":
        return ""
    if form in ("lowerLetter", "upperLetter"):
        letter = chr(ord("a") + (count - 1) % 26) * min(1 + (count - 1) // 26, 9)
        return letter.upper() if form == "upperLetter" else letter
    if form in ("lowerRoman", "upperRoman") and 0 < count < 4000:
        shown = ""
        for value, sign in ROMAN + SMALL_ROMAN:
            shown += sign * (count // value)
            count %= value
        return shown.upper() if form == "upperRoman" else shown
    return str(count)


def style_of(paragraph: ElementTree.Element) -> str:
    properties = child(paragraph, "pPr")
    return "" if properties is None else _value(properties, "pStyle")


DOCX_MAIN = "word/document.xml"
DOCX_WHITESPACE = {"tab": "\t", "ptab": "\t", "cr": "\n", "noBreakHyphen": "-"}
DOCX_LEFT_OUT = frozenset({"del", "moveFrom", "Fallback", "instrText", "delText", "pPr", "rPr", "tblPr", "sectPr"})
"""Elements that are no text of the current version: tracked deletions, second forms of the same, properties."""
DRAWN = {"chart": "id", "relIds": "dm"}
"""Elements that refer to a chart, or to a diagram's text, with the attribute that names it."""
MAX_DOCX_SPAN = 63
"""Columns of a table, at most."""
DOCX_NOTES = {"footnoteReference": "footnotes", "endnoteReference": "endnotes", "commentReference": "comments"}


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads paragraphs, headings marked as in Markdown, table rows with tabs between cells. Footnotes and comments
    follow their paragraph. Pages are marked where the file has page breaks.
    Raises UnreadableDocument: it is no DOCX, needs a password, or would be too large."""
    with reading("DOCX"):
        package = ZipPackage(raw)
        text = _DocxDocument(package).text()
        return Reading(text, package.notes())


class _DocxDocument:
    def __init__(self, package: ZipPackage) -> None:
        start = next((each for each in package.relations("").values() if each.kind == "officeDocument"), None)
        self._main = start.target if start is not None and start.target in package else DOCX_MAIN
        self._package = package
        self._root = package.xml(self._main)
        self._related = package.relations(self._main)
        self._styles = ParagraphStyles(self._part("styles"))
        self._numbering = ListNumbering(self._part("numbering"))
        self._numbers: dict[str, dict[str, int]] = {kind: {} for kind in DOCX_NOTES.values()}
        self._notes = {kind: {attribute(n, "id"): n for n in self._part(kind)} for kind in DOCX_NOTES.values()}
        rendered = any(local(node.tag) == "lastRenderedPageBreak" for node in self._root.iter())
        self._breaks = "lastRenderedPageBreak" if rendered else "br"
        self._told = {"t", "br", self._breaks, "txbxContent", *DOCX_WHITESPACE, *DOCX_NOTES, *DRAWN}

    def text(self) -> str:
        body = child(self._root, "body")
        blocks = list(self.blocks(self._root if body is None else body))
        headers, footers = self._marginal("header"), self._marginal("footer")
        text = paged("\n\n".join(blocks))
        return "\n\n".join([*headers, text, *footers])

    def blocks(self, body: ElementTree.Element) -> Iterator[str]:
        """Yields paragraphs and tables in order, also from inside other elements."""
        for node in below(body, ("p", "tbl"), DOCX_LEFT_OUT):
            if local(node.tag) == "p":
                yield from self._paragraph(node)
            else:  # rows of a table in a cell are part of that cell
                yield "\n".join(self._row(row) for row in below(node, ("tr",)))

    def _paragraph(self, node: ElementTree.Element) -> Iterator[str]:
        text, others = self._said(node)
        style = style_of(node)
        own = child(node, "pPr", "numPr")
        label = self._numbering.label(self._styles.numbering(style) if own is None else own) if text.strip() else ""
        before = text[: len(text) - len(text.lstrip(BREAK))]
        yield before + self._styles.heading(style) + label + text[len(before) :]
        for other in others:
            if local(other.tag) == "txbxContent":
                yield from self.blocks(other)
            elif note := self._other(other):
                yield note

    def _row(self, row: ElementTree.Element) -> str:
        cells: list[str] = []
        for cell in (each for each in row if local(each.tag) in ("tc", "sdt")):
            cells += [self._cell(cell), *[""] * (_columns(cell) - 1)]
        line = "\t".join(cells)
        return BREAK * line.count(BREAK) + line.replace(BREAK, "")

    def _cell(self, cell: ElementTree.Element) -> str:
        texts = []
        for paragraph in _paragraphs(cell):
            text, others = self._said(paragraph)
            texts += [text, *(self._other(other) for other in others if local(other.tag) != "txbxContent")]
        return " ".join(re.sub(r"[ \t\n\r]+", " ", " ".join(texts)).split(" ")).strip(" ")

    def _said(self, paragraph: ElementTree.Element) -> tuple[str, list[ElementTree.Element]]:
        """Returns a paragraph's own text, and the separate elements in it: boxes, notes, charts, diagrams."""
        out: list[str] = []
        others = []
        for node in below(paragraph, self._told, DOCX_LEFT_OUT):
            name = local(node.tag)
            if name == "t":
                out.append(node.text or "")
            elif name == self._breaks and (name != "br" or attribute(node, "type") == "page"):
                out.append(BREAK)
            elif name in DOCX_WHITESPACE:
                out.append(DOCX_WHITESPACE[name])
            elif name == "br":
                out.append("\n" if attribute(node, "type") != "page" else "")
            else:
                others.append(node)
        return "".join(out), others

    def _other(self, reference: ElementTree.Element) -> str:
        """Renders a footnote, comment, chart or diagram that a paragraph refers to."""
        name = local(reference.tag)
        if name in DRAWN:
            relation = self._related.get(attribute(reference, DRAWN[name]))
            if relation is None or relation.external or relation.target not in self._package:
                return ""
            root = self._package.xml(relation.target)
            return "\n".join(chart_lines(root) if name == "chart" else shape_texts(root))
        kind = DOCX_NOTES[name]
        number = attribute(reference, "id")
        note = self._notes[kind].get(number)
        if note is None:
            return ""
        author = attribute(note, "author")
        what = f"Comment by {author}" if kind == "comments" and author else kind[:-1].capitalize()
        said = " ".join(" ".join(self._said(p)[0] for p in _paragraphs(note)).split())
        numbers = self._numbers[kind]
        shown = numbers.setdefault(number, len(numbers) + 1)
        return f"({what}{'' if kind == 'comments' else f' {shown}'}: {said})"

    def _marginal(self, kind: str) -> list[str]:
        """Returns the texts of all headers or footers, each once."""
        found: dict[str, None] = {}
        for each in self._related.values():
            if self._is(each, kind):
                said = " ".join("\n".join(self.blocks(self._package.xml(each.target))).split())
                found[said.replace(BREAK, "")] = None
        return [f"({kind.capitalize()}: {said})" for said in found if said and not said.isdigit()]

    def _part(self, kind: str) -> ElementTree.Element:
        part = next((each.target for each in self._related.values() if self._is(each, kind)), f"word/{kind}.xml")
        return self._package.optional_xml(part)

    def _is(self, relation: PackageRelation, kind: str) -> bool:
        return relation.kind == kind and not relation.external and relation.target in self._package


def _columns(cell: ElementTree.Element) -> int:
    """Returns how many columns a cell takes."""
    span = child(cell, "tcPr", "gridSpan")
    columns = "" if span is None else attribute(span, "val")
    return max(1, min(int(columns), MAX_DOCX_SPAN)) if columns.isdecimal() else 1


def _paragraphs(root: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Yields the paragraphs below, also those in boxes, each once."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if local(node.tag) == "p":
            yield node
        if local(node.tag) not in DOCX_LEFT_OUT:
            waiting.extend(reversed(node))
