"""Redis or Valkey as a cache: keys, values, groups and claims (adapter of `ports.ClaimingCache`)."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from gateway.core import ports
from gateway.core.instrumentation import logs
from gateway.core.tasks import BackgroundTasks, Cooldown
from gateway.storage.encryption.columns import KeyVault

PAUSE_SECONDS = 2.0
AT_ONCE = 64
"""Commands, each on a connection of its own, that are under way at the same time."""
PROBE_WAIT = 5
"""Requests wait for a probe that has just begun, for the timeout divided by this."""
ROUNDS = 5
"""Iterations of the event loop after the timeout in which an answer is still read: a loop that was held up finds an
answer that was in time together with the timeout."""
log = logs.get_logger("gateway.cache")


class RedisLink:
    """Sends commands to Redis without letting requests wait for long: at most `timeout_seconds` for an answer. A slower
    command continues for a while on its own connection, so that nobody else ever reads its answer. After a fault no
    request waits; a probe beside the requests finds out when Redis answers in time again."""

    def __init__(self, url: str, timeout_seconds: float, clock: ports.Clock) -> None:
        self._url = url
        self._timeout = timeout_seconds
        self._longest = max(1.0, 2 * timeout_seconds)
        self._clock = clock
        self._client: Any = None
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._running = BackgroundTasks()
        self._cooldown = Cooldown(1, PAUSE_SECONDS)
        self.down_since: datetime | None = None
        """Since when Redis does not answer in time; None while it does, as far as is known."""
        self._probe: asyncio.Task[None] | None = None
        self._wait_until = 0.0

    async def send(self, *command: Any) -> Any:
        """Sends a command and returns its answer; None if none comes in time or the command is refused."""
        if self._cooldown.started is not None and not await self._is_back():
            return None
        task = self._running.start(self._asked(*command))
        await asyncio.wait({task}, timeout=self._timeout)
        for _ in range(ROUNDS):
            if task.done():
                return None if task.cancelled() else task.result()
            await asyncio.sleep(0)
        self._pause("too_slow")
        return None

    async def close(self) -> None:
        """Cancels commands under way and closes the connections."""
        await self._running.cancel()
        if self._client is not None:
            await self._client.aclose()

    async def _asked(self, *command: Any) -> Any:
        try:
            async with asyncio.timeout(self._longest), self._slots:
                return await self._opened().execute_command(*command)
        except ResponseError as refused:  # the value under that key is not ours: no reason for a pause
            log.warning("cache_refused", reason=type(refused).__name__)
        except Exception as error:  # noqa: BLE001 - whatever a broken server does to its client costs a miss
            self._pause(type(error).__name__)
        return None

    def _opened(self) -> Any:
        if self._client is None:
            seconds = self._longest
            self._client = Redis.from_url(self._url, socket_timeout=seconds, socket_connect_timeout=seconds)
        return self._client

    def _pause(self, reason: str) -> None:
        if self._cooldown.started is None:
            log.warning("cache_unavailable", reason=reason)
            self.down_since = self._clock.now()
        self._cooldown.failed(self._clock.monotonic())

    async def _is_back(self) -> bool:
        loop = asyncio.get_running_loop()
        if self._probe is None or self._probe.done():
            if self._cooldown.remaining(self._clock.monotonic()):
                return False
            self._probe = self._running.start(self._probed())
            self._wait_until = loop.time() + self._timeout / PROBE_WAIT
        if (seconds := self._wait_until - loop.time()) > 0:
            await asyncio.wait({self._probe}, timeout=seconds)
        return self._cooldown.started is None

    async def _probed(self) -> None:
        """Ends the pause if Redis answers in time on an open connection; else begins another."""
        answered = await self._asked("PING") and await self._answers_in_time()
        if answered:
            self._cooldown.answered()
            self.down_since = None
            log.info("cache_available")
        else:
            self._pause("probe")

    async def _answers_in_time(self) -> bool:
        began = asyncio.get_running_loop().time()
        answer = await self._asked("PING")
        return bool(answer) and asyncio.get_running_loop().time() - began <= self._timeout


PREFIX = "context-gateway:"
GROUP_PREFIX = PREFIX + "group:"
SET_IN_GROUP = """
if redis.call('TYPE', KEYS[2]).ok ~= 'set' then redis.call('DEL', KEYS[2]) end
redis.call('SADD', KEYS[2], KEYS[1])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
"""
"""A group is the set of its keys; it lives as long as the last of its values."""
EVICT_GROUPS = """
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
"""A value that no gateway can have left there, of another type or with a longer life than a claim, is no claim."""
GET_OR_CLAIM = f"""
local value = redis.pcall('GET', KEYS[2])
if type(value) == 'string' then return value end
{CLAIM}"""
RELEASE = """
if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
MAX_OWED = 100_000
OWED_AT_ONCE = 500


class RedisCache:
    """A cache in Redis. Every fault is a miss; after one, Redis is not asked until it answers again (`RedisLink`)."""

    def __init__(
        self,
        url: str,
        timeout_seconds: float,
        clock: ports.Clock,
        vault: KeyVault | None = None,
        on_evict: Callable[..., None] | None = None,
    ) -> None:
        """`vault`: its key seals values; one that is not sealed, or does not open, is a miss. `on_evict`: called with
        the groups before their values are deleted."""
        self._on_evict = on_evict
        self._link = RedisLink(url, timeout_seconds, clock)
        self._vault = vault
        self._owed: dict[str, None] = {}

    async def get(self, key: str) -> bytes | None:
        """Returns a value; None if it is unknown or the cache cannot be reached."""
        return self._opened(key, await self._run("GET", PREFIX + key))

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Returns the value of each key, or None; None for all if the cache cannot be reached."""
        values = await self._run("MGET", *(PREFIX + key for key in keys)) if keys else []
        if not isinstance(values, list) or len(values) != len(keys):
            return [None] * len(keys)
        return [self._opened(key, value) for key, value in zip(keys, values, strict=True)]

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        """Stores a value for `ttl` seconds, if the cache can be reached."""
        if self._vault is not None:
            value = self._vault.seal_bytes(value, key)
        if group is None:
            await self._run("SET", PREFIX + key, value, "PX", _milliseconds(ttl))
        else:
            await self._run("EVAL", SET_IN_GROUP, 2, PREFIX + key, GROUP_PREFIX + group, value, _milliseconds(ttl))

    async def evict(self, *groups: str) -> None:
        """Deletes all values of the groups: now, or before the cache's next use if it cannot be reached now."""
        if self._on_evict is not None:
            self._on_evict(*groups)
        self._owed |= dict.fromkeys(groups)
        for group in list(self._owed)[:-MAX_OWED]:
            del self._owed[group]
        await self._evict_owed()

    async def claim(self, key: str, owner: str, ttl: float) -> bool:
        """Claims `key` for `owner`. Returns whether `owner` holds it now; also True if the cache cannot be reached."""
        return bool(await self._run("EVAL", CLAIM, 1, PREFIX + key, owner, _milliseconds(ttl)) != 0)

    async def get_or_claim(self, key: str, claim: str, owner: str, ttl: float) -> tuple[bytes | None, bool]:
        """Returns the value, or None and whether `owner` holds `claim` now; also True if the cache is unreachable."""
        found = await self._run("EVAL", GET_OR_CLAIM, 2, PREFIX + claim, PREFIX + key, owner, _milliseconds(ttl))
        if isinstance(found, bytes):
            value = self._opened(key, found)
            return value, value is None  # an unreadable value is made again by whoever finds it
        return None, found != 0

    async def release(self, key: str, owner: str) -> None:
        await self._run("EVAL", RELEASE, 1, PREFIX + key, owner)

    async def close(self) -> None:
        await self._link.close()

    @property
    def down_since(self) -> datetime | None:
        """Since when Redis does not answer in time, so that every read is a miss; None while it does."""
        return self._link.down_since

    def _opened(self, key: str, value: Any) -> bytes | None:
        if not isinstance(value, bytes) or self._vault is None:
            return value if isinstance(value, bytes) else None
        return self._vault.open_bytes(value, key)

    async def _evict_owed(self) -> bool:
        """Deletes groups whose eviction is pending. Returns whether none is left."""
        while groups := list(self._owed)[:OWED_AT_ONCE]:
            keys = [GROUP_PREFIX + group for group in groups]
            if await self._link.send("EVAL", EVICT_GROUPS, len(keys), *keys) is None:
                return False
            for group in groups:
                self._owed.pop(group, None)
        return True

    async def _run(self, *command: Any) -> Any:
        return await self._link.send(*command) if await self._evict_owed() else None


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


async def reach_cache(url: str, timeout_seconds: float) -> str | None:
    """Pings the cache. Returns None if it answers, else the reason why it does not. Raises ValueError: the URL is no
    address of a cache."""
    client = Redis.from_url(url, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds)
    try:
        await client.ping()
    except (RedisError, OSError, TimeoutError, ValueError) as error:
        return f"cannot be reached ({type(error).__name__})"
    finally:
        await client.aclose()
    return None
