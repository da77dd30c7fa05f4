"""The properties of `tests/properties`, a million times (guarantee §4)."""

import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

import pytest

from tests.properties.cases import FLAVOURS
from tests.properties.running import check_singles, check_talks

CASES = int(os.environ.get("PROPERTY_CHAOS_CASES", "1000000"))
PIECE = 2000
FIRST_SEED = 10_000_000
"""Far from those of `make test`."""
REQUESTS_OF_A_TALK = 4


def piece(number: int) -> Counter[str]:
    """What came of the cases of one piece; one in five is a piece of conversations."""
    kind = number % 5
    seeds = range(FIRST_SEED + number * PIECE, FIRST_SEED + (number + 1) * PIECE)
    if kind == 4:
        return Counter({"of conversations": check_talks(seeds[: PIECE // REQUESTS_OF_A_TALK])})
    tally = check_singles(FLAVOURS[kind], seeds)
    return tally.outcomes + Counter({f"open: {name}": count for name, count in tally.known.items()})


@pytest.mark.chaos
def test_s4_a_million_requests(capsys: pytest.CaptureFixture[str]) -> None:
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
        print(f": {dict(total)}")
    assert not breaches, "\n".join(breaches)
    assert total.total() > CASES * 0.9
