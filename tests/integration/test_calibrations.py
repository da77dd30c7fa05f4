"""`ports.CalibrationStore`, one suite for all: memory, SQLite, PostgreSQL."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from gateway.core.ports import CalibrationStore
from gateway.core.types.upstreams import ModelCalibration
from gateway.storage.calibrations import SqlCalibrations
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from tests.support.calibrations import MemoryCalibrations

NOW = datetime(2026, 11, 22, 8, 30, 0, 123456, tzinfo=UTC)
LONG = "m" * 255


@pytest.fixture(params=["memory", "sql"])
async def calibrations(request: pytest.FixtureRequest, transactions: DatabaseTransactions) -> CalibrationStore:
    """An empty one."""
    if request.param == "memory":
        return MemoryCalibrations()
    await transactions.run(lambda connection: connection.execute(sa.delete(schema.calibrations)), write=True)
    return SqlCalibrations(transactions)


async def test_what_was_saved_is_loaded(calibrations: CalibrationStore) -> None:
    assert await calibrations.load() == {}
    learned = {"a model": ModelCalibration(1.4, 3, NOW), LONG: ModelCalibration(0.75, 2**31 - 1, NOW)}
    learned["told"] = ModelCalibration(1.0, 1, NOW, added_per_message=6, told_window=8192, told_until=NOW)
    await calibrations.save(learned)
    assert await calibrations.load() == learned


async def test_saving_replaces_those_and_leaves_the_others_alone(calibrations: CalibrationStore) -> None:
    await calibrations.save({"a": ModelCalibration(1.4, 1, NOW), "b": ModelCalibration(1.1, 1, NOW)})
    newer = ModelCalibration(1.2, 9, NOW + timedelta(hours=1))
    await calibrations.save({"a": newer})
    assert await calibrations.load() == {"a": newer, "b": ModelCalibration(1.1, 1, NOW)}


async def test_several_save_at_once(calibrations: CalibrationStore) -> None:
    def some(number: int) -> dict[str, ModelCalibration]:
        names = [f"model {i}" for i in range(20)]
        return {
            name: ModelCalibration(1 + number / 100, number, NOW) for name in (names if number % 2 else names[::-1])
        }

    await asyncio.gather(*(calibrations.save(some(number)) for number in range(8)))
    found = await calibrations.load()
    assert len(found) == 20
    assert len(set(found.values())) == 1, "each saving is a whole"
