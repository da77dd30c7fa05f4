"""The text of PPTX files: slides in the order of the presentation, with their tables, notes and alternative texts."""

from collections.abc import Iterator
from xml.etree import ElementTree

from gateway.core.types import places
from gateway.documents.document import Reading, ReadOptions
from gateway.documents.packages import ZipPackage, attribute, below, child, children, local, reading

PPTX_MAIN = "ppt/presentation.xml"
TITLES = frozenset({"title", "ctrTitle"})
REPEATED = frozenset({"sldNum", "dt", "ftr", "hdr", "sldImg"})
"""Placeholders with the same text on each slide."""
SHAPES = frozenset({"sp", "pic", "graphicFrame", "cxnSp"})
SECOND_FORMS = ("Fallback",)
"""A second form of the same."""
MAX_POINTS = 500
"""Values of one chart that are shown."""


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads slides below their markers; titles marked as headings, table rows with tabs between cells.
    Raises UnreadableDocument: it is no PPTX, needs a password, or would be too large."""
    with reading("PPTX"):
        package = ZipPackage(raw)
        hidden, slides = [], []
        for number, name in enumerate(_order(package), 1):
            root = package.xml(name)
            if attribute(root, "show", "1") in ("0", "false"):
                hidden.append(number)
            blocks = (block for block in _slide(package, name, root) if block.strip())
            text = places.plain_lines("\n\n".join(blocks))
            slides.append(f"{places.marker('slide', str(number))}\n{text}".rstrip())
        notes = [f"Hidden in the presentation: slides {places.page_list(hidden)}."] if hidden else []
        return Reading("\n\n".join(slides), (*notes, *package.notes()))


def _order(package: ZipPackage) -> list[str]:
    """Returns the names of the slides in order, each once."""
    start = next((each for each in package.relations("").values() if each.kind == "officeDocument"), None)
    main = start.target if start is not None and start.target in package else PPTX_MAIN
    related = package.relations(main)
    found: dict[str, None] = {}
    for slides in children(package.xml(main), "sldIdLst"):
        for slide in slides:
            # The slide's own number is an `id`, too; the relation's has a namespace.
            key = next((value for name, value in slide.items() if name.endswith("}id")), "")
            relation = related.get(key)
            if relation is not None and not relation.external and relation.target in package:
                found[relation.target] = None
    return list(found)


def shape_texts(root: ElementTree.Element) -> Iterator[str]:
    """Yields the text of each shape below, and pictures' descriptions; without shapes, as in a diagram, all text."""
    shapes = list(below([root], SHAPES, SECOND_FORMS))
    for said in (said for shape in shapes for said in _shape(shape)) if shapes else (_paragraphs(root),):
        if said.strip():
            yield said.strip()


def _slide(package: ZipPackage, name: str, root: ElementTree.Element) -> Iterator[str]:
    related = package.relations(name)
    shapes = list(below([root], SHAPES, SECOND_FORMS))
    yield from (f"# {' '.join(_paragraphs(shape).split())}" for shape in shapes if _placeholder(shape) in TITLES)
    for shape in shapes:
        if _placeholder(shape) not in TITLES | REPEATED:
            yield from _shape(shape)
    for relation in related.values():
        if relation.external or relation.target not in package:
            continue
        if relation.kind == "diagramData":
            yield _paragraphs(package.xml(relation.target))
        elif relation.kind == "chart":
            yield "\n".join(chart_lines(package.xml(relation.target)))
        elif relation.kind == "notesSlide":
            shapes = list(below([package.xml(relation.target)], SHAPES, SECOND_FORMS))
            said = [_paragraphs(shape) for shape in shapes if _placeholder(shape) not in REPEATED]
            yield "Notes: " + "\n".join(said).strip() if any(map(str.strip, said)) else ""
        elif relation.kind == "comments":
            texts = (node for node in package.xml(relation.target).iter() if local(node.tag) in ("text", "txBody"))
            yield "\n".join(f"Comment: {node.text or _paragraphs(node)}".rstrip() for node in texts)


def _shape(shape: ElementTree.Element) -> Iterator[str]:
    tables = [node for node in shape.iter() if local(node.tag) == "tbl"]
    for table in tables:
        rows = (node for node in table.iter() if local(node.tag) == "tr")
        yield "\n".join("\t".join(" ".join(_paragraphs(cell).split()) for cell in children(row, "tc")) for row in rows)
    if not tables:
        yield _paragraphs(shape)
    about = next((node for node in shape.iter() if local(node.tag) == "cNvPr"), None)
    description = "" if about is None else " ".join(attribute(about, "descr").split())
    if description:
        yield f"(Picture: {description})"


def _placeholder(shape: ElementTree.Element) -> str:
    """Returns a placeholder's type: `title`, `body`, `sldNum` …; "" if the shape is no placeholder."""
    for properties in shape:
        found = child(properties, "nvPr", "ph")
        if found is not None:
            return attribute(found, "type", "body")
    return ""


def _paragraphs(node: ElementTree.Element) -> str:
    """Returns the text of all paragraphs below, one line each, deeper levels of a list indented."""
    lines = []
    for paragraph in (each for each in node.iter() if local(each.tag) == "p"):
        said = "".join(_word(each) for each in paragraph.iter())
        properties = child(paragraph, "pPr")
        level = "0" if properties is None else attribute(properties, "lvl", "0")
        indent = "  " * min(int(level), 8) + "- " if level.isdigit() and level != "0" else ""
        if said.strip():
            lines.append(indent + said.strip())
    return "\n".join(lines)


def _word(node: ElementTree.Element) -> str:
    name = local(node.tag)
    return node.text or "" if name == "t" else "\n" if name == "br" else ""


def chart_lines(root: ElementTree.Element) -> Iterator[str]:
    """Yields a chart's title, and a line for each of its series: `Sales: Q1 = 12; Q2 = 14`."""
    title = child(root, "chart", "title")
    if title is not None:
        yield f"Chart: {' '.join(_paragraphs(title).split())}"
    for series in (node for node in root.iter() if local(node.tag) == "ser"):
        name = " ".join(_values(child(series, "tx")))
        names, values = _values(child(series, "cat")), _values(child(series, "val"))
        pairs = (f"{names[n]} = {value}" if n < len(names) else value for n, value in enumerate(values))
        yield f"{name or 'Series'}: {'; '.join(pairs)}"


def _values(node: ElementTree.Element | None) -> list[str]:
    if node is None:
        return []
    return [" ".join((each.text or "").split()) for each in node.iter() if local(each.tag) == "v"][:MAX_POINTS]
