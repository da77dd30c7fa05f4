"""`ports.CacheBackend`, one suite for both: process memory and Valkey. Every fault is a miss (guarantee §5): a Redis
that hangs, crawls or holds what is not ours costs a request milliseconds, and answers nobody else's."""

import asyncio
import random
import re
from collections.abc import AsyncIterator

import pytest
from redis import Redis

from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings
from gateway.core.ids import new_id
from gateway.core.ports import ClaimingCache
from gateway.storage.cache.memory_cache import MemoryCache, open_cache
from gateway.storage.cache.redis import GROUP_PREFIX, PREFIX
from tests.support.hand_clock import HandClock
from tests.support.process import PATIENCE, free_port
from tests.support.proxies import DelayingProxy
from tests.support.valkey import Valkey, ValkeyProcess


@pytest.fixture(params=["memory", "valkey"])
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[ClaimingCache]:
    """An empty cache."""
    url = None
    if request.param == "valkey":
        server: Valkey = request.getfixturevalue("valkey")
        url = server.url
    opened = open_cache(CacheSettings(url=url, timeout=10.0), SystemClock())
    yield opened
    await opened.close()


async def test_what_was_set_is_found_and_nothing_else(cache: ClaimingCache) -> None:
    key = new_id("k")
    assert await cache.get(key) is None
    await cache.set(key, b"\x00\xff value", 60)
    assert await cache.get(key) == b"\x00\xff value"
    assert await cache.get(key + "x") is None


async def test_many_are_got_at_once_in_their_order(cache: ClaimingCache) -> None:
    known, other, unknown = new_id("k"), new_id("k"), new_id("k")
    await cache.set(known, b"\x00one", 60)
    await cache.set(other, b"", 60, group=new_id("g"))
    assert await cache.get_many([other, unknown, known, known]) == [b"", None, b"\x00one", b"\x00one"]
    assert await cache.get_many([]) == []


async def test_the_latest_value_counts(cache: ClaimingCache) -> None:
    key = new_id("k")
    await cache.set(key, b"one", 60)
    await cache.set(key, b"two", 60)
    assert await cache.get(key) == b"two"


async def test_an_empty_value_is_a_value(cache: ClaimingCache) -> None:
    key = new_id("k")
    await cache.set(key, b"", 60)
    assert await cache.get(key) == b""


async def test_odd_keys_and_big_values_are_kept(cache: ClaimingCache) -> None:
    for key in ("a b\r\nc", "größe:✓", "x" * 5000):
        await cache.set(key, b"v" * 200_000, 60)
        assert await cache.get(key) == b"v" * 200_000


async def test_values_of_a_group_are_forgotten_together_and_others_stay(cache: ClaimingCache) -> None:
    """§5: what is kept of a content can be deleted, whatever it was kept for."""
    one, two, rest = new_id("k"), new_id("k"), new_id("k")
    group, other = new_id("g"), new_id("g")
    await cache.set(one, b"1", 60, group=group)
    await cache.set(two, b"2", 60, group=group)
    await cache.set(two, b"2 again", 30, group=group)
    await cache.set(rest, b"3", 60, group=other)
    await cache.evict(new_id("g"))
    assert await cache.get(two) == b"2 again"
    await cache.evict(group)
    assert [await cache.get(key) for key in (one, two, rest)] == [None, None, b"3"]
    await cache.set(one, b"new", 60, group=group)
    assert await cache.get(one) == b"new"
    await cache.evict(group, other)
    assert [await cache.get(key) for key in (one, rest)] == [None, None]
    await cache.evict()


async def test_a_group_lasts_as_long_as_the_longest_of_its_values(cache: ClaimingCache) -> None:
    """§5: a value that lives shortly does not take the others' group with it."""
    long, short, group = new_id("k"), new_id("k"), new_id("g")
    await cache.set(long, b"long", 60, group=group)
    await cache.set(short, b"short", 0.05, group=group)
    async with asyncio.timeout(10):
        while await cache.get(short) is not None:  # noqa: ASYNC110 - Valkey has a clock of its own
            await asyncio.sleep(0.01)
    assert await cache.get(long) == b"long"
    await cache.evict(group)
    assert await cache.get(long) is None


async def test_a_value_whose_time_is_over_is_gone(cache: ClaimingCache) -> None:
    key = new_id("k")
    await cache.set(key, b"short", 0.05)
    async with asyncio.timeout(10):
        while await cache.get(key) is not None:  # noqa: ASYNC110 - Valkey has a clock of its own
            await asyncio.sleep(0.01)


async def test_many_at_once_get_their_own(cache: ClaimingCache) -> None:
    async def one(number: int) -> bytes | None:
        await cache.set(f"many-{number}", str(number).encode(), 60)
        return await cache.get(f"many-{number}")

    assert await asyncio.gather(*(one(n) for n in range(100))) == [str(n).encode() for n in range(100)]


async def test_memory_forgets_what_was_used_least_recently_and_stays_within_its_bytes() -> None:
    cache = MemoryCache(1000, HandClock(1000.0))
    for number in range(9):
        await cache.set(f"k{number}", b"x" * 98, 60)
    assert await cache.get("k0") is not None
    for number in range(9, 12):
        await cache.set(f"k{number}", b"x" * 97, 60)
    assert [n for n in range(12) if await cache.get(f"k{n}") is None] == [1, 2]
    await cache.set("huge", b"x" * 2000, 60)
    assert await cache.get("huge") is None


