"""Who runs a command, and how a command records its actions in the audit log (guarantee §12.12)."""

import getpass
import os
from typing import Any

from gateway.core.clock import SystemClock
from gateway.core.types import audit_log
from gateway.storage import audit_events
from gateway.storage.database import DatabaseTransactions


def command_actor() -> audit_log.AuditActor:
    """Returns the actor of a command: the name of the system user, without a key."""
    try:
        return audit_log.AuditActor(None, getpass.getuser())
    except (KeyError, OSError):
        return audit_log.AuditActor(None, f"user {os.getuid()}")


async def tell_trail(
    transactions: DatabaseTransactions,
    action: str,
    object_id: str | None = None,
    tenant: str | None = None,
    **details: Any,
) -> None:
    """Records a command's action in the audit log, in its own transaction. Raises StorageUnavailable: that failed."""
    event = audit_log.NewEvent(command_actor(), action, object_id, tenant, details)
    await audit_events.AuditLog(transactions, SystemClock(), is_strict=True).saw(event)
