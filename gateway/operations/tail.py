"""`gateway tail`: a line for each request when its bill is written, while servers run (guarantee §13.9).

The ledger is ordered by arrival, but a bill is written when its request ends, perhaps minutes later: a new bill may
precede some that were already shown. So each look reads the last `OVERLAP` again, at times the last `REACH`, and shows
the requests that it has not seen.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.core import errors, ports, printing
from gateway.core.types import report_lists, turn
from gateway.inspection import request_search
from gateway.operations.screen import (
    COST_STYLE,
    FAINT,
    ID_STYLE,
    PLANNING_STYLE,
    STATUS_STYLES,
    WHO_STYLE,
    CommandCall,
    Piece,
    request_cost,
    when_text,
)
from gateway.operations.storage_reader import run_reading, why_not
from gateway.storage.database import DatabaseTransactions
from gateway.storage.reports import request_list

TAIL_PAUSE_SECONDS = 0.5
OVERLAP = timedelta(seconds=15)
REACH = timedelta(hours=1)
"""How long before the latest arrival a request without a bill yet may have arrived."""
REACH_SECONDS, SHARE = 2.0, 20
"""The least seconds between two looks over `REACH`, and the pause as a multiple of how long the last of them took."""
TAIL_PAGE = 1000
Told = tuple[report_lists.RequestLine, Mapping[str, Any]]
"""A request, and its `response_metadata`."""


@dataclass(slots=True)
class LedgerTail:
    """Follows the ledger: the requests that were seen, and the new ones. Each method is a few short transactions.
    Raises StorageUnavailable: from any method: the storage cannot be reached; a later call finds what this one
    missed."""

    transactions: DatabaseTransactions
    choice: report_lists.RequestChoice
    clock: ports.Clock
    _newest: datetime | None = None
    _seen: dict[str, datetime] = field(default_factory=dict)

    async def begin(self, lines: int) -> list[Told]:
        """Returns the latest `lines` requests; all others in the ledger count as seen."""
        self._newest = await self._latest()
        self._seen = {place.id: place.time for place in await self._since(REACH)}
        if not lines:
            return []
        part = report_lists.ListPart(self.choice, limit=lines)
        latest = await self.transactions.run(lambda connection: request_list.read_arrivals(connection, part))
        told = await self._told([place.id for place in latest])
        self._seen.update((line.id, line.created_at) for line, _ in told)
        return told

    async def look(self, reach: timedelta = OVERLAP) -> list[Told]:
        """Returns the requests that are new and arrived at most `reach` before the latest one, in order of arrival."""
        latest = await self._latest()
        fresh = [place for place in await self._since(reach) if place.id not in self._seen]
        found = await self._told([place.id for place in fresh])
        self._seen.update((place.id, place.time) for place in fresh)
        self._newest = latest
        if latest is not None and reach >= REACH:
            oldest = latest - 2 * REACH
            self._seen = {name: when for name, when in self._seen.items() if when >= oldest}
        return found

    async def _latest(self) -> datetime | None:
        """Returns the latest arrival of any request of the tenant, at most now: a server's clock may be fast."""
        part = report_lists.ListPart(report_lists.RequestChoice(tenant=self.choice.tenant), limit=1)
        found = await self.transactions.run(lambda connection: request_list.read_arrivals(connection, part))
        return min(found[0].time, self.clock.now()) if found else None

    async def _since(self, reach: timedelta) -> Sequence[report_lists.ListPosition]:
        since = self._newest - reach if self._newest is not None else None
        at = report_lists.ListPosition.of_time(since, "") if since is not None else None
        found: list[report_lists.ListPosition] = []
        while True:
            part = report_lists.ListPart(self.choice, at=at, direction="newer", limit=TAIL_PAGE)
            page = await self.transactions.run(partial(request_list.read_arrivals, part=part))
            found += page
            if len(page) < TAIL_PAGE:
                return found
            at = page[-1]

    async def _told(self, names: Sequence[str]) -> list[Told]:
        if not names:
            return []

        def work(connection: Any) -> list[Told]:
            lines = request_list.read_named(connection, names)
            metadata = request_list.read_metadata(connection, [line.id for line in lines])
            return [(_exact(line, told), told) for line, told in zip(lines, metadata, strict=True)]

        return await self.transactions.run(work)


