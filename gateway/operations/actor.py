"""Who runs a command, and what a command tells the trail (guarantee §12.12)."""

import getpass
import os
from typing import Any

from gateway.base.clock import SystemClock
from gateway.models.trail import Actor, NewEvent
from gateway.storage.database.engine import Transactions
from gateway.storage.trail.append import Trail


def command_actor() -> Actor:
    """By the name of the system's user; a command has no key."""
    try:
        return Actor(None, getpass.getuser())
    except (KeyError, OSError):
        return Actor(None, f"user {os.getuid()}")


async def tell_trail(
    transactions: Transactions, action: str, object_id: str | None = None, tenant: str | None = None, **details: Any
) -> None:
    """Records what a command does, in a transaction of its own.

    Raises:
        StorageUnavailable: it could not be recorded.
    """
    event = NewEvent(command_actor(), action, object_id, tenant, details)
    await Trail(transactions, SystemClock(), is_strict=True).saw(event)
