"""`/ui/costs`: the cost of requests by day, model, key, user, conversation and agent, and the net savings."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from urllib.parse import quote, urlencode

from gateway.api.ui.dependencies import PATH, PageParts
from gateway.api.ui.page import PageAnswer, PageRequest, csv_file
from gateway.api.ui.rendering import money, usd
from gateway.billing import cost
from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.core.types import bill
from gateway.storage.reports import CostReports

PERIODS = {"7d": 7, "30d": 30, "90d": 90, "365d": 365, "all": 0}
"""Whole days, today's included; 0: all days."""
GROUPS = ("day", "model", "key", "user", "conversation", "agent", "project", "endpoint")
DEFAULT_BY, DEFAULT_PERIOD = "day", "30d"
LEDGER_DAYS = 7
"""Days that are summed up by conversation for the page; roll-ups do not separate conversations."""
MAX_COST_ROWS = 200
"""Groups that a table shows one by one: the most expensive. The rest is in one line, and in the CSV."""
MAX_BARS = 366
MONTH_ON = len("2026-")
"""Where month and day begin in a date: a chart, which spans a year at most, shows no year."""

# Charts as the pages draw them: columns on a scale with round steps, computed here, drawn as SVG by `macros.html`.
# Places along an axis are percent of the plot, so that a chart is as wide as its page and its letters stay readable.

ROUND_STEPS = (Decimal(1), Decimal(2), Decimal("2.5"), Decimal(5), Decimal(10))
MAX_STEPS = 4
"""Lines of the scale in addition to that of zero."""
MAX_LABELS = 5
FILLED = 0.76
"""Share of its place that a column fills."""


@record
class ColumnValue:
    """What a column shows: `values` by the classes of their parts, from the axis outwards, negative ones downwards;
    `told` is shown on hover."""

    label: str
    told: str
    values: tuple[tuple[str, Decimal], ...]


@record
class ColumnPart:
    """A rectangle; `y` counts from the top. All in percent of the plot."""

    name: str
    y: float
    height: float


@record
class ChartColumn:
    """A column at `x`, `width` wide, within a place of `full` for the pointer."""

    told: str
    at: float
    full: float
    x: float
    width: float
    parts: tuple[ColumnPart, ...]


@record
class ColumnChart:
    """`ticks`: height and text of each line of the scale; `labels`: place, anchor and text below the columns; `zero`:
    height of the axis."""

    columns: tuple[ChartColumn, ...]
    ticks: tuple[tuple[float, str], ...]
    labels: tuple[tuple[float, str, str], ...]
    zero: float


