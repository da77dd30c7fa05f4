"""`gateway show`: explains a conversation, one of its turns, or a request, from stored data (guarantee §13.9)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.core import errors, ids, printing
from gateway.core.jsons import Json
from gateway.core.types import report_lists, turn
from gateway.inspection import (
    WINDOW_PARTS,
    BranchRun,
    ExplainedCall,
    ExplainedConversation,
    ExplainedRequest,
    ExplainedTurn,
    ExplanationReader,
    TurnChoice,
    WindowBar,
    as_json,
    message_changes,
    prefix,
    request_search,
)
from gateway.inspection import explained_artifacts as artifacts
from gateway.inspection import explained_request as request
from gateway.inspection import rebuilt_turns as past_turns
from gateway.operations.screen import (
    COST_STYLE,
    FAINT,
    ID_STYLE,
    PLANNING_STYLE,
    STATUS_STYLES,
    WHO_STYLE,
    CommandCall,
    CommandScreen,
    Piece,
    TableColumn,
    one_line,
    request_cost,
    when_text,
)
from gateway.operations.storage_reader import run_reading, tell_missing
from gateway.storage import LargeDocuments
from gateway.storage.conversations import PastReader
from gateway.storage.database import DatabaseTransactions
from gateway.storage.reports import request_list

# A conversation: its totals, a line for each turn, and its branches.

TURN_COLUMNS = (
    TableColumn("turn", is_right=True),
    TableColumn("status"),
    TableColumn("asked (UTC)", FAINT, drop=5),
    TableColumn("model", drop=3),
    TableColumn("requests", drop=8, is_right=True),
    TableColumn("tokens in", drop=4, is_right=True),
    TableColumn("out", drop=4, is_right=True),
    TableColumn("cached", drop=6, is_right=True),
    TableColumn("cost USD", COST_STYLE, drop=1, is_right=True),
    TableColumn("planning USD", PLANNING_STYLE, drop=2, is_right=True),
    TableColumn("decided", drop=7, is_right=True),
    TableColumn("warnings", drop=9, is_right=True),
    TableColumn("question", is_flexible=True),
)
BILL_COLUMNS = (
    TableColumn("request", ID_STYLE),
    TableColumn("arrived (UTC)", FAINT, drop=2),
    TableColumn("status", drop=1),
    TableColumn("model", drop=4),
    TableColumn("tokens in", drop=5, is_right=True),
    TableColumn("out", drop=5, is_right=True),
    TableColumn("cost USD", COST_STYLE, is_right=True),
    TableColumn("planning USD", PLANNING_STYLE, drop=3, is_right=True),
)


class TurnDecisions(NamedTuple):
    """How many artifacts the requests of a turn decided on, and their warnings."""

    artifacts_decided: int
    warnings: list[str]


def decided_in(metadata: Iterable[Mapping[str, Any]]) -> TurnDecisions:
    """Counts the decided artifacts of a turn, and collects its warnings, from its bills' `response_metadata`."""
    used = [each.get("context_utilization") or {} for each in metadata]
    artifacts = sum(len(each.get("artifacts_processed") or ()) for each in used)
    return TurnDecisions(
        artifacts, list(dict.fromkeys(str(text) for each in used for text in each.get("warnings") or ()))
    )


def write_conversation(screen: CommandScreen, found: ExplainedConversation, decided: Sequence[TurnDecisions]) -> None:
    """Writes a conversation: its head, a table of its turns (the latest if there are many), and its branches."""
    _conversation_head(screen, found)
    if not found.turns:
        screen.line("no messages yet")
        return
    if found.first > 1:
        screen.line((f"turns 1 to {found.first - 1} are not listed: --turn N shows each", FAINT))
    screen.line()
    screen.table(TURN_COLUMNS, [_turn(turn, of) for turn, of in zip(found.page, decided, strict=True)])
    if len(found.branches) > 1:
        screen.line()
        screen.line(("branches, * is the current one", "bold"))
        for run in found.branches:
            screen.line(*_branch(run))


