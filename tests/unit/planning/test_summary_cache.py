"""A summary is paid for once, and a cache that is down, slow or holds rubbish costs a miss (contract §5)."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.clock import SystemClock
from gateway.models.artifacts import cache_group
from gateway.models.internal import OverCeiling
from gateway.planning.summary_cache import Found, SummaryCache, SummaryKey
from gateway.storage.cache import MemoryCache

SECRET = b"s" * 32
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


class DownCache(MemoryCache):
    """Answers nothing and keeps nothing."""

    async def get(self, key: str) -> bytes | None:
        return None

    async def claim(self, key: str, owner: str, ttl: float) -> bool:
        return True


Make = Callable[[], SummaryCache]


@pytest.fixture
def backend() -> MemoryCache:
    return MemoryCache(10**6, SystemClock())


@pytest.fixture
def summaries(backend: MemoryCache) -> SummaryCache:
    return SummaryCache(backend, SystemClock(), 60.0, 30.0)


async def test_s5_a_summary_is_paid_for_once(summaries: SummaryCache) -> None:
    payer = Payer()
    assert await summaries.get_or_make(KEY, payer, SECRET, keep=True) == Found("the summary", hit=False)
    assert await summaries.get_or_make(KEY, payer, SECRET, keep=True) == Found("the summary", hit=True)
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
    await summaries.get_or_make(KEY, Payer(), SECRET, keep=True)
    assert not (await summaries.get_or_make(other, Payer("another"), SECRET, keep=True)).hit


async def test_s5_requests_at_once_pay_once_and_those_that_waited_are_hits(summaries: SummaryCache) -> None:
    payer = Payer()
    payer.go.clear()
    waiting = [asyncio.ensure_future(summaries.get_or_make(KEY, payer, SECRET, keep=True)) for _ in range(20)]
    await asyncio.sleep(0)
    payer.go.set()
    found = await asyncio.gather(*waiting)
    assert payer.paid == 1
    assert [each.hit for each in found].count(False) == 1


async def test_s5_across_processes_one_pays(backend: MemoryCache) -> None:
    here, there = (SummaryCache(backend, SystemClock(), 60.0, 30.0) for _ in range(2))
    payer = Payer()
    payer.go.clear()
    first = asyncio.ensure_future(here.get_or_make(KEY, payer, SECRET, keep=True))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(there.get_or_make(KEY, payer, SECRET, keep=True))
    await asyncio.sleep(0.03)
    payer.go.set()
    assert [each.hit for each in await asyncio.gather(first, second)] == [False, True]
    assert payer.paid == 1


async def test_s5_when_the_payer_leaves_one_of_those_that_wait_pays(summaries: SummaryCache) -> None:
    left, payer = Payer(), Payer()
    left.go.clear()
    first = asyncio.ensure_future(summaries.get_or_make(KEY, left, SECRET, keep=True))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(summaries.get_or_make(KEY, payer, SECRET, keep=True)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    assert {each.text for each in await asyncio.gather(*others)} == {"the summary"}
    assert payer.paid == 1


async def test_s5_where_the_payer_met_its_own_ceiling_one_of_those_that_wait_pays(summaries: SummaryCache) -> None:
    """Each tries at most once, within what it may use itself."""
    poor, rich = Payer(error=OverCeiling("summarizer_over_cost_ceiling")), Payer()
    poor.go.clear()
    first = asyncio.ensure_future(summaries.get_or_make(KEY, poor, SECRET, keep=True))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(summaries.get_or_make(KEY, each, SECRET, keep=True)) for each in (poor, rich, rich)]
    await asyncio.sleep(0)
    poor.go.set()
    told = await asyncio.gather(first, *others, return_exceptions=True)
    assert [type(each) for each in told] == [OverCeiling, OverCeiling, Found, Found]
    assert [each.hit for each in told if isinstance(each, Found)].count(False) == 1
    assert (poor.paid, rich.paid) == (2, 1)


async def test_s5_where_the_payer_fails_those_that_wait_fail_with_it(summaries: SummaryCache) -> None:
    payer = Payer(error=ValueError("quota"))
    payer.go.clear()
    waiting = [asyncio.ensure_future(summaries.get_or_make(KEY, payer, SECRET, keep=True)) for _ in range(5)]
    await asyncio.sleep(0)
    payer.go.set()
    assert all(isinstance(each, ValueError) for each in await asyncio.gather(*waiting, return_exceptions=True))
    assert payer.paid == 1
    assert not (await summaries.get_or_make(KEY, Payer(), SECRET, keep=True)).hit


async def test_s2_with_store_false_nothing_is_kept(summaries: SummaryCache) -> None:
    await summaries.get_or_make(KEY, Payer(), SECRET, keep=False)
    assert not (await summaries.get_or_make(KEY, Payer(), SECRET, keep=False)).hit


@pytest.mark.parametrize("rubbish", [b"", b"short", b"x" * 200, b"\xff" * 64])
async def test_s5_rubbish_in_the_cache_is_a_miss(summaries: SummaryCache, backend: MemoryCache, rubbish: bytes) -> None:
    await backend.set(KEY.name(SECRET), rubbish, 60)
    assert await summaries.get_or_make(KEY, Payer(), SECRET, keep=True) == Found("the summary", hit=False)


async def test_s5_a_summary_of_another_key_is_rubbish(summaries: SummaryCache, backend: MemoryCache) -> None:
    other = SummaryKey("tenant", "cd" * 32, "", "gpt-4o-mini", 1)
    await summaries.get_or_make(other, Payer("planted"), SECRET, keep=True)
    await backend.set(KEY.name(SECRET), await backend.get(other.name(SECRET)) or b"", 60)
    assert (await summaries.get_or_make(KEY, Payer(), SECRET, keep=True)).text == "the summary"


async def test_s5_a_cache_that_is_down_costs_a_miss() -> None:
    summaries = SummaryCache(DownCache(10**6, SystemClock()), SystemClock(), 60.0, 30.0)
    payer = Payer()
    for _ in range(2):
        assert not (await summaries.get_or_make(KEY, payer, SECRET, keep=True)).hit
    assert payer.paid == 2


async def test_s5_deleting_an_artifact_deletes_its_summaries(summaries: SummaryCache, backend: MemoryCache) -> None:
    await summaries.get_or_make(KEY, Payer(), SECRET, keep=True)
    await backend.forget(cache_group("tenant", "ab" * 32))
    assert not (await summaries.get_or_make(KEY, Payer(), SECRET, keep=True)).hit
