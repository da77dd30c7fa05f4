"""`gateway audit`: reads the ledger, adds every row up again and says whether all balances (guarantee §6)."""

import argparse
import asyncio
import csv
import io
from collections.abc import Iterable
from datetime import UTC
from decimal import Decimal
from typing import Any, TextIO

from gateway.accounting.audit import CHATS, GROUPS, Audit, Totals, figures
from gateway.base.clock import parse_when
from gateway.config.settings import Settings
from gateway.errors import StorageUnavailable
from gateway.models.turn import LedgerQuery, LedgerRow
from gateway.ports import Clock
from gateway.storage.database.migrate import shown
from gateway.storage.ledger import ledger_pages, open_ledger

COLUMNS = (
    "request_id",
    "completion_id",
    "created_at",
    "tenant",
    "conversation_id",
    "model",
    "status",
    "stream",
    "prompt_tokens",
    "completion_tokens",
    "prompt_cost",
    "completion_cost",
    "planning_cost",
    "total_cost",
    "currency",
    "priced",
    "estimated",
    "balanced",
    "user",
    "agent",
    "endpoint",
)
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
HEADINGS = (
    *("requests", "partial", "failed", "prompt tokens", "completion tokens"),
    *("cost USD", "planning USD", "unpriced", "estimated"),
)
SAVED = "saved USD"
"""A further column, where leaving out has saved anything."""
MAX_NAME_WIDTH = 60


def audit(settings: Settings, options: argparse.Namespace, clock: Clock, out: TextIO, err: TextIO) -> int:
    """Writes the report to `out`; returns 0 if all balances, 1 if not or if the storage cannot be read.

    Raises:
        ValueError: `--since` or `--until` is no time, or `--since` is not before `--until`; `--by` names no group.
    """
    now = clock.now()
    since, until = parse_when("--since", options.since, now), parse_when("--until", options.until, now)
    if since is not None and until is not None and since >= until:
        raise ValueError("--since must be before --until")
    query = LedgerQuery(since, until, options.model, options.tenant, options.conversation, options.user, options.agent)
    found = Audit(by={group: {} for group in groups(options.by)})
    try:
        return asyncio.run(_audit(settings, query, found, csv=options.csv, out=out, err=err))
    except StorageUnavailable as error:
        where = shown(settings.storage.url)
        cause = f" ({type(error.__cause__).__name__})" if error.__cause__ else ""
        err.write(f"{where}: {error.message}{cause}\n")
        return 1


def groups(text: str) -> list[str]:
    """The groups that `--by` names, in their order.

    Raises:
        ValueError: there is no such group.
    """
    found = [name.strip() for name in text.split(",") if name.strip()]
    for name in found:
        if name not in GROUPS:
            raise ValueError(f"--by: {name!r} is no group; say {', '.join(GROUPS)}")
    return list(dict.fromkeys(found))


async def _audit(settings: Settings, query: LedgerQuery, found: Audit, *, csv: bool, out: TextIO, err: TextIO) -> int:
    transactions = open_ledger(settings.storage)
    if csv:
        out.write(csv_line(COLUMNS))
    try:
        async for page in ledger_pages(transactions, query):
            for row in page:
                differences = found.add(row)
                if csv:
                    out.write(csv_row(row, balanced=not differences))
    finally:
        await transactions.close()
    lines = verdict(found) if csv else summary(found)
    (err if csv else out).write("".join(f"{line}\n" for line in lines))
    return 1 if found.unbalanced else 0


def csv_line(values: Iterable[Any]) -> str:
    """A line of CSV. No spreadsheet takes a cell of it for a formula."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow([_cell(value) for value in values])
    return buffer.getvalue()


def csv_row(row: LedgerRow, *, balanced: bool) -> str:
    """A row of the ledger in the order of `COLUMNS`, with the figures that its client got."""
    entry, cost = row.entry, figures(row, "cost")
    created = entry.created_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    who = (entry.request_id, entry.completion_id, created, entry.tenant, entry.conversation_id, entry.model)
    tokens = (entry.status, entry.stream, row.prompt_tokens, row.completion_tokens)
    costs = (_usd(cost.get(f"{part}_cost")) for part in ("prompt", "completion", "planning", "total"))
    flags = (cost.get("currency"), cost.get("priced"), row.estimated, balanced)
    return csv_line((*who, *tokens, *costs, *flags, entry.end_user, entry.agent, entry.endpoint or CHATS))


def summary(audit: Audit) -> Iterable[str]:
    """Totals by each group, the grand total, and whether all balances; lines without their end."""
    for group, totals in audit.by.items():
        yield from _table(group, totals)
        yield ""
    yield from _table("", {"total": audit.total})
    yield ""
    yield from verdict(audit)


def verdict(audit: Audit) -> Iterable[str]:
    """Whether all balances, and if not what differs where."""
    rows = audit.total.requests
    if not audit.unbalanced:
        yield f"all {rows} rows balance" if rows else "no rows: nothing to balance"
        return
    yield f"{audit.unbalanced} of {rows} rows do not balance:"
    for request_id, found in audit.named:
        for each in found:
            what = f"stored {_shown(each.stored)}, adds up to {_shown(each.found)}"
            yield f"  {printable(request_id)}  {each.figure}: {what}"
    if audit.unbalanced > len(audit.named):
        yield f"  … and {audit.unbalanced - len(audit.named)} more; --csv names them all"


def printable(text: str) -> str:
    """The text without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _table(title: str, totals: dict[str, Totals]) -> Iterable[str]:
    saved = any(each.saved for each in totals.values())
    lines: list[tuple[str, ...]] = [(title, *HEADINGS, *((SAVED,) if saved else ()))]
    for name in sorted(totals):
        more = (_usd(totals[name].saved),) if saved else ()
        lines.append((printable(name)[:MAX_NAME_WIDTH], *_columns(totals[name]), *more))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        rest = (text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))
        yield "  ".join((line[0].ljust(widths[0]), *rest))


def _columns(t: Totals) -> tuple[str, ...]:
    counts = (t.requests, t.partial, t.failed, t.prompt_tokens, t.completion_tokens)
    whole = _sum(t.cost, t.unpriced, is_known=t.is_known)
    planning = _sum(t.planning, t.planning_unpriced, is_known=bool(t.planning))
    return (*map(str, counts), whole, planning, str(t.unpriced), str(t.estimated))


def _sum(cost: Decimal, unpriced: int, *, is_known: bool) -> str:
    """A cost; `>=` marks a sum without calls whose price is not known."""
    if unpriced and not is_known:
        return "unknown"
    return f"{'>=' if unpriced else ''}{_usd(cost)}"


def _usd(value: Any) -> str:
    return f"{Decimal(value):.12f}" if isinstance(value, Decimal | int) else ""


def _shown(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return "nothing" if value is None else printable(str(value))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value).replace("\x00", "\ufffd")
    return f"'{text}" if text.startswith(FORMULA) else text
