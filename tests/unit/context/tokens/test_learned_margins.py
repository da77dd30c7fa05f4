"""What a report teaches of a model's tokens (ADR 13)."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.tokens.model_margins import PromptReport, calibrated, is_small, merged
from gateway.core.types.upstreams import ModelCalibration

NOW = datetime(2026, 11, 22, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
START = ModelCalibration(1.0, 0, NOW)
HIGH = ModelCalibration(1.4, 7, NOW)

# what is known, the report, whether the tokenizer is the model's own, the margin after it
CASES: list[tuple[ModelCalibration, PromptReport, bool, float]] = [
    (START, PromptReport(8000, 11_200, 10_000), False, 1.4),  # over its budget: at once
    (START, PromptReport(7000, 9800, 10_000), False, 1.2),  # within: half of the way
    (HIGH, PromptReport(7000, 7000, 10_000), False, 1.38),  # less than was thought: slowly down
    (HIGH, PromptReport(7000, 9800, 10_000), False, 1.4),  # just so
    (HIGH, PromptReport(7000, 7000, 10_000, cached=True), False, 1.4),  # perhaps without what came from the cache
    (HIGH, PromptReport(7000, 11_200, 12_000, cached=True), False, 1.5),  # surely not
    (START, PromptReport(500, 900, 10_000), False, 1.0),  # too small to tell: a hidden prompt
    (START, PromptReport(500, 1200, 1000, window=128_000), False, 1.0),  # the client's limit, not the model's
    (START, PromptReport(5000, 6000, 10**6), False, 1.1),  # large enough, however large the window
    (START, PromptReport(5000, 1500, 10_000), False, 1.0),  # not of this prompt
    (START, PromptReport(5000, 60_000, 10_000), False, 1.0),  # not of this one alone
    (START, PromptReport(5000, 0, 10_000), False, 1.0),
    (START, PromptReport(0, 5000, 10_000), False, 1.0),
    (START, PromptReport(500, 700, 10_000, refused=True), False, 1.4),  # upstream said so: whatever its size
    (START, PromptReport(5000, 60_000, 10_000, refused=True), False, 3.0),  # bounded
    (ModelCalibration(0.5, 99, NOW), PromptReport(5000, 2100, 10_000), False, 0.5),
    (START, PromptReport(8000, 9600, 10_000), True, 1.0),  # the model's own tokenizer learns nothing from within
    (START, PromptReport(8000, 7000, 10_000), True, 1.0),
    (START, PromptReport(9900, 10_890, 10_000), True, 1.1),  # but from an overflow
    (START, PromptReport(5000, 5500, 10_000, refused=True), True, 1.1),
    (ModelCalibration(1.1, 1, NOW), PromptReport(8000, 8000, 10_000), True, 1.095),  # and forgets it again
]


@pytest.mark.parametrize(("known", "report", "exact", "margin"), CASES)
def test_a_report_teaches(known: ModelCalibration, report: PromptReport, exact: bool, margin: float) -> None:
    learned = calibrated(known, report, LATER, exact=exact)
    assert learned.margin == pytest.approx(margin)
    if learned.margin == known.margin:
        assert learned is known
    else:
        assert (learned.samples, learned.updated_at) == (known.samples + 1, LATER)


FEW = ModelCalibration(1.0, 1, NOW, added_per_message=6)
ADDED: list[tuple[ModelCalibration, PromptReport, bool, int]] = [
    (START, PromptReport(40, 58, 10_000, messages=3), True, 6),  # small as it is
    (START, PromptReport(40, 58, 10_000, messages=3), False, 6),
    (START, PromptReport(8000, 8600, 10_000, messages=100), True, 6),
    (START, PromptReport(8000, 8601, 10_000, messages=100), True, 7),  # rounded up
    (START, PromptReport(8000, 8600, 10_000, messages=3), True, 0),  # no frame takes so many
    (START, PromptReport(2000, 2030, 10_000, messages=3), False, 0),  # its texts may be what differs
    (START, PromptReport(8, 60, 10_000, messages=4), True, 0),  # a prompt that the server adds
    (START, PromptReport(40, 58, 10_000, messages=3, has_tools=True), True, 0),  # tools may be what differs
    (START, PromptReport(40, 58, 10_000, messages=3, calls=1), True, 0),
    (FEW, PromptReport(40, 58, 10_000, messages=3), True, 6),
    (FEW, PromptReport(40, 40, 10_000, messages=3), True, 5),  # slowly down
    (FEW, PromptReport(40, 40, 10_000, messages=3, cached=True), True, 6),
    (
        ModelCalibration(1.4, 1, NOW),
        PromptReport(100, 170, 10_000, messages=5),
        False,
        6,
    ),  # beside another tokenizer's margin
]


@pytest.mark.parametrize(("known", "report", "exact", "added"), ADDED)
def test_a_small_prompt_teaches_what_each_message_adds(
    known: ModelCalibration, report: PromptReport, exact: bool, added: int
) -> None:
    learned = calibrated(known, report, LATER, exact=exact)
    assert (learned.added_per_message, learned.margin) == (added, known.margin)


PICTURE = {"type": "image_url", "image_url": {"url": "https://x"}}


@pytest.mark.parametrize(
    ("messages", "small"),
    [
        ([{"role": "user", "content": "hello"}], True),
        ([{"role": "user", "content": [{"type": "text", "text": "hello"}]}], True),
        ([{"role": "user", "content": "x" * 181}], False),
        ([{"role": "user", "content": "x" * 181}, {"role": "assistant", "content": "y"}], True),
        ([{"role": "user", "content": "x" * 180}] * 30, False),
        ([{"role": "user", "content": [PICTURE]}], False),
        ([{"role": "user", "content": None}], False),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], False),
        ([], False),
    ],
)
def test_a_small_prompt_is_a_little_text_alone(messages: list[dict[str, Any]], small: bool) -> None:
    assert is_small(messages) is small


def test_what_messages_add_is_no_margin() -> None:
    """Of a large prompt the rest alone is another tokenizer's."""
    learned = calibrated(FEW, PromptReport(7000, 7000 * 2 + 600, 20_000, messages=100), LATER)
    assert (learned.margin, learned.added_per_message) == (1.5, 6)
    over = calibrated(START, PromptReport(9500, 10_100, 10_000, messages=100), LATER, exact=True)
    assert (over.margin, over.added_per_message) == (1.0, 6)


