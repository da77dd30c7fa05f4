"""Parts of the page `/ui` that need no server (guarantee §13.2); what they show of long texts is bounded (§13.3)."""

import asyncio
import hashlib
import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from gateway.api.server.middleware import is_foreign
from gateway.api.ui import rendering
from gateway.api.ui.page import MAX_FORM_BYTES, PageRequest
from gateway.api.ui.pages.cost_pages import ColumnValue, column_chart
from gateway.api.ui.pages.health_page import trouble_text
from gateway.api.ui.pages.login import MAX_ADDRESSES, MAX_FAILURES, MAX_IN_ALL, NEXT, LoginGuesses, TooManyTries
from gateway.api.ui.pages.request_page import (
    AROUND_CHARS,
    LINE_CHARS,
    MARKED_CHARS,
    MAX_LINES,
    MAX_MESSAGES,
    TEXT_CHARS,
    OriginalPiece,
    marked,
    shown_messages,
)
from gateway.api.ui.rendering import TERMS
from gateway.core.errors import RequestTooLarge
from gateway.core.instrumentation.metrics import UpstreamTrouble
from gateway.core.types.report_lists import Direction, ListPage, ListPosition
from gateway.inspection.document_parts import ShownPassages
from gateway.inspection.explained_artifacts import ExplainedArtifact
from gateway.inspection.message_changes import DiffLine, LineDiff, MessageChange, compared
from tests.support.growth import calls_of

MAX_CALLS = 4_000_000
"""Calls of the Markdown parser that one text may cost; a second holds about twenty times as many."""
UI = Path(rendering.__file__).parent
DOCS = Path(__file__).parents[3] / "docs"
GLOSSARY = DOCS / "glossary.md"
HTMX = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"


@pytest.mark.parametrize(
    ("value", "at_least", "shown"),
    [
        (None, False, "unknown"),
        (Decimal(0), False, "$0.00"),
        (Decimal("0E-12"), False, "$0.00"),
        (Decimal("0.000000000001"), False, "$0.000000000001"),
        (Decimal("1234567.890123456789"), False, "$1,234,567.890123456789"),
        (Decimal("12.5"), True, "≥ $12.50"),
        (Decimal("-0.25"), False, "-$0.25"),
        (Decimal("1E+3"), False, "$1,000.00"),
    ],
)
def test_usd_has_all_its_digits(value: Decimal | None, at_least: bool, shown: str) -> None:
    assert rendering.usd(value, at_least=at_least) == shown


@pytest.mark.parametrize(
    ("value", "at_least", "shown"),
    [
        ("0", False, "$0.00"),
        ("0.0123456", False, "$0.0123"),
        ("0.4", False, "$0.40"),
        ("0.9996", False, "$1.00"),
        ("12.345678", False, "$12.35"),
        ("1234567.8", False, "$1,234,567.80"),
        ("-0.00012345", False, "-$0.000123"),
        ("0.0000001", False, "<$0.000001"),
        ("-0.0000001", False, "-<$0.000001"),
        ("0.0129999", True, "≥ $0.0129"),
        ("0.00000012", True, "≥ $0.00000012"),
    ],
)
def test_money_on_screen_is_short(value: str, at_least: bool, shown: str) -> None:
    assert rendering.money(Decimal(value), at_least=at_least) == shown


def test_words_of_the_pages_mean_what_the_glossary_says() -> None:
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", GLOSSARY.read_text("utf-8"))
    told = dict(re.findall(r"^- \*\*(.+?)\*\*(?: \(.*?\))?: (.+)$", text, re.MULTILINE))
    for word, meaning in TERMS.items():
        assert told.get(word, "").startswith(meaning.removesuffix(".")), word


@pytest.mark.parametrize(
    ("values", "ticks", "zero"),
    [
        (("0.0925", "0.01"), ["0.000", "0.025", "0.050", "0.075", "0.100"], 100.0),
        (("3", "-1"), ["-1", "0", "1", "2", "3"], 75.0),
        (("-0.5", "-7"), ["-8", "-6", "-4", "-2", "0"], 0.0),
        (("1000000", "1"), ["0", "250000", "500000", "750000", "1000000"], 100.0),
    ],
)
def test_a_chart_has_round_steps_and_all_its_columns(values: tuple[str, ...], ticks: list[str], zero: float) -> None:
    found = [ColumnValue(f"day {n}", "", (("saved", Decimal(value)),)) for n, value in enumerate(values)]
    chart = column_chart(found, lambda value: f"{value:f}")
    assert chart is not None
    assert [Decimal(text) for _, text in chart.ticks] == [Decimal(each) for each in ticks]
    assert chart.zero == pytest.approx(zero)
    for column in chart.columns:
        for part in column.parts:
            assert part.y >= -1e-9
            assert part.y + part.height <= 100 + 1e-9
            assert chart.zero == pytest.approx(part.y) or chart.zero == pytest.approx(part.y + part.height)