def write_turn(screen: CommandScreen, found: ExplainedConversation, turn: ExplainedTurn) -> None:
    """Writes the head of one turn: its status, question and cost."""
    sums = turn.sums
    name, status = found.outline.conversation_id, (turn.status, STATUS_STYLES.get(turn.status, "yellow"))
    screen.line(("conversation ", "bold"), (name, ID_STYLE), f", turn {turn.number} of {found.turns}: ", status)
    screen.line("question: ", turn.question or "")
    screen.line(f"cost: {_cost(turn)} USD, of which internal models {printing.usd_text(sums.planning)}")


def write_bills(screen: CommandScreen, lines: Sequence[report_lists.RequestLine]) -> None:
    """Writes a table of requests from their bills alone."""
    screen.table(BILL_COLUMNS, [_bill_row(line) for line in lines])


def _conversation_head(screen: CommandScreen, found: ExplainedConversation) -> None:
    outline = found.outline
    screen.line(
        ("conversation ", "bold"), (outline.conversation_id, ID_STYLE), "  tenant ", (outline.tenant, WHO_STYLE)
    )
    if outline.session:
        screen.line("session ", (outline.session, WHO_STYLE))
    began = when_text(outline.created_at)
    screen.line(f"began {began}, last active {when_text(outline.updated_at)} (UTC), {found.turns} turns")
    sums = outline.sums
    tokens = f"{sums.requests} requests, {sums.prompt_tokens} tokens in, {sums.completion_tokens} out: "
    estimated = f", {sums.estimated} estimated" if sums.estimated else ""
    net = "unknown" if sums.net_saving is None else printing.usd_text(sums.net_saving)
    cost = f", of which internal models {printing.usd_text(sums.planning)}, net saving {net}{estimated}"
    whole = printing.cost_text(sums.cost, sums.unpriced, is_known=bool(sums.priced))
    screen.line(tokens, (f"{whole} USD", COST_STYLE), cost)
    if outline.forgotten_at is not None:
        screen.line((f"items of it were deleted, the latest at {when_text(outline.forgotten_at)}", "yellow"))
    if not outline.is_whole:
        screen.line(("it has more messages than are read: the oldest are not counted here", "yellow"))
    for segment in outline.segments:
        screen.line((f"turns {segment.first_turn} to {segment.last_turn} are summarized", FAINT))


def _turn(turn: ExplainedTurn, decided: TurnDecisions) -> list[Piece]:
    sums = turn.sums
    status = (turn.status, STATUS_STYLES.get(turn.status, "yellow"))
    figures = (sums.prompt_tokens, sums.completion_tokens, sums.cached_tokens)
    asked = when_text(turn.created_at) if turn.created_at is not None else ""
    return [
        *(str(turn.number), status, asked, ", ".join(turn.models), str(len(turn.request_ids))),
        *(str(figure) for figure in figures),
        *(_cost(turn), printing.usd_text(sums.planning)),
        *(str(decided.artifacts_decided or ""), (str(len(decided.warnings) or ""), "yellow")),
        turn.question or "",
    ]


def _cost(turn: ExplainedTurn) -> str:
    sums = turn.sums
    is_known = bool(sums.cost) or sums.unpriced < len(turn.request_ids)
    return printing.cost_text(sums.cost, sums.unpriced, is_known=is_known)


def _branch(run: BranchRun) -> list[Piece]:
    mark = "* " if run.is_current else "  "
    turns = f"turn {run.first_turn}" if run.first_turn == run.last_turn else f"turns {run.first_turn}–{run.last_turn}"
    requests = "1 request" if run.requests == 1 else f"{run.requests} requests"
    why = f", {run.why}" if run.why else ""
    named = f" {run.replay_id}" if run.replay_id else ""
    statuses = f", {', '.join(run.statuses)}" if run.statuses else ""
    text = f"{mark}{'  ' * min(run.depth, 20)}{turns}, {requests}{why}{named}{statuses}"
    leaf: Piece = (f"  ends with {run.leaf_id}", FAINT) if run.leaf_id else ""
    return [(text, "bold" if run.is_current else ""), leaf]


