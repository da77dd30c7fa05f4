"""`gateway ls`: conversations, most recently active first (guarantee §13.9)."""

import argparse
from collections.abc import Mapping
from typing import TextIO

from gateway.core.clock import parse_when
from gateway.core.config.settings import Settings
from gateway.core.ports import Clock
from gateway.core.printing import usd_text
from gateway.core.types.report_lists import ConversationChoice, ConversationLine, ListPart
from gateway.operations.listed import (
    COST_STYLE,
    FAINT,
    ID_STYLE,
    PLANNING_STYLE,
    WHO_STYLE,
    conversation_json,
    sums_text,
    when_text,
)
from gateway.operations.screen import CommandScreen, Piece, TableColumn
from gateway.operations.storage_reader import run_reading, tell_missing
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.reports.request_list import list_conversations

ID = "conv_"
COLUMNS = (
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
CSV = (
    *("id", "tenant", "sessions", "question", "user", "model", "created_at", "updated_at", "requests"),
    *("prompt_tokens", "completion_tokens", "cost", "planning_cost", "unpriced", "estimated"),
)
FORGOTTEN = "(deleted)"
"""In the place of a question of which an item was deleted."""


def ls(
    settings: Settings, options: argparse.Namespace, clock: Clock, environ: Mapping[str, str], out: TextIO, err: TextIO
) -> int:
    """Writes the list; returns 1 if the storage cannot be read. Raises ValueError: `--since` is no time."""
    text = options.text or ""
    part = ListPart(
        ConversationChoice(
            tenant=options.tenant,
            id=text if text.startswith(ID) else None,
            session=options.session,
            user=options.user,
            model=options.model,
            text=None if text.startswith(ID) else text,
        ),
        since=parse_when("--since", options.since, clock.now()),
        limit=options.limit,
    )
    screen = CommandScreen(out, environ)

    async def work(transactions: DatabaseTransactions) -> int:
        found = await transactions.run(lambda connection: list_conversations(connection, part))
        missing = await tell_missing(transactions, err)
        listed = [conversation_json(line) for line in found.found]
        if options.csv:
            screen.csv(CSV, listed)
            return 0
        if options.json:
            has_more = found.older is not None
            screen.json({"object": "list", "data": listed, "has_more": has_more, "bills_not_counted": missing})
            return 0
        if not found.found:
            err.write("no conversations\n")
            return 0
        screen.table(COLUMNS, [_row(line) for line in found.found])
        if found.older is not None and screen.is_terminal:
            screen.line((f"and older ones: raise --limit, now {part.limit}", FAINT))
        return 0

    return run_reading(settings, work, err)


def _row(line: ConversationLine) -> list[Piece]:
    sums = line.sums
    question: Piece = line.question if line.question else (FORGOTTEN if line.question == "" else "", FAINT)
    figures = (str(sums.requests), str(sums.prompt_tokens), str(sums.completion_tokens))
    costs = (sums_text(sums), usd_text(sums.planning_cost))
    who = (line.tenant, line.user or "", line.model or "", ", ".join(line.sessions))
    return [line.id, when_text(line.updated_at), *figures, *costs, *who, question]
