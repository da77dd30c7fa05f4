"""What was learned of models' tokens: one row a model, of no tenant, with figures only (ADR 13)."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from gateway.core.types import upstreams
from gateway.storage.database.schema import calibrations
from gateway.storage.database.sqlite import insert_for
from gateway.storage.database.transactions import DatabaseClient, reads, writes
from gateway.storage.rows import utc

MAX_READ = 1000
FIGURES = (
    *("margin", "samples", "updated_at", "saved_per_call", "calls_seen"),
    *("added_per_message", "told_window", "told_until"),
)


def _load(connection: sa.Connection) -> dict[str, upstreams.ModelCalibration]:
    query = sa.select(calibrations).order_by(calibrations.c.updated_at.desc()).limit(MAX_READ)
    return {row.model: _calibration(row) for row in connection.execute(query)}


def _calibration(row: Any) -> upstreams.ModelCalibration:
    margin = min(upstreams.MAX_MARGIN, max(upstreams.MIN_MARGIN, row.margin))
    until = utc(row.told_until) if row.told_until is not None else None
    return upstreams.ModelCalibration(
        margin,
        row.samples,
        utc(row.updated_at),
        row.saved_per_call,
        row.calls_seen,
        added_per_message=row.added_per_message,
        told_window=row.told_window,
        told_until=until,
    )


def _save(connection: sa.Connection, learned: Mapping[str, upstreams.ModelCalibration]) -> None:
    insert = insert_for(connection.dialect, calibrations)
    upsert = insert.on_conflict_do_update(
        index_elements=["model"], set_={name: insert.excluded[name] for name in FIGURES}
    )
    rows = [  # in one order, so that two processes never wait for each other
        {"model": key, **{name: getattr(each, name) for name in FIGURES}} for key, each in sorted(learned.items())
    ]
    connection.execute(upsert, rows)


class SqlCalibrations(DatabaseClient):
    """Stores what was learned of models, by model name."""

    load = reads(_load)
    save = writes(_save)
