"""The visible text of HTML, in one pass (guarantee §7)."""

import re
from dataclasses import dataclass, field
from html import unescape

from gateway.core.types import places
from gateway.documents.document import Reading, ReadOptions
from gateway.documents.plain import decoded


def read(raw: bytes, _options: ReadOptions) -> Reading:
    """Reads the visible text of a page."""
    return Reading(places.plain_lines(html_text(decoded(raw))))


HIDDEN_TAGS = frozenset({"script", "style", "noscript", "template"})
RAW = frozenset({"script", "style"})
BLOCK_TAGS = """p div li tr br section article table ul ol pre title blockquote dl dt dd hr address header footer main
    nav aside figure figcaption caption form fieldset legend option button textarea summary details dialog center"""
BLOCKS = frozenset(BLOCK_TAGS.split())
PREFORMATTED = frozenset({"pre", "textarea"})
HTML_HEADINGS = {f"h{n}": "#" * n + " " for n in range(1, 7)}
HTML_TAG = re.compile(r"<(/?)([A-Za-z][^\s/<>]*+)((?:[^<>\"']|\"[^\"]{0,4000}+\"|'[^']{0,4000}+')*+)>")
SPACE = re.compile(r"\s+")
CELLS = frozenset({"td", "th"})
CELL_SPAN = re.compile(r"\b(col|row)span\s{0,9}=\s{0,9}[\"']?(\d{1,5})", re.IGNORECASE)
MAX_SPAN, MAX_COLUMNS, MAX_ROW_CHARS = 50, 100, 2000
"""Columns or rows that one cell may take, and columns and characters of a row that becomes one line: the rows of tables
that lay out a page are longer."""
KEPT_SPACE, KEPT_TAB = "\ufdd0", "\ufdd1"
"""Stand for white space that matters until lines are trimmed; no text holds these characters."""


def html_text(text: str) -> str:
    """Extracts the visible text, with a line break after each block, `#` before headings, a line for each row of a
    table, with tabs between its columns, and preformatted lines as they are.

    Takes one pass whatever the markup: the standard library's parser takes quadratic time for millions of tags that
    never end.
    """
    page = _VisibleText()
    hidden = position = 0
    while position < len(text):
        at = text.find("<", position)
        end = at if at >= 0 else len(text)
        if end > position and not hidden:
            page.add(unescape(text[position:end]))
        if at < 0:
            break
        tag = HTML_TAG.match(text, at)
        if tag is None:
            position = _after_odd(text, at)
            if position == at + 1 and not hidden:
                page.add("<")
            continue
        position = tag.end()
        name = tag.group(2).lower()
        if tag.group(1):
            hidden -= name in HIDDEN_TAGS and hidden > 0
            page.end(name)
        elif name in RAW:
            close = re.compile(rf"</{name}\b[^<>]*+>", re.IGNORECASE).search(text, position)
            position = close.end() if close else len(text)
        else:
            hidden += name in HIDDEN_TAGS
            page.begin(name, tag.group(3))
    return page.text()


@dataclass(slots=True)
class _OpenTable:
    """A table whose end is not reached. `cells`: where those of its row begin, and the columns and rows that each
    takes; `taken`: the rows for which columns are taken by a cell above; `keeps_lines`: its row holds lines."""

    cells: list[tuple[int, int, int]] = field(default_factory=list)
    taken: dict[int, int] = field(default_factory=dict)
    keeps_lines: bool = False


class _VisibleText:
    """The text of a page, tag by tag."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._tables: list[_OpenTable] = []
        self._preformatted = 0

    def add(self, text: str) -> None:
        if not self._preformatted:
            self._out.append(SPACE.sub(" ", text))
            return
        self._out.append(text.replace(" ", KEPT_SPACE).replace("\t", KEPT_TAB))
        if "\n" in text:
            self._keep_lines()

    def begin(self, name: str, attributes: str) -> None:
        if name == "tr":
            self._end_row()
        elif name == "table":
            self._keep_lines()
            self._tables.append(_OpenTable())
        elif name in CELLS and self._tables:
            spans = {which.lower(): min(MAX_SPAN, int(size) or 1) for which, size in CELL_SPAN.findall(attributes)}
            self._tables[-1].cells.append((len(self._out), spans.get("col", 1), spans.get("row", 1)))
        self._preformatted += name in PREFORMATTED
        if name in HTML_HEADINGS:
            self._out.append("\n\n" + HTML_HEADINGS[name])
        else:
            self._out.append("\n" if name in BLOCKS else "\t" if name in CELLS else "")

    def end(self, name: str) -> None:
        if name in ("tr", "table"):
            self._end_row()
        if name == "table" and self._tables:
            self._tables.pop()
        self._preformatted -= name in PREFORMATTED and self._preformatted > 0
        self._out.append("\n" if name in HTML_HEADINGS or (name in BLOCKS and name != "tr") else "")

    def text(self) -> str:
        while self._tables:
            self.end("table")
        lines = (line.strip() for line in "".join(self._out).splitlines())
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
        return text.replace(KEPT_SPACE, " ").replace(KEPT_TAB, "\t")

    def _keep_lines(self) -> None:
        if self._tables:
            self._tables[-1].keeps_lines = True

    def _end_row(self) -> None:
        """Makes a line of the row, with an empty column for each that a cell beside or above takes."""
        table = self._tables[-1] if self._tables else None
        if table is None or not table.cells:
            return
        row: list[str] = []
        taken = {column: rows - 1 for column, rows in table.taken.items() if rows > 1}
        ends = [*(start for start, _, _ in table.cells[1:]), len(self._out)]
        for (start, columns, rows), end in zip(table.cells, ends, strict=True):
            while len(row) in table.taken:
                row.append("")
            if table.keeps_lines or len(row) + columns > MAX_COLUMNS:
                table.keeps_lines = True
                break
            taken |= dict.fromkeys(range(len(row), len(row) + columns), rows - 1) if rows > 1 else {}
            row += [" ".join("".join(self._out[start:end]).split()), *[""] * (columns - 1)]
        line = KEPT_TAB.join(row).rstrip(KEPT_TAB)
        if len(row) > 1 and len(line) <= MAX_ROW_CHARS and not table.keeps_lines:
            self._out[table.cells[0][0] :] = [" ", line]
        table.cells, table.taken, table.keeps_lines = [], taken, False


def _after_odd(text: str, at: int) -> int:
    """Returns the position after a comment or a declaration (the end if it is never closed), or after a mere `<`."""
    if text.startswith("<!--", at):
        end, mark = text.find("-->", at + 4), 3
    elif text.startswith(("<!", "<?"), at):
        end, mark = text.find(">", at), 1
    else:
        return at + 1
    return end + mark if end >= 0 else len(text)
