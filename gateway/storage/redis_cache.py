"""Redis or Valkey as a cache: keys, values, groups and claims (adapter of `ports.ClaimingCache`)."""

from collections.abc import Sequence
from typing import Any

from gateway.ports import Clock
from gateway.storage.redis_link import RedisLink

PREFIX = "context-gateway:"
GROUP_PREFIX = PREFIX + "group:"
SET_IN_GROUP = """
if redis.call('TYPE', KEYS[2]).ok ~= 'set' then redis.call('DEL', KEYS[2]) end
redis.call('SADD', KEYS[2], KEYS[1])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
"""
"""A group is the set of its keys; it lives as long as the last of its values."""
FORGET_GROUPS = """
for _, group in ipairs(KEYS) do
  if redis.call('TYPE', group).ok == 'set' then
    for _, key in ipairs(redis.call('SMEMBERS', group)) do redis.call('DEL', key) end
  end
  redis.call('DEL', group)
end
return 1
"""
CLAIM = """
local owner = redis.pcall('GET', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if type(owner) == 'string' and owner ~= ARGV[1] and left > 0 and left <= tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
"""What nobody of us could have left there, of another type or for longer than a claim lasts, claims nothing."""
GET_OR_CLAIM = f"""
local value = redis.pcall('GET', KEYS[2])
if type(value) == 'string' then return value end
{CLAIM}"""
RELEASE = """
if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
MOST_OWED = 100_000
OWED_AT_ONCE = 500


class RedisCache:
    """Every fault is a miss; after one, it is left alone until it answers again (`RedisLink`)."""

    def __init__(self, url: str, timeout_seconds: float, clock: Clock) -> None:
        self._link = RedisLink(url, timeout_seconds, clock)
        self._owed: dict[str, None] = {}

    async def get(self, key: str) -> bytes | None:
        """The value, or None if it is unknown or the cache cannot be asked."""
        return _bytes(await self._run("GET", PREFIX + key))

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key; None for all of them if the cache cannot be asked."""
        values = await self._run("MGET", *(PREFIX + key for key in keys)) if keys else []
        if not isinstance(values, list) or len(values) != len(keys):
            return [None] * len(keys)
        return [_bytes(value) for value in values]

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        """Keeps a value for `ttl` seconds, if the cache can be reached."""
        if group is None:
            await self._run("SET", PREFIX + key, value, "PX", _milliseconds(ttl))
        else:
            await self._run("EVAL", SET_IN_GROUP, 2, PREFIX + key, GROUP_PREFIX + group, value, _milliseconds(ttl))

    async def forget(self, *groups: str) -> None:
        """Deletes all values of these groups: now, or before the cache is next used if it cannot be reached now."""
        self._owed |= dict.fromkeys(groups)
        for group in list(self._owed)[:-MOST_OWED]:
            del self._owed[group]
        await self._forget_owed()

    async def claim(self, key: str, owner: str, ttl: float) -> bool:
        """Whether `key` is `owner`'s now, or nobody can be asked."""
        return bool(await self._run("EVAL", CLAIM, 1, PREFIX + key, owner, _milliseconds(ttl)) != 0)

    async def get_or_claim(self, key: str, claim: str, owner: str, ttl: float) -> tuple[bytes | None, bool]:
        """The value, or whether `claim` is `owner`'s now, or nobody can be asked."""
        found = await self._run("EVAL", GET_OR_CLAIM, 2, PREFIX + claim, PREFIX + key, owner, _milliseconds(ttl))
        return (found, False) if isinstance(found, bytes) else (None, found != 0)

    async def release(self, key: str, owner: str) -> None:
        """Gives a claim up, if it is still that owner's."""
        await self._run("EVAL", RELEASE, 1, PREFIX + key, owner)

    async def close(self) -> None:
        """Closes the connections."""
        await self._link.close()

    async def _forget_owed(self) -> bool:
        """Whether nothing is left that is to be forgotten."""
        while groups := list(self._owed)[:OWED_AT_ONCE]:
            keys = [GROUP_PREFIX + group for group in groups]
            if await self._link.send("EVAL", FORGET_GROUPS, len(keys), *keys) is None:
                return False
            for group in groups:
                self._owed.pop(group, None)
        return True

    async def _run(self, *command: Any) -> Any:
        return await self._link.send(*command) if await self._forget_owed() else None


def _bytes(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) else None


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))