def test_a_chart_of_nothing_is_none() -> None:
    assert column_chart([ColumnValue("day", "", (("saved", Decimal(0)),))], str) is None
    assert column_chart([], str) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 KB"),
        (123_456, "123 KB"),
        (5 * 10**12, "5.0 TB"),
        (10**16, "10000 TB"),
    ],
)
def test_sizes(value: int | None, shown: str) -> None:
    assert rendering.size(value) == shown


def test_times_are_in_utc_wherever_they_were_noted() -> None:
    there = datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert rendering.iso(there) == "2026-02-28T23:30:00Z"
    assert rendering.shown_time(datetime(2026, 3, 1)) == "2026-03-01 00:00:00"  # noqa: DTZ001 - as SQLite gives it
    assert rendering.shown_time(datetime(2026, 3, 1, tzinfo=UTC)) == "2026-03-01 00:00:00"


def test_control_characters_are_seen() -> None:
    assert rendering.said("a\x00b\x1b[1m\x85\tc\n") == "a\ufffdb\ufffd[1m\ufffd\tc\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u2067b \u2066c\u2069\u2069\n\u2068d\u2069", "a\u2067b \u2066c\u2069\u2069\n\u2068d\u2069"),
        ("a\u2069\u202eb", "a\ufffd\u202eb"),
        ("\u202e\u2066a", "\u202e\ufffda"),
        ("\u2069a\u2066", "\ufffda\ufffd"),
        ("\u2068a\n\u2069\u202eb", "\ufffda\n\ufffd\u202eb"),
        ("\u2068a\u2029\u2069\r\u2066b\u2069", "\ufffda\u2029\ufffd\r\u2066b\u2069"),
    ],
)
def test_s13_3_no_text_ends_its_own_isolation(text: str, shown: str) -> None:
    """Browsers isolate an element by signs of their own: one more in it, and what stands beside it is turned round."""
    assert rendering.said(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a *b* **c** `d` ~~e~~", "<p><bdi>a <em>b</em> <strong>c</strong> <code>d</code> <s>e</s></bdi></p>"),
        ("one\ntwo", "<p><bdi>one<br>\ntwo</bdi></p>"),
        ("[w](https://a.b/?x=1&y=2)", '<span class="linked">w</span> <span class="address">(https://a.b/?x=1&amp;y=2)'),
        ("<https://a.b>", '<span class="linked">https://a.b</span></bdi>'),
        ("![alt](https://a.b/c.png)", "[image: alt (https://a.b/c.png)]"),
        ("[w](javascript:x)", "<p><bdi>[w](javascript:x)</bdi></p>"),
        ("<b>x</b>", "<p><bdi>&lt;b&gt;x&lt;/b&gt;</bdi></p>"),
        ("    <b>", "<code><bdi>&lt;b&gt;"),
        ("###### h", "<h6><bdi>h</bdi></h6>"),
        ("|a|\n|:-:|\n|b|", '<th scope="col"><bdi>a</bdi></th>'),
    ],
)
def test_markdown_is_read_and_leads_nowhere(text: str, shown: str) -> None:
    assert shown in rendering.prose(text)
    assert "style=" not in rendering.prose(text)


@pytest.mark.parametrize(
    "piece",
    [*("[", "![", "*", "`", "_a ", "> ", "- ", "|", "<", "&", "[a](", "\\", "~~", "a\n", "1. "), "1)\n\\```\n>"],
)
def test_markdown_of_any_kind_takes_little_work(piece: str) -> None:
    """As long as a page shows, of what parsers are slow at."""
    assert calls_of(lambda: rendering.prose((piece * 6000)[:6000])) < MAX_CALLS


