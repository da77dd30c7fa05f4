"""`gateway costs`: sums of bills with their net savings, one table for each group (guarantee §13.1).

The sums equal those of `gateway audit` over the same requests, but come from the roll-ups: a year takes a moment.
"""

import argparse
from dataclasses import replace
from datetime import datetime
from typing import Any, TextIO

from gateway.billing import cost
from gateway.core import clock, printing
from gateway.core.types import bill
from gateway.operations.screen import (
    COST_STYLE,
    FAINT,
    PLANNING_STYLE,
    WHO_STYLE,
    CommandCall,
    CommandScreen,
    Piece,
    TableColumn,
)
from gateway.operations.storage_reader import run_reading, tell_missing
from gateway.storage import keyed_hashes
from gateway.storage.database import DatabaseTransactions
from gateway.storage.reports import CostReports

ROWS_SHOWN = 50
"""Rows of a table without `--limit`: the latest days, else the most expensive."""
UNNAMED = "(none)"
SAVED_STYLE = "green"
COST_COLUMNS = (
    TableColumn("requests", drop=3, is_right=True),
    TableColumn("tokens in", drop=4, is_right=True),
    TableColumn("from cache", drop=6, is_right=True),
    TableColumn("to cache", drop=7, is_right=True),
    TableColumn("tokens out", drop=4, is_right=True),
    TableColumn("cost USD", COST_STYLE, is_right=True),
    TableColumn("planning USD", PLANNING_STYLE, drop=1, is_right=True),
    TableColumn("net saving USD", SAVED_STYLE, drop=2, is_right=True),
    TableColumn("saved USD", FAINT, drop=10, is_right=True),
    TableColumn("unpriced", drop=5, is_right=True),
    TableColumn("estimated", drop=8, is_right=True),
    TableColumn("partial", drop=9, is_right=True),
    TableColumn("failed", drop=9, is_right=True),
)
Tables = dict[tuple[str, ...], bill.CostReport]


def costs(call: CommandCall) -> int:
    """Writes the cost tables; returns 1 if the storage cannot be read.
    Raises ValueError: `--by` names no group, `--since` or `--until` is no time, or they are in the wrong order."""
    options = call.options
    since, until = clock.parse_period(options.since, options.until, call.clock.now())
    queries = [_query(options, by, since, until) for by in groups_of(options.by)]

    async def work(transactions: DatabaseTransactions) -> int:
        reports, user, names = CostReports(transactions), options.user, tuple[str, ...]()
        if user is not None:
            names = await transactions.run(lambda connection: keyed_hashes.names_of_user(connection, user))
        tables = {query.by: await reports.report(replace(query, users=names)) for query in queries}
        missing = await tell_missing(transactions, call.err)
        if options.json:
            call.screen.json(_as_json(tables, options.limit, (since, until), missing))
        elif options.csv:
            shown = {by: report.at_most(options.limit or len(report.rows))[0] for by, report in tables.items()}
            call.out.write("".join(cost.as_csv(shown)))
        else:
            _show(call.screen, tables, options.limit or ROWS_SHOWN, call.err)
        return 0

    return run_reading(call, work)


def groups_of(text: str) -> list[tuple[str, ...]]:
    """Parses `--by`: commas separate tables, `+` combines groups in one table.
    Raises ValueError: there is no such group."""
    found = [tuple(name.strip() for name in part.split("+")) for part in text.split(",") if part.strip()]
    for name in (name for by in found for name in by):
        if name not in bill.COST_GROUPS:
            raise ValueError(
                f"--by: {name!r} is no group; say {', '.join(bill.COST_GROUPS)}, or several with + between them"
            )
    return list(dict.fromkeys(tuple(dict.fromkeys(by)) for by in found)) or [()]


def _query(
    options: argparse.Namespace, by: tuple[str, ...], since: datetime | None, until: datetime | None
) -> bill.CostQuery:
    def named(value: str | None) -> tuple[str, ...]:
        return () if value is None else (value,)

    return bill.CostQuery(
        by=by,
        since=since,
        until=until,
        tenant=options.tenant,
        models=named(options.model),
        agents=named(options.agent),
        keys=named(options.key),
        projects=named(options.project),
        conversation=options.conversation,
    )


def _as_json(
    tables: Tables, limit: int | None, times: tuple[datetime | None, datetime | None], missing: int
) -> dict[str, Any]:
    since, until = (None if time is None else int(time.timestamp()) for time in times)
    total = next(iter(tables.values())).total
    listed = [cost.as_json(by, report.at_most(limit or len(report.rows))[0]) for by, report in tables.items()]
    return {
        "object": "costs",
        "since": since,
        "until": until,
        "tables": listed,
        "total": cost.figures_of(total),
        "bills_not_counted": missing,
    }


def _show(screen: CommandScreen, tables: Tables, limit: int, err: TextIO) -> None:
    if not any(report.rows for report in tables.values()):
        err.write("no requests\n")
        return
    for number, (by, report) in enumerate(tables.items()):
        if number:
            screen.line("")
        shown, others, left = report.at_most(limit)
        rows = [
            [*(group_name(*each) for each in zip(by, row.names, strict=True)), *_figures(row.sums)]
            for row in (shown if by else ())  # which would be the total
        ]
        blank = [""] * (len(by) - 1)
        if left:
            rows.append([(f"({left} more)", FAINT), *blank, *_figures(others)])
        rows.append([("total", COST_STYLE), *blank, *_figures(report.total)])
        screen.table([*(TableColumn(group, WHO_STYLE) for group in by or ("",)), *COST_COLUMNS], rows)


def money_texts(sums: bill.CostSums) -> tuple[str, str, str, str]:
    """Formats cost, planning, net saving and saving in USD. The net saving is negative if requests cost more than
    without a gateway, "unknown" for None."""
    whole = printing.cost_text(sums.cost, sums.unpriced, is_known=bool(sums.priced))
    planning = printing.cost_text(sums.planning, sums.planning_unpriced, is_known=bool(sums.planning_cost_picousd))
    net = "unknown" if sums.net_saving is None else printing.usd_text(sums.net_saving)
    return whole, planning, net, printing.usd_text(sums.saved)


def group_name(group: str, name: str | None) -> Piece:
    shown = cost.shown_name(group, name)
    return (UNNAMED, FAINT) if shown is None else shown


def _figures(sums: bill.CostSums) -> list[Piece]:
    tokens = (sums.prompt_tokens, sums.cached_tokens, sums.cache_write_tokens, sums.completion_tokens)
    counts = (sums.unpriced, sums.estimated, sums.partial, sums.failed)
    return [str(sums.requests), *map(str, tokens), *money_texts(sums), *map(str, counts)]
