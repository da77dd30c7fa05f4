"""A conversation turn by turn: windows, costs, and its branches as a tree."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from gateway.billing import cost
from gateway.core.frozen_records import record
from gateway.core.types import bill, past_turns, tool_steps, turn
from gateway.core.types.conversation import ConversationMessage
from gateway.inspection.message_changes import text_of_message
from gateway.inspection.rebuilt_turns import in_turns
from gateway.inspection.window_bar import WindowBar, window_bar

FIRST_SAID, LAST_SAID = 10, 40
"""Messages of one turn that are shown: of a long tool loop, the first and the last."""
MAX_EXPLAINED_FAILURES = 20
"""Failed requests that a page of turns shows."""
MAX_RUNS = 500
"""Pieces of branches that a tree shows."""
REPLAYED, CHOICE, FAILED, EDITED = "replay", "choice", "failed", "edited"
"""Why there is another branch: turns were replayed; one of several answers to one request; a request failed; a message
was edited or an answer regenerated."""


@record
class TurnSums:
    """Sums of requests: tokens of the primary model, `cached` ones of the prompt as providers reported them, and USD:
    `cost` with internal calls (`planning`), a lower bound where `unpriced` requests have no total."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost: Decimal
    planning: Decimal
    unpriced: int
    estimated: bool
    net_saving: Decimal = Decimal(0)
    metered: int = 0
    """Requests whose net saving is known."""
    milliseconds: float | None = None
    """Durations of the requests, added up; None where no bill has one."""


@record
class SaidCall:
    """A tool's call, and its result where that is stored."""

    name: str
    arguments: str
    result: str | None = None


@record
class SaidMessage:
    """The content of one message of a turn: its text, its model's reasoning, and its calls with their results.
    `is_cut`: only the beginning was read."""

    role: str
    who: str | None
    text: str
    reasoning: str = ""
    calls: tuple[SaidCall, ...] = ()
    status: str = "complete"
    is_cut: bool = False


@record
class FailedRequest:
    """A request that failed, or whose answer broke off. `status`: the HTTP status returned to the client; `message`:
    the cause, in the upstream's own words where it sent any and content is stored."""

    request_id: str
    error_code: str | None
    created_at: datetime
    model: str | None = None
    status: int | None = None
    message: str | None = None


@record
class ExplainedTurn:
    """One turn. `bar`: of its last answered request, None without a bill; `sums`: of all its requests."""

    number: int
    message_id: str
    question: str | None
    status: str
    created_at: datetime | None
    request_ids: tuple[str, ...]
    agents: tuple[str, ...]
    models: tuple[str, ...]
    bar: WindowBar | None
    sums: TurnSums
    pinned: int = 0
    said: tuple[SaidMessage, ...] = ()
    """If requested; the `untold` messages in the middle of a long turn are left out."""
    untold: int = 0
    broken: tuple[FailedRequest, ...] = ()
    """Its own requests that ended with an error."""
    failed: tuple[FailedRequest, ...] = ()
    """Requests that failed after this turn, without an answer on the branch."""


@record
class BranchRun:
    """An unbroken piece of a branch: from `first_turn` to `last_turn`, up to the message `last_id`. `depth` is the
    number of forks above it, `parent` the index of the run that it forks from. `why`: the reason for the run; None for
    the first, and for a run that was current from the start. `leaf_id` ends a branch, None where the run forks."""

    first_id: str
    last_id: str
    first_turn: int
    last_turn: int
    messages: int
    requests: int
    depth: int
    parent: int | None
    is_current: bool
    why: str | None = None
    replay_id: str | None = None
    leaf_id: str | None = None
    statuses: tuple[str, ...] = ()
    request_id: str = ""
    """Of its first message."""
    beside: str | None = None
    """The request with which a sibling branch begins, preferably the current one: what this run is compared with."""


@record
class ExplainedConversation:
    """A page of a conversation's turns, and its branches. `turns` counts all turns of the branch; `branch_id` is the
    last message of the branch shown, `is_current` whether it is the conversation's current one."""

    outline: past_turns.ConversationOutline
    branch_id: str | None
    is_current: bool
    turns: int
    first: int
    page: tuple[ExplainedTurn, ...]
    branches: tuple[BranchRun, ...]
    failed: tuple[FailedRequest, ...] = ()
    """Requests that failed before anything was answered."""


