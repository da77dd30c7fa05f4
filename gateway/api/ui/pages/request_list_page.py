"""`/ui` and `/ui/requests`: current activity, every request that called a model, and one search for all named objects.

The address of a list contains all of its state: its filters, its order, its position.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlencode

from gateway.api.ui.dependencies import PATH, PageParts
from gateway.api.ui.page import PageAnswer, PageRequest, csv_file, redirect
from gateway.api.ui.pages.cost_pages import ColumnChart, ColumnValue, CostLine, column_chart, filled
from gateway.api.ui.pages.health_page import trouble_text, unready_text
from gateway.api.ui.rendering import money, number, usd
from gateway.core import errors, printing
from gateway.core.config import setting_sections
from gateway.core.frozen_records import record
from gateway.core.instrumentation import refusals
from gateway.core.types import bill, keys, report_lists
from gateway.core.types.keys import KeyPolicy
from gateway.inspection import request_search
from gateway.storage.reports import CostReports

ON_A_PAGE = 50
LIST, REFUSED = f"{PATH}/requests", f"{PATH}/refused"
MAX_REFUSED = 200
"""Refused requests on a page."""
PERIODS = (("1h", "1 hour"), ("24h", "24 hours"), ("7d", "7 days"), ("30d", "30 days"), ("", "all"))
"""Links above a list: the value of `since`, and the title."""
LEADS_TO = {
    "request": f"{LIST}/",
    "conversation": f"{PATH}/conversations/",
    "session": f"{PATH}/conversations/",
    **{name: f"{LIST}?{name}=" for name in ("key", "user", "agent", "model")},
}


class RequestListPage:
    """`GET /ui/requests`, `/ui/requests.csv` and `/ui/search`"""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._search = request_search.RequestSearch(parts.transactions)

    async def show(self, page: PageRequest) -> PageAnswer:
        """Shows the list. Raises InvalidRequest: a filter cannot be used."""
        query = self._query(page)
        found = await self._search.find(query)
        keys = {line.key_id for line in (each.line for each in found.found) if line.key_id is not None}
        wanted = {name: page.query.get(name, "") for name in request_search.FILTERS}
        kept = {name: value for name, value in page.query.items() if name in request_search.FILTERS}
        if query.sort == "time" and query.ascending:
            kept["sort"] = page.query["sort"]
        return await page.render(
            "requests.html",
            found=found.found,
            sums=_sums(found.found),
            wanted=wanted,
            is_search=any(wanted.values()),
            has_more_filters=any(
                wanted[name] for name in request_search.FILTERS[3:] if name not in ("model", "user", "text")
            ),
            is_sealed=bool(wanted["text"]) and await self._search.is_sealed(),
            is_live=query.at is None and query.sort == "time" and not query.ascending,
            sorts=[_sort(page, query, name) for name in request_search.SORTS],
            statuses=request_search.TURN_STATUSES,
            periods=[(title, page.link(**_first(since=value)), wanted["since"] == value) for value, title in PERIODS],
            http_status=request_search.http_status,
            names=await self._parts.auth.names(keys),
            ended=found.ended,
            csv_link=f"{PATH}/requests.csv" + (f"?{urlencode(kept)}" if kept else ""),
            csv_is_by_time=query.sort != "time",
            **page.beside(found),
        )

    async def csv(self, page: PageRequest) -> PageAnswer:
        """Sends all that the filters find as a CSV file, written while it is read. It is in order of time: any other
        order leaves out requests whose value is not known.
        Raises InvalidRequest: a filter cannot be used."""
        query = self._query(page)
        if query.sort != "time":
            query = replace(query, sort="time", ascending=False, at=None)
        await self._search.find(query)  # a fault of the storage is an answer yet
        return csv_file(self._lines(query), "requests.csv")

    async def search(self, page: PageRequest) -> PageAnswer:
        """Redirects to the only object of an id or a name; shows several; without any, redirects to a text search."""
        name = page.query.get("q", "").strip()
        found = await self._search.named(page.tenant, name)
        if not found and any(each.request_id == name for each in self._parts.observed.refused.latest(page.tenant)):
            return redirect(f"{REFUSED}#{quote(name, safe='')}")
        if not found:
            return redirect(f"{LIST}?{urlencode({'text': name})}" if name else LIST)
        if len(found) == 1:
            return redirect(_leads_to(found[0]))
        return await page.render("search.html", name=name, found=[(each, _leads_to(each)) for each in found])

    async def refused(self, page: PageRequest) -> PageAnswer:
        """Shows the latest requests without a bill, refused before a model was called (`GET /ui/refused`)."""
        refused = self._parts.observed.refused
        latest = refused.latest(page.tenant)[:MAX_REFUSED]
        keys = {each.key_id for each in latest if each.key_id is not None}
        return await page.render(
            "refused.html",
            latest=latest,
            counts=refused.counts(page.tenant),
            names=await self._parts.auth.names(keys),
            holders=await self._parts.auth.holders_of(keys) if page.someone.is_admin else {},
            kept=refusals.KEPT_EACH,
            started=self._parts.started,
        )

    async def _lines(self, query: report_lists.RequestQuery) -> AsyncIterator[bytes]:
        yield printing.csv_line(request_search.CSV_FIELDS).encode()
        async for part in self._search.everything(query):
            if part:
                yield await asyncio.to_thread(_csv, part)

    def _query(self, page: PageRequest) -> report_lists.RequestQuery:
        try:
            return request_search.request_query(page.query, page.tenant, self._parts.clock.now(), ON_A_PAGE)
        except request_search.FilterRefused as error:
            raise errors.invalid(error.field, error.text) from None


def _csv(part: Sequence[report_lists.FoundRequest]) -> bytes:
    records = ({**request_search.request_record(each), "created_at": each.line.created_at.isoformat()} for each in part)
    return "".join(printing.csv_line(record[name] for name in request_search.CSV_FIELDS) for record in records).encode(
        "utf-8", "replace"
    )


def _sums(found: Sequence[report_lists.FoundRequest]) -> bill.CostSums:
    """Returns the sums of the requests that a page shows."""
    lines = [each.line for each in found]
    priced = [line.known_cost for line in lines if line.known_cost is not None]
    savings = [line.net_saving for line in lines if line.net_saving is not None]
    return bill.CostSums(
        cost_picousd=sum(map(keys.picousd, priced)),
        priced=len(priced),
        unpriced=sum(line.cost is None for line in lines),
        net_saving_picousd=sum(map(keys.picousd, savings)),
        metered=len(savings),
    )


def _first(**changes: str | None) -> dict[str, str | None]:
    """Returns changes of a list's address that lead to its first page."""
    return {**changes, "older": None, "newer": None}


