"""Explanations as JSON-ready values. Texts from clients and models are cut to `MAX_TOLD_CHARS`, and marked as cut."""

from dataclasses import asdict

from gateway.core.jsons import Json, picked
from gateway.core.types import report_lists
from gateway.inspection.explained_artifacts import ExplainedArtifact
from gateway.inspection.explained_conversation import BranchRun, ExplainedConversation, ExplainedTurn
from gateway.inspection.explained_request import ExplainedBill, ExplainedRequest
from gateway.inspection.message_changes import MessageChange, counted, text_of_message
from gateway.inspection.prefix import PrefixDivergence
from gateway.inspection.window_bar import WindowBar

MAX_TOLD_CHARS = 20_000
"""Most characters of one text."""
WHY = (
    *("strategy", "goal", "planning_reason", "fallback_reason", "llm_planning_used"),
    *("economics", "profile", "warnings"),
)
"""Fields of a bill that explain how a context was made."""


def conversation_json(found: ExplainedConversation) -> Json:
    """Renders a page of a conversation's turns, branches and sums. Costs are USD, of the calls that have a price."""
    outline = found.outline
    return {
        "object": "conversation.explanation",
        "conversation": {"id": outline.conversation_id},
        "tenant": outline.tenant,
        "session": outline.session,
        "created_at": int(outline.created_at.timestamp()),
        "updated_at": int(outline.updated_at.timestamp()),
        "forgotten_at": int(outline.forgotten_at.timestamp()) if outline.forgotten_at else None,
        "sums": report_lists.figures_of_conversation(outline.sums),
        "branch": found.branch_id,
        "is_current": found.is_current,
        "turns_in_all": found.turns,
        "turns": [turn_json(turn) for turn in found.page],
        "branches": [_run(each) for each in found.branches],
        "summaries": [{"turns": [s.first_turn, s.last_turn], "text": s.text} for s in outline.segments],
        "pinned": sorted(outline.pinned),
    }


def turn_json(turn: ExplainedTurn) -> Json:
    return {
        "id": turn.message_id,
        **picked(turn, "number", "question", "status", "request_ids", "agents", "models", "pinned"),
        "created_at": int(turn.created_at.timestamp()) if turn.created_at else None,
        "window": bar_json(turn.bar),
        **{("planning_cost" if name == "planning" else name): value for name, value in asdict(turn.sums).items()},
    }


def bar_json(bar: WindowBar | None) -> Json | None:
    """Renders a window in tokens; None where none was counted."""
    if bar is None:
        return None
    left = {"artifacts_reduced": len(bar.left.reduced), "artifacts_excluded": len(bar.left.excluded)}
    return {
        "context_window": bar.window,
        "budget_tokens": bar.budget,
        **picked(bar, "tokens", "estimated", "parts"),
        "cached_tokens": bar.reported_cached,
        "cache_write_tokens": bar.written,
        "left": {**picked(bar.left, "messages", "chars", "tokens", "by"), **left},
    }


def _run(run: BranchRun) -> Json:
    return {**asdict(run), "statuses": list(run.statuses)}


def request_json(found: ExplainedRequest) -> Json:
    entry = found.entry
    return {
        "object": "request.explanation",
        **picked(entry, "request_id", "completion_id", "tenant", "model", "status", "error_code"),
        "conversation": {"id": entry.conversation_id} if entry.conversation_id else None,
        "turn": found.number,
        "agent": entry.metadata.get("agent"),
        "failure": asdict(entry.failure) if entry.failure is not None else None,
        "created_at": int(entry.created_at.timestamp()),
        "routing_path": entry.metadata.get("routing_path"),
        "why": {name: found.used.get(name) for name in WHY if found.used.get(name) is not None},
        "window": bar_json(found.bar),
        "reason": found.reason,
        "sent_is_exact": found.sent.is_exact,
        "sent_reason": found.sent.reason,
        "messages": [_change(each) for each in found.changes] if found.changes is not None else None,
        "messages_by_change": dict(counted(found.changes or ())),
        "artifacts": [_artifact(each) for each in found.artifacts],
        **picked(found, "plan", "planner_prompt"),
        "prefix": _divergence(found.divergence),
        "prefix_is_comparable": found.is_comparable,
        "previous_request_id": found.previous_request_id,
        "bill": bill_json(found.bill),
        "timings_ms": dict(found.timings),
    }


def _change(each: MessageChange) -> Json:
    lines = each.lines
    return {
        "change": each.change,
        "from": each.origin,
        "id": each.message_id,
        **picked(each, "role", "agent", "before_chars", "after_chars"),
        "text": cut(text_of_message(each.before or each.after or {})),
        "diff": [[line.kind, cut(line.text), line.count] for line in lines.lines] if lines is not None else None,
        "diff_is_whole": lines.is_whole if lines is not None else None,
    }


def _artifact(each: ExplainedArtifact) -> Json:
    return {
        **each.record,
        **picked(each, "planned", "rank", "title", "message_id"),
        "passages": [list(span) for span in each.passages.spans],
        "passages_are_of": None if each.original is None else "compacted" if each.is_compacted else "original",
        "original_is_gone": each.reason,
        "shown": cut(each.shown.text) if each.shown is not None else None,
    }


def _divergence(found: PrefixDivergence | None) -> Json | None:
    if found is None:
        return None
    told = asdict(found)
    told["cached_rate_is_todays"] = told.pop("is_todays_rate")
    told["before"] = cut(text_of_message(found.before or {}))
    told["after"] = cut(text_of_message(found.after)) if found.after is not None else None
    return {**told, "estimated": True}


def bill_json(bill: ExplainedBill) -> Json:
    """Renders the arithmetic of a bill; all figures are exact."""
    return {
        "calls": [asdict(call) for call in bill.calls],
        "cost": asdict(bill.cost),
        "balances": bill.balances,
        "differences": [[each.figure, each.stored, each.found] for each in bill.differences],
        **picked(bill, "direct_cost", "net_saving", "realised_saving"),
    }


def cut(text: str, most: int = MAX_TOLD_CHARS) -> str:
    """Cuts a text to `most` characters, and appends how many were cut."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"
