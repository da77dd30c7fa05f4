"""Opens the storage for commands while a server runs: read-only, or to change it (guarantee §13.9)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TextIO

from gateway.core import errors, printing
from gateway.core.config.settings import Settings, StorageSettings
from gateway.operations.screen import CommandCall
from gateway.storage import bills, ledger
from gateway.storage.database import DatabaseTransactions, migrate
from gateway.storage.encryption import sealing

SPOILT_VALUE_ERRORS = (AttributeError, OverflowError, TypeError, ValueError)
"""Errors of reading a text that SQL has written in the place of a number, which SQLite permits."""
Work = Callable[[DatabaseTransactions], Awaitable[int]]


def run_reading(call: CommandCall, work: Work) -> int:
    """Runs `work` with the storage opened for reading; returns its exit status, or 1 if the storage cannot be read.
    Raises ValueError: `storage.url` names no database."""
    return _run(call, work, _open_reading)


def run_changing(call: CommandCall, work: Work) -> int:
    """Runs `work` with a storage that it may change; otherwise like `run_reading`."""
    return _run(call, work, migrate.open_current)


async def _open_reading(settings: StorageSettings) -> DatabaseTransactions:
    transactions = ledger.open_ledger(settings)
    try:
        await migrate.require_current(transactions)
    except BaseException:  # also a command that is interrupted while it connects
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
    """Returns why the storage cannot be used, with its URL but without a password."""
    cause = errors.cause_of(error)
    return f"{migrate.shown(settings.storage.url)}: {error.message}{f' ({cause})' if cause else ''}"


async def tell_missing(transactions: DatabaseTransactions, err: TextIO) -> int:
    """Counts the bills of an older version that the sums lack yet, and reports them on `err` (guarantee §13.1)."""
    missing = await bills.count_older(transactions)
    if missing:
        text = "bills of an older version are in no sums yet: `gateway serve` adds them within five minutes"
        err.write(f"{missing} {text}\n")
    return missing


async def tell_sealed(transactions: DatabaseTransactions, err: TextIO) -> None:
    """Reports on `err` that texts cannot be searched, if content written now is encrypted."""
    if await transactions.run(sealing):
        err.write("messages are encrypted: their text cannot be searched\n")