def _sort(page: PageRequest, query: report_lists.RequestQuery, name: str) -> tuple[str, str, str]:
    """Returns an order: its name, its state now (`aria-sort`), and the address that sorts by it, or reverses it."""
    is_now = query.sort == name
    turned = f"-{name}" if is_now and not query.ascending else name
    state = ("ascending" if query.ascending else "descending") if is_now else "none"
    return name, state, page.link(**_first(sort=None if turned == "time" else turned))


def _leads_to(thing: request_search.NamedThing) -> str:
    return LEADS_TO[thing.kind] + quote(thing.name, safe="")


# `/ui`: today at a glance. Each figure leads to the requests that it counts.

DAYS = 14
"""Days of the charts."""
NEAR = Decimal("0.8")
"""Share of a budget from which on it is near its end."""
MAX_HOLDERS = 100
"""Keys, users, models or projects whose budgets are checked: those that spent most this month."""
TOP = 5
"""Models and keys that are shown: the most expensive."""


@record
class OverviewAlert:
    """A problem to look at. `kind`: the class of its badge."""

    kind: str
    what: str
    why: str
    link: str


class OverviewPage:
    """`GET /ui`"""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._reports = CostReports(parts.transactions)

    async def show(self, page: PageRequest) -> PageAnswer:
        """Shows the page, of today (UTC)."""
        now = self._parts.clock.now()
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        models, keys = [await self._rows((by,), midnight, page.tenant) for by in ("model", "key")]
        speeds = await request_search.RequestSearch(self._parts.transactions).speeds(page.tenant, midnight)
        names = await self._parts.auth.names([row.names[0] for row in keys[:TOP] if row.names[0] is not None])
        since = midnight - timedelta(days=DAYS - 1)
        report = await self._reports.report(bill.CostQuery(("day",), since, None, page.tenant))
        days = filled(report, since.date(), midnight.date())
        today = days[-1][1] if days else bill.CostSums()
        return await page.render(
            "overview.html",
            today=today,
            missing=report.missing,
            models=_dearest(models, "model"),
            keys=_dearest(keys, "key"),
            cache_saving=self._cache_saving(models),
            names=names,
            speed=speeds.get(None),
            speeds=speeds,
            asked=_chart(days, _requests, lambda value: number(int(value)) if value == int(value) else ""),
            spent=_chart(days, _costs, money),
            days=days,
            alerts=await self._alerts(page, today),
            today_link=f"{LIST}?since=today",
            refused=sum(count for _, count in self._parts.observed.refused.counts(page.tenant)),
        )

    def _cache_saving(self, models: Sequence[bill.CostRow]) -> Decimal | None:
        """Returns by how much cached input was cheaper than at the full price, by today's prices; None: both prices are
        known of no model."""
        found = None
        for row in models:
            prices = self._parts.router.facts(row.names[0]).prices if row.names[0] is not None else {}
            whole, cached = (prices.get(name) for name in ("input_cost_per_token", "cache_read_input_token_cost"))
            if whole is not None and cached is not None:
                found = (found or Decimal(0)) + row.sums.cached_tokens * (whole - cached)
        return found

    async def _budgets(self, page: PageRequest) -> list[OverviewAlert]:
        """Returns the budgets of which `NEAR` is spent. Those of models, projects and in total cover all tenants."""
        now, limits = self._parts.clock.now(), self._parts.settings.limits
        kinds: list[tuple[str, ...]] = [("key",)] if self._parts.settings.auth.wants_keys else []
        if limits.each_user.budgets or limits.users:
            kinds.append(("tenant", "user"))
        if page.tenant is None:
            kinds += [(name,) for name in ("model", "project") if getattr(limits, f"{name}s")]
            kinds += [()] if limits.all.budgets else []
        found = []
        for by in kinds:
            spent: dict[setting_sections.Period, dict[tuple[str | None, ...], Decimal]] = {}
            dearest = (await self._spent(by, "month", now, page.tenant))[:MAX_HOLDERS]
            keys = [row.names[0] for row in dearest if row.names[0] is not None] if by == ("key",) else []
            holders = await self._parts.auth.holders_of(keys) if keys else {}
            for row in dearest:
                for budget in self._budgets_of(by, row.names[-1] if row.names else None, holders):
                    if budget.period not in spent:
                        rows = await self._spent(by, budget.period, now, page.tenant)
                        spent[budget.period] = {each.names: each.sums.cost for each in rows}
                    paid = spent[budget.period].get(row.names, Decimal(0))
                    if paid >= NEAR * budget.usd:
                        found.append(_near(by, row.names, budget, paid, holders))
        return found

    async def _spent(
        self, by: tuple[str, ...], period: setting_sections.Period, now: datetime, tenant: str | None
    ) -> Sequence[bill.CostRow]:
        return await self._rows(by, datetime.combine(keys.period_of(period, now)[0], time(), UTC), tenant)

    async def _rows(self, by: tuple[str, ...], since: datetime, tenant: str | None) -> Sequence[bill.CostRow]:
        return (await self._reports.report(bill.CostQuery(by, since, None, tenant))).rows

    def _budgets_of(
        self, by: tuple[str, ...], name: str | None, holders: Mapping[str, KeyPolicy]
    ) -> Sequence[setting_sections.SpendBudget]:
        limits = self._parts.settings.limits
        if not by:
            return limits.all.budgets
        if name is None:
            return ()
        if by == ("key",):
            policy = holders.get(name)
            return () if policy is None else policy.budgets or limits.keys.budgets
        if by[-1] == "user":
            return limits.users.get(name, limits.each_user).budgets
        return (limits.models if by == ("model",) else limits.projects).get(name, setting_sections.NO_ALLOWANCE).budgets

    async def _alerts(self, page: PageRequest, today: bill.CostSums) -> list[OverviewAlert]:
        """Returns what does not work, or soon will not."""
        found = []
        status, said = await self._parts.ready.state()
        if status != 200:
            found.append(OverviewAlert("bad", "Not serving requests", unready_text(said), f"{PATH}/health"))
        found += await self._budgets(page)
        if today.failed:
            text = f"{number(today.failed)} of {number(today.requests)} requests today"
            found.append(OverviewAlert("bad", "Failed requests", text, f"{LIST}?since=today&status=failed"))
        if today.unpriced:
            text = f"{number(today.unpriced)} of {number(today.requests)} requests today without a known price"
            found.append(OverviewAlert("warn", "Missing prices", text, f"{PATH}/costs?by=model"))
        told = None if page.tenant is None else {entry.model_name for entry in self._parts.settings.model_list}
        for model, trouble in sorted(self._parts.observed.metrics.troubles().items()):
            if told is None or model in told:
                what, why = trouble_text(model, trouble, sees_all=told is None)
                link = f"{LIST}?{urlencode({'model': model, 'status': 'failed'})}"
                found.append(OverviewAlert("bad", what, why, link))
        if told is None:  # deployments tell an operator's hosts
            for each, rests in self._parts.router.health.watched():
                if rests:
                    what = f"{each.deployment.id} is in cooldown"
                    found.append(OverviewAlert("warn", what, "it failed too often", f"{PATH}/health"))
        return found


