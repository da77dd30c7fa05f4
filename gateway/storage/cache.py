"""What may be forgotten at any time (adapters of `ports.CacheBackend`): process memory, or Redis."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from gateway.logs import get_logger
from gateway.ports import ClaimingCache, Clock
from gateway.settings import CacheSettings

log = get_logger("gateway.cache")
PREFIX = "context-gateway:"
GROUP_PREFIX = PREFIX + "group:"
SET_IN_GROUP = """
redis.call('SADD', KEYS[2], KEYS[1])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
"""
"""A group is the set of its keys; it lives as long as the last of its values."""
FORGET_GROUPS = """
for _, group in ipairs(KEYS) do
  for _, key in ipairs(redis.call('SMEMBERS', group)) do redis.call('DEL', key) end
  redis.call('DEL', group)
end
return 1
"""
CLAIM = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0
"""
RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
MOST_OWED = 100_000
OWED_AT_ONCE = 500


def open_cache(settings: CacheSettings, clock: Clock) -> ClaimingCache:
    """Redis if `cache.url` names one, else memory; nothing is connected yet."""
    if settings.url:
        return RedisCache(settings.url, settings.timeout, clock)
    return MemoryCache(settings.max_bytes, clock)


class MemoryCache:
    """Least recently used values leave when `max_bytes` are exceeded."""

    def __init__(self, max_bytes: int, clock: Clock) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._values: OrderedDict[str, tuple[float, bytes, str | None]] = OrderedDict()
        self._groups: dict[str, set[str]] = {}
        self._size = 0

    async def get(self, key: str) -> bytes | None:
        """The value, or None if it is unknown or its time is over."""
        found = self._values.get(key)
        if found is None:
            return None
        if found[0] <= self._clock.monotonic():
            self._drop(key)
            return None
        self._values.move_to_end(key)
        return found[1]

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key, or None."""
        return [await self.get(key) for key in keys]

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        """Keeps a value for `ttl` seconds at most."""
        self._drop(key)
        self._values[key] = (self._clock.monotonic() + ttl, value, group)
        if group is not None:
            self._groups.setdefault(group, set()).add(key)
        self._size += len(key) + len(value)
        while self._size > self._max_bytes and self._values:
            self._drop(next(iter(self._values)))

    async def forget(self, *groups: str) -> None:
        """Deletes all values of these groups."""
        for group in groups:
            for key in list(self._groups.get(group, ())):
                self._drop(key)

    async def claim(self, key: str, owner: str, ttl: float) -> bool:
        """Whether `key` is `owner`'s now."""
        if await self.get(key) is not None:
            return False
        await self.set(key, owner.encode(), ttl)
        return True

    async def release(self, key: str, owner: str) -> None:
        """Gives a claim up, if it is still that owner's."""
        if await self.get(key) == owner.encode():
            self._drop(key)

    async def close(self) -> None:
        """Forgets everything."""
        self._values.clear()
        self._groups.clear()
        self._size = 0

    def _drop(self, key: str) -> None:
        found = self._values.pop(key, None)
        if found is None:
            return
        self._size -= len(key) + len(found[1])
        if found[2] is not None:
            others = self._groups[found[2]]
            others.discard(key)
            if not others:
                del self._groups[found[2]]


class RedisCache:
    """Redis or Valkey. Every fault is a miss; after one, it is left alone for a moment."""

    PAUSE = 2.0

    def __init__(self, url: str, timeout_seconds: float, clock: Clock) -> None:
        self._url = url
        self._timeout = timeout_seconds
        self._clock = clock
        self._client: Any = None
        self._paused_until = 0.0
        self._owed: dict[str, None] = {}

    async def get(self, key: str) -> bytes | None:
        """The value, or None if it is unknown or the cache cannot be asked."""
        value: bytes | None = await self._run("GET", PREFIX + key)
        return value

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key; None for all of them if the cache cannot be asked."""
        values: list[bytes | None] | None = await self._run("MGET", *(PREFIX + key for key in keys)) if keys else []
        return [None] * len(keys) if values is None else values

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        """Keeps a value for `ttl` seconds, if the cache can be reached."""
        milliseconds = max(1, int(ttl * 1000))
        if group is None:
            await self._run("SET", PREFIX + key, value, "PX", milliseconds)
        else:
            await self._run("EVAL", SET_IN_GROUP, 2, PREFIX + key, GROUP_PREFIX + group, value, milliseconds)

    async def forget(self, *groups: str) -> None:
        """Deletes all values of these groups: now, or before the cache is next used if it cannot be reached now."""
        self._owed |= dict.fromkeys(groups)
        for group in list(self._owed)[:-MOST_OWED]:
            del self._owed[group]
        await self._forget_owed()

    async def claim(self, key: str, owner: str, ttl: float) -> bool:
        """Whether `key` is `owner`'s now, or nobody can be asked."""
        return bool(await self._run("EVAL", CLAIM, 1, PREFIX + key, owner, max(1, int(ttl * 1000))) != 0)

    async def release(self, key: str, owner: str) -> None:
        """Gives a claim up, if it is still that owner's."""
        await self._run("EVAL", RELEASE, 1, PREFIX + key, owner)

    async def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _forget_owed(self) -> bool:
        """Whether nothing is left that is to be forgotten."""
        while groups := list(self._owed)[:OWED_AT_ONCE]:
            keys = [GROUP_PREFIX + group for group in groups]
            if await self._send("EVAL", FORGET_GROUPS, len(keys), *keys) is None:
                return False
            for group in groups:
                self._owed.pop(group, None)
        return True

    async def _run(self, *command: Any) -> Any:
        return await self._send(*command) if await self._forget_owed() else None

    async def _send(self, *command: Any) -> Any:
        if self._clock.monotonic() < self._paused_until:
            return None
        from redis.asyncio import Redis
        from redis.exceptions import RedisError

        try:
            if self._client is None:
                self._client = Redis.from_url(
                    self._url, socket_timeout=self._timeout, socket_connect_timeout=self._timeout
                )
            return await self._client.execute_command(*command)
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            self._paused_until = self._clock.monotonic() + self.PAUSE
            log.warning("cache_unavailable", reason=type(error).__name__)
            return None
