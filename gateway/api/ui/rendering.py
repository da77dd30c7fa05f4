"""Templates, figures and texts of the web UI, and its static files. Jinja2 is loaded with the first page."""

import asyncio
import contextlib
import hashlib
import mimetypes
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markdown_it import MarkdownIt, helpers
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup

from gateway import __version__

HERE = Path(__file__).parent
ASSET_SUFFIXES = (".css", ".js", ".svg")
UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters: browsers draw nothing for them, or something of their own."""
LINE = re.compile(r"[^\n\r\u2029]+")
"""Each is laid out in a direction of its own."""
ISOLATES = re.compile("[\u2066-\u2069]")
END_OF_ISOLATE = "\u2069"
MIN_SHOWN = Decimal("0.000001")
"""USD: short money shows a smaller amount as less than this."""
SHORT_DIGITS = 3
"""Digits of short money below a dollar, without leading zeros."""
UNITS = ("B", "KB", "MB", "GB", "TB")
CENTS = 2
TERMS = {
    "agent": "The participant that answers a request in a conversation that several share.",
    "artifact": "A tool result or document that may enter a context.",
    "branch": "A path through a conversation's tree of messages. An edit or regeneration starts one.",
    "budget": "Tokens that a prompt may take.",
    "calibration": "Learning a model's margin from the usage that its upstream reports.",
    "direct bill": "What a client's own requests would have cost without the gateway, at the same prices and with the "
    "same prompt cache.",
    "extract": "Passages of an artifact, in document order, instead of all of it.",
    "fallback": "The context made without a plan, or with one summary missing.",
    "internal model": "Planner, summarizer or embedder; never the primary model.",
    "margin": "Tokens of a model per token of the vocabulary used to count.",
    "net saving": "The direct bill minus what was billed; a loss is below 0.",
    "plan": "A planner's decision: a strategy per artifact, and search queries.",
    "planner": "The cheap model that may plan a context.",
    "primary model": "The model that the client asked for.",
    "prompt cache": "The beginning of a prompt, which a provider stores and bills at a lower price when it is sent "
    "again.",
    "recall": "Finding passages outside the window for a question.",
    "replay": "Past turns run again, on a branch of their own.",
    "rolling summary": "Summaries of a conversation's oldest turns, made in the background after an answer.",
    "session": "A client's own name for a conversation.",
    "strategy": "What is done with an artifact: forwarded in full, as a summary, an extract or a shorter form with "
    "nothing missing, or left out.",
    "tenant": "The owner of keys, stored rows and cache entries.",
    "turn": "A user message and everything up to the final answer, including user messages between tool steps.",
    "refused": "A refused request was answered with an error before a model was called; it has no bill.",
    "unmetered": "An unmetered request has no known direct bill, so it is in no net saving.",
    "window": "What is forwarded: system messages, the memory message and a contiguous run of turns.",
}
"""Words of the pages that are this product's own, with what they mean: shown on hover, and listed at `/ui/glossary`.
docs/glossary.md says the same of them."""

DECIDED_WORDS = {
    "passthrough": "forwarded unchanged",
    "simple": "forwarded, cut where it did not fit",
    "heuristic": "selected by rank, without a planner",
    "llm_planned": "planned by a model",
    "no_artifacts": "not needed: no artifacts",
    "disabled": "switched off",
    "forced": "always on",
    "no_planner": "no planner available",
    "standing": "not needed: earlier decisions hold",
    "not_recognised": "not done: no stored conversation",
    "historical_artifacts": "asked: an earlier artifact was undecided",
    "small_total": "not needed: little text",
    "fits": "not needed: it fits",
    "near_limit": "asked: the prompt is near its budget",
    "expensive_primary": "asked: the model is expensive",
    "large_artifact": "asked: a large artifact",
    "no_need": "not needed",
    "asked_this_turn": "not repeated in this turn",
    "nothing_stands": "not done: nothing is stored",
    "cannot_pay": "not done: it would cost more than it saves",
    "planner_resting": "not done: the planner is in cooldown",
    "context_window_above_80_percent": "the window is nearly full",
    "document_incomplete": "parts of a document were not read",
    "document_without_text": "pages that are pictures did not reach the model",
    "context_window_unknown": "the model's window is unknown, so its context is not managed",
    "refitted_after_upstream_overflow": "shortened once more: the upstream counted more tokens",
    "answered_by_fallback": "another model answered",
    "unknown_field": "an unknown field was forwarded unchanged",
    "guard_failed": "a guard failed, so content passed unchecked",
    "document_index_unfinished": "a large document is not indexed yet",
    "embedder_late": "passages were ranked by words alone: the embedder was late",
    "embedder_failed": "passages were ranked by words alone: the embedder failed",
    "budget_exceeded_soft": "a soft budget is used up",
    "budget_not_counted": "no budget counts it: the model has no price",
    "limits_unavailable": "limits could not be checked",
    "agent_type_unknown": "the agent's type is unknown, so it got the plain form",
    "agent_assembler_failed": "the agent's assembler failed, so it got the plain form",
    "agent_message_cut": "the message was cut to the agent's limit",
}
"""Texts for a bill's codes of how a context was made, and for its warnings."""
STRATEGY_WORDS = {
    "include_full": "in full",
    "rag_extract": "extract",
    "summarize": "summary",
    "shape": "shortened losslessly",
    "exclude": "left out",
}
"""Texts for what became of an artifact."""


