"""The audit trail: events numbered without gaps, each with a keyed digest over itself and its predecessor. A change and
its event are committed in one transaction: both or neither. Readers verify that nothing was changed or moved."""

import hmac
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from gateway.core import errors, ports
from gateway.core.instrumentation import logs
from gateway.core.types import audit_log
from gateway.storage import rows
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.keyed_hashes import make_secret, read_secret, storable

EVENTS = schema.admin_events
AUDIT_LOCK_ID = 0x7472_6169_6C67_7779  # "trailgwy": any number that no other application on the database uses
NAME_CHARS, TENANT_CHARS = 256, 128
AUDIT_DIGEST_PURPOSE = b"admin-trail\0"
Record = Callable[[sa.Connection, str, str | None, str | None, dict[str, Any]], None]
"""Records an action on a tenant's object, with details, in the transaction of the change. Call it last there: from then
until the transaction ends, no other transaction can append to the trail."""
log = logs.get_logger("gateway.storage")


def append(connection: sa.Connection, event: audit_log.NewEvent, at: datetime) -> None:
    """Appends an event to the audit trail, in the caller's transaction and as its last statement. On PostgreSQL a lock
    keeps out every other writer of the trail until the transaction ends; SQLite has one writer anyway."""
    secret = read_secret(connection) or make_secret(connection)
    if connection.dialect.name == "postgresql":
        connection.execute(_ALONE)
    last = connection.execute(_LAST).first()
    number, before = (last.number + 1, bytes(last.digest)) if last is not None else (1, audit_log.FIRST_BEFORE)
    details = json.dumps(event.details, sort_keys=True, separators=(",", ":"))
    added = audit_log.TrailEvent(
        number=number,
        at=at,
        actor=event.by.key_id,
        actor_name=_cut(event.by.name, NAME_CHARS),
        tenant=_cut(event.tenant, TENANT_CHARS),
        action=event.action,
        object_id=None if event.object_id is None else storable(event.object_id),
        ok=event.ok,
        details=details,
        previous_digest=before,
        digest=b"",
    )
    added = replace(added, digest=digest_of(secret, added))
    columns = {name: getattr(added, name) for name in audit_log.TrailEvent.__annotations__ if name != "object_id"}
    connection.execute(EVENTS.insert().values(**columns, object=added.object_id))


def digest_of(secret: bytes, event: audit_log.TrailEvent) -> bytes:
    """Computes the digest that an event must have: over all its fields and the previous digest."""
    told = (event.number, event.time, event.actor, event.actor_name, event.tenant, event.action)
    text = json.dumps([*told, event.object_id, event.ok, event.details], separators=(",", ":"))
    return hmac.digest(secret, AUDIT_DIGEST_PURPOSE + event.previous_digest + text.encode(), "sha256")


def recorded(
    connection: sa.Connection,
    by: audit_log.AuditActor | None,
    at: datetime,
    action: str,
    object_id: str | None,
    tenant: str | None = None,
    **details: Any,
) -> None:
    """Records a change, last in its transaction. `by` None: nothing is recorded, as when retention deletes."""
    if by is not None:
        append(connection, audit_log.NewEvent(by, action, object_id, tenant, details), at)


def recorder(by: audit_log.AuditActor, clock: ports.Clock) -> Record:
    """Returns a `Record` that records actions of `by` in the transaction it is given."""

    def record(
        connection: sa.Connection, action: str, object_id: str | None, tenant: str | None, details: dict[str, Any]
    ) -> None:
        append(connection, audit_log.NewEvent(by, action, object_id, tenant, details), clock.now())

    return record


class AuditLog:
    """Records events that change nothing, such as reads, each in a transaction of its own."""

    def __init__(self, transactions: DatabaseTransactions, clock: ports.Clock, *, is_strict: bool) -> None:
        """`is_strict`: what cannot be recorded is not shown. True wherever there are keys."""
        self._transactions = transactions
        self._clock = clock
        self._is_strict = is_strict

    async def saw(self, event: audit_log.NewEvent) -> None:
        """Records an event before its answer is sent.
        Raises StorageUnavailable: the event could not be recorded, so its answer must not be shown."""
        at = self._clock.now()
        try:
            await self._transactions.run(lambda connection: append(connection, event, at), write=True)
        except errors.StorageUnavailable as error:
            if self._is_strict:
                raise
            log.warning("event_not_recorded", action=event.action, reason=error.message)
        except Exception as fault:
            if self._is_strict:
                raise errors.StorageUnavailable(
                    "What was asked for cannot be recorded, and so is not shown."
                ) from fault
            log.fault("event_not_recorded", fault)


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else storable(text[:most])