def _bill_row(line: report_lists.RequestLine) -> list[Piece]:
    status = (line.status, STATUS_STYLES.get(line.status, ""))
    tokens = (str(line.prompt_tokens), str(line.completion_tokens))
    return [line.id, when_text(line.created_at), status, line.model, *tokens, request_cost(line),
            printing.usd_text(line.planning_cost)]  # fmt: skip


# The texts of explanation codes.

WORDS = {
    request.NOT_STORED: "its words were not kept: store: false, a dry run, or mode off without a conversation",
    request.RELAYED: "its words were not kept: it was relayed, and only its usage is metered",
    request.DELETED: "its conversation was deleted: the bill is left",
    request.NO_MESSAGES: "none of its messages is stored: they were deleted",
    request.FAILED: "it failed before an answer: what was forwarded is not stored",
    past_turns.NO_BILL: "there is no bill of it here: it came with an import",
    past_turns.NOT_COUNTED: "rebuilt, and not held against the bill: its context was not managed",
    past_turns.AGENT_WORDS_NOT_STORED: "the sections that its agent was sent are not stored",
    past_turns.PROFILE_NOT_STORED: "rebuilt without its prompt profile, which is not stored",
    past_turns.DELETED_SINCE: "rebuilt from what is left: items of the conversation were deleted since",
    past_turns.OTHERWISE: "rebuilt, but not as many messages as the bill says",
    prefix.SYSTEM_CHANGED: "the system messages changed",
    prefix.WINDOW_MOVED: "something left the window",
    prefix.MEMORY_CHANGED: "the memory message changed",
    prefix.REWORDED: "a message was forwarded in another form",
}
"""By code. An unknown code is shown as it is."""
OF_ORIGINALS = {
    artifacts.EXCERPTS: "excerpts of old turns: there is no one original",
    artifacts.SUMMARY_OF_TURNS: "a summary of old turns: there is no one original",
    artifacts.NOT_READ: "a file, which is not read again for this",
    artifacts.GONE: "its original is not stored any more",
}
"""By code: why the original of an artifact is missing."""


def said(code: str | None) -> str:
    """Returns the text of an explanation code; an unknown code itself, "" for None."""
    return WORDS.get(code or "", code or "")


def why_gone(code: str) -> str:
    """Returns the text of a code that explains why an artifact's original is missing; an unknown code itself."""
    return OF_ORIGINALS.get(code, code)


# Why a request was assembled as it was, and the arithmetic of its bill.

WHY_BEGIN_CHARS = 200
"""Of a message."""
PLAN_FIELDS = (
    ("strategy", "planned"),
    ("priority", "priority"),
    ("relevance_rationale", "because"),
    ("summarization_focus", "focus"),
    ("extraction_query", "query"),
)


def write_why(screen: CommandScreen, found: ExplainedRequest) -> None:
    """Writes a request's artifacts, its plan, where its prompt diverges from the previous one, and its arithmetic."""
    used = found.used
    screen.line()
    screen.line(("why", "bold"))
    planned = "asked" if used.get("llm_planning_used") else "not asked, or not heeded"
    reason = used.get("fallback_reason") or used.get("planning_reason") or "none"
    screen.line(f"planner: {planned}: ", str(reason))
    if isinstance(economics := used.get("economics"), dict):
        told = ", ".join(f"{name} {value}" for name, value in economics.items() if value is not None)
        screen.line("economics: ", told)
    if cache := found.entry.metadata.get("cache"):
        tokens = f"{cache['cached_tokens']} of {cache['promised_tokens']} tokens were read from it"
        screen.line("prompt cache broke at ", cache["broke_at"], f": {tokens}")
    _artifacts(screen, found)
    _plan(screen, found)
    _prefix(screen, found)
    _arithmetic(screen, found)


def _artifacts(screen: CommandScreen, found: ExplainedRequest) -> None:
    standing = found.used.get("artifacts_standing") or {}
    if standing.get("count"):
        screen.line(f"{standing['count']} artifacts stand as decided before, {standing.get('chars')} characters")
    if not found.artifacts:
        screen.line("no artifact was decided on")
    for each in found.artifacts:
        _artifact(screen, each)