async def test_memory_keeps_a_value_exactly_as_long_as_it_was_told() -> None:
    clock = HandClock(1000.0)
    cache = MemoryCache(1000, clock)
    await cache.set("k", b"v", 10)
    clock.seconds += 9.9
    assert await cache.get("k") == b"v"
    clock.seconds += 0.1
    assert await cache.get("k") is None


async def test_a_cache_that_is_not_there_is_a_miss_and_left_alone_for_a_moment() -> None:
    clock = HandClock(1000.0)
    cache = open_cache(CacheSettings(url=f"redis://127.0.0.1:{free_port()}/0", timeout=0.2), clock)
    await cache.set("k", b"v", 60)
    assert await cache.get("k") is None
    clock.seconds += 60
    assert await cache.get("k") is None
    clock.seconds += 60
    await cache.set("k", b"v", 60, group="g")
    clock.seconds += 60
    await cache.evict("g")
    await cache.close()


async def test_a_cache_that_hangs_is_a_miss_and_comes_back_by_itself(chaos_valkey: ValkeyProcess) -> None:
    clock = HandClock(1000.0)
    cache = open_cache(CacheSettings(url=chaos_valkey.url, timeout=0.2), clock)
    await _until_it_is_back(cache, clock)
    chaos_valkey.pause()
    async with asyncio.timeout(10):
        assert await cache.get("k") is None
        assert await cache.get_many(["k", "l"]) == [None, None]
    chaos_valkey.resume()
    assert await cache.get("k") is None, "it is left alone for a moment"
    await _until_it_is_back(cache, clock)
    await cache.close()


async def test_a_cache_that_was_restarted_is_used_again(chaos_valkey: ValkeyProcess) -> None:
    clock = HandClock(1000.0)
    cache = open_cache(CacheSettings(url=chaos_valkey.url, timeout=1.0), clock)
    await cache.set("k", b"v", 60)
    chaos_valkey.kill9()
    assert await cache.get("k") is None
    chaos_valkey.start()
    clock.seconds += 60
    await cache.set("k", b"new", 60)
    assert await cache.get("k") == b"new"
    await cache.close()


async def test_what_could_not_be_forgotten_is_forgotten_before_the_cache_is_used_again(
    chaos_valkey: ValkeyProcess,
) -> None:
    """§5: deleting the last conversation that holds an artifact deletes its cache entries, also just after a fault."""
    clock = HandClock(1000.0)
    cache = open_cache(CacheSettings(url=chaos_valkey.url, timeout=1.0), clock)
    await cache.set("k", b"v", 60, group="g")
    await cache.set("other", b"o", 60, group="h")
    chaos_valkey.pause()
    assert await cache.get("k") is None
    await cache.evict("g")
    chaos_valkey.resume()
    clock.seconds += 1
    assert await cache.get("k") is None, "it is left alone for a moment"
    clock.seconds += 60
    assert await cache.get("k") is None
    assert await cache.get("other") == b"o"
    await cache.close()


async def test_one_of_many_has_a_claim_until_it_gives_it_up(cache: ClaimingCache) -> None:
    key, owners = new_id("k"), [str(number) for number in range(20)]
    claimed = await asyncio.gather(*(cache.claim(key, owner, 60) for owner in owners))
    assert sum(claimed) == 1
    first = owners[claimed.index(True)]
    await cache.release(key, "somebody else")
    assert not await cache.claim(key, "next", 60)
    await cache.release(key, first)
    again = await asyncio.gather(*(cache.claim(key, owner, 60) for owner in owners))
    assert sum(again) == 1


async def test_a_value_is_got_or_claimed_in_one_go(cache: ClaimingCache) -> None:
    key, claim = new_id("k"), new_id("c")
    assert await cache.get_or_claim(key, claim, "payer", 60) == (None, True)
    assert await cache.get_or_claim(key, claim, "another", 60) == (None, False)
    assert await cache.get_or_claim(key, claim, "payer", 60) == (None, True)
    await cache.set(key, b"\x00v", 60)
    assert await cache.get_or_claim(key, claim, "another", 60) == (b"\x00v", False)
    await cache.release(claim, "payer")
    assert await cache.claim(claim, "another", 60)


async def test_an_owner_renews_its_claim(cache: ClaimingCache) -> None:
    key = new_id("k")
    assert await cache.claim(key, "payer", 0.05)
    assert await cache.claim(key, "payer", 60)
    await asyncio.sleep(0.1)
    assert not await cache.claim(key, "next", 60)


async def test_a_claim_runs_out_by_itself(cache: ClaimingCache) -> None:
    key = new_id("k")
    assert await cache.claim(key, "dead", 60)
    assert not await cache.claim(key, "next", 60)
    assert await cache.claim(key, "dead", 0.05)
    await asyncio.sleep(0.1)
    assert await cache.claim(key, "next", 60)


async def test_a_cache_that_cannot_be_asked_lets_everybody_claim(chaos_valkey: ValkeyProcess) -> None:
    cache = open_cache(CacheSettings(url=chaos_valkey.url, timeout=0.2), HandClock(1000.0))
    assert await cache.claim("k", "a", 60)
    chaos_valkey.pause()
    assert await cache.claim("k", "b", 60)
    chaos_valkey.resume()
    await cache.close()


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
        await _until_it_is_back(cache, clock)
        proxy.seconds = delay
        proxy.take_commands()
        await use(cache)
        for _ in range(6):
            clock.seconds += 60
            await use(cache)
            await asyncio.wait([cache._link._probe])  # type: ignore[attr-defined]
        sent = b"".join(proxy.take_requests())
        assert b"PING" in sent
        assert len(re.findall(rb"\r\n(?:EVAL|SET)\r\n", sent)) <= 1, "it is told by one command at most"
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