def branch_of(outline: past_turns.ConversationOutline, last: str | None = None) -> past_turns.ConversationPath:
    """Builds a branch for `turns_of`: turns whole, messages without their content.
    `last`: its last message; None: that of the current branch."""
    by_id = {each.message_id: each for each in outline.messages}
    results: dict[str, list[str]] = {}
    for each in outline.messages:
        if each.call_id is not None:
            results.setdefault(each.call_id, []).append(each.message_id)
    found: list[past_turns.PathMessage] = []
    at = last if last is not None else outline.head_id
    while at is not None and at in by_id and len(found) <= len(by_id):
        found.append(_bare(by_id[at], results.get(at, ())))
        at = by_id[at].parent_id
    path = past_turns.ConversationPath(outline.conversation_id, tuple(reversed(found)), {}, outline.forgotten_at)
    return in_turns(path)


def _bare(each: past_turns.OutlinedMessage, results: Sequence[str]) -> past_turns.PathMessage:
    """Builds a message without content whose calls and results still pair."""
    body: dict[str, object] = {"role": each.role}
    if results:
        body["tool_calls"] = [{"id": name} for name in results]
    if each.call_id is not None:
        body["tool_call_id"] = each.message_id
    message = ConversationMessage(
        each.role,
        body,
        sequence_number=each.number,
        message_id=each.message_id,
        status=each.status,
        created_at=each.created_at,
        agent=each.agent,
    )
    return past_turns.PathMessage(message, each.request_id, each.choice, each.instructions)


def explained_conversation(
    outline: past_turns.ConversationOutline,
    branch: past_turns.ConversationPath,
    count: int,
    turns: Sequence[past_turns.PastTurn],
    page: past_turns.OutlinedPage,
    first: int,
) -> ExplainedConversation:
    """Explains a page of a branch's turns. `branch`: as `branch_of` returns it, with `count` turns; `turns`: those of
    the page, beginning with turn number `first`."""
    last = branch.messages[-1].message.message_id if branch.messages else None
    failed = failed_behind(outline, turns, first)
    found = tuple(_turn(each, page, outline.pinned, failed) for each in turns)
    is_current = last == outline.head_id or last is None
    runs = branch_runs(outline)
    return ExplainedConversation(
        outline, last, is_current, count, first, found, runs, _failed(failed.get(None, ()), page)
    )


def told_messages(turn: past_turns.PastTurn) -> list[past_turns.PathMessage]:
    """Returns the messages of a turn that a page shows, including tool results."""
    if len(turn.messages) <= FIRST_SAID + LAST_SAID:
        return list(turn.messages)
    return [*turn.messages[:FIRST_SAID], *turn.messages[-LAST_SAID:]]


def failed_behind(
    outline: past_turns.ConversationOutline, turns: Sequence[past_turns.PastTurn], first: int
) -> dict[str | None, list[past_turns.OutlinedMessage]]:
    """Groups messages of failed requests, one for each request, by the message of these turns that they follow; under
    None those that follow none, if the first of these turns is the first of the branch."""
    shown: set[str | None] = {str(each.message.message_id) for turn in turns for each in turn.messages}
    if first == 1:
        shown.add(None)
    found: dict[str | None, list[past_turns.OutlinedMessage]] = {}
    seen = {each.request_id for turn in turns for each in turn.requests}
    for each in reversed(outline.messages):
        if each.status != "failed" or each.parent_id not in shown or each.request_id in seen:
            continue
        seen.add(each.request_id)
        if len(seen) > MAX_EXPLAINED_FAILURES + sum(len(turn.requests) for turn in turns):
            break
        found.setdefault(each.parent_id, []).insert(0, each)
    return found


def _failed(messages: Iterable[past_turns.OutlinedMessage], page: past_turns.OutlinedPage) -> tuple[FailedRequest, ...]:
    bills = [(each, page.bills.get(each.request_id)) for each in messages]
    return tuple(
        _failure(bill) if bill is not None else FailedRequest(each.request_id, None, each.created_at)
        for each, bill in bills
    )


def _failure(bill: turn.LedgerEntry) -> FailedRequest:
    told = bill.failure
    status, message = (told.status, told.message) if told is not None else (None, None)
    return FailedRequest(bill.request_id, bill.error_code, bill.created_at, bill.model, status, message)


