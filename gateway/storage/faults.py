"""What an error of PostgreSQL means for the transaction in which it came: tried again, unavailable, or a fault."""

from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gateway.errors import StorageUnavailable
from gateway.storage.work import CommitUnknown

ATTEMPTS = 4
ROLLED_BACK = ("40",)
"""Class 40: deadlock, serialization failure. The server rolled back, also if it says so at the COMMIT."""
STALE_PLAN = "0A000"
"""A prepared statement from before a migration; SQLAlchemy forgets them all when it sees this."""
OUTAGES = ("08", "25006", "28", "3D", "53", "55", "57", "42P01", "42703")
"""Connection; a standby that only reads; no access; no such database; resources; lock; shutdown or time over; and a
schema that this version's tables or columns are not in yet."""
LOST = ("08", "57P")
"""The connection is gone, and with it all that was not committed."""


@dataclass(slots=True)
class Phase:
    """How far a transaction has come."""

    connected: bool = False
    committing: bool = False


def judge(error: Exception, phase: Phase, *, write: bool) -> tuple[bool, Exception]:
    """Whether the transaction may be tried again, and what it raises if it is not.

    It may be if it was certainly rolled back. A write that loses its connection at the COMMIT may have been committed:
    it is not tried again here, and `CommitUnknown` says why.
    """
    state = sqlstate(error)
    lost = _is_lost(error, state)
    uncertain = write and phase.committing and not (state and not lost and not state.startswith("57"))
    if uncertain:
        return False, CommitUnknown("The storage was lost while a turn was being committed.")
    again = phase.connected and (lost or state.startswith(ROLLED_BACK) or state == STALE_PLAN)
    if isinstance(error, DBAPIError) and state and not lost and not state.startswith((*ROLLED_BACK, *OUTAGES)):
        return again, error
    if isinstance(error, PoolTimeout):
        return False, StorageUnavailable("The storage's connections are all in use.")
    if isinstance(error, DBAPIError | OSError) or (isinstance(error, TypeError) and not phase.connected):
        return again, StorageUnavailable("The storage cannot be reached.")
    return False, error  # TypeError before: asyncpg's word for a parameter of the URL that it does not know


def sqlstate(error: Exception) -> str:
    """PostgreSQL's five characters, "" if the error is the driver's or the network's."""
    orig = getattr(error, "orig", None)
    state = getattr(orig, "sqlstate", None) or getattr(getattr(orig, "__cause__", None), "sqlstate", None)
    return str(state or "")


def _is_lost(error: Exception, state: str) -> bool:
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or state.startswith(LOST)
    return isinstance(error, OSError) and not isinstance(error, TimeoutError)