def _artifact(screen: CommandScreen, each: artifacts.ExplainedArtifact) -> None:
    record = each.record
    sizes = f"{record.get('original_size_chars')} → {record.get('processed_size_chars')} characters"
    cached = ", from the cache" if record.get("cache_hit") else ""
    screen.line((each.artifact_id, ID_STYLE), " ", str(record.get("source", "")))
    rank = f", rank {each.rank}" if each.rank is not None else ""
    reason = f", {record['reason']}" if record.get("reason") else ""
    guarded = ", guarded" if record.get("guarded") else ""
    screen.line(f"  {record.get('strategy')}: {sizes}{rank}{cached}{guarded}", reason)
    for name, title in PLAN_FIELDS:
        value = (each.planned or {}).get(name)
        if value not in (None, ""):
            screen.line(f"  {title}: ", str(value))
    if each.reason:
        screen.line((f"  {why_gone(each.reason)}", FAINT))
    elif each.is_reduced and each.passages.spans:
        count = len(each.passages.spans)
        screen.line((f"  {count} passages of it were shown, {each.passages.chars} characters", FAINT))


def _plan(screen: CommandScreen, found: ExplainedRequest) -> None:
    plan = found.plan
    if not plan:
        return
    screen.line("plan: ", str(plan.get("reasoning") or ""))
    for query in plan.get("search_queries") or ():
        screen.line("  query: ", str(query))
    if found.planner_prompt:
        screen.line((f"  the planner was asked with {len(found.planner_prompt)} characters: --json has them", FAINT))


def _prefix(screen: CommandScreen, found: ExplainedRequest) -> None:
    before, way = found.previous_request_id, found.divergence
    if before is None:
        screen.line("prompt cache: no request of this model before it on its branch")
    elif way is None:
        exact = "begins with all of" if found.sent.is_exact else "cannot be held against"
        screen.line(f"prompt cache: it {exact} what {before} forwarded")
    else:
        _diverges(screen, way)


def _diverges(screen: CommandScreen, way: prefix.PrefixDivergence) -> None:
    screen.line(f"prompt cache: it parts from {way.previous_request_id} at message {way.index + 1}: {said(way.why)}")
    for title, body in (("then", way.before), ("now", way.after)):
        if body is not None:
            text = one_line(message_changes.text_of_message(body), WHY_BEGIN_CHARS)
            screen.line(f"  {title}: {body.get('role', '')}: ", text)
    cost = f", {printing.usd_text(way.cost)} USD more than from the cache" if way.cost is not None else ""
    tokens = f"about {way.kept_tokens} tokens stayed the same, {way.lost_tokens} did not"
    screen.line(f"  {tokens}{cost}; the provider read {way.cached_tokens} from its cache")


def _arithmetic(screen: CommandScreen, found: ExplainedRequest) -> None:
    screen.line(("the bill", "bold"))
    for call in found.bill.calls:
        _call(screen, call)
    cost = found.bill.cost
    total = printing.usd_text(cost.total_cost) or "unknown: a call has no known price"
    screen.line(f"total: {total}")
    if found.bill.net_saving is not None:
        saving, direct = printing.usd_text(found.bill.net_saving), printing.usd_text(found.bill.direct_cost)
        screen.line(f"net saving: {saving}, as it would have cost {direct} without the gateway")
    if found.bill.realised_saving is not None:
        screen.line(
            f"saved by what was left out, as later bills realised it: {printing.usd_text(found.bill.realised_saving)}"
        )
    screen.line("the stored bill is what this adds up to" if found.bill.balances else "the stored bill DIFFERS")


def _call(screen: CommandScreen, call: ExplainedCall) -> None:
    counted = " (counted by the gateway)" if call.estimated else ""
    screen.line(f"{call.purpose}{counted}: ", call.model)
    if call.total is None:
        screen.line("  no known price")
        return
    for title, lines, sum_ in (
        ("prompt", call.prompt, call.prompt_cost),
        ("completion", call.completion, call.completion_cost),
    ):
        for line in lines:
            screen.line(f"  {line.kind}: {line.tokens} × {line.rate:f} = {line.cost:f}")
        screen.line(f"  {title}: {printing.usd_text(sum_)}")


