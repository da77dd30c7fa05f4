"""How long a planner rests, by a clock of the test's own, and with a cache that fails."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from gateway.context.planning.decision import REST_SECONDS, PlannerCooldown
from gateway.core.config.settings import CacheSettings
from gateway.storage.cache.memory_cache import open_cache
from tests.support.hand_clock import DayClock


def test_a_rest_lasts_ten_minutes_and_begins_again_with_one_more_unusable_answer() -> None:
    async def told() -> None:
        clock = DayClock(datetime(2026, 1, 1, tzinfo=UTC))
        rest = PlannerCooldown(open_cache(CacheSettings(), clock), clock)
        for resting in (False, False, False, True):
            assert await rest.is_resting("a", "planner") is resting
            if not resting:
                await rest.answered("a", "planner", usable=False)
        assert not await rest.is_resting("b", "planner")
        assert not await rest.is_resting("a", "another")
        assert len(rest) == 1
        clock.at += timedelta(seconds=REST_SECONDS)
        assert len(rest) == 0
        assert not await rest.is_resting("a", "planner")
        await rest.answered("a", "planner", usable=False)
        assert await rest.is_resting("a", "planner")
        assert len(rest) == 1
        clock.at += timedelta(seconds=REST_SECONDS + 1)
        await rest.answered("a", "planner", usable=True)
        await rest.answered("a", "planner", usable=False)
        assert not await rest.is_resting("a", "planner")

    asyncio.run(told())


@pytest.mark.parametrize("kept", [None, b"rubbish", b"[1]", b'{"unusable": "x"}', b'{"unusable": 9, "latest": 1e300}'])
def test_a_cache_that_is_down_or_holds_rubbish_costs_nothing_but_the_rest(kept: bytes | None) -> None:
    class Broken:
        async def get(self, key: str) -> bytes | None:
            return kept

        async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
            """Keeps nothing."""

    async def told() -> None:
        rest = PlannerCooldown(Broken(), DayClock(datetime(2026, 1, 1, tzinfo=UTC)))  # type: ignore[arg-type]
        await rest.answered("a", "planner", usable=False)
        assert not await rest.is_resting("a", "planner")

    asyncio.run(told())
