"""How commands that only look read the storage, beside a running server (guarantee §13.9)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TextIO

from gateway.core.config.settings import Settings
from gateway.core.errors import StorageUnavailable
from gateway.storage.database.migrate import require_current, shown
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.ledger import open_ledger
from gateway.storage.turns.bills import count_older

Work = Callable[[DatabaseTransactions], Awaitable[int]]


def run_reading(settings: Settings, work: Work, err: TextIO) -> int:
    """Runs `work` with the storage, opened for reading; returns what it returns, 1 if the storage cannot be read.
    Raises ValueError: `storage.url` names no database."""
    try:
        return asyncio.run(_with_storage(settings, work))
    except StorageUnavailable as error:
        err.write(f"{why_not(settings, error)}\n")
        return 1


async def _with_storage(settings: Settings, work: Work) -> int:
    transactions = open_ledger(settings.storage)
    try:
        await require_current(transactions)
        return await work(transactions)
    finally:
        await transactions.close()


def why_not(settings: Settings, error: StorageUnavailable) -> str:
    """What is wrong with the storage, without a password."""
    cause = f" ({type(error.__cause__).__name__})" if error.__cause__ else ""
    return f"{shown(settings.storage.url)}: {error.message}{cause}"


async def tell_missing(transactions: DatabaseTransactions, err: TextIO) -> int:
    """Says how many bills the sums lack, as an older version wrote them (guarantee §13.1)."""
    missing = await count_older(transactions)
    if missing:
        err.write(f"{missing} bills that an older version wrote are in no sums yet: a running server adds them\n")
    return missing