# A request: its window, its bill, and what was sent upstream.

BEGIN_CHARS = 100
"""Of a message."""
CALL_COLUMNS = (
    TableColumn("call"),
    TableColumn("model", drop=1),
    TableColumn("tokens in", drop=2, is_right=True),
    TableColumn("out", drop=2, is_right=True),
    TableColumn("prompt USD", drop=3, is_right=True),
    TableColumn("completion USD", drop=3, is_right=True),
    TableColumn("total USD", COST_STYLE, is_right=True),
    TableColumn("", "yellow", drop=4),
)
MESSAGE_COLUMNS = (
    TableColumn("#", is_right=True),
    TableColumn("role"),
    TableColumn("change"),
    TableColumn("from", FAINT, drop=3),
    TableColumn("said", drop=2, is_right=True),
    TableColumn("forwarded", drop=1, is_right=True),
    TableColumn("begins", is_flexible=True),
)
CHANGE_STYLES = {
    "left_out": "red",
    "reduced": "yellow",
    "restored": "magenta",
    "put_in_front": "cyan",
    "reworded": "yellow",
}


def write_request(screen: CommandScreen, found: ExplainedRequest, *, sent: bool, why: bool) -> None:
    """Writes a request: its head, window and bill. `sent`: also its messages sent upstream; `why`: also the reasons."""
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


def _failure(screen: CommandScreen, entry: turn.LedgerEntry) -> None:
    """Writes how a request failed, and its failed attempts."""
    failure = entry.failure
    if failure is None:
        return
    if failure.status is not None or failure.message:
        status = f"HTTP {failure.status}: " if failure.status is not None else ""
        screen.line((f"{status}{failure.message or 'the message is not stored'}", "red"))
    for number, each in enumerate(failure.tries, 1):
        at = f" after {each.at_ms / 1000:.1f} s" if each.at_ms is not None else ""
        took = f", failed within {each.took_ms / 1000:.1f} s" if each.took_ms is not None else ", failed"
        told = " ".join(filter(None, (str(each.status), each.code, each.message)))
        screen.line((f"try {number}{at}: {each.route}{took}: {told}", FAINT))


def _head(screen: CommandScreen, found: ExplainedRequest) -> None:
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
    _failure(screen, entry)
    way = entry.metadata.get("routing_path") or [entry.model]
    endpoint = f"{entry.endpoint}, " if entry.endpoint else ""
    screen.line(f"arrived {when_text(entry.created_at, '%Y-%m-%d %H:%M:%S')} (UTC), {endpoint}model ",
                " → ".join(map(str, way)))  # fmt: skip
    if found.reason:
        screen.line((said(found.reason), "yellow"))


def _window(screen: CommandScreen, found: ExplainedRequest) -> None:
    used, bar = found.used, found.bar
    told = [f"{title} {used[name]}" for name, title in _TOLD if used.get(name)]
    if told:
        screen.line(", ".join(told))
    if bar is None:
        screen.line("window: not counted")
        return
    about = " (estimated)" if bar.estimated else ""
    parts = " + ".join(f"{name} {bar.parts[name]}" for name in WINDOW_PARTS if bar.parts[name])
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


def _left(screen: CommandScreen, bar: WindowBar) -> None:
    left = bar.left
    counts = ((left.messages, "messages"), (len(left.reduced), "artifacts reduced"), (len(left.excluded), "excluded"))
    told = [f"{count} {what}" for count, what in counts if count]
    if told:
        screen.line(f"left out: {', '.join(told)}; {left.chars} characters of artifacts")
    if left.by:
        screen.line("turns left by ", left.by)