def _turn(
    turn: past_turns.PastTurn,
    page: past_turns.OutlinedPage,
    pinned: frozenset[str],
    failed: Mapping[str | None, Sequence[past_turns.OutlinedMessage]],
) -> ExplainedTurn:
    messages = [each.message for each in turn.messages]
    names = tuple(dict.fromkeys(request.request_id for request in turn.requests))
    bills = [page.bills[name] for name in names if name in page.bills]
    answered = [page.bills[r.request_id] for r in turn.answered if r.request_id in page.bills]
    question = next((page.texts[str(m.message_id)] for m in messages if str(m.message_id) in page.texts), None)
    last = turn.messages[-1].message
    is_step = last.role == "assistant" and bool(last.body.get("tool_calls"))
    bars = [window_bar(entry) for entry in answered]
    return ExplainedTurn(
        number=turn.number,
        message_id=str(messages[0].message_id),
        question=question,
        status=last.status if last.role == "assistant" and not is_step else "unanswered",
        created_at=messages[0].created_at,
        request_ids=names,
        agents=tuple(dict.fromkeys(m.agent for m in messages if m.agent)),
        models=tuple(dict.fromkeys(entry.model for entry in bills)),
        bar=bars[-1] if bars else None,
        sums=_sums(bills, sum(bar.reported_cached for bar in bars)),
        pinned=sum(m.message_id in pinned for m in messages),
        said=_said(turn, page),
        untold=max(0, len(messages) - FIRST_SAID - LAST_SAID),
        broken=tuple(_failure(entry) for entry in bills if entry.error_code),
        failed=tuple(each for m in messages for each in _failed(failed.get(str(m.message_id), ()), page)),
    )


def _said(turn: past_turns.PastTurn, page: past_turns.OutlinedPage) -> tuple[SaidMessage, ...]:
    """Returns the contents of a turn's messages, each call with its result."""
    if not page.bodies:
        return ()
    messages = [each.message for each in told_messages(turn)]
    results: dict[str, list[str]] = {}
    """By the ids of calls; legacy functions have none and are listed by name."""
    for message in messages:
        body = page.bodies.get(str(message.message_id), {})
        if message.role in tool_steps.RESULT_ROLES:
            name = str(body.get("tool_call_id") or body.get("name") or "")
            results.setdefault(name, []).append(tool_steps.text_of(body.get("content")))
    found: list[SaidMessage] = []
    for message in messages:
        name = str(message.message_id)
        if message.role in tool_steps.RESULT_ROLES or name not in page.bodies:
            continue
        found.append(_message(message, page.bodies[name], results, is_cut=name in page.cut))
    return tuple(found)


def _message(
    message: ConversationMessage, body: Mapping[str, Any], results: Mapping[str, list[str]], *, is_cut: bool
) -> SaidMessage:
    calls = []
    for call in tool_steps.calls_of(body):
        name, arguments = tool_steps.asked(call)
        of_it = results.get(str(call.get("id") or name), [])
        calls.append(SaidCall(name, arguments, of_it.pop(0) if of_it else None))
    text = text_of_message({"content": body.get("content")})
    if isinstance(refusal := body.get("refusal"), str) and refusal:
        text = f"{text}\n\n{refusal}" if text else refusal
    reasoning = body.get("reasoning_content")
    return SaidMessage(
        message.role,
        message.agent or (str(body["name"]) if body.get("name") else None),
        text,
        reasoning if isinstance(reasoning, str) else "",
        tuple(calls),
        message.status,
        is_cut,
    )


def _sums(bills: Sequence[turn.LedgerEntry], cached: int) -> TurnSums:
    usage = [entry.metadata.get("usage") or {} for entry in bills]
    calls = [call for entry in bills for call in entry.calls]
    known = [each for call in calls if (each := call.total) is not None]
    internal = [each for call in calls if call.purpose not in bill.MODEL_PURPOSES and (each := call.total) is not None]
    figures = [cost.ledger_figures(entry.metadata, entry.calls).net_saving for entry in bills]
    nets = [each for each in figures if each is not None]
    took = [(entry.metadata.get("timings_ms") or {}).get("total") for entry in bills]
    timed = [float(each) for each in took if each is not None]
    return TurnSums(
        prompt_tokens=sum(int(each.get("prompt_tokens") or 0) for each in usage),
        completion_tokens=sum(int(each.get("completion_tokens") or 0) for each in usage),
        cached_tokens=cached,
        cost=sum(known, Decimal(0)),
        planning=sum(internal, Decimal(0)),
        unpriced=sum(any(call.total is None for call in entry.calls) for entry in bills),
        estimated=any(call.estimated for call in calls),
        net_saving=sum(nets, Decimal(0)),
        metered=len(nets),
        milliseconds=sum(timed) if timed else None,
    )


