"""Searches requests for the web UI and commands alike: filters as people write them, and what an id or name refers to.

Each filter is a text by the name of its field, as in a URL or after `--`.
"""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, get_args

from gateway.core import clock, ids, names
from gateway.core.frozen_records import record
from gateway.core.types import report_lists, turn
from gateway.storage.database import DatabaseClient, reads
from gateway.storage.encryption import sealing
from gateway.storage.reports import found_requests, request_list

NAME_FILTERS = ("model", "key", "user", "agent", "endpoint", "conversation", "text")
AMOUNTS = ("min_cost", "max_cost", "min_saved", "max_saved")
TIME_FILTERS = ("since", "until")
FILTERS = (*TIME_FILTERS, "status", "http_status", *NAME_FILTERS, *AMOUNTS, "min_ms", "max_ms")
SORTS: tuple[report_lists.RequestSort, ...] = get_args(report_lists.RequestSort)
TURN_STATUSES: tuple[turn.TurnStatus, ...] = get_args(turn.TurnStatus)
MAX_FILTER_CHARS = 300
MIN_STATUS, MAX_STATUS = 100, 599
"""HTTP statuses."""
MAX_USD = Decimal(9_000_000)
"""A column holds no larger cost."""
IN_CSV = 1000
"""Requests that one transaction reads for an export."""
LINE_FIELDS = (
    *("created_at", "tenant", "status", "http_status", "error_code", "model", "endpoint", "user", "agent", "key_id"),
    *("project", "conversation_id", "completion_id", "stream", "prompt_tokens", "completion_tokens", "cached_tokens"),
    *("cache_write_tokens", "total_ms", "cost", "known_cost", "planning_cost", "direct_cost", "net_saving"),
    "estimated",
)
CSV_FIELDS = ("id", *LINE_FIELDS, "question")
ANSWER_ID = re.compile(r"(?:req_|chatcmpl-|resp_|msg_)[\w-]{1,56}", re.ASCII)


