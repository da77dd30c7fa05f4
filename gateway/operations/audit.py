"""`gateway audit`: recomputes every row of the ledger and reports whether all balance (guarantee §6); without a filter
also whether the stored sums equal those of the ledger (guarantee §13.1)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC
from decimal import Decimal
from typing import Any

from gateway.billing import ledger_verification
from gateway.core import clock, printing
from gateway.core.types import bill, report_lists, turn
from gateway.operations.cost_command import money_texts
from gateway.operations.progress import CommandProgress
from gateway.operations.screen import CommandCall
from gateway.operations.storage_reader import run_reading
from gateway.storage import bills, ledger, usd
from gateway.storage.database import DatabaseTransactions
from gateway.storage.reports import SumDifference, compare_sums

# Compares the stored sums, which reports are made of, with the ledger (guarantee §13.1).

MAX_NAMED_SUMS = 100
"""The most differing sums that are named one by one."""


@dataclass(slots=True)
class CheckedSums:
    """The result of the comparison."""

    compared: bool = False
    days: int = 0
    conversations: int = 0
    missing: int = 0
    """Bills that are in no sums yet."""
    differ: int = 0
    named: list[SumDifference] = field(default_factory=list)
    unbilled: list[str] = field(default_factory=list)
    """Requests that have calls but no bill."""

    @property
    def balance(self) -> bool:
        return not (self.differ or self.unbilled)

    def lines(self) -> Iterable[str]:
        """Yields lines that report whether the sums are equal, or which differ; none if nothing was compared."""
        if not self.compared:
            return
        if self.missing:
            yield missing_line(self.missing)
        if self.unbilled:
            yield f"calls of requests that have no bill: {', '.join(map(printing.printable, self.unbilled))}"
        if not self.differ:
            compared = f"{_count(self.days, 'day')} and {_count(self.conversations, 'conversation')}"
            yield f"the sums of {compared} are the ledger's"
            return
        yield f"{self.differ} figures of daily sums and of conversations are not the ledger's:"
        for each in self.named:
            kept, found = (_checked_sums_shown(each.figure, value) for value in (each.kept, each.found))
            yield f"  {printing.printable(each.where)}  {each.figure}: kept {kept}, the ledger adds up to {found}"
        if self.differ > len(self.named):
            yield f"  … and {self.differ - len(self.named)} more"


async def checked_sums(transactions: DatabaseTransactions) -> CheckedSums:
    """Compares all stored sums with the ledger. Raises StorageUnavailable: the storage cannot be reached."""
    found = CheckedSums(compared=True, missing=await bills.count_older(transactions))
    found.unbilled = await transactions.run(ledger.calls_of_no_bill)
    async for piece in compare_sums(transactions):
        found.days += piece.days
        found.conversations += piece.conversations
        found.differ += len(piece.differences)
        found.named += piece.differences[: MAX_NAMED_SUMS - len(found.named)]
    return found


def missing_line(missing: int) -> str:
    """Renders how many bills the sums do not include yet."""
    count = f"{bill.MAX_UNCOUNTED_BILLS} or more" if missing >= bill.MAX_UNCOUNTED_BILLS else str(missing)
    return f"{count} bills of an older version are in no sums yet: `gateway serve` adds them within five minutes"


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _checked_sums_shown(figure: str, value: int) -> str:
    return f"{usd(value):.12f} USD" if figure.endswith("_picousd") else str(value)


AUDIT_CSV = (
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
AUDIT_HEADINGS = (
    *("requests", "partial", "failed", "prompt tokens", "completion tokens"),
    *("cost USD", "planning USD", "unpriced", "estimated"),
)
SAVING_HEADINGS = ("net saving USD", "saved USD")
"""Further columns, if anything was left out, or cost more than without a gateway."""
MAX_NAME_WIDTH = 60


def audit(call: CommandCall) -> int:
    """Writes the audit report; returns 0 if all balances, 1 if not or if the storage cannot be read.
    Raises ValueError: `--since` or `--until` is no time, or `--since` is not before `--until`; `--by` names no
    group."""
    options, out, err = call.options, call.out, call.err
    since, until = clock.parse_period(options.since, options.until, call.clock.now())
    query = turn.LedgerQuery(
        since, until, options.model, options.tenant, options.conversation, options.user, options.agent
    )
    found = ledger_verification.LedgerAudit(by={group: {} for group in groups(options.by)})

    async def work(transactions: DatabaseTransactions) -> int:
        if options.csv:
            out.write(printing.csv_line(AUDIT_CSV))
        with CommandProgress(err, "reading the ledger", "rows", quiet=options.csv and out.isatty()) as told:
            async for page in ledger.ledger_pages(transactions, query):
                for row in page:
                    differences = found.add(row)
                    if options.csv:
                        out.write(csv_row(row, balanced=not differences))
                told(len(page))
            kept = await checked_sums(transactions) if query == turn.LedgerQuery() else CheckedSums()
        lines = [*(verdict(found) if options.csv else summary(found)), *kept.lines()]
        (err if options.csv else out).write("".join(f"{line}\n" for line in lines))
        return 1 if found.unbalanced or not kept.balance else 0

    return run_reading(call, work)


def groups(text: str) -> list[str]:
    """Parses the groups of `--by`, in their order. Raises ValueError: there is no such group."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    for name in found:
        if name not in ledger_verification.AUDIT_GROUPS:
            raise ValueError(f"--by: {name!r} is no group; say {', '.join(ledger_verification.AUDIT_GROUPS)}")
    return list(dict.fromkeys(found))


