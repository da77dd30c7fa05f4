"""In which order the deployments of a group are tried (guarantee §12.5)."""

import random
from collections import Counter
from typing import Any

import pytest

from gateway.upstream.routing.deployments import DeploymentRank, ranked, weights_of
from gateway.upstream.routing.router import draws_by_chance, draws_of

A, B = (DeploymentRank(name) for name in "ab")


def alike(_: str) -> float:
    return 0.5


def ids(states: list[DeploymentRank]) -> str:
    return "".join(state.id for state in states)


def state(name: str, **facts: Any) -> DeploymentRank:
    return DeploymentRank(name, **facts)


@pytest.mark.parametrize(
    ("states", "strategy", "expected"),
    [
        ([state("a", order=2), state("b", order=1), state("c")], "weighted", "bac"),
        ([state("a", order=1, rest=3), state("b", order=2)], "weighted", "ba"),
        ([state("a", order=1, full=True), state("b", order=2)], "weighted", "ba"),
        ([state("a", rest=3), state("b", full=True)], "weighted", "ba"),
        ([state("a", rest=3, order=1), state("b", rest=2, order=1), state("c")], "weighted", "cba"),
        ([state("a", in_flight=2), state("b", in_flight=1), state("c", in_flight=3)], "least_busy", "bac"),
        ([state("a", in_flight=2, order=1), state("b", in_flight=1)], "least_busy", "ab"),
        ([state("a", latency=0.9), state("b", latency=0.3), state("c", latency=0.6)], "latency", "bca"),
        ([state("a", latency=0.9), state("b", latency=0.3), state("c")], "latency", "cba"),
        ([state("a", latency=0.9), state("b", latency=0.3), state("c", in_flight=1)], "latency", "bca"),
        ([state("a", weight=1), state("b")], "weighted", "ab"),
        ([state("b"), state("a", weight=1)], "weighted", "ab"),
    ],
)
def test_s12_5_order_then_health_then_the_strategy(states: list[DeploymentRank], strategy: Any, expected: str) -> None:
    assert ids(ranked(states, strategy, alike)) == expected


def test_s12_5_where_a_conversation_was_goes_first_only_among_equals() -> None:
    busy = [state("a", in_flight=3), state("b")]
    assert ids(ranked(busy, "least_busy", alike)) == "ba"
    assert ids(ranked(busy, "least_busy", alike, placed="a")) == "ab"
    assert ids(ranked([state("a", rest=1), state("b")], "least_busy", alike, placed="a")) == "ba"
    assert ids(ranked([state("a", order=2), state("b", order=1)], "weighted", alike, placed="a")) == "ba"
    assert ids(ranked([A, B], "weighted", alike, placed="gone")) == "ab"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([A, B], [1, 1]),
        ([state("a", weight=3), state("b", weight=1)], [3, 1]),
        ([state("a", rpm=90), state("b", rpm=10, tpm=5)], [90, 10]),
        ([state("a", tpm=90), state("b")], [90, 0]),
        ([state("a", weight=2, rpm=1), state("b", rpm=100)], [2, 0]),
    ],
)
def test_s12_5_weights_are_litellms(states: list[DeploymentRank], expected: list[float]) -> None:
    assert weights_of(states) == expected


@pytest.mark.parametrize("by_key", [False, True])
def test_s12_5_requests_and_conversations_are_shared_out_by_weight(by_key: bool) -> None:
    chance = draws_by_chance(random.Random(19))
    states = [state("a", weight=6), state("b", weight=3), state("c", weight=1), state("d", weight=0)]
    found = Counter(
        ranked(states, "weighted", draws_of(f"conversation {number}") if by_key else chance)[0].id
        for number in range(10_000)
    )
    assert found["d"] == 0
    for name, share in {"a": 6000, "b": 3000, "c": 1000}.items():
        assert abs(found[name] - share) < 200, "four standard deviations and more"


def test_s12_5_quick_ones_share_and_a_slow_one_is_asked_last() -> None:
    chance = draws_by_chance(random.Random(19))
    states = [state("a", latency=0.50), state("b", latency=0.54), state("c", latency=0.6)]
    found = Counter(ids(ranked(states, "latency", chance)) for _ in range(200))
    assert set(found) == {"abc", "bac"}
