"""`gateway ls`: conversations, most recently active first (guarantee §13.9)."""

from typing import Any

from gateway.core import clock, ids, printing
from gateway.core.jsons import picked
from gateway.core.types import report_lists
from gateway.operations.screen import (
    COST_STYLE,
    FAINT,
    ID_STYLE,
    PLANNING_STYLE,
    WHO_STYLE,
    CommandCall,
    Piece,
    TableColumn,
    when_text,
)
from gateway.operations.storage_reader import run_reading, tell_missing, tell_sealed
from gateway.storage.database import DatabaseTransactions
from gateway.storage.reports import request_list

CONVERSATION_COLUMNS = (
    TableColumn("conversation", ID_STYLE),
    TableColumn("active (UTC)", drop=2),
    TableColumn("requests", drop=4, is_right=True),
    TableColumn("tokens in", drop=5, is_right=True),
    TableColumn("tokens out", drop=5, is_right=True),
    TableColumn("cost USD", COST_STYLE, drop=1, is_right=True),
    TableColumn("planning USD", PLANNING_STYLE, drop=6, is_right=True),
    TableColumn("tenant", drop=8),
    TableColumn("user", WHO_STYLE, drop=3),
    TableColumn("model", drop=7),
    TableColumn("session", drop=9),
    TableColumn("question", is_flexible=True),
)
CONVERSATION_CSV = (
    *("id", "tenant", "sessions", "question", "user", "model", "created_at", "updated_at", "requests"),
    *("prompt_tokens", "completion_tokens", "cost", "planning_cost", "unpriced", "estimated"),
)
DELETED_QUESTION = "(deleted)"
"""Shown instead of a question whose item was deleted."""


def ls(call: CommandCall) -> int:
    """Lists conversations; returns 1 if the storage cannot be read. Raises ValueError: `--since` is no time."""
    options, text = call.options, call.options.text or ""
    part = report_lists.ListPart(
        report_lists.ConversationChoice(
            tenant=options.tenant,
            id=text if text.startswith(ids.CONVERSATION) else None,
            session=options.session,
            user=options.user,
            model=options.model,
            text=None if text.startswith(ids.CONVERSATION) else text,
        ),
        since=clock.parse_when("--since", options.since, call.clock.now()),
        limit=options.limit,
    )

    async def work(transactions: DatabaseTransactions) -> int:
        if part.having.text:
            await tell_sealed(transactions, call.err)
        found = await transactions.run(lambda connection: request_list.list_conversations(connection, part))
        has_more, missing = found.older is not None, await tell_missing(transactions, call.err)
        return call.write_list(
            CONVERSATION_CSV,
            [conversation_json(line) for line in found.found],
            CONVERSATION_COLUMNS,
            map(_row, found.found),
            empty="no conversations",
            more=f"and older ones: raise --limit, now {part.limit}" if has_more else "",
            has_more=has_more,
            bills_not_counted=missing,
        )

    return run_reading(call, work)


def conversation_json(line: report_lists.ConversationLine) -> dict[str, Any]:
    """Returns a conversation as JSON; `cost` sums priced calls, `unpriced` counts requests with an unpriced call."""
    return {
        "id": line.id,
        "object": "conversation",
        "tenant": line.tenant,
        "sessions": list(line.sessions),
        **picked(line, "question", "user", "model"),
        "created_at": int(line.created_at.timestamp()),
        "updated_at": int(line.updated_at.timestamp()),
        **report_lists.figures_of_conversation(line.sums),
    }


def _row(line: report_lists.ConversationLine) -> list[Piece]:
    sums = line.sums
    question: Piece = line.question if line.question else (DELETED_QUESTION if line.question == "" else "", FAINT)
    figures = (str(sums.requests), str(sums.prompt_tokens), str(sums.completion_tokens))
    costs = (printing.cost_text(sums.cost, sums.unpriced, is_known=bool(sums.priced)), printing.usd_text(sums.planning))
    who = (line.tenant, line.user or "", line.model or "", ", ".join(line.sessions))
    return [line.id, when_text(line.updated_at), *figures, *costs, *who, question]
