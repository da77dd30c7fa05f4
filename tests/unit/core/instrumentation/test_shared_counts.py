"""`core/instrumentation/metrics.py`: what several workers count, as one (guarantee §9.7)."""

import os
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

from gateway.core.instrumentation.metrics import SHARE_BUCKETS, BucketHistogram, MetricCounts, SharedCounts, bury


def counts(requests: int, in_flight: int = 0) -> MetricCounts:
    made = MetricCounts(in_flight=in_flight)
    made.requests["/v1/chat/completions", "POST", "small", "false", "200"] = requests
    made.costs["small", "primary"] = Decimal("0.000000000001") * requests
    made.window_shares[("small",)] = BucketHistogram(SHARE_BUCKETS)
    made.window_shares[("small",)].observe(0.97)
    made.durations["/v1/chat/completions", "small", "false"] = histogram = BucketHistogram()
    for _ in range(requests):
        histogram.observe(0.02)
    return made


def figures(found: MetricCounts) -> tuple[int, Decimal, int, float, int]:
    (histogram,) = found.durations.values()
    (cost,) = found.costs.values()
    return found.requests.total(), cost, sum(histogram.counts), round(histogram.total, 6), found.in_flight


def test_s9_7_whoever_is_asked_adds_up_all(tmp_path: Path) -> None:
    one, two = SharedCounts(tmp_path, "0-11"), SharedCounts(tmp_path, "1-12")
    one.write(counts(3, in_flight=1))
    assert figures(two.sum(counts(4, in_flight=2))) == (7, Decimal("0.000000000007"), 7, 0.14, 3)
    assert figures(one.sum(counts(5))) == (9, Decimal("0.000000000009"), 9, 0.18, 2)
    assert sorted(one.pids()) == [11, 12]
    shares = one.sum(counts(5)).window_shares[("small",)]
    assert (shares.counts, shares.total) == ([0] * 10 + [2, 0], 2 * 0.97)


def test_s9_7_counts_of_the_dead_stay_and_nothing_of_theirs_is_in_flight(tmp_path: Path) -> None:
    one, two = SharedCounts(tmp_path, "0-11"), SharedCounts(tmp_path, "1-12")
    one.write(counts(3, in_flight=1))
    bury(tmp_path, "0-11")
    bury(tmp_path, "0-13")  # it never counted anything
    assert figures(two.sum(counts(4))) == (7, Decimal("0.000000000007"), 7, 0.14, 0)
    again = SharedCounts(tmp_path, "0-14")
    again.write(counts(2, in_flight=1))
    bury(tmp_path, "0-14")
    assert figures(two.sum(counts(4)))[0] == 9
    assert two.pids() == [12]


def test_s9_7_what_the_dead_kept_in_memory_is_gone_and_what_they_found_there_counts(tmp_path: Path) -> None:
    two, last = (
        SharedCounts(tmp_path, "1-12"),
        MetricCounts(kept_bytes=7, turns_running=1, hooks_waiting=1, hooks_lost=2),
    )
    last.cache_bytes["indexes",] = 9
    last.cache_reads["paths", "hit"] = 5
    SharedCounts(tmp_path, "0-11").write(last)
    alive = two.sum(MetricCounts(hooks_lost=1))
    assert (alive.kept_bytes, alive.turns_running, alive.cache_bytes["indexes",], alive.hooks_lost) == (7, 1, 9, 3)
    bury(tmp_path, "0-11")
    dead = two.sum(MetricCounts(hooks_lost=1))
    assert (dead.kept_bytes, dead.turns_running, dead.hooks_waiting, dead.cache_bytes["indexes",]) == (0, 0, 0, 0)
    assert (dead.hooks_lost, dead.cache_reads["paths", "hit"]) == (3, 5)


def test_s9_7_a_scrape_and_the_clock_may_write_at_once(tmp_path: Path) -> None:
    shared = SharedCounts(tmp_path, "0-11")
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(shared.sum, counts(number)) for number in range(400)]
        assert [figures(each.result())[0] for each in found[1:]] == list(range(1, 400))


def test_s9_7_no_sum_misses_what_is_being_moved(tmp_path: Path) -> None:
    own = SharedCounts(tmp_path, "0-11")
    with ThreadPoolExecutor(1) as threads:
        moved = threads.submit(_live_and_die, tmp_path)
        sums = []
        while not moved.done():
            sums.append(figures(own.sum(counts(1)))[0])
    assert sums == sorted(sums)
    assert figures(own.sum(counts(1)))[0] == 61


def _live_and_die(folder: Path) -> None:
    for number in range(20):
        SharedCounts(folder, f"1-{number}").write(counts(3))
        bury(folder, f"1-{number}")


def test_s9_7_without_a_folder_each_tells_of_itself(tmp_path: Path) -> None:
    """It was tidied away, or there is no room: that costs counts, and no worker."""
    folder = tmp_path / "gone"
    folder.write_text("a file")
    shared = SharedCounts(folder, "0-11")
    assert figures(shared.sum(counts(2)))[0] == 2
    bury(folder, "1-12")
    shared.serves()
    assert shared.pids() == [os.getpid()]
    folder.unlink()
    shared.write(counts(5))
    assert figures(SharedCounts(folder, "1-12").sum(counts(1)))[0] == 6
