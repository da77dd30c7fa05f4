"""Jupyter notebooks: cells with their outputs (guarantee §14.11)."""

import json
import re
from typing import Any

from gateway.core.types import places
from gateway.documents.document import LeftOut, Reading, ReadOptions, UnreadableDocument
from gateway.documents.html import html_text
from gateway.documents.packages import reading
from gateway.documents.plain import decoded

MAX_OUTPUT = 20_000
"""Characters of one output that are read."""
ANSI = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
IPYNB_PICTURE = "(A picture.)"


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads each cell with its number, code fenced, and its outputs as text; pictures are only mentioned.
    Raises UnreadableDocument: it is no notebook."""
    with reading("notebook"):
        notebook = json.loads(decoded(raw))
        cells = notebook.get("cells")
        if cells is None:  # the form before version 4
            cells = [cell for sheet in notebook["worksheets"] for cell in sheet["cells"]]
        language = str(((notebook.get("metadata") or {}).get("language_info") or {}).get("name") or "python")
        parts, cut = [], 0
        for number, cell in enumerate(cells, 1):
            outputs = [each for each in map(_output, cell.get("outputs") or []) if each.strip()]
            cut += sum(len(each) > MAX_OUTPUT for each in outputs)
            parts.append(_cell(number, cell, language, outputs))
    if not parts:
        raise UnreadableDocument("it is a notebook without cells")
    notes = (LeftOut(f"{cut} outputs were cut at {MAX_OUTPUT:,} characters."),) if cut else ()
    return Reading("\n\n".join(parts), notes)


def _cell(number: int, cell: dict[str, Any], language: str, outputs: list[str]) -> str:
    source = _joined(cell.get("source", cell.get("input", ""))).strip("\n")
    if cell.get("cell_type") == "code":
        source = f"```{language}\n{source}\n```"
    printed = [f"Output:\n{_bounded(each)}" for each in outputs]
    return "\n".join([places.marker("cell", str(number)), *map(places.plain_lines, (source, *printed))])


def _output(output: dict[str, Any]) -> str:
    if "traceback" in output:
        return ANSI.sub("", "\n".join(map(str, output["traceback"]))).rstrip("\n")
    if "text" in output:
        return ANSI.sub("", _joined(output["text"])).rstrip("\n")
    data = output.get("data") or {}
    if "text/plain" in data and not any(kind.startswith("image/") for kind in data):
        return _joined(data["text/plain"]).rstrip("\n")
    for kind, found in data.items():
        if kind in ("text/markdown", "text/latex"):
            return _joined(found).rstrip("\n")
        if kind == "text/html":
            return html_text(_joined(found))
    return IPYNB_PICTURE if any(kind.startswith("image/") for kind in data) else ""


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_OUTPUT else f"{text[:MAX_OUTPUT]}\n({len(text) - MAX_OUTPUT:,} characters more)"