_ALONE = sa.text(f"SELECT pg_advisory_xact_lock({AUDIT_LOCK_ID})")
_LAST = sa.select(EVENTS.c.number, EVENTS.c.digest).order_by(EVENTS.c.number.desc()).limit(1)


PAGE = 1000
"""Events that one transaction reads of an export or a check."""
MISSING = "it is missing"
CHANGED = "it was changed: its digest is not that of what it says"
UNLINKED = "the event before it is another than when it was recorded"
NOT_THE_SAME = "its digest is not the one that was named"


def read_events(connection: sa.Connection, query: audit_log.TrailQuery) -> tuple[list[audit_log.TrailEvent], bool]:
    """Reads one page of events, and whether more follow."""
    columns, where = EVENTS.c, []
    if query.after is not None:
        where.append(columns.number < query.after if query.newest_first else columns.number > query.after)
    where += [columns.action == query.action] if query.action is not None else []
    where += [columns.actor == query.actor] if query.actor is not None else []
    where += [columns.at >= query.since] if query.since is not None else []
    where += [columns.at < query.until] if query.until is not None else []
    order = columns.number.desc() if query.newest_first else columns.number
    found = connection.execute(sa.select(EVENTS).where(*where).order_by(order).limit(query.limit + 1)).all()
    return [_event(row) for row in found[: query.limit]], len(found) > query.limit


async def all_events(
    transactions: DatabaseTransactions, query: audit_log.TrailQuery
) -> AsyncIterator[list[audit_log.TrailEvent]]:
    """Yields all events of a query in pages, each read in its own transaction; also those recorded meanwhile."""
    query = replace(query, limit=PAGE, newest_first=False)
    has_more = True
    while has_more:
        found, has_more = await transactions.run(partial(read_events, query=query))
        if found:
            yield found
            query = replace(query, after=found[-1].number)


async def verify(
    transactions: DatabaseTransactions, begin: audit_log.ChainAnchor | None = None
) -> audit_log.ChainVerdict:
    """Verifies the chain from its first event, or from `begin`, the anchor of an earlier export or check. That anchor
    was the last event at that time, so events missing up to it are detected.
    Raises StorageUnavailable: the storage cannot be read."""
    secret = await transactions.run(read_secret) or b""
    last: audit_log.ChainAnchor | None = None
    count, number = 0, begin.number if begin is not None else 1
    query = audit_log.TrailQuery(after=number - 1)
    async for page in all_events(transactions, query):
        for event in page:
            reason = _fault(secret, event, number, last, begin)
            if reason is not None:
                return audit_log.ChainVerdict(count, last, number, reason)
            count, number, last = count + 1, number + 1, audit_log.ChainAnchor(event.number, event.digest)
    if begin is not None and last is None:
        return audit_log.ChainVerdict(0, None, begin.number, MISSING)
    return audit_log.ChainVerdict(count, last)


def _fault(
    secret: bytes,
    event: audit_log.TrailEvent,
    number: int,
    last: audit_log.ChainAnchor | None,
    begin: audit_log.ChainAnchor | None,
) -> str | None:
    """Returns why an event cannot be event `number` after `last`; None if it can."""
    if event.number != number:
        return MISSING
    if not hmac.compare_digest(digest_of(secret, event), event.digest):
        return CHANGED
    if last is None and begin is not None:
        return None if hmac.compare_digest(event.digest, begin.digest) else NOT_THE_SAME
    before = last.digest if last is not None else audit_log.FIRST_BEFORE
    return None if hmac.compare_digest(event.previous_digest, before) else UNLINKED


def event_json(event: audit_log.TrailEvent) -> dict[str, Any]:
    """Returns an event as lists and exports show it, with digests in hexadecimal."""
    try:
        details = json.loads(event.details)
    except ValueError:  # the row is damaged, which a check finds
        details = event.details
    told = {name: getattr(event, name) for name in audit_log.TrailEvent.__annotations__}
    digests = {name: told[name].hex() for name in ("previous_digest", "digest")}
    return {**told, "at": event.time, "details": details, **digests}


def event_lines(events: Sequence[audit_log.TrailEvent]) -> bytes:
    """Renders events as lines of JSON, in ASCII."""
    return "".join(f"{json.dumps(event_json(event))}\n" for event in events).encode()


def _event(row: Any) -> audit_log.TrailEvent:
    return audit_log.TrailEvent(**rows.alike(row, audit_log.TrailEvent, "object_id"), object_id=row.object)
