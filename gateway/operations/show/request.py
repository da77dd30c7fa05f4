"""A request: its window, its bill, and what was forwarded."""

from gateway.base.printing import usd_text
from gateway.explain.lines import text_of_message
from gateway.explain.messages import MessageChange
from gateway.explain.request import ExplainedRequest
from gateway.explain.window import PARTS, WindowBar
from gateway.operations.listed import COST_STYLE, FAINT, ID_STYLE, STATUS_STYLES, WHO_STYLE, when_text
from gateway.operations.screen import Column, Piece, Screen, one_line
from gateway.operations.show.reasons import said
from gateway.operations.show.why import write_why

BEGIN_CHARS = 100
"""Of a message."""
CALLS = (
    Column("call"),
    Column("model", drop=1),
    Column("tokens in", drop=2, is_right=True),
    Column("out", drop=2, is_right=True),
    Column("prompt USD", drop=3, is_right=True),
    Column("completion USD", drop=3, is_right=True),
    Column("total USD", COST_STYLE, is_right=True),
    Column("", "yellow", drop=4),
)
MESSAGES = (
    Column("#", is_right=True),
    Column("role"),
    Column("change"),
    Column("from", FAINT, drop=3),
    Column("said", drop=2, is_right=True),
    Column("forwarded", drop=1, is_right=True),
    Column("begins", is_flexible=True),
)
CHANGES = {"left_out": "red", "reduced": "yellow", "restored": "magenta", "put_in_front": "cyan", "reworded": "yellow"}


def write_request(screen: Screen, found: ExplainedRequest, *, sent: bool, why: bool) -> None:
    """All of it that is asked for."""
    _head(screen, found)
    _window(screen, found)
    _bill(screen, found)
    if found.timings:
        steps = ", ".join(f"{name} {value}" for name, value in found.timings.items())
        screen.line((f"milliseconds: {steps}", FAINT))
    if sent:
        _sent(screen, found)
    if why:
        write_why(screen, found)


def _head(screen: Screen, found: ExplainedRequest) -> None:
    entry = found.entry
    status = f"{entry.status} ({entry.error_code})" if entry.error_code else entry.status
    screen.line(("request ", "bold"), (entry.request_id, ID_STYLE), "  ", (status, STATUS_STYLES.get(entry.status, "")))
    where: list[Piece] = ["tenant ", (entry.tenant, WHO_STYLE)]
    named = (("user", entry.end_user), ("agent", entry.agent), ("completion", entry.completion_id))
    where += [f", {title} {name}" for title, name in named if name]
    screen.line(*where)
    if entry.conversation_id:
        number = f", turn {found.number}" if found.number else ""
        screen.line("conversation ", (entry.conversation_id, ID_STYLE), number)
    way = entry.metadata.get("routing_path") or [entry.model]
    endpoint = f"{entry.endpoint}, " if entry.endpoint else ""
    screen.line(f"arrived {when_text(entry.created_at, '%Y-%m-%d %H:%M:%S')} (UTC), {endpoint}model ",
                " → ".join(map(str, way)))  # fmt: skip
    if found.reason:
        screen.line((said(found.reason), "yellow"))


def _window(screen: Screen, found: ExplainedRequest) -> None:
    used, bar = found.used, found.bar
    told = [f"{title} {used[name]}" for name, title in _TOLD if used.get(name)]
    if told:
        screen.line(", ".join(told))
    if bar is None:
        screen.line("window: not counted")
        return
    about = " (estimated)" if bar.estimated else ""
    parts = " + ".join(f"{name} {bar.parts[name]}" for name in PARTS if bar.parts[name])
    limits = [f"{title} {size}" for title, size in (("budget", bar.budget), ("window", bar.window)) if size]
    screen.line("window: ", f"{parts} = {bar.tokens} tokens{about}", "".join(f", {each}" for each in limits))
    if bar.reported_cached or bar.written:
        screen.line(f"prompt cache: {bar.reported_cached} tokens read, {bar.written} written")
    _left(screen, bar)
    for warning in used.get("warnings") or ():
        screen.line(("warning: ", "yellow"), str(warning))


_TOLD = (
    ("strategy", "strategy"),
    ("goal", "goal"),
    ("planning_reason", "planning"),
    ("fallback_reason", "fallback"),
    ("profile", "profile"),
)


def _left(screen: Screen, bar: WindowBar) -> None:
    left = bar.left
    counts = ((left.messages, "messages"), (len(left.reduced), "artifacts reduced"), (len(left.excluded), "excluded"))
    told = [f"{count} {what}" for count, what in counts if count]
    if told:
        screen.line(f"left out: {', '.join(told)}; {left.chars} characters of artifacts")
    if left.by:
        screen.line("turns left by ", left.by)


def _bill(screen: Screen, found: ExplainedRequest) -> None:
    rows: list[list[Piece]] = []
    for call in found.bill.calls:
        usage = (call.usage.get("prompt_tokens", ""), call.usage.get("completion_tokens", ""))
        costs = [usd_text(each) or "unknown" for each in (call.prompt_cost, call.completion_cost, call.total)]
        rows.append([call.purpose, call.model, *map(str, usage), *costs, "estimated" if call.estimated else ""])
    if rows:
        total = usd_text(found.bill.cost.total_cost) or "unknown"
        rows.append(["total", "", "", "", "", "", total, ""])
        screen.table(CALLS, rows)
    for each in found.bill.differences:
        screen.line(("does not balance: ", "red"), f"{each.figure}: stored {each.stored}, adds up to {each.found}")


def _sent(screen: Screen, found: ExplainedRequest) -> None:
    screen.line()
    screen.line(("what was forwarded", "bold"))
    if not found.sent.is_exact:
        screen.line((said(found.sent.reason), "yellow"))
    if found.changes is None:
        return
    screen.table(MESSAGES, [_message(number, each) for number, each in enumerate(found.changes, 1)])
    for each in found.changes:
        if each.lines is not None:
            shown = [line for line in each.lines.lines if line.kind in ("removed", "added")]
            count = sum(line.count for line in shown)
            screen.line((f"{each.role} {each.message_id or ''}: {count} lines differ", FAINT))


def _message(number: int, each: MessageChange) -> list[Piece]:
    body = each.after if each.after is not None else each.before
    begins = one_line(text_of_message(body or {}), BEGIN_CHARS)
    said_chars = str(each.before_chars) if each.before is not None else ""
    sent_chars = str(each.after_chars) if each.after is not None else ""
    role = f"{each.role} ({each.agent})" if each.agent else each.role
    change = (each.change, CHANGES.get(each.change, ""))
    return [str(number), role, change, each.origin, said_chars, sent_chars, begins]
