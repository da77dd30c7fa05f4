"""`gateway requests`: every request that called a model, with the filters and columns of the web UI (§13.18)."""

import asyncio

from gateway.core import printing
from gateway.core.types import report_lists
from gateway.inspection import request_search
from gateway.operations.screen import (
    COST_STYLE,
    FAINT,
    ID_STYLE,
    STATUS_STYLES,
    WHO_STYLE,
    CommandCall,
    Piece,
    TableColumn,
    request_cost,
    when_text,
)
from gateway.operations.storage_reader import run_reading, tell_sealed
from gateway.storage.database import DatabaseTransactions

REQUEST_COLUMNS = (
    TableColumn("request", ID_STYLE),
    TableColumn("arrived (UTC)", drop=4),
    TableColumn("status"),
    TableColumn("cause", drop=1),
    TableColumn("model", drop=2),
    TableColumn("API", drop=9),
    TableColumn("user", WHO_STYLE, drop=6),
    TableColumn("key", FAINT, drop=10),
    TableColumn("tenant", drop=11),
    TableColumn("tokens in", drop=8, is_right=True),
    TableColumn("out", drop=8, is_right=True),
    TableColumn("latency", drop=5, is_right=True),
    TableColumn("cost USD", COST_STYLE, drop=3, is_right=True),
    TableColumn("net saving USD", drop=7, is_right=True),
    TableColumn("question", is_flexible=True),
)


def requests(call: CommandCall) -> int:
    """Lists requests; returns 1 if the storage cannot be read. Raises ValueError: a filter cannot be used."""
    options, err = call.options, call.err
    given = {name: value for name in (*request_search.FILTERS, "sort") if (value := getattr(options, name)) is not None}
    try:
        query = request_search.request_query(given, options.tenant, call.clock.now(), options.limit)
    except request_search.FilterRefused as error:
        raise ValueError(f"--{error.field.replace('_', '-')}: {error.text}") from None

    async def work(transactions: DatabaseTransactions) -> int:
        if query.having.text:
            await tell_sealed(transactions, err)
        found, has_more = await _all(request_search.RequestSearch(transactions), query)
        if query.sort != "time":
            err.write(f"sorted by {query.sort}: requests without a known value are left out\n")
        return call.write_list(
            request_search.CSV_FIELDS,
            list(map(request_search.request_record, found)),
            REQUEST_COLUMNS,
            map(_row, found),
            empty="no requests",
            more=f"and more: --limit, now {query.limit}" if has_more else "",
            has_more=has_more,
        )

    return run_reading(call, work)


async def _all(
    search: request_search.RequestSearch, query: report_lists.RequestQuery
) -> tuple[list[report_lists.FoundRequest], bool]:
    """Returns up to `query.limit` requests, in as many reads as that takes, and whether there are more."""
    found: list[report_lists.FoundRequest] = []
    async for part in search.everything(query):
        found += part
        if len(found) > query.limit:
            break
        await asyncio.sleep(0)
    return found[: query.limit], len(found) > query.limit


def _row(found: report_lists.FoundRequest) -> list[Piece]:
    line = found.line
    status, told = request_search.http_status(line), line.error_code or ""
    cause = f"{status} {told}".strip() if line.status == "failed" and status is not None else told
    took = f"{line.total_ms / 1000:.1f}s" if line.total_ms is not None else ""
    saved = printing.usd_text(line.net_saving) if line.net_saving is not None else ""
    who = (line.user or "", line.key_id or "", line.tenant, str(line.prompt_tokens), str(line.completion_tokens))
    shown = (line.status, STATUS_STYLES.get(line.status, ""))
    when = when_text(line.created_at, "%Y-%m-%d %H:%M:%S")
    figures = (took, request_cost(line), saved)
    return [
        line.id,
        when,
        shown,
        cause,
        line.model,
        line.endpoint or report_lists.CHAT_ENDPOINT,
        *who,
        *figures,
        found.question or "",
    ]