def csv_row(row: turn.LedgerRow, *, balanced: bool) -> str:
    """Renders a ledger row in the order of `AUDIT_CSV`, with the figures that its client received."""
    entry, cost = row.entry, ledger_verification.figures(row, "cost")
    created = entry.created_at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    who = (entry.request_id, entry.completion_id, created, entry.tenant, entry.conversation_id, entry.model)
    tokens = (entry.status, entry.stream, row.prompt_tokens, row.completion_tokens)
    costs = (printing.usd_text(cost.get(f"{part}_cost")) for part in ("prompt", "completion", "planning", "total"))
    flags = (cost.get("currency"), cost.get("priced"), row.estimated, balanced)
    return printing.csv_line(
        (*who, *tokens, *costs, *flags, entry.end_user, entry.agent, entry.endpoint or report_lists.CHAT_ENDPOINT)
    )


def summary(audit: ledger_verification.LedgerAudit) -> Iterable[str]:
    """Yields totals by each group, the grand total, and whether all rows balance, as lines without line ends."""
    for group, totals in audit.by.items():
        yield from _table(group, totals)
        yield ""
    yield from _table("", {"total": audit.total})
    yield ""
    yield from verdict(audit)


def verdict(audit: ledger_verification.LedgerAudit) -> Iterable[str]:
    """Yields lines that report whether all rows balance, or where they differ."""
    rows = audit.total.requests
    if not audit.unbalanced:
        yield f"all {rows} rows balance" if rows else "no rows: nothing to balance"
        return
    yield f"{audit.unbalanced} of {rows} rows do not balance:"
    for request_id, found in audit.named:
        for each in found:
            what = f"stored {_shown(each.stored)}, adds up to {_shown(each.found)}"
            yield f"  {printing.printable(request_id)}  {each.figure}: {what}"
    if audit.unbalanced > len(audit.named):
        yield f"  … and {audit.unbalanced - len(audit.named)} more; --csv names them all"


def _table(title: str, totals: dict[str, bill.CostSums]) -> Iterable[str]:
    saved = any(each.saved or each.net_saving for each in totals.values())
    lines: list[tuple[str, ...]] = [(title, *AUDIT_HEADINGS, *(SAVING_HEADINGS if saved else ()))]
    for name, each in sorted(totals.items()):
        counts = (each.requests, each.partial, each.failed, each.prompt_tokens, each.completion_tokens)
        whole, planning, *more = money_texts(each)
        figures = (*map(str, counts), whole, planning, str(each.unpriced), str(each.estimated))
        lines.append((printing.printable(name)[:MAX_NAME_WIDTH], *figures, *(more if saved else ())))
    yield from printing.aligned(lines, [False, *[True] * (len(lines[0]) - 1)])


def _shown(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    return "nothing" if value is None else printing.printable(str(value))