async def rendered(template: str, context: Mapping[str, Any]) -> bytes:
    """Renders a template as bytes, in a thread."""
    return await asyncio.to_thread(_render, template, context)


def _render(template: str, context: Mapping[str, Any]) -> bytes:
    return render_page(environment().get_template(template), context)


def render_page(template: Template, context: Mapping[str, Any]) -> bytes:
    """Renders a page, in which Markdown becomes no more than `MAX_MARKUP`."""
    token = _ALLOWANCE.set(MarkupAllowance())
    try:
        return template.render(context).encode("utf-8", "replace")
    finally:
        _ALLOWANCE.reset(token)


@cache
def environment() -> Environment:
    """Makes the template environment: all values are escaped; an unknown name is an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    figures = {"usd": usd, "money": money, "number": number, "size": size}
    made.filters |= {**figures, "iso": iso, "shown_time": shown_time, "said": said, "prose": prose, "seconds": seconds}
    made.globals |= {
        "static": static,
        "version": __version__,
        "terms": TERMS,
        "decided_words": DECIDED_WORDS,
        "strategies": STRATEGY_WORDS,
    }
    return made


@cache
def files() -> Mapping[str, tuple[str, bytes]]:
    """Returns media type and content of each static file, by a name with a digest of it: cacheable for good."""
    found = {}
    for path in sorted((HERE / "static").iterdir()):
        if path.suffix in ASSET_SUFFIXES:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:16]
            kind = mimetypes.types_map.get(path.suffix, "application/octet-stream")
            charset = "; charset=utf-8" if path.suffix != ".svg" else ""
            found[f"{path.stem}.{digest}{path.suffix}"] = (kind + charset, content)
    return found


@cache
def static(name: str) -> str:
    """Returns the address of a static file. Raises KeyError: there is no such file."""
    stem, _, suffix = name.rpartition(".")
    for served in files():
        if served.startswith(f"{stem}.") and served.endswith(f".{suffix}") and served.count(".") == name.count(".") + 1:
            return f"/ui/static/{served}"
    raise KeyError(name)


def usd(value: Decimal | None, *, at_least: bool = False) -> str:
    """Renders USD with all digits; `at_least` marks a sum that lacks calls whose price is not known."""
    if value is None:
        return "unknown"
    text = f"{value:f}"
    whole, _, digits = text.partition(".")
    digits = digits.rstrip("0").ljust(CENTS, "0")
    sign, whole = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    return f"{'≥ ' if at_least else ''}{sign}${int(whole):,}.{digits}"


def money(value: Decimal, *, at_least: bool = False) -> str:
    """Renders USD as pages show it: cents from a dollar on, below it `SHORT_DIGITS` digits. `at_least` as for `usd`;
    such a sum is not rounded up."""
    size = abs(value)
    if not size or size >= 1:
        least = Decimal("0.01")
    elif size < MIN_SHOWN and not at_least:
        return f"{'-' if value < 0 else ''}<${MIN_SHOWN:f}"
    else:
        least = Decimal(1).scaleb(size.adjusted() + 1 - SHORT_DIGITS)
    return usd(value.quantize(least, ROUND_FLOOR if at_least else ROUND_HALF_EVEN), at_least=at_least)


def number(value: int | float | None) -> str:
    """Renders a number with separators of thousands."""
    return "–" if value is None else f"{value:,}"


def size(value: int | None) -> str:
    """Renders bytes, in the unit in which they are short."""
    if value is None:
        return "–"
    amount, unit = float(value), 0
    while amount >= 1000 and unit < len(UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.0f} {UNITS[unit]}" if amount >= 100 or not unit else f"{amount:.1f} {UNITS[unit]}"


def iso(value: datetime) -> str:
    """Renders a time for machines: UTC, to the second."""
    return _utc(value).strftime("%Y-%m-%dT%H:%M:%SZ")


def shown_time(value: datetime) -> str:
    """Renders a time for people: UTC, to the second."""
    return _utc(value).strftime("%Y-%m-%d %H:%M:%S")


def seconds(milliseconds: float | None) -> str:
    """Renders a waiting time, given in milliseconds."""
    if milliseconds is None:
        return "–"
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def visible(text: str) -> str:
    """Replaces each control character of a text by a sign."""
    return UNSEEN.sub("\ufffd", text)


def said(text: object) -> str:
    """Renders a text for an element that isolates its direction: replaces each control character by a sign, and those
    that isolate a direction where a line has them unpaired: they would end the element's own isolation, and turn the
    text beside it."""
    return LINE.sub(lambda line: _paired(line[0]), visible(str(text)))


def _paired(line: str) -> str:
    depth = 0
    for sign in ISOLATES.findall(line):
        depth += -1 if sign == END_OF_ISOLATE else 1
        if depth < 0:
            break
    return ISOLATES.sub("\ufffd", line) if depth else line


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# Markdown of people and models: marked up for reading, and inert (guarantee §13.3). HTML in it is text, links and
# pictures show their addresses and lead nowhere, each line isolates its direction.


class InertRenderer(RendererHTML):
    """Renders tokens of Markdown to HTML without addresses that a browser would follow, attributes or styles."""

    def renderInline(self, tokens: Sequence[Token], options: OptionsDict, env: EnvType) -> str:  # noqa: N802
        return f"<bdi>{super().renderInline(tokens, options, env)}</bdi>"

    def link_open(self, _tokens: Sequence[Token], _at: int, _options: OptionsDict, _env: EnvType) -> str:
        return '<span class="linked">'

    def link_close(self, tokens: Sequence[Token], at: int, _options: OptionsDict, _env: EnvType) -> str:
        begin = next(n for n in range(at - 1, -1, -1) if tokens[n].type == "link_open")
        address = str(tokens[begin].attrGet("href") or "")
        words = "".join(each.content for each in tokens[begin + 1 : at])
        return "</span>" if words == address else f'</span> <span class="address">({escape(address)})</span>'

    def image(self, tokens: Sequence[Token], at: int, _options: OptionsDict, _env: EnvType) -> str:
        token = tokens[at]
        return (
            f'<span class="address">[image: {escape(token.content)} ({escape(str(token.attrGet("src") or ""))})]</span>'
        )

    def fence(self, tokens: Sequence[Token], at: int, _options: OptionsDict, _env: EnvType) -> str:
        token = tokens[at]
        language = token.info.strip().partition(" ")[0]
        told = f'<div class="language">{escape(language)}</div>' if language else ""
        code = f"<code><bdi>{escape(token.content)}</bdi></code>"
        return f'{told}<pre class="text" tabindex="0" role="group" aria-label="Code">{code}</pre>\n'

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return self.fence(tokens, idx, options, env)

    def heading_open(self, tokens: Sequence[Token], at: int, _options: OptionsDict, _env: EnvType) -> str:
        return f"<{_heading(tokens[at])}>"

    def heading_close(self, tokens: Sequence[Token], at: int, _options: OptionsDict, _env: EnvType) -> str:
        return f"</{_heading(tokens[at])}>\n"

    def table_open(self, _tokens: Sequence[Token], _at: int, _options: OptionsDict, _env: EnvType) -> str:
        caption = '<caption class="visually-hidden">Table in the text</caption>'
        return f'<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>{caption}\n'

    def table_close(self, _tokens: Sequence[Token], _at: int, _options: OptionsDict, _env: EnvType) -> str:
        return "</table></div>\n"

    def th_open(self, _tokens: Sequence[Token], _at: int, _options: OptionsDict, _env: EnvType) -> str:
        return '<th scope="col">'

    def td_open(self, _tokens: Sequence[Token], _at: int, _options: OptionsDict, _env: EnvType) -> str:
        return "<td>"


def _heading(token: Token) -> str:
    """Renders a heading below those of the page."""
    return f"h{min(6, int(token.tag[1:]) + 3)}"


@cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("js-default", {"html": False, "breaks": True, "linkify": False}, renderer_cls=InertRenderer)
    made.block.ruler.at("table", _small_table, {"alt": ["paragraph", "reference"]})
    made.block.ruler.before("table", "step", _block_step, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    made.helpers = LinkHelpers  # type: ignore[assignment]  # rules take functions from it, as from the module
    return made


MAX_BRACKETS = 300
"""Brackets of one text. Each may begin a link, for which the parser then searches all the rest."""
MAX_CELLS = 2000
"""Cells of the tables of one text. The parser pads short rows: few characters may become as many cells as it allows."""
MAX_MARKUP = 300_000
"""Characters of HTML that Markdown may become on one page; texts beyond that are shown as they are."""
MAX_MARKDOWN_STEPS = 30_000
"""Times that the parser checks a line of one page for a block of markup. It checks lines of some texts hundreds of
times. Texts beyond that are shown as they are."""
CHARS_OF_A_STEP = 15
"""Characters that the parser searches for the end of a link in the time of one such check."""


@dataclass(slots=True)
class MarkupAllowance:
    """The amount of markup that a page may still have."""

    chars: int = MAX_MARKUP
    steps: int = MAX_MARKDOWN_STEPS

    def take_steps(self, count: int) -> None:
        """Raises TooManySteps: not so many are left."""
        self.steps -= count
        if self.steps < 0:
            raise TooManySteps


class TooManySteps(Exception):
    """A text takes more work than a page has left."""


_ALLOWANCE: ContextVar[MarkupAllowance] = ContextVar("markup_allowance")


def prose(text: str) -> Markup:
    """Renders Markdown as inert HTML, with its text escaped. A text with too many brackets, or one that takes more
    markup or work than its page has left, is shown as it is."""
    shown, page = said(text), _ALLOWANCE.get(None) or MarkupAllowance()
    if len(shown) <= page.chars and shown.count("[") + shown.count("<") <= MAX_BRACKETS:
        with contextlib.suppress(TooManySteps):
            found: str = _parser().render(shown, {CELLS: MAX_CELLS, PAGE: page})
            page.chars -= len(found)
            return Markup(found)  # noqa: S704 - its renderer escapes what stands in it
    return Markup(f'<p class="said"><bdi>{escape(shown)}</bdi></p>')  # noqa: S704 - it is escaped


CELLS, PAGE = "cells_left", "page"


def _block_step(state: StateBlock, _first: int, _end: int, _silent: bool) -> bool:
    state.env[PAGE].take_steps(1)
    return False


class LinkHelpers:
    """The parser's own helpers. Each bracket searches for its end, maybe through all the rest: that is work, too."""

    parseLinkDestination, parseLinkTitle = helpers.parseLinkDestination, helpers.parseLinkTitle  # noqa: N815

    @staticmethod
    def parseLinkLabel(state: StateInline, start: int, nested: bool = False) -> int:  # noqa: N802
        end = helpers.parseLinkLabel(state, start, nested)
        state.env[PAGE].take_steps(((state.posMax if end < 0 else end) - start) // CHARS_OF_A_STEP)
        return end


def _small_table(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Applies the parser's own rule to tables that have no more cells than are left."""
    if not table(state, first, end, True):
        return False
    columns = state.src[state.bMarks[first + 1] : state.eMarks[first + 1]].count("|") + 1
    most = state.env[CELLS] // columns
    line = first + 2
    while line < end and not state.isEmpty(line):
        line += 1
        if line - first - 1 > most:
            return False
    if silent:
        return True
    state.env[CELLS] -= columns * (line - first - 1)
    return table(state, first, end, False)
