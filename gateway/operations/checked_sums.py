"""What `gateway audit` says of the sums that reports are made of: whether they are the ledger's (guarantee §13.1)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.base.printing import printable
from gateway.models.costs import MOST_COUNTED
from gateway.storage.database.engine import Transactions
from gateway.storage.reports.compared import SumDifference, compare_sums
from gateway.storage.rows import usd
from gateway.storage.turns.older_bills import count_older

MAX_NAMED = 100
"""Sums that differ are named one by one up to this number."""


@dataclass(slots=True)
class CheckedSums:
    """What comparing has found."""

    compared: bool = False
    days: int = 0
    conversations: int = 0
    missing: int = 0
    """Bills that are in no sums yet."""
    differ: int = 0
    named: list[SumDifference] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        """Whether they are equal, and if not what differs where; nothing where none were compared."""
        if not self.compared:
            return
        if self.missing:
            yield missing_line(self.missing)
        if not self.differ:
            compared = f"{_count(self.days, 'day')} and {_count(self.conversations, 'conversation')}"
            yield f"the sums of {compared} are the ledger's"
            return
        yield f"{self.differ} figures of daily sums and of conversations are not the ledger's:"
        for each in self.named:
            kept, found = (_shown(each.figure, value) for value in (each.kept, each.found))
            yield f"  {printable(each.where)}  {each.figure}: kept {kept}, the ledger adds up to {found}"
        if self.differ > len(self.named):
            yield f"  … and {self.differ - len(self.named)} more"


async def checked_sums(transactions: Transactions) -> CheckedSums:
    """Compares all of them.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    found = CheckedSums(compared=True, missing=await count_older(transactions))
    async for piece in compare_sums(transactions):
        found.days += piece.days
        found.conversations += piece.conversations
        found.differ += len(piece.differences)
        found.named += piece.differences[: MAX_NAMED - len(found.named)]
    return found


def missing_line(missing: int) -> str:
    """Says how many bills are in no sums yet."""
    count = f"{MOST_COUNTED} or more" if missing >= MOST_COUNTED else str(missing)
    return f"{count} bills of an older version are in no sums yet: `gateway serve` adds them"


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _shown(figure: str, value: int) -> str:
    return f"{usd(value):.12f} USD" if figure.endswith("_picousd") else str(value)
