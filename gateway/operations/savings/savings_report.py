"""`gateway savings` without recorded sessions: net savings by the bills, losses first (guarantee §13.13).

The sums are those of `gateway costs` over the same requests, from the roll-ups.
"""

from dataclasses import replace
from decimal import Decimal
from typing import Any, TextIO

from gateway.billing import cost
from gateway.core import clock, printing
from gateway.core.types import bill
from gateway.operations.cost_command import ROWS_SHOWN, group_name, groups_of
from gateway.operations.screen import COST_STYLE, FAINT, WHO_STYLE, CommandCall, CommandScreen, Piece, TableColumn
from gateway.operations.storage_reader import run_reading, tell_missing
from gateway.storage.database import DatabaseTransactions
from gateway.storage.reports import CostReports

SAVING_GROUPS = "day,model,key"
"""Roll-ups do not distinguish conversations; only the ledger does."""
RATIO = Decimal("0.0001")
LOSS_STYLE = "red"
SAVING_FIGURES = (
    *("net_saving", "ratio", "direct_cost", "billed_cost", "saved", "requests", "metered", "unmetered"),
    *("bounced_tokens", "bounced_cost"),
)
"""The reported fields of each group. `net_saving`: `direct_cost` less `billed_cost`, of the metered requests;
`ratio`: billed cost for each dollar of direct cost; `saved`: gross saving by what was left out; `bounced_cost`: the
part of the billed cost for content that was read again soon after it had been cut."""
SAVING_COLUMNS = (
    TableColumn("net saving USD", COST_STYLE, is_right=True),
    TableColumn("ratio", drop=1, is_right=True),
    TableColumn("direct USD", drop=2, is_right=True),
    TableColumn("billed USD", drop=2, is_right=True),
    TableColumn("requests", drop=4, is_right=True),
    TableColumn("unmetered", drop=3, is_right=True),
    TableColumn("bounced USD", drop=4, is_right=True),
    TableColumn("left out USD", FAINT, drop=5, is_right=True),
)
Tables = dict[tuple[str, ...], bill.CostReport]


def savings_report(call: CommandCall) -> int:
    """Writes the savings tables; returns 1 if the storage cannot be read.
    Raises ValueError: `--by` names no group, `--since` or `--until` is no time, or they are in the wrong order."""
    options = call.options
    for name in ("model", "max_input_tokens", "economy", "unstored", "cache_lifetime"):
        if getattr(options, name) not in (None, False):
            raise ValueError(f"--{name.replace('_', '-')} is of --replay: what is stored was billed as it was")
    since, until = clock.parse_period(options.since, options.until, call.clock.now())
    groups = groups_of(options.by or SAVING_GROUPS)

    async def work(transactions: DatabaseTransactions) -> int:
        reports = CostReports(transactions)
        read = {by: await reports.report(bill.CostQuery(by, since, until, options.tenant)) for by in groups}
        found = {by: losses_first(report) for by, report in read.items()}
        total = next(iter(found.values())).total
        missing = await tell_missing(transactions, call.err)
        shown = {by: report.at_most(options.limit or len(report.rows))[0] for by, report in found.items()}
        if options.json:
            times = {
                name: None if at is None else int(at.timestamp()) for name, at in (("since", since), ("until", until))
            }
            tables = [cost.as_json(by, rows, figures_of) for by, rows in shown.items()]
            told = {"object": "savings", **times, "tables": tables, "total": figures_of(total)}
            call.screen.json({**told, "compared": compared(total), "bills_not_counted": missing})
        elif options.csv:
            call.out.write("".join(cost.as_csv(shown, SAVING_FIGURES, figures_of)))
        else:
            _show(call.screen, found, total, options.limit or ROWS_SHOWN, call.err)
        return 0

    return run_reading(call, work)


def losses_first(report: bill.CostReport) -> bill.CostReport:
    """Sorts groups by net saving, the largest loss first and unmetered groups last; groups by time keep their order
    of time."""
    if not bill.TIME_GROUPS.isdisjoint(report.by):
        return report
    rows = sorted(report.rows, key=lambda row: (not row.sums.metered, row.sums.net_saving_picousd))
    return replace(report, rows=tuple(rows))


def figures_of(sums: bill.CostSums) -> dict[str, Any]:
    """Returns the sums under the names of `SAVING_FIGURES`; None if a figure is known of no request."""
    direct, net = sums.direct, sums.net_saving
    billed = direct - net if direct is not None and net is not None else None
    ratio = (billed / direct).quantize(RATIO) if billed is not None and direct else None
    counts = (sums.requests, sums.metered, sums.unmetered)
    told = (net, ratio, direct, billed, sums.saved, *counts, sums.bounced_tokens, sums.bounced)
    return dict(zip(SAVING_FIGURES, told, strict=True))


def compared(sums: bill.CostSums) -> dict[str, Any] | None:
    """Compares the cost per request of held-out (direct) and economised conversations in USD: measured, not computed.
    None if either is missing."""
    direct, economised = sums.held_out_step, sums.economised_step
    if direct is None or economised is None:
        return None
    return {
        "direct": {"requests": sums.held_out_requests, "cost_per_request": direct},
        "economised": {"requests": sums.economised_requests, "cost_per_request": economised},
        "ratio": (economised / direct).quantize(RATIO) if direct else None,
    }


def _show(screen: CommandScreen, tables: Tables, total: bill.CostSums, limit: int, err: TextIO) -> None:
    if not total.requests:
        err.write("no requests\n")
        return
    for by, report in tables.items():
        shown, _, left = report.at_most(limit)
        lines = [
            [*(group_name(*each) for each in zip(by, row.names, strict=True)), *_pieces(row.sums)]
            for row in (shown if by else ())  # which would be the total
        ]
        if left:
            lines.append([(f"({left} more)", FAINT), *([""] * (len(by) - 1 + len(SAVING_COLUMNS)))])
        lines.append([("total", COST_STYLE), *([""] * (len(by) - 1)), *_pieces(total)])
        screen.table([*(TableColumn(group, WHO_STYLE) for group in by or ("",)), *SAVING_COLUMNS], lines)
        screen.line("")
    if total.unmetered:
        screen.line(f"{total.unmetered} requests are not metered: what they would have cost directly is not known")
    if (found := compared(total)) is not None:
        sides = (
            f"{name} {printing.usd_text(found[name]['cost_per_request'])} USD" for name in ("direct", "economised")
        )
        screen.line(f"measured, of each request: {', '.join(sides)}; ratio {found['ratio']}")


def _pieces(sums: bill.CostSums) -> list[Piece]:
    told = figures_of(sums)
    net: Piece = "unknown" if sums.net_saving is None else printing.usd_text(sums.net_saving)
    if sums.net_saving_picousd < 0:
        net = (printing.usd_text(sums.net_saving), LOSS_STYLE)
    money = (printing.usd_text(told["direct_cost"]), printing.usd_text(told["billed_cost"]))
    ratio = "" if told["ratio"] is None else str(told["ratio"])
    return [
        net,
        ratio,
        *money,
        str(sums.requests),
        str(sums.unmetered),
        printing.usd_text(sums.bounced),
        printing.usd_text(sums.saved),
    ]
