"""A summary is paid for once, and a cache that is down, slow or holds rubbish costs a miss (guarantee §5)."""

import asyncio

import pytest

from gateway.context.planning.summaries import CLAIM_SECONDS, CachedSummary, SummaryCache, SummaryKey
from gateway.core.clock import SystemClock
from gateway.core.ports import Clock
from gateway.core.types.agents import OverBudget
from gateway.core.types.artifacts import cache_group
from gateway.storage.cache.memory_cache import MemoryCache
from tests.support.hand_clock import HandClock

SECRET = b"s" * 32
PLAN = SummaryKey("tenant", "", "ab" * 32, "gpt-4o-mini", 1, kind="plan")
KEY = SummaryKey("tenant", "ab" * 32, "prices", "gpt-4o-mini", 1)


class Payer:
    """Counts how often a summary was made."""

    def __init__(self, text: str = "the summary", error: Exception | None = None) -> None:
        self.text, self.error, self.paid = text, error, 0
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> str:
        self.paid += 1
        await self.go.wait()
        if self.error:
            raise self.error
        return self.text


async def kept(summaries: SummaryCache, payer: Payer | None = None) -> CachedSummary:
    """As of a request that is stored."""
    return await summaries.get_or_make(KEY, payer or Payer(), SECRET, read=True, keep=True)


class DownCache(MemoryCache):
    """Answers nothing and keeps nothing."""

    async def get(self, key: str) -> bytes | None:
        return None

    async def get_or_claim(self, key: str, claim: str, owner: str, ttl: float) -> tuple[bytes | None, bool]:
        return None, True


class LateCache(MemoryCache):
    """Has claimed, and tells it late."""

    def __init__(self, max_bytes: int, clock: Clock) -> None:
        super().__init__(max_bytes, clock)
        self.claimed, self.late = asyncio.Event(), asyncio.Event()

    async def get_or_claim(self, key: str, claim: str, owner: str, ttl: float) -> tuple[bytes | None, bool]:
        found = await super().get_or_claim(key, claim, owner, ttl)
        self.claimed.set()
        await self.late.wait()
        return found


class SlowToKeep(MemoryCache):
    """Takes its time to keep a value of a group."""

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        if group is not None:
            await asyncio.sleep(0.1)
        await super().set(key, value, ttl, group=group)


@pytest.fixture
def backend() -> MemoryCache:
    return MemoryCache(10**6, SystemClock())


@pytest.fixture
def summaries(backend: MemoryCache) -> SummaryCache:
    return SummaryCache(backend, SystemClock(), 60.0, 30.0)


async def test_s5_a_summary_is_paid_for_once(summaries: SummaryCache) -> None:
    payer = Payer()
    assert await kept(summaries, payer) == CachedSummary("the summary", hit=False)
    assert await kept(summaries, payer) == CachedSummary("the summary", hit=True)
    assert payer.paid == 1


@pytest.mark.parametrize(
    "other",
    [
        SummaryKey("other", "ab" * 32, "prices", "gpt-4o-mini", 1),
        SummaryKey("tenant", "cd" * 32, "prices", "gpt-4o-mini", 1),
        SummaryKey("tenant", "ab" * 32, "dates", "gpt-4o-mini", 1),
        SummaryKey("tenant", "ab" * 32, "prices", "gpt-4o", 1),
        SummaryKey("tenant", "ab" * 32, "prices", "gpt-4o-mini", 2),
        SummaryKey("tenanta", "b" + "ab" * 31 + "a", "prices", "gpt-4o-mini", 1),
    ],
)
async def test_s5_tenant_content_focus_model_and_wording_are_the_key(
    summaries: SummaryCache, other: SummaryKey
) -> None:
    await kept(summaries)
    assert not (await summaries.get_or_make(other, Payer("another"), SECRET, read=True, keep=True)).hit


async def test_s5_requests_at_once_pay_once_and_those_that_waited_are_hits(summaries: SummaryCache) -> None:
    payer = Payer()
    payer.go.clear()
    waiting = [asyncio.ensure_future(kept(summaries, payer)) for _ in range(20)]
    await asyncio.sleep(0)
    payer.go.set()
    found = await asyncio.gather(*waiting)
    assert payer.paid == 1
    assert [each.hit for each in found].count(False) == 1