def _bill(screen: CommandScreen, found: ExplainedRequest) -> None:
    rows: list[list[Piece]] = []
    for call in found.bill.calls:
        usage = (call.usage.get("prompt_tokens", ""), call.usage.get("completion_tokens", ""))
        costs = [printing.usd_text(each) or "unknown" for each in (call.prompt_cost, call.completion_cost, call.total)]
        rows.append([call.purpose, call.model, *map(str, usage), *costs, "estimated" if call.estimated else ""])
    if rows:
        total = printing.usd_text(found.bill.cost.total_cost) or "unknown"
        rows.append(["total", "", "", "", "", "", total, ""])
        screen.table(CALL_COLUMNS, rows)
    for each in found.bill.differences:
        screen.line(("does not balance: ", "red"), f"{each.figure}: stored {each.stored}, adds up to {each.found}")


def _sent(screen: CommandScreen, found: ExplainedRequest) -> None:
    screen.line()
    screen.line(("what was forwarded", "bold"))
    if not found.sent.is_exact:
        screen.line((said(found.sent.reason), "yellow"))
    if found.changes is None:
        return
    screen.table(MESSAGE_COLUMNS, [_message(number, each) for number, each in enumerate(found.changes, 1)])
    for each in found.changes:
        if each.lines is not None:
            shown = [line for line in each.lines.lines if line.kind in ("removed", "added")]
            count = sum(line.count for line in shown)
            screen.line((f"{each.role} {each.message_id or ''}: {count} lines differ", FAINT))


def _message(number: int, each: message_changes.MessageChange) -> list[Piece]:
    body = each.after if each.after is not None else each.before
    begins = one_line(message_changes.text_of_message(body or {}), BEGIN_CHARS)
    said_chars = str(each.before_chars) if each.before is not None else ""
    sent_chars = str(each.after_chars) if each.after is not None else ""
    role = f"{each.role} ({each.agent})" if each.agent else each.role
    change = (each.change, CHANGE_STYLES.get(each.change, ""))
    return [str(number), role, change, each.origin, said_chars, sent_chars, begins]


REQUEST = ("req_", ids.COMPLETION, ids.RESPONSE, ids.MESSAGE)
WHOLE_ID = len(ids.new_id(ids.CONVERSATION))
MAX_BILLS = 1000
"""The most bills of a deleted conversation that are listed."""


def show(call: CommandCall) -> int:
    """Shows a conversation, turn or request; returns 1 if it does not exist or the storage cannot be read.
    Raises ValueError: the options contradict each other or the id."""
    options, name = call.options, call.options.id
    if name.startswith(ids.CONVERSATION):
        if (options.sent or options.why) and options.turn is None:
            raise ValueError("--sent and --why are of requests: say --turn N as well, or a request's id")
    elif not name.startswith(REQUEST):
        raise ValueError(f"{name!r} is no id: say conv_…, req_…, chatcmpl-…, resp_… or msg_…")
    elif options.turn is not None:
        raise ValueError("--turn is of a conversation: say conv_…")

    async def work(transactions: DatabaseTransactions) -> int:
        shown = ShowCommand(call, transactions)
        try:
            return await (shown.conversation() if name.startswith(ids.CONVERSATION) else shown.request())
        except (errors.ConversationNotFound, errors.NotFound) as error:
            call.err.write(f"{error.message}\n")
            return 1

    return run_reading(call, work)


