"""Reads the trail, and checks that nothing in it was changed, taken out, put in or moved."""

import hmac
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from gateway.core.types.audit_log import FIRST_BEFORE, ChainAnchor, ChainVerdict, TrailEvent, TrailQuery
from gateway.storage import rows
from gateway.storage.audit_log.append import EVENTS, digest_of
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.secret import read_secret

PAGE = 1000
"""Events that one transaction reads of an export or a check."""
MISSING = "it is missing"
CHANGED = "it was changed: its digest is not that of what it says"
UNLINKED = "the event before it is another than when it was recorded"
NOT_THE_SAME = "its digest is not the one that was named"


def read_events(connection: sa.Connection, query: TrailQuery) -> tuple[list[TrailEvent], bool]:
    """Events, and whether there are more."""
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


async def all_events(transactions: DatabaseTransactions, query: TrailQuery) -> AsyncIterator[list[TrailEvent]]:
    """All events of a query, a page at a time, each read in a transaction of its own. What is recorded meanwhile comes
    along."""
    query = replace(query, limit=PAGE, newest_first=False)
    has_more = True
    while has_more:
        found, has_more = await transactions.run(partial(read_events, query=query))
        if found:
            yield found
            query = replace(query, after=found[-1].number)


async def verify(transactions: DatabaseTransactions, begin: ChainAnchor | None = None) -> ChainVerdict:
    """Checks the chain from its first event on, or from the one that an earlier export or check had: then the events up
    to that one are known to have been the last at that time, and if they are gone it is found.

    Raises:
        StorageUnavailable: the storage cannot be read.
    """
    secret = await transactions.run(read_secret) or b""
    last: ChainAnchor | None = None
    count, number = 0, begin.number if begin is not None else 1
    query = TrailQuery(after=number - 1)
    async for page in all_events(transactions, query):
        for event in page:
            reason = _fault(secret, event, number, last, begin)
            if reason is not None:
                return ChainVerdict(count, last, number, reason)
            count, number, last = count + 1, number + 1, ChainAnchor(event.number, event.digest)
    if begin is not None and last is None:
        return ChainVerdict(0, None, begin.number, MISSING)
    return ChainVerdict(count, last)


def _fault(
    secret: bytes, event: TrailEvent, number: int, last: ChainAnchor | None, begin: ChainAnchor | None
) -> str | None:
    """Why an event cannot be the one of that number, behind `last`; None if it can."""
    if event.number != number:
        return MISSING
    if not hmac.compare_digest(digest_of(secret, event), event.digest):
        return CHANGED
    if last is None and begin is not None:
        return None if hmac.compare_digest(event.digest, begin.digest) else NOT_THE_SAME
    before = last.digest if last is not None else FIRST_BEFORE
    return None if hmac.compare_digest(event.previous_digest, before) else UNLINKED


def event_json(event: TrailEvent) -> dict[str, Any]:
    """An event as lists and exports have it; the digests are in hexadecimal digits."""
    try:
        details = json.loads(event.details)
    except ValueError:  # somebody has spoilt the row, which a check finds
        details = event.details
    return {
        "number": event.number,
        "at": event.time,
        "actor": event.actor,
        "actor_name": event.actor_name,
        "tenant": event.tenant,
        "action": event.action,
        "object_id": event.object_id,
        "ok": event.ok,
        "details": details,
        "previous_digest": event.previous_digest.hex(),
        "digest": event.digest.hex(),
    }


def event_lines(events: Sequence[TrailEvent]) -> bytes:
    """Lines of JSON, in ASCII."""
    return "".join(f"{json.dumps(event_json(event))}\n" for event in events).encode()


def _event(row: Any) -> TrailEvent:
    return TrailEvent(
        number=row.number,
        at=rows.utc(row.at),
        actor=row.actor,
        actor_name=row.actor_name,
        tenant=row.tenant,
        action=row.action,
        object_id=row.object,
        ok=bool(row.ok),
        details=row.details,
        previous_digest=bytes(row.previous_digest),
        digest=bytes(row.digest),
    )