async def test_s5_across_processes_one_pays(backend: MemoryCache) -> None:
    here, there = (SummaryCache(backend, SystemClock(), 60.0, 30.0) for _ in range(2))
    payer = Payer()
    payer.go.clear()
    first = asyncio.ensure_future(kept(here, payer))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(kept(there, payer))
    await asyncio.sleep(0.03)
    payer.go.set()
    assert [each.hit for each in await asyncio.gather(first, second)] == [False, True]
    assert payer.paid == 1


@pytest.mark.parametrize("processes", [1, 2])
async def test_s5_a_plan_is_shared_by_those_who_ask_at_once_alone(backend: MemoryCache, processes: int) -> None:
    """Also where that of an earlier time is still kept."""
    caches = [SummaryCache(backend, SystemClock(), 60.0, 30.0) for _ in range(processes)]
    payer = Payer()
    for times in (1, 2):
        payer.go.clear()
        asked = []
        for number in range(4):
            asking = caches[number % processes].get_or_make(PLAN, payer, SECRET, read=False, keep=True)
            asked.append(asyncio.ensure_future(asking))
            await asyncio.sleep(0)
        await asyncio.sleep(0.03)
        payer.go.set()
        assert sorted(each.hit for each in await asyncio.gather(*asked)) == [False, True, True, True]
        assert payer.paid == times


async def test_s5_when_the_payer_leaves_one_of_those_that_wait_pays(summaries: SummaryCache) -> None:
    left, payer = Payer(), Payer()
    left.go.clear()
    first = asyncio.ensure_future(kept(summaries, left))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(kept(summaries, payer)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    assert {each.text for each in await asyncio.gather(*others)} == {"the summary"}
    assert payer.paid == 1


async def test_s5_where_the_payer_met_its_own_ceiling_one_of_those_that_wait_pays(summaries: SummaryCache) -> None:
    """Each tries at most once, within what it may use itself."""
    poor, rich = Payer(error=OverBudget("summarizer_over_cost_ceiling")), Payer()
    poor.go.clear()
    first = asyncio.ensure_future(kept(summaries, poor))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(kept(summaries, each)) for each in (poor, rich, rich)]
    await asyncio.sleep(0)
    poor.go.set()
    told = await asyncio.gather(first, *others, return_exceptions=True)
    assert [type(each) for each in told] == [OverBudget, OverBudget, CachedSummary, CachedSummary]
    assert [each.hit for each in told if isinstance(each, CachedSummary)].count(False) == 1
    assert (poor.paid, rich.paid) == (2, 1)


async def test_s5_where_the_payer_fails_those_that_wait_fail_with_it(summaries: SummaryCache) -> None:
    payer = Payer(error=ValueError("quota"))
    payer.go.clear()
    waiting = [asyncio.ensure_future(kept(summaries, payer)) for _ in range(5)]
    await asyncio.sleep(0)
    payer.go.set()
    assert all(isinstance(each, ValueError) for each in await asyncio.gather(*waiting, return_exceptions=True))
    assert payer.paid == 1
    assert not (await kept(summaries)).hit


@pytest.mark.parametrize("reads", [True, False])
async def test_s2_what_may_not_be_kept_is_kept_nowhere(
    summaries: SummaryCache, backend: MemoryCache, reads: bool
) -> None:
    for _ in range(2):
        assert not (await summaries.get_or_make(KEY, Payer(), SECRET, read=reads, keep=False)).hit
    assert not backend._values
    assert not (await kept(summaries)).hit


async def test_s2_what_is_kept_is_found_by_those_that_may_read(summaries: SummaryCache) -> None:
    """A dry run does, a request with `store: false` does not."""
    await kept(summaries)
    assert (await summaries.get_or_make(KEY, Payer(), SECRET, read=True, keep=False)).hit
    assert not (await summaries.get_or_make(KEY, Payer(), SECRET, read=False, keep=False)).hit


async def test_s5_a_summary_is_kept_as_long_as_configured() -> None:
    clock = HandClock(1000.0)
    summaries = SummaryCache(MemoryCache(10**6, clock), clock, 60.0, 30.0)
    await kept(summaries)
    clock.seconds += 59
    assert (await kept(summaries)).hit
    clock.seconds += 2
    assert not (await kept(summaries)).hit


async def test_s5_when_the_payers_process_ends_another_pays_soon() -> None:
    """Nobody renews its claim; nothing is released."""
    clock, dead = HandClock(1000.0), Payer()
    cache = MemoryCache(10**6, clock)
    here, there = (SummaryCache(cache, clock, 60.0, 30.0) for _ in range(2))
    assert await cache.claim(KEY.name(SECRET) + ":claim", "dead", CLAIM_SECONDS)
    waiting = [asyncio.ensure_future(kept(each, dead)) for each in (here, there)]
    await asyncio.sleep(0.1)
    assert dead.paid == 0
    clock.seconds += CLAIM_SECONDS
    assert {(await each).text for each in waiting} == {"the summary"}
    assert dead.paid == 1