class ShowCommand:
    """One call of the command. Each method returns the exit status.
    Raises ConversationNotFound, NotFound: from any method: there is no such id, or it is another tenant's;
    StorageUnavailable: from any method: the storage cannot be reached."""

    def __init__(self, call: CommandCall, transactions: DatabaseTransactions) -> None:
        self.options, self.screen, self.err = call.options, call.screen, call.err
        self.transactions = transactions
        self._explained = ExplanationReader(PastReader(transactions), LargeDocuments(transactions, call.clock))
        self._min_chars = call.settings.context.document_min_chars

    async def conversation(self) -> int:
        """Shows a conversation, or with `--turn` one of its turns; of a deleted conversation its bills."""
        name = await self._named()
        turn = self.options.turn
        choice = TurnChoice() if turn is None else TurnChoice(turn=turn, limit=1)
        try:
            found = await self._explained.conversation(self.options.tenant, name, choice=choice)
        except errors.ConversationNotFound:
            return await self._deleted(name)
        if turn is not None:
            return await self._turn(found)
        await tell_missing(self.transactions, self.err)
        decided = await self._decided(found.page)
        if self.options.json:
            turns = [{**as_json.turn_json(turn), **of._asdict()} for turn, of in zip(found.page, decided, strict=True)]
            self.screen.json({**as_json.conversation_json(found), "turns": turns})
        else:
            write_conversation(self.screen, found, decided)
        return 0

    async def request(self) -> int:
        """Shows a request."""
        found = await self._request(self.options.id)
        if self.options.json:
            self.screen.json(self._request_json(found))
        else:
            write_request(self.screen, found, sent=self.options.sent, why=self.options.why)
        return 0

    async def _named(self) -> str:
        """Completes the beginning of an id. Raises ConversationNotFound: several ids begin with it."""
        name: str = self.options.id
        if len(name) >= WHOLE_ID:
            return name
        part = report_lists.ListPart(report_lists.ConversationChoice(tenant=self.options.tenant, id=name), limit=2)
        found = await self.transactions.run(lambda connection: request_list.list_conversations(connection, part))
        if len(found.found) > 1:
            raise errors.ConversationNotFound(
                f"Several conversations begin with {one_line(name)}: `gateway ls` lists them."
            )
        return found.found[0].id if found.found else name

    async def _deleted(self, name: str) -> int:
        """Shows the bills of a deleted conversation. Raises ConversationNotFound: there are none."""
        choice = report_lists.RequestChoice(tenant=self.options.tenant, conversation=name)
        query = report_lists.RequestQuery(choice, limit=MAX_BILLS)
        found = await request_search.RequestSearch(self.transactions).find(query)
        lines = [each.line for each in found.found]
        if not lines:
            raise errors.ConversationNotFound("No such conversation.", param="conversation_id")
        if self.options.json:
            bills = list(map(request_search.line_record, lines))
            told = {"object": "conversation.deleted", "conversation": {"id": name}, "bills": bills}
            self.screen.json({**told, "has_more": found.older is not None})
        else:
            self.err.write("This conversation was deleted. Its bills are left:\n")
            write_bills(self.screen, lines)
        return 0

    async def _turn(self, found: ExplainedConversation) -> int:
        number = self.options.turn
        turn = next((each for each in found.page if each.number == number), None)
        if turn is None:
            has = f"it has {found.turns}, counted from 1" if found.turns else "it has none"
            raise errors.NotFound(f"No such turn in the current branch: {has}.")
        requests = [await self._request_or_none(name) for name in turn.request_ids]
        if self.options.json:
            listed = [
                self._request_json(each) if each is not None else {"request_id": name, "bill": None}
                for name, each in zip(turn.request_ids, requests, strict=True)
            ]
            self.screen.json({"object": "turn.explanation", **as_json.turn_json(turn), "requests": listed})
            return 0
        write_turn(self.screen, found, turn)
        for name, each in zip(turn.request_ids, requests, strict=True):
            self.screen.line()
            if each is None:
                self.screen.line(f"request {name}: no bill here: it came with an import and was paid elsewhere")
            else:
                write_request(self.screen, each, sent=self.options.sent, why=self.options.why)
        return 0

    async def _request(self, name: str) -> ExplainedRequest:
        stored = await self._explained.request(self.options.tenant, ids.completion_of(name))
        return request.explained_request(stored, self._min_chars)

    async def _request_or_none(self, name: str) -> ExplainedRequest | None:
        try:
            return await self._request(name)
        except errors.NotFound:
            return None

    def _request_json(self, found: ExplainedRequest) -> Json:
        """Returns a request as JSON, with `--sent` including its messages exactly as sent upstream."""
        sent = {"sent": found.sent.messages} if self.options.sent else {}
        return {**as_json.request_json(found), **sent}

    async def _decided(self, turns: Sequence[ExplainedTurn]) -> list[TurnDecisions]:
        names = [name for turn in turns for name in turn.request_ids]
        read = await self.transactions.run(lambda connection: request_list.read_metadata(connection, names))
        by_id = dict(zip(names, read, strict=True))
        return [decided_in(by_id[name] for name in turn.request_ids) for turn in turns]
