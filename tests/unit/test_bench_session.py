"""The session benchmark's arithmetic: what counts as the same prompt, as room, and what it costs."""

from decimal import Decimal

import pytest

from benchmarks.session.figures import Prompt, Tariff, prompts, summary
from benchmarks.session.talk import berth, owner, result, turns
from tests.support.answers import user

A, B, C, X = (user(letter * size) for letter, size in (("a", 10), ("b", 20), ("c", 30), ("x", 5)))
TARIFF = Tariff("t", Decimal(10), Decimal(1), Decimal(12), least=20)


def size(message: dict[str, str]) -> int:
    return len(message["content"])


def test_what_two_requests_share_and_whether_there_was_room() -> None:
    found = prompts([[A], [A, B], [X, B, C]], [[A], [B], [C]], 55, size)
    assert found == [Prompt(10, 0, 0, True), Prompt(30, 10, 10, True), Prompt(55, 0, 30, False)]
    assert [prompt.share for prompt in found] == [1.0, 1.0, 0.0]


def test_the_summary_tells_breaks_with_room_from_those_without() -> None:
    found = summary([Prompt(10, 0, 0, True), Prompt(20, 8, 10, True), Prompt(20, 2, 20, False)])
    assert (found["share_with_room"], found["share_without"], found["share_mean"]) == (0.8, 0.1, pytest.approx(0.45))
    assert (found["prompt_tokens"], found["from_cache"], found["left"]) == (50, 0.2, 1)


def test_what_a_cache_has_is_read_and_the_rest_written_but_short_prompts_are_not_cached() -> None:
    long = [Prompt(100, 0, 0, True), Prompt(150, 100, 100, True), Prompt(30, 10, 150, False)]
    assert TARIFF.cost(long) * 10**6 == 100 * 12 + (100 * 1 + 50 * 12) + 30 * 12
    assert TARIFF.cost(long, caching=False) * 10**6 == 2800
    assert TARIFF.cost([Prompt(15, 10, 10, True)]) * 10**6 == 150


def test_the_session_is_what_it_is_said_to_be() -> None:
    told = list(turns())
    sizes = [len(text.encode()) for turn in told for text in turn.results]
    assert len(told) == 10
    assert 200 * 1024 <= sum(sizes) <= 215 * 1024
    assert told == list(turns())
    for number in range(20):
        assert berth(number) in result(number)
        assert owner(number) in result(number)
