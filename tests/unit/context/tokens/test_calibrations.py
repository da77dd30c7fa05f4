"""Margins in memory and in storage: shared, written rarely, and never in the way (ADR 13)."""

import asyncio
from collections.abc import Mapping

import pytest

from gateway.context.tokens.model_margins import (
    MAX_REMEMBERED_MODELS,
    MAX_SMALL,
    ModelMargins,
    PromptReport,
    keep_calibrated,
    key_of,
)
from gateway.core.clock import SystemClock
from gateway.core.errors import StorageUnavailable
from gateway.core.types.chat import ModelFacts
from gateway.core.types.upstreams import ModelCalibration
from tests.support.calibrations import MemoryCalibrations

FACTS = ModelFacts("openai/some-llama", served_at="http://user:secret@host/v1")
OVER = PromptReport(8000, 11_200, 10_000)


class Counted(MemoryCalibrations):
    """Says how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = self.saves = 0
        self.down = False
        self.saved = asyncio.Event()

    async def load(self) -> dict[str, ModelCalibration]:
        self.loads += 1
        if self.down:
            raise StorageUnavailable("It is down.")
        return await super().load()

    async def save(self, learned: Mapping[str, ModelCalibration]) -> None:
        self.saves += 1
        await super().save(learned)
        self.saved.set()


def learner(report: PromptReport | None = None) -> ModelMargins:
    margins = ModelMargins(SystemClock())
    if report is not None:
        margins.learn(FACTS, report, "o200k", exact=False)
    return margins


async def test_what_one_learned_another_knows() -> None:
    store = MemoryCalibrations()
    await learner(OVER).keep(store)
    other = learner()
    assert other.of(FACTS, "o200k") == 1.0
    await other.keep(store)
    assert other.of(FACTS, "o200k") == pytest.approx(1.4)
    assert other.of(FACTS, "another way to count") == 1.0


async def test_of_two_that_learned_at_once_the_larger_margin_counts() -> None:
    store = MemoryCalibrations()
    one, other = learner(OVER), learner(PromptReport(8000, 16_000, 10_000))
    for margins in (one, other, one):
        await margins.keep(store)
    assert one.of(FACTS, "o200k") == other.of(FACTS, "o200k") == 2.0


async def test_what_is_lowered_is_lowered_for_all() -> None:
    store = MemoryCalibrations()
    one, other = learner(OVER), learner()
    for _ in range(50):
        await one.keep(store)
        one.learn(FACTS, PromptReport(8000, 8800, 10_000), "o200k", exact=False)
    await one.keep(store)
    await other.keep(store)
    assert 1.1 < other.of(FACTS, "o200k") == one.of(FACTS, "o200k") < 1.15


async def test_a_trifle_is_not_written() -> None:
    store = Counted()
    margins = learner(OVER)
    await margins.keep(store)
    assert store.saves == 1
    assert not margins.is_worth_writing
    margins.learn(FACTS, PromptReport(8000, 11_210, 20_000), "o200k", exact=False)
    await margins.keep(store)
    assert store.saves == 1


async def test_a_storage_that_is_down_costs_nothing_but_exactness() -> None:
    store = Counted()
    store.down = True
    margins = learner(OVER)
    assert not await margins.try_to_keep(store)
    assert margins.of(FACTS, "o200k") == pytest.approx(1.4)
    store.down = False
    assert await margins.try_to_keep(store)
    assert store.saves == 1


async def test_it_is_read_at_the_start_and_written_when_there_is_something() -> None:
    store = Counted()
    margins = learner()
    task = asyncio.ensure_future(keep_calibrated(margins, store, seconds=0.001))
    await margins.looked_up(5)
    assert store.loads >= 1
    margins.learn(FACTS, OVER, "o200k", exact=False)
    await asyncio.wait_for(store.saved.wait(), 5)
    task.cancel()
    assert [each.margin for each in (await store.load()).values()] == [pytest.approx(1.4)]


async def test_nobody_waits_long_for_a_storage_that_does_not_answer() -> None:
    await asyncio.wait_for(learner().looked_up(0.01), 5)


def test_a_model_is_known_by_name_address_and_tokenizer_and_shows_no_password() -> None:
    key = key_of(FACTS.name, FACTS.served_at, FACTS.tokenizer, "o200k")
    assert "some-llama" in key
    assert "secret" not in key
    assert len({key, key_of(FACTS.name, "", None, "o200k"), key_of(FACTS.name, FACTS.served_at, "x", "o200k")}) == 3
    odd = key_of("\x00\ud800é" * 1000, "http://host", None, "o200k")
    assert len(odd) <= 255
    assert odd.isascii()
    assert "\x00" not in odd


def test_only_so_many_names_are_kept() -> None:
    margins = learner(OVER)
    for number in range(1100):
        margins.learn(ModelFacts(f"made up {number}"), OVER, "o200k", exact=False)
    assert margins.of(FACTS, "o200k") == 1.0
    assert margins.of(ModelFacts("made up 1099"), "o200k") > 1


async def test_what_was_learned_here_stays_though_as_many_names_are_stored_as_are_kept() -> None:
    margins, store = learner(OVER), MemoryCalibrations()
    now = SystemClock().now()
    await store.save({f"stored {number}": ModelCalibration(1.0, 1, now) for number in range(MAX_REMEMBERED_MODELS)})
    await margins.keep(store)
    assert margins.of(FACTS, "o200k") == pytest.approx(1.4)
    assert key_of(FACTS.name, FACTS.served_at, FACTS.tokenizer, "o200k") in await store.load()


def test_a_few_small_prompts_of_each_model_are_counted_and_no_more() -> None:
    margins, hello = learner(), [{"role": "user", "content": "hello"}]
    assert not margins.takes_small(FACTS, [{"role": "user", "content": "long " * 1000}], "o200k")
    assert [margins.takes_small(FACTS, hello, "o200k") for _ in range(MAX_SMALL + 2)] == [True] * MAX_SMALL + [
        False
    ] * 2
    assert margins.takes_small(ModelFacts("another"), hello, "o200k")
