"""A Redis that hangs, crawls or holds what is not ours costs a request milliseconds, and answers nobody else's."""

import asyncio
import random

import pytest
from redis import Redis

from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings
from gateway.core.ids import new_id
from gateway.core.ports import ClaimingCache
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.cache.redis import GROUP_PREFIX, PREFIX
from tests.support.hand_clock import HandClock
from tests.support.process import PATIENCE
from tests.support.proxies import DelayingProxy
from tests.support.valkey import Valkey, ValkeyProcess

TIMEOUT = CacheSettings().timeout
LONG = 2.0
"""A timeout so long that on the busiest machine nobody takes that long without waiting for it."""


async def use(cache: ClaimingCache) -> None:
    """All that one request whose summary is missing asks of a cache, each of which may be the first to meet a fault."""
    key = new_id("k")
    await cache.get_or_claim(key, f"{key}:claim", "me", 5)
    await cache.set(key, b"v", 60, group="g")
    await cache.release(f"{key}:claim", "me")


async def test_s5_a_cache_that_hangs_costs_one_request_its_timeout_and_others_milliseconds(
    chaos_valkey: ValkeyProcess,
) -> None:
    """Also where requests are so rare that each comes after the pause: only a probe waits for it."""
    clock = HandClock(1000.0)
    with DelayingProxy(_port(chaos_valkey)) as proxy:
        cache = open_cache(CacheSettings(url=proxy.url, timeout=LONG), clock)
        link = cache._link  # type: ignore[attr-defined]
        await use(cache)
        assert proxy.take_commands() == 3
        chaos_valkey.pause()
        await use(cache)
        assert len(proxy.take_requests()) == 1, "one timeout, whatever a request asks: no other command, no connection"
        assert link._running._tasks, "not waited for until the command itself is given up"
        for _ in range(20):
            await use(cache)
        assert proxy.take_requests() == []
        for _ in range(9):
            clock.seconds += 60
            await use(cache)
            assert not link._probe.done(), "whoever sent it waits no longer than the others"
        assert proxy.take_commands() == 0
        chaos_valkey.resume()
        clock.seconds += 60
        await _until_it_is_back(cache, clock)
        await cache.close()


async def test_s5_a_cache_that_crawls_is_left_alone_until_it_answers_in_time(valkey: Valkey) -> None:
    clock, delay = HandClock(1000.0), 2 * TIMEOUT
    with DelayingProxy(_port(valkey)) as proxy:
        cache = open_cache(CacheSettings(url=proxy.url), clock)
        await use(cache)
        proxy.seconds = delay
        proxy.take_commands()
        await use(cache)
        assert proxy.take_commands() <= 1, "it is told by one command at most"
        for _ in range(6):
            clock.seconds += 60
            await use(cache)
            await asyncio.wait([cache._link._probe])  # type: ignore[attr-defined]
        probes = b"".join(proxy.take_requests())
        assert b"PING" in probes
        assert b"EVAL" not in probes
        proxy.seconds = 0
        await _until_it_is_back(cache, clock)
        await cache.close()


async def test_no_answer_is_handed_to_another_after_commands_were_cancelled_or_late(valkey: Valkey) -> None:
    rng, alone = random.Random(7), 0
    with DelayingProxy(_port(valkey)) as proxy:
        cache = open_cache(CacheSettings(url=proxy.url, timeout=0.02), SystemClock())

        async def one(number: int) -> None:
            nonlocal alone
            key = f"own-{number}"
            for _ in range(4):
                cache._link._paused_until = None  # type: ignore[attr-defined]
                await cache.set(key, key.encode(), 60)
                found = await cache.get(key)
                assert found in (None, key.encode())
                many = await cache.get_many([key, "nobody's", key])
                assert many in ([None] * 3, [key.encode(), None, key.encode()])
                alone += found is not None
                await asyncio.sleep(rng.random() / 50)

        for proxy.seconds in (0, 0.01, 0.03, 0, 0.005):
            tasks = [asyncio.ensure_future(one(number)) for number in range(40)]
            for task in rng.sample(tasks, 25):
                await asyncio.sleep(rng.random() / 200)
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                assert result is None or isinstance(result, asyncio.CancelledError), result
        async with asyncio.timeout(PATIENCE):
            while not alone:  # as good as always some were answered
                await one(0)
        await cache.close()


async def test_many_more_at_once_than_connections_are_all_answered(valkey: Valkey) -> None:
    cache = open_cache(CacheSettings(url=valkey.url, timeout=10.0), SystemClock())
    await cache.set("one", b"1", 60)
    assert await asyncio.gather(*(cache.get("one") for _ in range(500))) == [b"1"] * 500
    await cache.close()


@pytest.mark.parametrize("poison", ["string", "hash", "list"])
async def test_s5_what_is_not_ours_under_a_key_costs_a_miss_of_that_key_alone(valkey: Valkey, poison: str) -> None:
    cache = open_cache(CacheSettings(url=valkey.url, timeout=2.0), SystemClock())
    key, claim, group, fine = (new_id(name) for name in ("k", "c", "g", "f"))
    await cache.set(fine, b"fine", 60)
    with Redis.from_url(valkey.url) as poisoner:

        def put(name: str) -> None:
            poisoner.delete(name)
            match poison:
                case "string":
                    poisoner.set(name, "rubbish")
                case "hash":
                    poisoner.hset(name, "a", "b")
                case "list":
                    poisoner.rpush(name, "a")

        for name in (PREFIX + key, PREFIX + claim, GROUP_PREFIX + group):
            put(name)
        assert await cache.get(key) in (None, b"rubbish")
        assert await cache.get_many([key, fine]) in ([None, b"fine"], [b"rubbish", b"fine"])
        assert (await cache.get_or_claim(key, claim, "me", 60))[1] or poison == "string"
        assert await cache.claim(claim, "me", 60), "what lasts for ever is nobody's claim"
        assert not await cache.claim(claim, "another", 60)
        put(PREFIX + claim)
        await cache.release(claim, "me")
        await cache.set(key, b"new", 60, group=group)
        assert await cache.get(key) == b"new"
        await cache.evict(group)
        assert await cache.get(key) is None
        put(GROUP_PREFIX + group)
        await cache.evict(group)
        assert await cache.get(fine) == b"fine", "one group that cannot be read must not end all use of the cache"
    await cache.close()


async def _until_it_is_back(cache: ClaimingCache, clock: HandClock) -> None:
    async with asyncio.timeout(PATIENCE):
        while await cache.get("k") != b"v":
            await cache.set("k", b"v", 60)
            await asyncio.sleep(0.05)
            clock.seconds += 1


def _port(valkey: Valkey | ValkeyProcess) -> int:
    return int(valkey.url.rpartition(":")[2].partition("/")[0])
