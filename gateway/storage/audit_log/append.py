"""Adds events to the trail: numbered without gaps, each with a keyed digest over itself and the one before. What a
transaction changes is recorded in it: either both stand, or neither."""

import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core.errors import StorageUnavailable
from gateway.core.instrumentation.logs import get_logger
from gateway.core.ports import Clock
from gateway.core.types.audit_log import FIRST_BEFORE, AuditActor, NewEvent, TrailEvent
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.secret import make_secret, read_secret, storable

EVENTS = schema.admin_events
LOCK = 0x7472_6169_6C67_7779  # "trailgwy": any number that no other application on the database uses
NAME_CHARS, TENANT_CHARS = 256, 128
PURPOSE = b"admin-trail\0"
Record = Callable[[sa.Connection, str, str | None, str | None, dict[str, Any]], None]
"""Records an action on an object of a tenant, with details, in the transaction of the change. It is called last in it:
who adds to the trail is alone from then on, until the transaction ends."""
log = get_logger("gateway.storage")


def append(connection: sa.Connection, event: NewEvent, at: datetime) -> None:
    """Adds an event, in the caller's transaction and last in it. On PostgreSQL a lock holds off all others who add, to
    the end of the transaction; on SQLite there is one writer anyway."""
    secret = read_secret(connection) or make_secret(connection)
    if connection.dialect.name == "postgresql":
        connection.execute(_ALONE)
    last = connection.execute(_LAST).first()
    number, before = (last.number + 1, bytes(last.digest)) if last is not None else (1, FIRST_BEFORE)
    details = json.dumps(event.details, sort_keys=True, separators=(",", ":"))
    added = TrailEvent(
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
    columns = {name: getattr(added, name) for name in TrailEvent.__slots__ if name != "object_id"}
    connection.execute(EVENTS.insert().values(**columns, object=added.object_id))


def digest_of(secret: bytes, event: TrailEvent) -> bytes:
    """The digest that an event must have: over all of it and the digest before."""
    told = (event.number, event.time, event.actor, event.actor_name, event.tenant, event.action)
    text = json.dumps([*told, event.object_id, event.ok, event.details], separators=(",", ":"))
    return hmac.digest(secret, PURPOSE + event.previous_digest + text.encode(), "sha256")


def recorded(
    connection: sa.Connection,
    by: AuditActor | None,
    at: datetime,
    action: str,
    object_id: str | None,
    tenant: str | None = None,
    **details: Any,
) -> None:
    """Records what a change did, last in its transaction. `by` None: nobody's deed, as what retention deletes."""
    if by is not None:
        append(connection, NewEvent(by, action, object_id, tenant, details), at)


def recorder(by: AuditActor, clock: Clock) -> Record:
    """Records what `by` does in whichever transaction."""

    def record(
        connection: sa.Connection, action: str, object_id: str | None, tenant: str | None, details: dict[str, Any]
    ) -> None:
        append(connection, NewEvent(by, action, object_id, tenant, details), clock.now())

    return record


class AuditLog:
    """Records what was seen, in a transaction of its own."""

    def __init__(self, transactions: DatabaseTransactions, clock: Clock, *, is_strict: bool) -> None:
        """`is_strict`: what cannot be recorded is not shown. It is so wherever there are keys."""
        self._transactions = transactions
        self._clock = clock
        self._is_strict = is_strict

    async def saw(self, event: NewEvent) -> None:
        """Records an event before its answer is sent.

        Raises:
            StorageUnavailable: it could not be recorded, and so must not be shown.
        """
        at = self._clock.now()
        try:
            await self._transactions.run(lambda connection: append(connection, event, at), write=True)
        except StorageUnavailable as error:
            if self._is_strict:
                raise
            log.warning("event_not_recorded", action=event.action, reason=error.message)
        except Exception as fault:
            if self._is_strict:
                raise StorageUnavailable("What was asked for cannot be recorded, and so is not shown.") from fault
            log.fault("event_not_recorded", fault)


def _cut(text: str | None, most: int) -> str | None:
    return None if text is None else storable(text[:most])


_ALONE = sa.text(f"SELECT pg_advisory_xact_lock({LOCK})")
_LAST = sa.select(EVENTS.c.number, EVENTS.c.digest).order_by(EVENTS.c.number.desc()).limit(1)
