"""A conversation: what it took, a line for each turn, and its branches."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.core.printing import cost_text, usd_text
from gateway.core.types.report_lists import RequestLine
from gateway.inspection.explained_conversation import BranchRun, ExplainedConversation, ExplainedTurn
from gateway.operations.listed import (
    COST_STYLE,
    FAINT,
    ID_STYLE,
    PLANNING_STYLE,
    STATUS_STYLES,
    WHO_STYLE,
    request_cost,
    sums_text,
    when_text,
)
from gateway.operations.screen import CommandScreen, Piece, TableColumn

TURNS = (
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
BILLS = (
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
    """What the requests of a turn decided on: how many artifacts, and which warnings they had."""

    artifacts_decided: int
    warnings: list[str]


def decided_in(metadata: Iterable[Mapping[str, Any]]) -> TurnDecisions:
    """Out of the bills of a turn."""
    used = [each.get("context_utilization") or {} for each in metadata]
    artifacts = sum(len(each.get("artifacts_processed") or ()) for each in used)
    return TurnDecisions(
        artifacts, list(dict.fromkeys(str(text) for each in used for text in each.get("warnings") or ()))
    )


def write_conversation(screen: CommandScreen, found: ExplainedConversation, decided: Sequence[TurnDecisions]) -> None:
    """The whole of it; of a long one the latest turns."""
    _head(screen, found)
    if not found.turns:
        screen.line("nothing was said in it yet")
        return
    if found.first > 1:
        screen.line((f"turns 1 to {found.first - 1} are not listed: --turn N shows each", FAINT))
    screen.line()
    screen.table(TURNS, [_turn(turn, of) for turn, of in zip(found.page, decided, strict=True)])
    if len(found.branches) > 1:
        screen.line()
        screen.line(("branches, * is the current one", "bold"))
        for run in found.branches:
            screen.line(*_branch(run))


def write_turn(screen: CommandScreen, found: ExplainedConversation, turn: ExplainedTurn) -> None:
    """The head of one turn."""
    sums = turn.sums
    name, status = found.outline.conversation_id, (turn.status, STATUS_STYLES.get(turn.status, "yellow"))
    screen.line(("conversation ", "bold"), (name, ID_STYLE), f", turn {turn.number} of {found.turns}: ", status)
    screen.line("question: ", turn.question or "")
    screen.line(f"cost: {_cost(turn)} USD, of that planning {usd_text(sums.planning)}")


def write_bills(screen: CommandScreen, lines: Sequence[RequestLine]) -> None:
    """Requests by their bills alone."""
    screen.table(BILLS, [_bill(line) for line in lines])


def _head(screen: CommandScreen, found: ExplainedConversation) -> None:
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
    net = usd_text(sums.net_saving) if sums.metered else "unknown"
    cost = f", of that planning {usd_text(sums.planning_cost)}, net saving {net}{estimated}"
    screen.line(tokens, (f"{sums_text(sums)} USD", COST_STYLE), cost)
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
        *(_cost(turn), usd_text(sums.planning)),
        *(str(decided.artifacts_decided or ""), (str(len(decided.warnings) or ""), "yellow")),
        turn.question or "",
    ]


def _cost(turn: ExplainedTurn) -> str:
    sums = turn.sums
    is_known = bool(sums.cost) or sums.unpriced < len(turn.request_ids)
    return cost_text(sums.cost, sums.unpriced, is_known=is_known)


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


def _bill(line: RequestLine) -> list[Piece]:
    status = (line.status, STATUS_STYLES.get(line.status, ""))
    tokens = (str(line.prompt_tokens), str(line.completion_tokens))
    return [line.id, when_text(line.created_at), status, line.model, *tokens, request_cost(line),
            usd_text(line.planning_cost)]  # fmt: skip
