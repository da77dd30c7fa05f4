"""A command's call and its output for people: plain lines in a pipe; colours, and tables as wide as the window, on a
terminal.

Every text goes through `one_line`: text of a model or a user cannot move the cursor, set colours or act as markup
(guarantee §13.9).
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from gateway.core import jsons, printing
from gateway.core.frozen_records import record

if TYPE_CHECKING:
    from gateway.core import ports
    from gateway.core.config.settings import Settings
    from gateway.core.types import report_lists

MAX_SHOWN_CHARS = 10_000
"""Of one text; the rest is cut."""
MIN_FLEXIBLE = 20
"""Least width, in characters, of a column that takes the remaining width."""
COLUMN_GAP = "  "
OUTSIDE_ASCII = re.compile(r"[^\x20-\x7e\n]")
Piece = str | tuple[str, str]
"""A text, or a text and its style, as `rich` names styles."""
STANDARD = "-"
"""Means standard output."""
STATUS_STYLES = {"complete": "green", "partial": "yellow", "failed": "red"}
COST_STYLE, PLANNING_STYLE, ID_STYLE, WHO_STYLE, FAINT = "bold", "magenta", "cyan", "blue", "dim"


@record
class TableColumn:
    """A column of a table. A terminal that is too narrow drops empty columns, then those of the greatest `drop` first,
    never those of 0.
    `is_flexible`: it takes the remaining width, and its texts are cut."""

    title: str
    style: str = ""
    drop: int = 0
    is_right: bool = False
    is_flexible: bool = False


class CommandScreen:
    """Writes to a terminal or a pipe."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        """`environ`: `NO_COLOR` and `TERM=dumb` in it turn colours off."""
        self._out = out
        self._console = Terminal(out, environ) if out.isatty() else None

    @property
    def is_terminal(self) -> bool:
        return self._console is not None

    def line(self, *pieces: Piece) -> None:
        """Writes one line, even if it is longer than the terminal is wide."""
        if self._console is None:
            self._out.write("".join(_kept_ends(_text(piece)) for piece in pieces).rstrip() + "\n")
        else:
            self._console.line(pieces)

    def fitted(self, pieces: Sequence[tuple[Piece, int]]) -> None:
        """Writes pieces as one line with gaps between them. A terminal that is too narrow drops the pieces with the
        greatest number first, never those of 0."""
        shown = list(pieces)
        if self._console is not None:
            shown = _fitting(shown, [len(_kept_ends(_text(piece))) for piece, _ in shown], self._console.width)
        line: list[Piece] = []
        for piece, _ in shown:
            line += [COLUMN_GAP, piece] if line else [piece]
        self.line(*line)

    def table(self, columns: Sequence[TableColumn], rows: Sequence[Sequence[Piece]]) -> None:
        """Writes a table with its column titles."""
        if self._console is None:
            texts = [[one_line(_text(cell)) for cell in row] for row in rows]
            titles, is_right = [column.title for column in columns], [column.is_right for column in columns]
            lines = printing.aligned([titles, *texts], is_right)
            self._out.write("".join(f"{line}\n" for line in lines))
            return
        self._console.table(columns, rows)

    def json(self, value: Any) -> None:
        """Writes a line of JSON in ASCII, so that it cannot control a terminal."""
        self._out.write(ascii_json(value) + "\n")

    def csv(self, columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> None:
        """Writes JSON objects as CSV with titles: times in UTC, costs with all their digits, lists joined by `;`."""
        self._out.write(printing.csv_line(columns))
        for each in records:
            self._out.write(printing.csv_line(_csv_value(name, each[name]) for name in columns))

    def flush(self) -> None:
        self._out.flush()


@dataclass(frozen=True)
class CommandCall:
    """One call of a command: the configuration, the arguments and the output streams."""

    settings: "Settings"
    options: argparse.Namespace
    clock: "ports.Clock"
    environ: Mapping[str, str]
    out: TextIO
    err: TextIO

    @cached_property
    def screen(self) -> CommandScreen:
        """The output for people."""
        return CommandScreen(self.out, self.environ)

    def write_list(
        self,
        fields: Sequence[str],
        records: Sequence[Mapping[str, Any]],
        columns: Sequence[TableColumn],
        rows: Iterable[Sequence[Piece]],
        *,
        empty: str = "",
        more: str = "",
        **told: Any,
    ) -> int:
        """Writes records as `--csv` or `--json`, else their rows as a table; returns the exit status.
        `empty`: text if there are no records; `more`: text below a table on a terminal; `told`: further members of the
        JSON object."""
        if self.options.csv:
            self.screen.csv(fields, records)
        elif self.options.json:
            self.screen.json({"object": "list", "data": records, **told})
        elif not records:
            self.err.write(f"{empty}\n" if empty else "")
        else:
            self.screen.table(columns, list(rows))
            if more and self.screen.is_terminal:
                self.screen.line((more, FAINT))
        return 0

    def write_one(
        self, record: Mapping[str, Any], words: Mapping[str, Any], hidden: Sequence[str] = ("object",)
    ) -> int:
        """Writes a record as `--json`, else a line for each of its fields that says something; returns the exit status.
        `words`: what stands for some of them in these lines; `hidden`: those that have none."""
        if self.options.json:
            self.screen.json(record)
            return 0
        for name, value in {**record, **words}.items():
            if name not in hidden and (text := in_words(value)):
                self.screen.line((f"{name:<15}", FAINT), text)
        return 0


def in_words(value: object) -> str:
    """Renders a value as text, a budget as `--budget` takes it."""
    if isinstance(value, dict) and "usd" in value:
        return f"{printing.digits_of(value['usd'])}/{value['period']}{'' if value['hard'] else ':soft'}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items() if each is not None)
    if isinstance(value, list):
        return ", ".join(map(in_words, value))
    return "" if value is None else str(value)


@contextmanager
def byte_output(call: CommandCall) -> Iterator[BinaryIO]:
    """Opens the file that `--output` names, else yields standard output. Raises OSError: the file cannot be opened."""
    if call.options.output == STANDARD:
        yield call.out.buffer
    else:
        with Path(call.options.output).open("wb") as file:
            yield file


def request_cost(line: "report_lists.RequestLine") -> str:
    """Returns the cost of a request in USD, marked as a minimum if one of its calls has no price."""
    if line.cost is not None:
        return printing.usd_text(line.cost)
    return printing.cost_text(line.known_cost or Decimal(0), 1, is_known=line.known_cost is not None)


def when_text(time: datetime, form: str = "%Y-%m-%d %H:%M") -> str:
    """Formats a time in UTC."""
    return time.astimezone(UTC).strftime(form)


def _csv_value(name: str, value: Any) -> Any:
    if name.endswith("_at") and isinstance(value, int):
        return datetime.fromtimestamp(value, UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ";".join(value)
    if isinstance(value, list | dict):
        return ascii_json(value)
    return one_line(value) if isinstance(value, str) else value


def one_line(text: str, most: int = MAX_SHOWN_CHARS) -> str:
    """Returns a text as one line of at most `most` characters, without anything that controls a terminal or changes
    the direction of writing."""
    start = text[: 4 * most]
    shown = printing.printable(" ".join(start.split()))
    return shown if len(shown) <= most and len(start) == len(text) else f"{shown[: most - 1]}…"


def ascii_json(value: Any) -> str:
    """Renders JSON in printable ASCII characters."""
    return OUTSIDE_ASCII.sub(_escaped, jsons.dumps_text(value))


def _escaped(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def _text(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece[0]


def _kept_ends(text: str) -> str:
    """Returns a piece in one line, with its outer blanks."""
    if not text.strip(" "):
        return text
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(text.rstrip(" "))
    return " " * before + one_line(text) + " " * after


def _fitting(some: list[Any], widths: list[int], width: int) -> list[Any]:
    """Drops parts, pairs of a value and a number, by greatest number first until the rest fits the width with gaps."""
    kept = list(zip(some, widths, strict=True))
    while sum(size + len(COLUMN_GAP) for _, size in kept) - len(COLUMN_GAP) > width:
        last = max(part[1] for part, _ in kept)
        if not last:
            break
        kept = [(part, size) for part, size in kept if part[1] != last]
    return [part for part, _ in kept]


class Terminal:
    """Writes lines and tables on a terminal with rich, which it imports on demand."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        from rich import cells, console, table, text

        self._cells, self._tables, self._text = cells, table, text
        is_plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        color: Any = None if is_plain else "auto"
        self._console = console.Console(file=out, color_system=color, markup=False, highlight=False, emoji=False)

    @property
    def width(self) -> int:
        return self._console.width

    def line(self, pieces: Iterable[Piece]) -> None:
        self._console.print(self._styled(pieces), soft_wrap=True)

    def table(self, columns: Sequence[TableColumn], rows: Sequence[Sequence[Piece]]) -> None:
        """Writes a table as wide as the terminal: drops columns that do not fit, and cuts flexible ones."""
        width = self.width
        cells = [[self._styled([cell]) for cell in row] for row in rows]
        widths = [self._width((c.title, *(row[i].plain for row in cells))) for i, c in enumerate(columns)]
        least = [min(w, MIN_FLEXIBLE) if c.is_flexible else w for c, w in zip(columns, widths, strict=True)]
        most = max(c.drop for c in columns) + 1
        drops = [c.drop if not c.drop or any(row[i].plain for row in cells) else most for i, c in enumerate(columns)]
        kept = [index for index, _ in _fitting(list(enumerate(drops)), least, width)]
        free = width - sum(least[index] + len(COLUMN_GAP) for index in kept) + len(COLUMN_GAP)
        table = self._tables.Table(box=None, padding=(0, len(COLUMN_GAP), 0, 0), pad_edge=False, header_style="bold")
        for index in kept:
            column, size = columns[index], least[index]
            table.add_column(
                self._text.Text(column.title),
                style=column.style,
                justify="right" if column.is_right else "left",
                no_wrap=column.is_flexible,
                overflow="ellipsis" if column.is_flexible else "fold",
                width=min(widths[index], max(1, size + free)) if column.is_flexible else min(size, width),
            )
        for row in cells:
            table.add_row(*(row[index] for index in kept))
        self._console.print(table, soft_wrap=False)

    def _width(self, texts: Iterable[str]) -> int:
        return max(self._cells.cell_len(text) for text in texts)

    def _styled(self, pieces: Iterable[Piece]) -> Any:
        line = self._text.Text()
        for piece in pieces:
            text, style = (piece, "") if isinstance(piece, str) else piece
            line.append(_kept_ends(text), style)
        return line
