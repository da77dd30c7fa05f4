"""Planners that answer what nobody can use rest for a while: they are not paid for more of the same (guarantee §5)."""

from contextlib import suppress

from gateway.core import jsons
from gateway.core.cooldown import Cooldown
from gateway.core.ids import content_digest
from gateway.core.ports import CacheBackend, Clock

MAX_UNUSABLE = 3
"""Unusable answers in a row, after which a planner rests."""
REST_SECONDS = 600.0
MAX_NOTICED = 10_000
"""Of planners that rest, how many are counted."""
REMEMBERED_SECONDS = 86_400.0
"""How long unusable answers count towards the next rest."""


class PlannerCooldown:
    """What planners lately answered to each tenant, kept in the cache, so that replicas know it of each other. A cache
    that is down costs nothing but the rest."""

    def __init__(self, cache: CacheBackend, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._resting: dict[str, float] = {}

    def __len__(self) -> int:
        """How many rest now, as far as this process has noticed: by planner and tenant."""
        now = self._clock.now().timestamp()
        self._resting = {key: until for key, until in self._resting.items() if until > now}
        return len(self._resting)

    async def is_resting(self, tenant: str, planner: str) -> bool:
        """Whether the last answers of that planner to this tenant were unusable, the latest within the last minutes."""
        cooldown = await self._read(key := _key(tenant, planner))
        rests = cooldown.remaining(self._clock.now().timestamp()) > 0
        if rests and (key in self._resting or len(self) < MAX_NOTICED):
            self._resting[key] = cooldown.until
        return rests

    async def answered(self, tenant: str, planner: str, *, usable: bool) -> None:
        """Counts an answer. A usable one ends the count; after a rest, one more unusable answer begins the next."""
        cooldown, now = await self._read(key := _key(tenant, planner)), self._clock.now().timestamp()
        if not usable:
            cooldown.failed(now)
        elif cooldown.failures:
            cooldown.answered()
        else:
            return
        await self._cache.set(key, jsons.dumps({"unusable": cooldown.failures, "latest": now}), REMEMBERED_SECONDS)

    async def _read(self, key: str) -> Cooldown:
        """What the cache holds; nothing if that is rubbish, such as an answer that is yet to come."""
        cooldown, value = Cooldown(MAX_UNUSABLE, REST_SECONDS), await self._cache.get(key)
        with suppress(ValueError, TypeError, AttributeError, OverflowError):
            found = jsons.loads(value) if value is not None else {}
            cooldown.failures, latest = int(found.get("unusable", 0)), float(found.get("latest", 0))
            if cooldown.failures >= MAX_UNUSABLE and latest <= self._clock.now().timestamp() + REST_SECONDS:
                cooldown.until = latest + REST_SECONDS
        return cooldown


def _key(tenant: str, planner: str) -> str:
    return "planner_rest:" + content_digest(f"{tenant}\0{planner}")
