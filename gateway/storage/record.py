"""Writes turns and bills, each once, also when nobody can say whether a COMMIT got through."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from gateway.errors import StorageUnavailable
from gateway.logs import get_logger
from gateway.models.turn import TurnCommit
from gateway.storage import schema
from gateway.storage.work import CommitUnknown, Transactions
from gateway.storage.write import left_behind, write_turns

ATTEMPTS = 3
log = get_logger("gateway.storage")


async def record(transactions: Transactions, commits: Sequence[TurnCommit], now: datetime) -> list[str]:
    """One transaction. A turn and its bill stand in the same one, so the ledger says of both whether they are there:
    after a COMMIT that was lost, and for what has been tried before, it is asked first.

    Returns the groups of the cache that must go (`write_turns`).

    Raises:
        StorageUnavailable: nothing could be written, or nobody can say yet whether it was.
    """
    if not any(commit.again for commit in commits):
        try:
            return await transactions.run(lambda connection: write_turns(connection, commits, now), write=True)
        except CommitUnknown:
            log.warning("commit_unknown", requests=len(commits))
    for _ in range(ATTEMPTS):
        try:
            return await transactions.run(lambda connection: _write_rest(connection, commits, now), write=True)
        except (CommitUnknown, IntegrityError) as error:  # the earlier COMMIT went through while this one was tried
            last = error
    raise StorageUnavailable("The storage does not say what was committed.") from last


def _write_rest(connection: sa.Connection, commits: Sequence[TurnCommit], now: datetime) -> list[str]:
    column = schema.ledger.c.request_id
    query = sa.select(column).where(column.in_([commit.ledger.request_id for commit in commits]))
    known = set(connection.execute(query).scalars())
    gone = write_turns(connection, [commit for commit in commits if commit.ledger.request_id not in known], now)
    for commit in commits:
        if commit.ledger.request_id in known and commit.turn is not None:
            gone += left_behind(connection, commit.turn, commit.ledger.tenant)
    return gone