def column_chart(found: Sequence[ColumnValue], worded: Callable[[Decimal], str]) -> ColumnChart | None:
    """Makes a chart of these columns; None where all values are 0. `worded`: renders a value of the scale as text."""
    up = max((sum(v for _, v in each.values if v > 0) for each in found), default=Decimal(0))
    down = min((sum(v for _, v in each.values if v < 0) for each in found), default=Decimal(0))
    if not up and not down:
        return None
    step = _step(Decimal(up) - Decimal(down))
    top, bottom = -(-Decimal(up) // step) * step, (Decimal(down) // step) * step
    if bottom > down:  # `//` of decimals rounds towards 0
        bottom -= step
    if top < up:
        top += step
    span = top - bottom

    def height(value: Decimal) -> float:
        return 100 * float((top - value) / span)

    ticks = tuple((height(bottom + step * n), worded(bottom + step * n)) for n in range(int(span / step) + 1))
    full = 100 / len(found)
    columns = tuple(_column(each, n * full, full, height) for n, each in enumerate(found))
    return ColumnChart(columns, ticks, _labels([each.label for each in found], full), height(Decimal(0)))


def _step(span: Decimal) -> Decimal:
    """Returns the smallest round step that divides the range into at most `MAX_STEPS`."""
    least = span / MAX_STEPS
    power = Decimal(10) ** least.adjusted()
    return next(each * power for each in ROUND_STEPS if each * power >= least)


def _column(value: ColumnValue, at: float, full: float, height: Callable[[Decimal], float]) -> ChartColumn:
    parts, above, below = [], Decimal(0), Decimal(0)
    for name, each in value.values:
        if each > 0:
            parts.append(ColumnPart(name, height(above + each), height(above) - height(above + each)))
            above += each
        elif each < 0:
            parts.append(ColumnPart(name, height(below), height(below + each) - height(below)))
            below += each
    return ChartColumn(value.told, at, full, at + full * (1 - FILLED) / 2, full * FILLED, tuple(parts))


def _labels(names: Sequence[str], full: float) -> tuple[tuple[float, str, str], ...]:
    """Returns some of the names, evenly spread, the first and the last among them."""
    count = min(MAX_LABELS, len(names))
    if count == 1:
        return ((50.0, "middle", names[0]),)
    chosen = [round(n * (len(names) - 1) / (count - 1)) for n in range(count)]
    anchors = {0: "start", len(names) - 1: "end"}
    places = {0: 0.0, len(names) - 1: 100.0}
    return tuple((places.get(n, (n + 0.5) * full), anchors.get(n, "middle"), names[n]) for n in chosen)


# `/ui/costs` and its file.


@record
class CostLine:
    """A row of the table. `share`: of the most expensive row, 0 to 1; `link`: its conversations or requests."""

    name: str | None
    sums: bill.CostSums
    share: float
    link: str | None = None


@record
class CostFilter:
    """The parameters of the address."""

    by: str
    period: str
    since: datetime | None
    tenant: str | None

    @property
    def is_whole(self) -> bool:
        """Whether conversations are shown with their own sums: summing up the ledger would take too long."""
        return self.by == "conversation" and not 0 < PERIODS[self.period] <= LEDGER_DAYS


class CostPages:
    """`GET /ui/costs` and `GET /ui/costs.csv`"""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._reports = CostReports(parts.transactions)

    async def show(self, page: PageRequest) -> PageAnswer:
        chosen = self._chosen(page)
        report = await self._report(replace(chosen, by="day") if chosen.is_whole else chosen)
        shown, others, left = report.at_most(MAX_COST_ROWS)
        names = await self._names(chosen.by, shown)
        if chosen.is_whole:
            shown = await self._reports.dearest_conversations(chosen.tenant, chosen.since, MAX_COST_ROWS)
            others, left = bill.CostSums(), 0
        if chosen.by == "day":
            shown = tuple(reversed(shown))
        dearest = max((row.sums.cost_picousd for row in shown), default=0)
        lines = [_line(row, names, chosen.by, dearest) for row in shown]
        today = self._parts.clock.now().date()
        days = filled(report, chosen.since.date() if chosen.since else None, today) if chosen.by == "day" else ()
        return await page.render(
            "costs.html",
            chosen=chosen,
            groups=_groups(page),
            periods=tuple(PERIODS),
            lines=lines,
            others=CostLine(f"{left} more", others, 0.0) if left else None,
            total=report.total,
            missing=report.missing,
            days=days,
            spent=column_chart([_spent(day, sums) for day, sums in days], money),
            weighed=column_chart([_weighed(day, sums) for day, sums in days], money),
            csv_link=f"{PATH}/costs.csv?{urlencode({'by': chosen.by, 'period': chosen.period})}",
        )

    async def csv(self, page: PageRequest) -> PageAnswer:
        """Sends the figures of the page as a CSV file, with every row."""
        chosen = self._chosen(page)
        report = await self._report(chosen)
        lines = await asyncio.to_thread("".join, cost.as_csv({(chosen.by,): report.rows}))  # streams run meanwhile
        return csv_file(lines.encode("utf-8", "replace"), f"costs-by-{chosen.by}-{chosen.period}.csv")

    def _chosen(self, page: PageRequest) -> CostFilter:
        by, period = page.query.get("by") or DEFAULT_BY, page.query.get("period") or DEFAULT_PERIOD
        if by not in _groups(page):
            raise errors.invalid("by", f"must be one of {', '.join(_groups(page))}")
        if period not in PERIODS:
            raise errors.invalid("period", f"must be one of {', '.join(PERIODS)}")
        midnight = self._parts.clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
        days = PERIODS[period]
        return CostFilter(by, period, midnight - timedelta(days=days - 1) if days else None, page.tenant)

    async def _report(self, chosen: CostFilter) -> bill.CostReport:
        return await self._reports.report(bill.CostQuery((chosen.by,), chosen.since, None, chosen.tenant))

    async def _names(self, by: str, rows: Sequence[bill.CostRow]) -> Mapping[str, str]:
        """Returns the names of the keys of these rows, by their ids."""
        if by != "key":
            return {}
        return await self._parts.auth.names([name for row in rows if (name := row.names[0]) is not None])


def filled(report: bill.CostReport, since: date | None, today: date) -> tuple[tuple[str, bill.CostSums], ...]:
    """Returns the sums of each day up to today, including days without requests; the latest `MAX_BARS`."""
    found = {str(row.names[0]): row.sums for row in report.rows}
    if not found:
        return ()
    first = since or date.fromisoformat(min(found))
    last = max(today, date.fromisoformat(max(found)))
    first = max(first, last - timedelta(days=MAX_BARS - 1))
    days = (first + timedelta(days=number) for number in range((last - first).days + 1))
    return tuple((day.isoformat(), found.get(day.isoformat(), bill.CostSums())) for day in days)


def _spent(day: str, sums: bill.CostSums) -> ColumnValue:
    """Returns a day's cost: that of answers, and on top of it that of internal models."""
    told = f"{day}: {usd(sums.known_cost, at_least=sums.unpriced > 0)}, internal models {usd(sums.known_planning)}"
    return ColumnValue(day[MONTH_ON:], told, (("answers", sums.cost - sums.planning), ("internal", sums.planning)))


def _weighed(day: str, sums: bill.CostSums) -> ColumnValue:
    """Returns the net savings or loss of a day."""
    net = sums.net_saving or Decimal(0)
    word = "loss" if net < 0 else "saving"
    return ColumnValue(day[MONTH_ON:], f"{day}: net {word} {usd(abs(net))}", (("lost" if net < 0 else "saved", net),))


def _line(row: bill.CostRow, names: Mapping[str, str], by: str, dearest: int) -> CostLine:
    name = row.names[0]
    shown = names.get(name or "", cost.shown_name(by, name))
    share = max(0, row.sums.cost_picousd) / dearest if dearest else 0.0
    return CostLine(shown, row.sums, share, _link(by, name))


def _link(by: str, name: str | None) -> str | None:
    """Returns the address of the conversations behind a row, where a list can show only these."""
    if name is None:
        return None
    if by == "conversation":
        return f"{PATH}/conversations/{quote(name, safe='')}"
    return f"{PATH}/conversations?{urlencode({by: name})}" if by in ("model", "user") else None


def _groups(page: PageRequest) -> tuple[str, ...]:
    return (*GROUPS, "tenant") if page.tenant is None else GROUPS
