"""Claims in the storage: which requests were answered or are being answered by other processes."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from gateway.core import ports, processes
from gateway.core.types import turn
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, insert_for
from gateway.storage.database.transactions import writes
from gateway.storage.encryption.columns import RowInsert
from gateway.storage.rows import utc

FRESH_FOR = timedelta(seconds=30)
"""How long a claim is held whatever is known of its process. A competitor that takes it at the same moment waits for
the claim's row and reads that row's new state, but still the old state of the process's row."""

claims = schema.claims.c


def settle_claims(connection: sa.Connection, commits: Sequence[turn.TurnCommit], now: datetime) -> None:
    """Converts claims into their answers' records, or releases them on failure, in the turns' transaction."""
    held = [(commit.claim, commit) for commit in commits if commit.claim is not None]
    for claim, commit in sorted(held, key=lambda pair: pair[0].identity.place):  # always in one order: no deadlock
        if commit.ledger.status == "complete":
            RECORD(connection, [_row(claim, "done", now + claim.kept)])
        else:
            release_claim(connection, claim)


def _row(claim: turn.RequestClaim, state: str, expires_at: datetime) -> dict[str, Any]:
    return {
        "tenant": claim.identity.tenant,
        "key": claim.identity.key,
        "body": claim.identity.body,
        "request_id": claim.request_id,
        "state": state,
        "process": claim.process,
        "created_at": claim.created_at,
        "expires_at": expires_at,
    }


def _is(identity: turn.RequestIdentity) -> sa.ColumnElement[bool]:
    return sa.and_(claims.tenant == identity.tenant, claims.key == identity.key)


def release_claim(connection: sa.Connection, claim: turn.RequestClaim) -> None:
    """Deletes the claim if it has not become a record, and the earlier record that it replaced."""
    mine = sa.and_(claims.request_id == claim.request_id, claims.state == "running")
    older = sa.and_(claims.state == "done", claims.created_at < claim.created_at)
    connection.execute(schema.claims.delete().where(_is(claim.identity), sa.or_(mine, older)))


def _find(connection: sa.Connection, identity: turn.RequestIdentity, now: datetime) -> turn.ClaimRecord | None:
    query = sa.select(schema.claims, schema.processes.c.alive_until)
    query = query.select_from(schema.claims.outerjoin(schema.processes, schema.processes.c.id == claims.process))
    row = connection.execute(query.where(_is(identity))).first()
    if row is None:
        return None
    until = utc(row.expires_at)
    valid = until > now
    if row.state == "running":
        alive_until = until if row.alive_until is None else max(until, utc(row.alive_until))
        valid = not processes.is_dead(row.process, alive_until, now)
    return turn.ClaimRecord(row.state, row.request_id, bytes(row.body), utc(row.created_at), valid)


def write_heartbeat(connection: sa.Connection, process: str, alive_until: datetime) -> None:
    """Stores that the process is alive, and holds its claims, until `alive_until` at least."""
    insert = insert_for(connection.dialect, schema.processes)
    beat = insert.on_conflict_do_update(index_elements=["id"], set_={"alive_until": insert.excluded.alive_until})
    connection.execute(beat, {"id": process, "alive_until": alive_until})


RENEWED = (
    "ON CONFLICT (tenant, key) DO UPDATE SET body = excluded.body, request_id = excluded.request_id,"
    " state = excluded.state, process = excluded.process, created_at = excluded.created_at,"
    " expires_at = excluded.expires_at"
)
FREE = (
    " WHERE (claims.state = 'running' AND claims.expires_at <= excluded.created_at"
    " AND NOT EXISTS (SELECT 1 FROM processes"
    " WHERE processes.id = claims.process AND processes.alive_until > excluded.created_at)"
    " OR claims.state <> 'running' AND claims.expires_at <= excluded.created_at)"
)
"""The claim has expired, or its process has died; `created_at` of a running claim is now."""
TAKE = RowInsert(schema.claims, RENEWED + FREE + " RETURNING request_id")
RECORD = RowInsert(
    schema.claims,
    RENEWED + " WHERE claims.request_id = excluded.request_id AND claims.state = 'running'"
    " OR claims.state = 'done' AND claims.created_at < excluded.created_at",
)
"""A claim's record replaces the claim itself, or an earlier request's record; it never replaces what others hold."""


class ClaimStore:
    """Takes and releases claims; each method is one short transaction.

    `shared`: other processes use the same storage, so claims are taken there and not in memory alone."""

    def __init__(self, transactions: DatabaseTransactions, clock: ports.Clock) -> None:
        self._transactions = transactions
        self._clock = clock
        self.shared = transactions.remote

    async def take(self, claim: turn.RequestClaim, *, alive_until: datetime | None) -> turn.ClaimRecord | None:
        """Takes the claim if it is free and returns None; else returns the record that holds it.
        `alive_until`: stored for the claim's process; None leaves the stored time unchanged."""
        now = self._clock.now()

        def work(connection: sa.Connection) -> turn.ClaimRecord | None:
            if alive_until is not None:
                write_heartbeat(connection, claim.process, alive_until)
            row = {**_row(claim, "running", now + FRESH_FOR), "created_at": now}
            if TAKE.one(connection, row) is not None:
                return None
            record = _find(connection, claim.identity, now)
            if record is not None and not record.valid and record.state == "running":  # killed on this machine
                dead = (claims.request_id == record.request_id, claims.state == "running")
                connection.execute(schema.claims.delete().where(_is(claim.identity), *dead))
                if TAKE.one(connection, row) is not None:
                    return None
                record = _find(connection, claim.identity, now)
            # None: released between the two statements, so the next try will get it.
            return record or turn.ClaimRecord("running", "", claim.identity.body, now, valid=True)

        return await self._transactions.run(work, write=True)

    async def find(self, identity: turn.RequestIdentity) -> turn.ClaimRecord | None:
        """Returns the record of a request; None if there is none."""
        now = self._clock.now()
        return await self._transactions.run(lambda connection: _find(connection, identity, now))

    release = writes(release_claim)
    beat = writes(write_heartbeat)