def _dearest(rows: Sequence[bill.CostRow], by: str) -> list[CostLine]:
    """Returns models or keys with their cost today, and links to the requests behind that."""
    dearest = max((row.sums.cost_picousd for row in rows), default=0)
    return [
        CostLine(
            row.names[0],
            row.sums,
            max(0, row.sums.cost_picousd) / dearest if dearest else 0.0,
            f"{LIST}?{urlencode({'since': 'today', by: row.names[0]})}" if row.names[0] else None,
        )
        for row in rows[:TOP]
    ]


def _near(
    by: tuple[str, ...],
    names: tuple[str | None, ...],
    budget: setting_sections.SpendBudget,
    paid: Decimal,
    holders: Mapping[str, KeyPolicy],
) -> OverviewAlert:
    name = names[-1] if names else None
    key = holders.get(name or "")
    called = f" ({key.name})" if key is not None and key.name else ""
    text = f"{money(paid)} of {money(Decimal(budget.usd))} ({budget.period})"
    link = f"{LIST}?{urlencode({by[-1]: name})}" if by and by != ("project",) else f"{PATH}/costs"
    what = f"Budget of {by[-1]} {name}{called}" if by else "Budget of this gateway"
    return OverviewAlert("bad" if paid >= budget.usd else "warn", what, text, link)


def _chart(days: Sequence[tuple[str, bill.CostSums]], value: Any, worded: Any) -> ColumnChart | None:
    return column_chart([value(day, sums) for day, sums in days], worded)


def _requests(day: str, sums: bill.CostSums) -> ColumnValue:
    bad = sums.failed + sums.partial
    told = f"{day}: {number(sums.requests)} requests, {number(sums.failed)} failed, {number(sums.partial)} partial"
    return ColumnValue(day[5:], told, (("answers", Decimal(sums.requests - bad)), ("lost", Decimal(bad))))


def _costs(day: str, sums: bill.CostSums) -> ColumnValue:
    told = f"{day}: {usd(sums.known_cost, at_least=sums.unpriced > 0)}, net saving {usd(sums.net_saving)}"
    parts = (("answers", sums.cost - sums.planning), ("internal", sums.planning))
    return ColumnValue(day[5:], told, parts)
