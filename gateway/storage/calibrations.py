"""What was learned of models' tokens: one row a model, of no tenant, with figures only (ADR 13)."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from gateway.core.types import upstreams
from gateway.storage.database.schema import calibrations
from gateway.storage.database.sqlite import insert_for
from gateway.storage.database.transactions import DatabaseClient, reads, writes
from gateway.storage.rows import alike

MAX_READ = 1000
FIGURES = [column.name for column in calibrations.c if column.name != "model"]


def _load(connection: sa.Connection) -> dict[str, upstreams.ModelCalibration]:
    query = sa.select(calibrations).order_by(calibrations.c.updated_at.desc()).limit(MAX_READ)
    return {row.model: _calibration(row) for row in connection.execute(query)}


def _calibration(row: Any) -> upstreams.ModelCalibration:
    margin = min(upstreams.MAX_MARGIN, max(upstreams.MIN_MARGIN, row.margin))
    return upstreams.ModelCalibration(margin=margin, **alike(row, upstreams.ModelCalibration, "margin", "streak"))


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
