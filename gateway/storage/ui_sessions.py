"""Who is logged in to the web UI at `/ui` (guarantee §13.2): keyed digests of cookies, never the cookies."""

import hmac
import secrets
from datetime import timedelta

import sqlalchemy as sa

from gateway.core import ports
from gateway.core.types import audit_log
from gateway.storage import audit_events
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.store import ConversationStore

TOKEN_BYTES = 32
MAX_EXPIRED_UI_SESSIONS = 1000
"""Expired sessions that one login deletes."""
UI_SESSION_TABLE = schema.ui_sessions


class UiSessions:
    """Stores sessions of the web UI; each method is one short transaction."""

    def __init__(self, transactions: DatabaseTransactions, clock: ports.Clock, store: ConversationStore) -> None:
        self._transactions = transactions
        self._clock = clock
        self._store = store

    async def begin(
        self, key_id: str, hours: float, by: audit_log.AuditActor | None = None, *, carried: str = "", **details: str
    ) -> str:
        """Begins a session of a key and returns the value of its cookie. `by`: who logs in, recorded in the audit trail
        with `details`. `carried` is appended to the token: the digest covers it, so nobody can change it."""
        token, now = secrets.token_urlsafe(TOKEN_BYTES) + carried, self._clock.now()
        digest = await self._digest(token)

        def work(connection: sa.Connection) -> None:
            columns = UI_SESSION_TABLE.c
            old = sa.select(columns.digest).where(columns.expires_at <= now).limit(MAX_EXPIRED_UI_SESSIONS)
            connection.execute(UI_SESSION_TABLE.delete().where(columns.digest.in_(old.scalar_subquery())))
            values = {"digest": digest, "key_id": key_id, "created_at": now, "expires_at": now + timedelta(hours=hours)}
            connection.execute(UI_SESSION_TABLE.insert().values(**values))
            audit_events.recorded(connection, by, now, "ui.login", key_id, **details)

        await self._transactions.run(work, write=True)
        return token

    async def key_of(self, token: str) -> str | None:
        """Returns the id of the key whose session the token names; None if there is none or it has ended."""
        columns, now, digest = UI_SESSION_TABLE.c, self._clock.now(), await self._digest(token)
        lasts = (columns.digest == digest, columns.expires_at > now, columns.revoked_at.is_(None))
        query = sa.select(columns.key_id).where(*lasts)
        return await self._transactions.run(lambda connection: connection.execute(query).scalar())

    async def revoke(self, token: str, by: audit_log.AuditActor | None = None) -> None:
        """Ends the token's session. `by`: who logs out, for the audit trail."""
        await self._revoke(UI_SESSION_TABLE.c.digest == await self._digest(token), by)

    async def revoke_all(self, key_id: str, by: audit_log.AuditActor | None = None) -> None:
        """Ends all sessions of a key."""
        await self._revoke(UI_SESSION_TABLE.c.key_id == key_id, by, everywhere=True)

    async def _revoke(
        self, those: sa.ColumnElement[bool], by: audit_log.AuditActor | None, *, everywhere: bool = False
    ) -> None:
        now = self._clock.now()
        update = UI_SESSION_TABLE.update().where(those, UI_SESSION_TABLE.c.revoked_at.is_(None)).values(revoked_at=now)

        def work(connection: sa.Connection) -> None:
            connection.execute(update)
            audit_events.recorded(
                connection, by, now, "ui.logout", by.key_id if by is not None else None, everywhere=everywhere
            )

        await self._transactions.run(work, write=True)

    async def _digest(self, token: str) -> bytes:
        return hmac.digest(await self._store.secret(), b"ui-session\0" + token.encode("utf-8", "replace"), "sha256")
