"""How commands open the storage, beside a running server: to look at it alone, or to change it (guarantee §13.9)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TextIO

from gateway.core import errors, printing
from gateway.core.config.settings import Settings, StorageSettings
from gateway.operations.screen import CommandCall
from gateway.storage import bills, ledger
from gateway.storage.database import DatabaseTransactions, migrate

SPOILT_VALUE_ERRORS = (AttributeError, OverflowError, TypeError, ValueError)
"""What reading ends with where SQL has left a text in the place of a number, which SQLite keeps."""
Work = Callable[[DatabaseTransactions], Awaitable[int]]


def run_reading(call: CommandCall, work: Work) -> int:
    """Runs `work` with the storage, opened for reading; returns what it returns, 1 if the storage cannot be read.
    Raises ValueError: `storage.url` names no database."""
    return _run(call, work, _open_reading)


def run_changing(call: CommandCall, work: Work) -> int:
    """The same with a storage that can be changed."""
    return _run(call, work, migrate.open_current)


async def _open_reading(settings: StorageSettings) -> DatabaseTransactions:
    transactions = ledger.open_ledger(settings)
    try:
        await migrate.require_current(transactions)
    except BaseException:  # also a command that is broken off while it connects
        await transactions.close()
        raise
    return transactions


def _run(call: CommandCall, work: Work, opened: Callable[[StorageSettings], Awaitable[DatabaseTransactions]]) -> int:
    async def run() -> int:
        transactions = await opened(call.settings.storage)
        try:
            return await work(transactions)
        except SPOILT_VALUE_ERRORS:
            if not (spoilt := await transactions.run(ledger.spoilt_values)):
                raise
            lines = ("these values cannot be read:", *(f"  {printing.printable(each)}" for each in spoilt))
            call.err.write("".join(f"{line}\n" for line in lines))
            return 1
        finally:
            await transactions.close()

    try:
        return asyncio.run(run())
    except errors.StorageUnavailable as error:
        call.err.write(f"{why_not(call.settings, error)}\n")
        return 1


def why_not(settings: Settings, error: errors.StorageUnavailable) -> str:
    """What is wrong with the storage, without a password."""
    cause = f" ({type(error.__cause__).__name__})" if error.__cause__ else ""
    return f"{migrate.shown(settings.storage.url)}: {error.message}{cause}"


async def tell_missing(transactions: DatabaseTransactions, err: TextIO) -> int:
    """Says how many bills the sums lack, as an older version wrote them (guarantee §13.1)."""
    missing = await bills.count_older(transactions)
    if missing:
        err.write(f"{missing} bills that an older version wrote are in no sums yet: a running server adds them\n")
    return missing