def _exact(line: report_lists.RequestLine, metadata: Mapping[str, Any]) -> report_lists.RequestLine:
    """Returns the request, with its cost from the metadata if that exceeds what a column holds."""
    if line.cost != turn.LARGEST_KEPT:
        return line
    return replace(line, cost=(metadata.get("cost") or {}).get("total_cost", line.cost))


def tail(call: CommandCall) -> int:
    """Writes requests until interrupted; returns 1 if the storage cannot be read at the start."""
    options, screen = call.options, call.screen
    choice = report_lists.RequestChoice(tenant=options.tenant, model=options.model, user=options.user)

    def write(found: Sequence[Told]) -> None:
        for line, metadata in found:
            if options.json:
                screen.json({**request_search.line_record(line), **_more(metadata)})
            else:
                screen.fitted(_pieces(line, metadata, of_all=options.tenant is None))
        screen.flush()

    async def work(transactions: DatabaseTransactions) -> int:
        arrivals = LedgerTail(transactions, choice, call.clock)
        write(await arrivals.begin(options.lines))
        await _follow(arrivals, call, write)
        return 0

    return run_reading(call, work)


async def _follow(arrivals: LedgerTail, call: CommandCall, write: Callable[[Sequence[Told]], None]) -> None:
    next_reach, told = 0.0, ""
    while True:
        await asyncio.sleep(TAIL_PAUSE_SECONDS)
        began = time.monotonic()
        is_far = began >= next_reach
        try:
            found = await arrivals.look(REACH if is_far else OVERLAP)
        except errors.StorageUnavailable as error:
            if (text := why_not(call.settings, error)) != told:
                call.err.write(f"{text}; trying again\n")
            told = text
            continue
        told = ""
        if is_far:
            ended = time.monotonic()
            next_reach = ended + max(REACH_SECONDS, SHARE * (ended - began))
        write(found)


def _more(metadata: Mapping[str, Any]) -> dict[str, Any]:
    used = metadata.get("context_utilization") or {}
    total = (metadata.get("timings_ms") or {}).get("total")
    return {"strategy": used.get("strategy"), "total_ms": total, "warnings": used.get("warnings") or []}


def _pieces(line: report_lists.RequestLine, metadata: Mapping[str, Any], *, of_all: bool) -> list[tuple[Piece, int]]:
    """Returns the pieces of a line, each with its rank: a narrow terminal drops the greatest first."""
    more = _more(metadata)
    took = f"{float(more['total_ms']) / 1000:.1f}s" if isinstance(more["total_ms"], int | float | Decimal) else ""
    tokens = f"{line.prompt_tokens}→{line.completion_tokens}"
    cached = f"{line.cached_tokens} cached" if line.cached_tokens else ""
    planning = f"planning {printing.usd_text(line.planning_cost)}" if line.planning_cost else ""
    style = STATUS_STYLES.get(line.status, "")
    status = f"{line.status} {line.error_code}" if line.error_code else line.status
    parts: list[tuple[Piece, int]] = [
        ((when_text(line.created_at, "%H:%M:%S"), FAINT), 1),
        ((status.ljust(8), style), 0),
        ((line.id, ID_STYLE), 0),
        ((line.model, ""), 2),
        ((tokens, ""), 3),
        ((f"{request_cost(line)} USD", COST_STYLE), 2),
        ((cached, "green"), 5),
        ((planning, PLANNING_STYLE), 4),
        (("estimated" if line.estimated else "", "yellow"), 8),
        ((took, FAINT), 4),
        ((" ".join(filter(None, (line.endpoint, more["strategy"]))), ""), 6),
        ((f"warnings: {len(more['warnings'])}" if more["warnings"] else "", "yellow"), 8),
        ((line.tenant if of_all else "", FAINT), 10),
        ((line.user or "", WHO_STYLE), 7),
        ((line.agent or "", WHO_STYLE), 9),
        ((line.conversation_id or "", ID_STYLE), 11),
    ]
    return [(piece, drop) for piece, drop in parts if piece[0]]