@pytest.mark.parametrize(
    "text",
    [
        "|".join("a" * 250) + "\n" + "|".join("-" * 250) + "\n" + "b\n" * 250,
        ("a|b\n-|-\n" + "c\n" * 90 + "\n") * 30,
        "".join(f"> {line}\n" for line in ("|".join("a" * 99), "|".join("-" * 99), *"b" * 99)),
        "<ab:>" * 1000,
        "[a](b)" * 299,
    ],
)
def test_a_text_becomes_little_markup(text: str) -> None:
    """Cells that a parser fills up, addresses that are longer than what they are written as."""
    shown: list[str] = []
    assert calls_of(lambda: shown.append(rendering.prose(text))) < MAX_CALLS
    assert len(shown[0]) < 200_000


def test_a_table_of_a_usual_size_is_one() -> None:
    rows = "|a|b|c|\n|-|-|-|\n" + "|1|2|3|\n" * 100
    assert rendering.prose(rows).count("<td>") == 300


async def test_a_page_has_no_more_markup_than_it_takes() -> None:
    """Texts behind that are text."""
    texts = ["*a* " * 1500] * 100
    template = rendering.environment().from_string("{% for each in texts %}<li>{{ each | prose }}</li>{% endfor %}")
    page = await asyncio.to_thread(rendering.render_page, template, {"texts": texts})
    assert 10 <= page.count(b"<li><p><bdi><em>") < 30
    assert page.count(b"<li>") == 100
    assert page.endswith(b"*a* </bdi></p></li>")


@pytest.mark.parametrize("piece", ["1)\n\\```\n>", "- [---\n ~~", "\n[~~~\n+~~\\"])
def test_a_page_takes_no_more_work_than_it_may(piece: str) -> None:
    """However many texts it has of what parsers are slow at; behind them texts are text."""
    template = rendering.environment().from_string("{% for each in texts %}{{ each | prose }}{% endfor %}")
    texts, pages = [(piece * 6000)[:3000]] * 40 + ["*the last*"], list[bytes]()
    assert calls_of(lambda: pages.append(rendering.render_page(template, {"texts": texts}))) < 2 * MAX_CALLS
    assert pages[0].endswith(b'<p class="said"><bdi>*the last*</bdi></p>')


def test_who_sees_one_tenant_is_told_no_count_of_all() -> None:
    now = datetime.now(UTC)
    trouble = UpstreamTrouble(now, now, "upstream_503", 1234)
    assert trouble_text("small", trouble, sees_all=True) == (
        "small is failing",
        "upstream_503, 1,234 times since its last answer",
    )
    assert trouble_text("small", trouble, sees_all=False) == ("small is failing", "upstream_503")


def page_request(query: str) -> PageRequest:
    return PageRequest({"path": "/ui/requests", "query_string": query.encode()}, None, None, {})  # type: ignore[arg-type]


def test_an_address_is_read_once_however_long_it_is() -> None:
    """Each of a page's links read it anew: one of 40 KB kept the process busy for more than a second."""
    page = page_request("model=small&" + "a&" * 20_000)
    assert page.link(sort="cost") == "/ui/requests?model=small&sort=cost"
    assert page.query is page.query