class FilterRefused(ValueError):
    """A filter cannot be used; `field` names it, `text` states what it must be."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text


@record
class NamedThing:
    """What a name refers to: `kind` is `request`, `conversation`, `session`, `key`, `user`, `agent` or `model`, `name`
    the id or name by which it is found."""

    kind: str
    name: str


def request_query(given: Mapping[str, str], tenant: str | None, now: datetime, limit: int) -> report_lists.RequestQuery:
    """Builds the query from these filters; empty ones are ignored. `sort` is one of `SORTS`, with `-` before it for
    ascending order; `older` or `newer` holds a position.
    Raises FilterRefused: one of them cannot be used."""
    said = {name: value.strip() for name, value in given.items() if value and value.strip()}
    for name, value in said.items():
        if len(value) > MAX_FILTER_CHARS:
            raise FilterRefused(name, f"must have at most {MAX_FILTER_CHARS} characters")
        if names.has_nul(value):
            raise FilterRefused(name, "must not have the character NUL")
    since, until = (_time(name, said.get(name), now) for name in TIME_FILTERS)
    if since is not None and until is not None and since >= until:
        raise FilterRefused("until", "must be later than since")
    status: Any = said.get("status")
    if status == "ok":
        status = "complete"
    if status is not None and status not in TURN_STATUSES:
        raise FilterRefused("status", f"must be one of ok, {', '.join(TURN_STATUSES)}")
    amounts = {name: _amount(name, said[name]) for name in AMOUNTS if name in said}
    named = {name: said[name] for name in NAME_FILTERS if name in said}
    whole = {name: _whole(name, said[name]) for name in ("min_ms", "max_ms", "http_status") if name in said}
    if not MIN_STATUS <= whole.get("http_status", report_lists.OK) <= MAX_STATUS:
        raise FilterRefused("http_status", f"must be a whole number from {MIN_STATUS} to {MAX_STATUS}")
    choice = report_lists.RequestChoice(tenant=tenant, status=status, **named, **amounts, **whole)  # type: ignore[arg-type]
    sort = said.get("sort", "time")
    order: Any = sort.removeprefix("-")
    if order not in SORTS:
        raise FilterRefused("sort", f"must be one of {', '.join(SORTS)}, with - before it from the smallest up")
    query = report_lists.RequestQuery(choice, since, until, order, ascending=sort.startswith("-"), limit=limit)
    for direction in report_lists.DIRECTIONS:
        if place := said.get(direction):
            return replace(query, at=_position(direction, place, order), direction=direction)
    return query


def _time(name: str, text: str | None, now: datetime) -> datetime | None:
    try:
        return clock.parse_when(name, text, now)
    except ValueError as error:
        raise FilterRefused(name, str(error).partition(": ")[2]) from None


def _amount(name: str, text: str) -> Decimal:
    try:
        found = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        found = Decimal("NaN")
    if not (found.is_finite() and -MAX_USD <= found <= MAX_USD):  # `abs` of more than a context holds raises
        raise FilterRefused(name, "must be an amount in USD, such as 0.05")
    return found


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise FilterRefused(name, "must be a whole number")
    return int(text)


def _position(name: str, text: str, order: report_lists.RequestSort) -> report_lists.ListPosition:
    try:
        found = report_lists.ListPosition.parse(text)
        if order == "time":
            _ = found.time
    except ValueError:
        raise FilterRefused(name, "must be a place in the list") from None
    return found


def line_record(line: report_lists.RequestLine) -> dict[str, Any]:
    """Renders a request for files and programs; costs in USD, `created_at` in seconds since 1970. `cost` is None as
    soon as one call has no price; `known_cost` sums the calls that have one."""
    told = {
        "created_at": int(line.created_at.timestamp()),
        "http_status": http_status(line),
        "endpoint": line.endpoint or report_lists.CHAT_ENDPOINT,
    }
    named = {name: told[name] if name in told else getattr(line, name) for name in LINE_FIELDS}
    return {"id": line.id, "object": "request", **named}


def request_record(found: report_lists.FoundRequest) -> dict[str, Any]:
    """Renders a request as `line_record` does, with the beginning of its question."""
    return {**line_record(found.line), "question": found.question}


def http_status(line: report_lists.RequestLine) -> int | None:
    """Returns the HTTP status that the client received; None for a failure whose client had left."""
    return line.http_status if line.status == "failed" else report_lists.OK


class RequestSearch(DatabaseClient):
    """Searches requests in the storage. Each search is one short transaction.
    Raises StorageUnavailable: from any method: the storage cannot be reached."""

    find = reads(found_requests.find_requests)
    speeds = reads(found_requests.read_speeds)
    is_sealed = reads(sealing)

    async def everything(
        self, query: report_lists.RequestQuery
    ) -> AsyncIterator[tuple[report_lists.FoundRequest, ...]]:
        """Yields all matching requests, page by page."""
        query = replace(query, at=None, direction="older", limit=IN_CSV)
        while True:
            found = await self.find(query)
            yield found.found
            if found.older is None:
                return
            query = replace(query, at=found.older)

    async def named(self, tenant: str | None, name: str) -> list[NamedThing]:
        """Looks up what an id or a name refers to, as far as this tenant (None: all of them) may see it."""
        if not name or len(name) > MAX_FILTER_CHARS or names.has_nul(name):
            return []
        if ANSWER_ID.fullmatch(name):
            line = await self._transactions.run(
                lambda connection: request_list.read_request(connection, tenant, ids.completion_of(name))
            )
            if line is not None:
                return [NamedThing("request", line.id)]
        if name.startswith(ids.CONVERSATION):
            part = report_lists.ListPart(report_lists.ConversationChoice(tenant=tenant, id=name), limit=2)
            page = await self._transactions.run(partial(request_list.list_conversations, part=part))
            return [NamedThing("conversation", each.id) for each in page.found]
        found = await self._transactions.run(partial(found_requests.named_things, tenant=tenant, name=name))
        return [NamedThing(kind, each) for kind, each in found]
