"""What was learned of models' tokens (adapters of `ports.CalibrationStore`). A few rows, of no tenant: only names of
models and figures."""

from collections.abc import Mapping
from functools import partial

import sqlalchemy as sa

from gateway.models.calibration import LEAST_MARGIN, MOST_MARGIN, Calibration
from gateway.storage.database.engine import Transactions, insert_for
from gateway.storage.database.schema import calibrations
from gateway.storage.rows import utc

MOST_READ = 1000


class MemoryCalibrations:
    """Kept as long as the process lives."""

    def __init__(self) -> None:
        self._kept: dict[str, Calibration] = {}

    async def load(self) -> dict[str, Calibration]:
        """See `ports.CalibrationStore`."""
        return dict(self._kept)

    async def save(self, learned: Mapping[str, Calibration]) -> None:
        """See `ports.CalibrationStore`."""
        self._kept |= learned


class SqlCalibrations:
    """Each method is one short transaction."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def load(self) -> dict[str, Calibration]:
        """See `ports.CalibrationStore`."""
        return await self._transactions.run(_load)

    async def save(self, learned: Mapping[str, Calibration]) -> None:
        """See `ports.CalibrationStore`."""
        await self._transactions.run(partial(_save, learned=dict(learned)), write=True)


def _load(connection: sa.Connection) -> dict[str, Calibration]:
    query = sa.select(calibrations).order_by(calibrations.c.updated_at.desc()).limit(MOST_READ)
    return {
        row.model: Calibration(min(MOST_MARGIN, max(LEAST_MARGIN, row.margin)), row.samples, utc(row.updated_at))
        for row in connection.execute(query)
    }


def _save(connection: sa.Connection, learned: dict[str, Calibration]) -> None:
    insert = insert_for(connection.dialect, calibrations)
    names = ("margin", "samples", "updated_at")
    upsert = insert.on_conflict_do_update(
        index_elements=["model"], set_={name: insert.excluded[name] for name in names}
    )
    rows = [  # in one order, so that two processes never wait for each other
        {"model": key, "margin": each.margin, "samples": each.samples, "updated_at": each.updated_at}
        for key, each in sorted(learned.items())
    ]
    connection.execute(upsert, rows)
