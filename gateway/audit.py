"""`gateway audit`: reads the ledger, adds every row up again and says whether all balances (contract §6)."""

import argparse
import asyncio
from typing import TextIO

from gateway.accounting.audit import Audit
from gateway.accounting.report import COLUMNS, csv_line, csv_row, summary, verdict
from gateway.clock import parse_when
from gateway.errors import StorageUnavailable
from gateway.models.ledger import LedgerQuery
from gateway.ports import Clock
from gateway.settings import Settings
from gateway.storage.ledger import ledger_pages, open_ledger
from gateway.storage.probe import shown


def audit(settings: Settings, options: argparse.Namespace, clock: Clock, out: TextIO, err: TextIO) -> int:
    """Writes the report to `out`; returns 0 if all balances, 1 if not or if the storage cannot be read.

    Raises:
        ValueError: `--since` or `--until` is no time, or nothing can lie between them.
    """
    now = clock.now()
    since, until = parse_when("--since", options.since, now), parse_when("--until", options.until, now)
    if since is not None and until is not None and since >= until:
        raise ValueError("--since must be before --until")
    query = LedgerQuery(since, until, options.model, options.tenant, options.conversation)
    try:
        return asyncio.run(_audit(settings, query, csv=options.csv, out=out, err=err))
    except StorageUnavailable as error:
        where = shown(settings.storage.url)
        cause = f" ({type(error.__cause__).__name__})" if error.__cause__ else ""
        err.write(f"{where}: {error.message}{cause}\n")
        return 1


async def _audit(settings: Settings, query: LedgerQuery, *, csv: bool, out: TextIO, err: TextIO) -> int:
    found = Audit()
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
