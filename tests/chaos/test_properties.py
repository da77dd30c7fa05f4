"""The properties of `tests/properties`, many thousand times, each run with cases of its own (guarantees §3.8, §4)."""

import asyncio
import multiprocessing
import os
import random
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import pytest

from tests.properties.cases import FLAVOURS
from tests.properties.running import check_singles, check_talks
from tests.properties.test_edges import check_alike
from tests.properties.test_resends import play
from tests.support.edges import EDGES, Edge

CASES = int(os.environ.get("PROPERTY_CHAOS_CASES", "50000"))
RESENT = max(1, CASES // 100)
"""Conversations whose client sends everything again."""
PIECE = 1000
FIRST_SEED = int(os.environ.setdefault("PROPERTY_CHAOS_SEED", str(random.randrange(10**7, 10**12))))
"""Another in each run, so that runs add up, and far from those of `make test`; child processes are told by the
environment. Set it to the seed that a run printed to have that run's cases."""
REQUESTS_OF_A_TALK = 4
WAYS: tuple[tuple[Edge, ...], ...] = (("chat",), EDGES, ("responses",), EDGES, ("messages",))
"""By which APIs conversations are told, piece by piece."""
ALIKE = CASES // 10
"""Requests that are asked by each of the APIs."""
PARTS = 20


def piece(number: int) -> Counter[str]:
    """What came of the cases of one piece, asked by each API in turn; one in five is a piece of conversations."""
    kind = number % 5
    seeds = range(FIRST_SEED + number * PIECE, FIRST_SEED + (number + 1) * PIECE)
    if kind == 4:
        way = WAYS[number // 5 % len(WAYS)]
        return Counter({"of conversations": check_talks(seeds[: PIECE // REQUESTS_OF_A_TALK], edges=way)})
    tally = check_singles(FLAVOURS[kind], seeds)
    return tally.outcomes + Counter({f"open: {name}": count for name, count in tally.known.items()})


@pytest.mark.chaos
def test_s4_many_thousand_requests(capsys: pytest.CaptureFixture[str]) -> None:
    """Every piece is checked to its first breach, so that one does not hide the others."""
    total: Counter[str] = Counter()
    breaches: list[str] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        for done in as_completed([pool.submit(piece, number) for number in range(max(1, CASES // PIECE))]):
            try:
                total += done.result()
            except AssertionError as breach:
                breaches.append(str(breach))
            with capsys.disabled():
                print(f"\r{total.total():,} of {CASES:,} cases checked, {len(breaches)} breaches", end="", flush=True)
    with capsys.disabled():
        print(f": {dict(total)}, from seed {FIRST_SEED}")
    assert not breaches, "\n".join(breaches)
    assert total.total() > CASES * 0.9


def played(seed: int, folder: Path) -> int:
    """How many requests of one conversation were recognised by their bytes."""
    return asyncio.run(play(seed, folder))


@pytest.mark.chaos
def test_s3_8_hundreds_of_conversations_resent(tmp_path: Path) -> None:
    """What is kept of earlier requests changes nothing but the cost."""
    breaches: list[str] = []
    recognised = 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        for done in as_completed([pool.submit(played, FIRST_SEED + number, tmp_path) for number in range(RESENT)]):
            try:
                recognised += done.result()
            except AssertionError as breach:
                breaches.append(str(breach))
    assert not breaches, "\n".join([f"from seed {FIRST_SEED}", *breaches])
    assert recognised > RESENT


def alike(number: int) -> int:
    """How many requests of one piece were forwarded the same by all APIs."""
    first = FIRST_SEED + number * ALIKE
    return check_alike(FLAVOURS[number % len(FLAVOURS)], range(first, first + ALIKE // PARTS))


@pytest.mark.chaos
def test_s10_1_thousands_of_requests_by_each_api() -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        assert sum(pool.map(alike, range(PARTS))) > ALIKE / 2