@pytest.mark.long
async def test_s5_a_slow_payer_keeps_its_claim(backend: MemoryCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.context.planning.summaries.CLAIM_SECONDS", 0.3)
    here, there = (SummaryCache(backend, SystemClock(), 60.0, 30.0) for _ in range(2))
    payer = Payer()
    payer.go.clear()
    waiting = [asyncio.ensure_future(kept(each, payer)) for each in (here, there)]
    await asyncio.sleep(0.8)
    assert payer.paid == 1
    payer.go.set()
    assert sorted(each.hit for each in await asyncio.gather(*waiting)) == [False, True]
    assert payer.paid == 1


@pytest.mark.parametrize("ends", ["leaves", "fails"])
async def test_s5_a_payer_that_leaves_or_fails_keeps_no_other_process_waiting(backend: MemoryCache, ends: str) -> None:
    here, there = (SummaryCache(backend, SystemClock(), 60.0, 30.0) for _ in range(2))
    first, second = Payer(error=ValueError("quota")), Payer()
    first.go.clear()
    left = asyncio.ensure_future(kept(here, first))
    await asyncio.sleep(0)
    waits = asyncio.ensure_future(kept(there, second))
    await asyncio.sleep(0.03)
    if ends == "leaves":
        left.cancel()
    else:
        first.go.set()
    async with asyncio.timeout(CLAIM_SECONDS / 2):
        assert await waits == CachedSummary("the summary", hit=False)
    assert isinstance((await asyncio.gather(left, return_exceptions=True))[0], BaseException)


async def test_s5_whoever_leaves_while_it_asks_the_cache_leaves_no_claim() -> None:
    cache = LateCache(10**6, SystemClock())
    summaries = SummaryCache(cache, SystemClock(), 60.0, 30.0)
    left = asyncio.ensure_future(kept(summaries))
    await asyncio.sleep(0)
    await cache.claimed.wait()
    left.cancel()
    assert isinstance((await asyncio.gather(left, return_exceptions=True))[0], asyncio.CancelledError)
    cache.late.set()
    async with asyncio.timeout(CLAIM_SECONDS / 2):
        assert not (await kept(summaries)).hit


async def test_s5_what_is_forgotten_is_forgotten_after_it_was_kept(backend: MemoryCache) -> None:
    summaries = SummaryCache(SlowToKeep(10**6, SystemClock()), SystemClock(), 60.0, 30.0)
    paying = asyncio.ensure_future(kept(summaries))
    await asyncio.sleep(0.02)
    paying.cancel()
    await asyncio.gather(paying, return_exceptions=True)
    await summaries.evict("tenant", ["ab" * 32])
    assert not (await kept(summaries)).hit


@pytest.mark.parametrize("rubbish", [b"", b"short", b"x" * 200, b"\xff" * 64])
async def test_s5_rubbish_in_the_cache_is_a_miss(summaries: SummaryCache, backend: MemoryCache, rubbish: bytes) -> None:
    await backend.set(KEY.name(SECRET), rubbish, 60)
    assert await kept(summaries) == CachedSummary("the summary", hit=False)


async def test_s5_a_summary_of_another_key_is_rubbish(summaries: SummaryCache, backend: MemoryCache) -> None:
    other = SummaryKey("tenant", "cd" * 32, "", "gpt-4o-mini", 1)
    await summaries.get_or_make(other, Payer("planted"), SECRET, read=True, keep=True)
    await backend.set(KEY.name(SECRET), await backend.get(other.name(SECRET)) or b"", 60)
    assert (await kept(summaries)).text == "the summary"


async def test_s5_a_cache_that_is_down_costs_a_miss() -> None:
    summaries = SummaryCache(DownCache(10**6, SystemClock()), SystemClock(), 60.0, 30.0)
    payer = Payer()
    for _ in range(2):
        assert not (await kept(summaries, payer)).hit
    assert payer.paid == 2


async def test_s5_deleting_an_artifact_deletes_its_summaries(summaries: SummaryCache, backend: MemoryCache) -> None:
    await kept(summaries)
    await backend.evict(cache_group("tenant", "ab" * 32))
    assert not (await kept(summaries)).hit