@given(st.lists(st.tuples(st.integers(-5, 10**7), st.integers(-5, 10**8), st.integers(1, 10**6), st.booleans())))
def test_whatever_is_reported_the_margin_stays_within_bounds(reports: list[tuple[int, int, int, bool]]) -> None:
    known = exact = START
    for counted, reported, budget, refused in reports:
        report = PromptReport(counted, reported, budget, refused=refused)
        known = calibrated(known, report, LATER)
        exact = calibrated(exact, report, LATER, exact=True)
        assert 0.5 <= known.margin <= 3
        assert 1 <= exact.margin <= 3


@pytest.mark.parametrize("true", [0.8, 1.0, 1.3, 1.9])
def test_it_settles_above_what_is_usual_and_below_the_extremes(true: float) -> None:
    """Texts differ: some have a tenth more or less. A hundred reports later most fit, and the budget is filled."""
    chance = random.Random(1)
    known = START
    margins = []
    for _ in range(300):
        ratio = true * chance.uniform(0.9, 1.1)
        known = calibrated(known, PromptReport(10_000, int(10_000 * ratio), 100_000), LATER)
        margins.append(known.margin)
    assert all(true * 0.98 <= margin <= true * 1.1 for margin in margins[100:])


def test_one_report_that_is_wrong_does_not_stay() -> None:
    known = calibrated(HIGH, PromptReport(8000, 24_000, 10_000), LATER)
    assert known.margin == 3.0
    for _ in range(60):
        known = calibrated(known, PromptReport(7000, 9800, 10_000), LATER)
    assert known.margin < 1.5


def test_what_two_processes_learned_is_merged() -> None:
    stored = ModelCalibration(1.7, 20, LATER)
    assert merged(HIGH, None, None) == HIGH
    assert merged(HIGH, stored, stored) == HIGH, "nobody else has written: also what was lowered counts"
    assert merged(HIGH, START, stored) == ModelCalibration(1.7, 20, NOW)
    assert merged(HIGH, None, START) == HIGH
