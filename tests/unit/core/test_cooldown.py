"""The states of a breaker, event by event."""

import math

import pytest

from gateway.core.tasks import Cooldown

ATTEMPT = object()
FAIL, ANSWER, LATE, TRY, GIVE_UP = "fails", "answers", "answers what began before", "is tried", "is given up"
CLOSED, OPEN, TRIED, OVER = "closed", "open", "open but for a trial", "over, not answered since"
Steps = list[tuple[float, str | None, str]]
OPENED: Steps = [(0, FAIL, CLOSED), (0, FAIL, CLOSED), (0, FAIL, OPEN)]


def happens(breaker: Cooldown, event: str | None, now: float) -> None:
    if event == FAIL:
        breaker.failed(now)
    elif event == ANSWER:
        breaker.answered(now)
    elif event == LATE:
        breaker.answered(-1.0)
    elif event == TRY:
        breaker.began(ATTEMPT, now)
    elif event == GIVE_UP:
        breaker.trial = None


def state(breaker: Cooldown, now: float) -> str:
    left = breaker.remaining(now)
    if left == math.inf:
        return TRIED
    if left:
        return OPEN
    return CLOSED if breaker.started is None else OVER


@pytest.mark.parametrize(
    "steps",
    [
        [(0, FAIL, CLOSED), (1, FAIL, CLOSED), (2, FAIL, OPEN), (11.9, None, OPEN), (12, None, OVER)],
        [(0, FAIL, CLOSED), (1, FAIL, CLOSED), (2, ANSWER, CLOSED), (3, FAIL, CLOSED), (4, FAIL, CLOSED)],
        [(0, TRY, CLOSED), (0, LATE, CLOSED), (0, GIVE_UP, CLOSED)],
        [*OPENED, (10, FAIL, OPEN), (20, ANSWER, CLOSED)],
        [*OPENED, (5, FAIL, OPEN), (14, None, OPEN), (15, None, OVER)],
        [*OPENED, (1, ANSWER, CLOSED), (2, FAIL, CLOSED)],
        [*OPENED, (1, LATE, OPEN), (10, LATE, OVER)],
        [*OPENED, (9, TRY, OPEN), (10, None, OVER)],
        [*OPENED, (10, TRY, TRIED), (11, ANSWER, CLOSED)],
        [*OPENED, (10, TRY, TRIED), (11, FAIL, OPEN)],
        [*OPENED, (10, TRY, TRIED), (11, GIVE_UP, OVER)],
    ],
)
def test_three_failures_in_a_row_open_it_until_it_answers(steps: Steps) -> None:
    breaker = Cooldown(3, 10.0)
    for now, event, expected in steps:
        happens(breaker, event, now)
        assert state(breaker, now) == expected, (now, event)


@pytest.mark.parametrize(
    ("max_seconds", "expected"),
    [(None, [4, 4, 4, 4]), (4.0, [4, 4, 4, 4]), (20.0, [4, 8, 16, 20]), (1.0, [1, 1, 1, 1])],
)
def test_cooldowns_without_an_answer_in_between_double_up_to_the_longest(
    max_seconds: float | None, expected: list[float]
) -> None:
    breaker = Cooldown(1, 4.0, max_seconds)
    assert [breaker.start(float(now)) for now in range(4)] == expected
    assert breaker.start(5.0, seconds=7.0) == 7.0
    assert breaker.remaining(5.0) == 7.0
    assert breaker.answered()
    assert not breaker.answered(), "only the first answer closes it"
    assert breaker.start(6.0) == expected[0]


def test_an_owner_may_give_it_as_many_failures_again() -> None:
    breaker = Cooldown(2, 10.0)
    assert [breaker.failed(0.0) for _ in range(2)] == [False, True]
    breaker.failures = 0
    assert [breaker.failed(10.0) for _ in range(2)] == [False, True]


def test_what_a_cache_holds_is_a_breaker_again() -> None:
    breaker = Cooldown(3, 10.0, failures=3, until=10.0)
    assert (breaker.remaining(4.0), breaker.remaining(10.0)) == (6.0, 0.0)
    assert breaker.failed(12.0), "one more is enough"
    assert breaker.remaining(12.0) == 10.0
