"""The memory benchmark's arithmetic: what a share is of, and when a target is met."""

import pytest

from benchmarks.memory.figures import Figure, faster, hit_rate, overhead, saved, table


def test_a_hit_rate_is_of_what_was_looked_for_meanwhile() -> None:
    assert hit_rate({"hits": 5, "misses": 5}, {"hits": 14, "misses": 6}) == 0.9
    assert hit_rate({"hits": 5, "misses": 5}, {"hits": 5, "misses": 5}) == 0


def test_faster_and_overhead_go_by_medians_and_leave_out_what_is_not_the_gateways() -> None:
    assert faster([1, 1, 9], [4, 4, 4]) == 0.75
    assert overhead(on=[5, 5, 50], off=[3, 3, 3], trip=[1, 1, 1]) == 1.0
    assert overhead(on=[5], off=[1], trip=[1]) == float("inf")


def test_what_profiles_save_is_a_share_of_the_whole() -> None:
    assert saved([{"tokens": 400, "saved_tokens": 600}, {"tokens": 600, "saved_tokens": 400}]) == 0.5


@pytest.mark.parametrize(("share", "better", "met"), [(0.9, "above", True), (0.8, "above", False), (0.9, "below", False)])  # fmt: skip  # noqa: E501
def test_a_target_is_met_or_missed(share: float, better: str, met: bool) -> None:
    figure = Figure("x", share, 0.8, better, "d")  # type: ignore[arg-type]
    assert figure.met is figure.as_json()["met"] is met
    assert ("met" if met else "missed") in table([figure])
