"""Planners that answer what nobody can use rest for a while: they are not paid for more of the same (guarantee §5)."""

from datetime import UTC, datetime, timedelta

from gateway.core import jsons
from gateway.core.ids import content_digest
from gateway.core.ports import CacheBackend, Clock

MAX_UNUSABLE = 3
"""Unusable answers in a row, after which a planner rests."""
REST = timedelta(minutes=10)
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
        self._resting: dict[str, datetime] = {}

    def __len__(self) -> int:
        """How many rest now, as far as this process has noticed: by planner and tenant."""
        now = self._clock.now()
        self._resting = {key: until for key, until in self._resting.items() if until > now}
        return len(self._resting)

    async def is_resting(self, tenant: str, planner: str) -> bool:
        """Whether the last answers of that planner to this tenant were unusable, the latest within the last minutes."""
        unusable, latest = await self._read(key := _key(tenant, planner))
        rests = unusable >= MAX_UNUSABLE and self._clock.now() < latest + REST
        if rests and (key in self._resting or len(self) < MAX_NOTICED):
            self._resting[key] = latest + REST
        return rests

    async def answered(self, tenant: str, planner: str, *, usable: bool) -> None:
        """Counts an answer. A usable one ends the count; after a rest, one more unusable answer begins the next."""
        key = _key(tenant, planner)
        unusable, _ = await self._read(key)
        if usable and not unusable:
            return
        value = {"unusable": 0 if usable else unusable + 1, "latest": self._clock.now().timestamp()}
        await self._cache.set(key, jsons.dumps(value), REMEMBERED_SECONDS)

    async def _read(self, key: str) -> tuple[int, datetime]:
        """How many unusable answers came in a row, and when the latest did; none if the cache holds rubbish."""
        value = await self._cache.get(key)
        try:
            found = jsons.loads(value) if value is not None else {}
            return int(found.get("unusable", 0)), datetime.fromtimestamp(float(found.get("latest", 0)), UTC)
        except (ValueError, TypeError, AttributeError, OverflowError, OSError):
            return 0, datetime.fromtimestamp(0, UTC)


def _key(tenant: str, planner: str) -> str:
    return "planner_rest:" + content_digest(f"{tenant}\0{planner}")