def test_a_long_form_without_files_is_not_decoded() -> None:
    """A page with files takes 16 MiB; as an encoded form that was three seconds of the whole process, before its token
    was looked at."""
    page = page_request("")
    page.scope["headers"] = [(b"content-type", b"application/x-www-form-urlencoded")]
    page.body = b"csrf=" + b"%41" * (MAX_FORM_BYTES // 3 - 5)
    assert page.form["csrf"].startswith("AAA")
    page.body = b"csrf=" + b"%41" * (MAX_FORM_BYTES // 3)
    with pytest.raises(RequestTooLarge):
        _ = page.form


@pytest.mark.parametrize("direction", ["older", "newer"])
def test_a_look_that_ended_early_goes_on_where_it_was_going(direction: Direction) -> None:
    """ "Search further" on a page of newer requests led back to the older ones, and so round in a circle."""
    ended, back = ListPosition(5, "req_5"), ListPosition(3, "req_3")
    ends = {"older": (ended, back), "newer": (back, ended)}
    page = page_request(f"model=small&{direction}=4.req_4")
    links = page.beside(ListPage((), *ends[direction], ended))
    assert links["further"] == links[direction] == f"/ui/requests?model=small&{direction}=5.req_5"
    assert links["older"] != links["newer"]


async def test_a_name_that_a_template_was_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        await rendering.rendered("error.html", {"page": None, "viewer": None})


async def test_half_a_sign_is_no_fault() -> None:
    """A lone surrogate, which no UTF-8 can hold."""
    macro = rendering.environment().get_template("macros.html").make_module({"csrf": ""})
    assert "\ud83d" in macro.said("\ud83d")  # type: ignore[attr-defined]
    assert rendering._render("macros.html", {"csrf": "\ud83d"}) is not None


def test_names_of_files_hold_their_digests() -> None:
    content = (UI / "static/ui.css").read_bytes()
    assert rendering.static("ui.css") == f"/ui/static/ui.{hashlib.sha256(content).hexdigest()[:16]}.css"
    with pytest.raises(KeyError):
        rendering.static("min.js")
    with pytest.raises(KeyError):
        rendering.static("htmx.LICENSE.txt")


def test_htmx_is_as_it_was_published() -> None:
    """Version 2.0.11 of htmx.org; its licence stands beside it."""
    assert hashlib.sha256((UI / "static/htmx.min.js").read_bytes()).hexdigest() == HTMX
    assert "Zero-Clause BSD" in (UI / "static/htmx.LICENSE.txt").read_text()


def test_no_template_trusts_what_it_is_given() -> None:
    """None takes the escaping away, and none has what the policy would not run."""
    templates = sorted((UI / "templates").glob("*.html"))
    assert len(templates) > 5
    for path in templates:
        text = path.read_text()
        for word in ("| safe", "|safe", "autoescape", "Markup", " style=", " onclick=", "hx-on", "javascript:"):
            assert word not in text, f"{path.name}: {word}"


HOST = (b"host", b"127.0.0.1:8000")


@pytest.mark.parametrize(
    ("method", "headers", "foreign"),
    [
        ("GET", {}, False),
        ("GET", {b"sec-fetch-site": b"none"}, False),
        ("GET", {b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"navigate"}, False),
        ("GET", {b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"no-cors"}, True),
        ("GET", {b"sec-fetch-site": b"same-site", b"sec-fetch-mode": b"cors"}, True),
        ("GET", {b"origin": b"http://127.0.0.1:8000"}, False),
        ("GET", {b"origin": b"null"}, True),
        ("GET", {b"origin": b"http://127.0.0.1:8001"}, True),
        ("GET", {b"origin": b"http://["}, True),
        ("POST", {b"origin": b"null"}, False),
        ("POST", {b"origin": b"null", b"sec-fetch-site": b"same-origin"}, False),
        ("POST", {b"origin": b"null", b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"navigate"}, True),
        ("POST", {b"origin": b"https://evil.example"}, True),
        ("POST", {b"origin": b"https://named.by.a.proxy", b"sec-fetch-site": b"same-origin"}, False),
        ("POST", {b"origin": b"null", b"sec-fetch-site": b"none"}, False),
        ("POST", {b"origin": b"http://127.0.0.1:8000", b"sec-fetch-site": b"same-site"}, True),
    ],
)
def test_who_is_behind_a_request(method: str, headers: dict[bytes, bytes], foreign: bool) -> None:
    scope: dict[str, Any] = {"method": method, "headers": [HOST, *headers.items()]}
    assert is_foreign(scope) is foreign


@pytest.mark.parametrize("to", ["/ui", "/ui/conversations", "/ui/conversations/conv_1?a=b&c=%20"])
def test_where_a_login_may_lead(to: str) -> None:
    assert NEXT.fullmatch(to)


@pytest.mark.parametrize(
    "to",
    ["https://evil.example/", "//evil.example", "/\\evil", "/ui/../v1", "/ui/%2e%2e/v1", "/ui/./v1", "/v1/models",
     "/ui//x", "javascript:1"],
)  # fmt: skip
def test_s13_2_where_a_login_may_not_lead(to: str) -> None:
    assert not NEXT.fullmatch(to)


def test_guesses_are_counted_by_address_and_in_all() -> None:
    """Within a minute; what is remembered of addresses is bounded."""
    guesses = LoginGuesses()
    for _ in range(MAX_FAILURES):
        guesses.admit("a", 0.0)
        guesses.failed("a", 0.0)
    with pytest.raises(TooManyTries):
        guesses.admit("a", 59.0)
    guesses.admit("b", 59.0)
    guesses.admit("a", 60.0)
    for number in range(MAX_IN_ALL):
        guesses.failed(f"c{number}", 100.0)
    with pytest.raises(TooManyTries) as refused:
        guesses.admit("b", 130.0)
    assert refused.value.headers == {"retry-after": "30"}
    for number in range(MAX_ADDRESSES + 1):
        guesses.failed(f"d{number}", 200.0)
    assert len(guesses._failed) <= MAX_ADDRESSES


def test_s6_8_each_warning_of_a_bill_is_told_in_words() -> None:
    listed = (DOCS / "troubleshooting.md").read_text().partition("## `warnings` of a bill\n")[2].partition("\n## ")[0]
    codes = set(re.findall(r"(?:^- |, )`([a-z0-9_]+)", listed, re.MULTILINE))
    assert len(codes) == 17
    assert codes <= set(rendering.DECIDED_WORDS)


def artifact(original: str, *spans: tuple[int, int]) -> ExplainedArtifact:
    return ExplainedArtifact({}, None, None, original, None, ShownPassages(spans))


def test_a_short_original_is_shown_whole_with_its_passages() -> None:
    found = marked(artifact("abcdef", (1, 3), (5, 6)))
    assert found == [
        OriginalPiece("left", "a"),
        OriginalPiece("shown", "bc"),
        OriginalPiece("left", "de"),
        OriginalPiece("shown", "f"),
    ]


def test_what_lies_between_passages_is_cut_and_counted() -> None:
    found = marked(artifact("a" * 10_000 + "PASSAGE" + "b", (10_000, 10_007)))
    assert [each.kind for each in found] == ["left", "skipped", "left", "shown", "left"]
    assert found[1].count == 10_000 - 2 * AROUND_CHARS
    assert sum(len(each.text) + each.count for each in found) == 10_008


def test_no_original_is_longer_than_a_page_takes() -> None:
    found = marked(artifact("x" * 5_000_000, (0, 5_000_000)))
    assert sum(len(each.text) for each in found) == MARKED_CHARS
    assert found[-1] == OriginalPiece("skipped", "", 5_000_000 - MARKED_CHARS)


def change(kind: Any, text: str = "hello", *, lines: LineDiff | None = None) -> MessageChange:
    body = {"role": "user", "content": text}
    return MessageChange(kind, "earlier", "user", None, body, None, len(text), 0, lines)


def test_long_runs_of_unchanged_messages_are_one_line() -> None:
    found = shown_messages([*[change("unchanged")] * 50, change("reworded"), *[change("left_out")] * 3])
    assert [each.change for each in found] == [
        *["unchanged"] * 2, "skipped", *["unchanged"] * 2, "reworded", *["left_out"] * 3,
    ]  # fmt: skip
    assert found[2].count == 46
    assert found[5].index == 50, "its number in the whole list, by which its text is asked for"


@pytest.mark.long
def test_a_page_has_no_more_messages_and_no_longer_texts_than_it_takes() -> None:
    lines = LineDiff(tuple(DiffLine("added", "y" * 1000) for _ in range(1000)))
    found = shown_messages([change("reworded", "x" * 100_000, lines=lines)] * 1000)
    assert len(found) == MAX_MESSAGES + 1
    assert found[0].count == 1000 - MAX_MESSAGES
    last = found[-1]
    assert last.said is not None
    assert (len(last.said.text), last.said.more) == (TEXT_CHARS, 100_000 - TEXT_CHARS)
    assert (len(last.lines), last.lines_left) == (MAX_LINES, 1000 - MAX_LINES)
    assert all(len(line.text) == LINE_CHARS for line in last.lines)


def test_two_prompts_are_compared_between_what_both_begin_and_end_with() -> None:
    def messages(*texts: str) -> list[dict[str, Any]]:
        return [{"role": "tool" if text.startswith("t") else "user", "content": text} for text in texts]

    found = compared(messages("a", "t1", "b"), messages("a", "t1 in full", "b"))
    assert [each.change for each in found] == ["unchanged", "reworded", "unchanged"]
    assert [each.change for each in compared(messages("a", "b"), messages("a", "t1", "b"))] == [
        "unchanged", "put_in_front", "unchanged",
    ]  # fmt: skip
    assert [each.change for each in compared(messages("a", "t1", "b"), messages("a", "b"))] == [
        "unchanged", "left_out", "unchanged",
    ]  # fmt: skip
