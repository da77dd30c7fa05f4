"""§13.9: nothing that is written to a terminal or a pipe is obeyed there."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.inspection import explained_artifacts as artifacts
from gateway.inspection import explained_request as request
from gateway.inspection import prefix
from gateway.inspection.rebuilt_turns import REASONS
from gateway.operations.requests_command import REQUEST_COLUMNS
from gateway.operations.screen import MAX_SHOWN_CHARS, CommandScreen, TableColumn, ascii_json, one_line
from gateway.operations.show_command import said, why_gone

TEXTS = st.text() | st.sampled_from(["\x1b[31m", "\x9b1m", "\u202e", "\u2028", "[bold]x[/]", ":smile:", "\ud800", "\r"])


class Terminal(io.StringIO):
    """A stream that says that it is one."""

    def isatty(self) -> bool:
        return True


@given(TEXTS, st.integers(1, 50))
def test_s13_9_a_line_has_nothing_but_what_is_seen(text: str, most: int) -> None:
    shown = one_line(text, most)
    assert shown.isprintable()
    assert len(shown) <= most
    if text.isprintable() and text == " ".join(text.split(" ")).strip() and "  " not in text and len(text) <= most:
        assert shown == " ".join(text.split())


def test_s13_9_a_long_text_is_cut_without_being_read() -> None:
    shown = one_line("x" * 10_000_000)
    assert (len(shown), shown[-1]) == (MAX_SHOWN_CHARS, "…")


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_s13_9_json_is_ascii_and_says_the_same(value: Any) -> None:
    text = ascii_json(value)
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == value


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_s13_9_a_terminal_without_colours_gets_what_is_seen(rows: list[tuple[str, str]]) -> None:
    out = Terminal()
    screen = CommandScreen(out, {"NO_COLOR": "1", "TERM": "xterm"})
    screen.table([TableColumn("one"), TableColumn("two", is_flexible=True)], rows)
    for row in rows:
        screen.line(row[0], " ", (row[1], "bold"))
        screen.fitted([(row[0], 0), ((row[1], "red"), 1)])
    assert all(c.isprintable() or c == "\n" for c in out.getvalue())


def test_s13_9_every_reason_has_words() -> None:
    """Why something is not there is told in words, not as a code."""
    codes = {request.NOT_STORED, request.RELAYED, request.DELETED, request.NO_MESSAGES, request.FAILED, *REASONS}
    codes |= {prefix.SYSTEM_CHANGED, prefix.WINDOW_MOVED, prefix.MEMORY_CHANGED, prefix.REWORDED}
    assert all(" " in said(code) for code in codes)
    gone = (artifacts.EXCERPTS, artifacts.SUMMARY_OF_TURNS, artifacts.NOT_READ, artifacts.GONE)
    assert all(" " in why_gone(code) for code in gone)


def test_s13_9_markup_is_text() -> None:
    out = Terminal()
    screen = CommandScreen(out, {"TERM": "xterm-256color"})
    screen.line("[bold]a[/bold] :smile: ", ("[link=x]b[/]", "red"))
    screen.table([TableColumn("c")], [["[red]d[/red]"]])
    text = out.getvalue()
    for part in ("[bold]a[/bold] :smile:", "[link=x]b[/]", "[red]d[/red]"):
        assert part in text
    assert "\x1b]8" not in text


def test_s13_9_requests_keep_model_and_cost_on_a_terminal_of_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column without a text is the first to go."""
    monkeypatch.setenv("COLUMNS", "100")
    values = {"request": "req_" + 32 * "0", "arrived (UTC)": "2026-01-01 00:00:00", "status": "complete",
              "model": "gpt-4o-mini", "cost USD": "0.000006600000", "question": "what " * 30}  # fmt: skip
    out = Terminal()
    row = [values.get(column.title, "") for column in REQUEST_COLUMNS]
    CommandScreen(out, {"NO_COLOR": "1"}).table(REQUEST_COLUMNS, [row])
    titles, line = out.getvalue().splitlines()
    assert titles.split() == ["request", "status", "model", "cost", "USD", "question"]
    assert line.rstrip().endswith("…")
    assert max(len(titles), len(line)) <= 100
