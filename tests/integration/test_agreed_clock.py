"""Replicas whose machines' clocks differ judge each other's leases and heartbeats by one clock (guarantee §3.8, §12.3):
with their own, one three minutes ahead billed the running requests of all others as those of killed processes."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from gateway.app import Gateway
from gateway.core.clock import AgreedClock
from gateway.core.config.settings import Settings, StorageSettings


def shifted(hours: int) -> AgreedClock:
    """On a machine whose clock is off by so much."""
    clock = AgreedClock()
    clock.now = lambda: datetime.now(UTC) + timedelta(hours=hours)
    return clock


def off(clock: AgreedClock) -> timedelta:
    return clock.now() - datetime.now(UTC)


@pytest.mark.parametrize("hours", [-5, 3])
async def test_a_shared_database_tells_the_time(module_storage_url: str, hours: int) -> None:
    """From before the first request on. A file of SQLite is one machine's, whose clock is good enough."""
    clock = shifted(hours)
    gateway = Gateway(Settings(storage=StorageSettings(url=module_storage_url)), clock=clock)
    async with gateway.lifespan(None):
        own = timedelta(0) if gateway.storage.transactions.remote else timedelta(hours=hours)
        assert abs(off(clock) - own) < timedelta(seconds=2)


def test_a_machines_clock_that_jumps_changes_nothing() -> None:
    """What was agreed on goes on by itself; only another time than reading it explains is taken over."""
    clock = shifted(7)
    agreed = datetime.now(UTC)
    clock.agree(agreed, time.monotonic())
    assert abs(off(clock)) < timedelta(seconds=0.2)
    now = clock.now
    clock.agree(datetime.now(UTC) + timedelta(seconds=0.2), time.monotonic())
    assert clock.now is now
    clock.agree(datetime.now(UTC) + timedelta(hours=1), time.monotonic())
    assert timedelta(minutes=59) < off(clock) < timedelta(minutes=61)
