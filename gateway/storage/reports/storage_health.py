"""The storage's own state, for the health page of the web UI."""

from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa

from gateway.core.frozen_records import record
from gateway.core.types import upstreams
from gateway.storage.calibrations import SqlCalibrations
from gateway.storage.database import schema
from gateway.storage.database.migrate import schema_state
from gateway.storage.database.schema import files
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.rows import utc
from gateway.storage.turns.bills import count_older

KINDS = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
VERSIONS = {"sqlite": "SELECT sqlite_version()", "postgresql": "SHOW server_version"}


@record
class StorageHealth:
    """`not_added`: bills that no sums include yet (guarantee §13.1). `processes`: gateways that have requests in
    progress, on any machine; idle ones store nothing. `sessions`: active logins to the web UI."""

    kind: str
    version: str
    schema: str
    is_current: bool
    not_added: int
    processes: int
    sessions: int
    calibrations: Mapping[str, upstreams.ModelCalibration]


async def read_health(transactions: DatabaseTransactions, now: datetime) -> StorageHealth:
    """Reads the storage's health."""
    state = await transactions.run(schema_state)
    if not state.serves:
        kind, version = await transactions.run(_about)
        return StorageHealth(kind, version, str(state), False, 0, 0, 0, {})
    not_added = await count_older(transactions)
    learned = await SqlCalibrations(transactions).load()

    def work(connection: sa.Connection) -> StorageHealth:
        sessions = schema.ui_sessions.c
        lasts = (sessions.expires_at > now, sessions.revoked_at.is_(None))
        alive = _count(connection, schema.processes, schema.processes.c.alive_until > now)
        logins = _count(connection, schema.ui_sessions, *lasts)
        return StorageHealth(*_about(connection), str(state), True, not_added, alive, logins, learned)

    return await transactions.run(work)


def _about(connection: sa.Connection) -> tuple[str, str]:
    name = connection.dialect.name
    return KINDS[name], str(connection.execute(sa.text(VERSIONS[name])).scalar_one())


def _count(connection: sa.Connection, table: sa.Table, *where: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(*where)
    return int(connection.execute(query).scalar_one())


@record
class KeptContent:
    """`oldest`: the last activity of the conversation that has been inactive longest; `files`: how many are stored,
    with `file_bytes` in all."""

    oldest: datetime | None
    files: int
    file_bytes: int


def read_kept(connection: sa.Connection) -> KeptContent:
    """Reads what retention has left."""
    oldest = connection.execute(sa.select(sa.func.min(schema.conversations.c.updated_at))).scalar()
    columns = files.c
    count, size = connection.execute(sa.select(sa.func.count(), sa.func.sum(columns.bytes)).select_from(files)).one()
    return KeptContent(utc(oldest) if oldest is not None else None, int(count), int(size or 0))