def branch_runs(outline: past_turns.ConversationOutline) -> tuple[BranchRun, ...]:
    """Splits the branches into runs, each after the one that it forks from, `MAX_RUNS` at most; among siblings the
    current one first."""
    children: dict[str | None, list[past_turns.OutlinedMessage]] = {}
    for each in outline.messages:
        children.setdefault(each.parent_id, []).append(each)
    current = _way(outline)
    replays = {each.at_id: each.replay_id for each in outline.replays if each.at_id is not None}
    found: list[BranchRun] = []
    roots: list[tuple[past_turns.OutlinedMessage, int, bool, int, int | None]] = []
    roots += [(each, 0, False, 0, None) for each in reversed(_ordered(children.get(None, ()), current))]
    while roots and len(found) < MAX_RUNS:
        first, turn, in_loop, depth, parent = roots.pop()
        run, last_turn, loop_after = _run(first, turn, children, in_loop=in_loop)
        ends = run[-1]
        siblings = children.get(first.parent_id, ())
        named = next((replays[m.message_id] for m in run if m.message_id in replays), None)
        is_current = first.message_id in current
        below = children.get(ends.message_id, ())
        found.append(
            BranchRun(
                first.message_id,
                ends.message_id,
                turn + 1 if (first.role == "user" and not in_loop) or turn == 0 else turn,
                last_turn,
                len(run),
                len({m.request_id for m in run}),
                depth,
                parent,
                is_current,
                _why(first, siblings, run, named, is_current=is_current),
                named,
                None if below else ends.message_id,
                tuple(sorted({m.status for m in run if m.status != "complete"})),
                first.request_id,
                _beside(first, _ordered(siblings, current)),
            )
        )
        index = len(found) - 1
        roots += [(each, last_turn, loop_after, depth + 1, index) for each in reversed(_ordered(below, current))]
    return tuple(found)


def _run(
    first: past_turns.OutlinedMessage,
    turn: int,
    children: Mapping[str | None, Sequence[past_turns.OutlinedMessage]],
    *,
    in_loop: bool,
) -> tuple[list[past_turns.OutlinedMessage], int, bool]:
    """Returns the messages from `first` down to where the branch forks or ends, the number of the last one's turn, and
    whether a user message after it would be in a tool loop. `in_loop`: whether the first is in one."""
    run, last = [first], max(1, turn + (first.role == "user" and not in_loop))
    in_loop = tool_steps.in_loop_after(first.role, before=in_loop)
    while len(below := children.get(run[-1].message_id, ())) == 1:
        each = below[0]
        beside = run[-1].role == "user" and run[-1].request_id == each.request_id
        last += each.role == "user" and not (beside or in_loop)
        in_loop = tool_steps.in_loop_after(each.role, before=in_loop)
        run.append(each)
    return run, last, in_loop


def _beside(first: past_turns.OutlinedMessage, siblings: Sequence[past_turns.OutlinedMessage]) -> str | None:
    others = [each.request_id for each in siblings if each is not first and each.request_id != first.request_id]
    return others[0] if others else None


def _way(outline: past_turns.ConversationOutline) -> frozenset[str]:
    parents = {each.message_id: each.parent_id for each in outline.messages}
    found: set[str] = set()
    at = outline.head_id
    while at is not None and at in parents and at not in found:
        found.add(at)
        at = parents[at]
    return frozenset(found)


def _ordered(some: Sequence[past_turns.OutlinedMessage], current: frozenset[str]) -> list[past_turns.OutlinedMessage]:
    return sorted(some, key=lambda each: (each.message_id not in current, each.number, each.created_at))


def _why(
    first: past_turns.OutlinedMessage,
    siblings: Sequence[past_turns.OutlinedMessage],
    run: Sequence[past_turns.OutlinedMessage],
    replay_id: str | None,
    *,
    is_current: bool,
) -> str | None:
    if replay_id is not None and not is_current:
        return REPLAYED
    if all(each.status == "failed" for each in run):
        return FAILED
    if len(siblings) < 2 or is_current:
        return None
    same = [each for each in siblings if each is not first and each.request_id == first.request_id]
    return CHOICE if first.choice is not None and same else EDITED
