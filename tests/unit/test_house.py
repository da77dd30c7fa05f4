"""A module is one subject, whole (ADR 1). `make house` prints more."""

import functools

from tests.house.measure import PACKAGE, House, circle, measure, set_from_outside


@functools.cache
def house() -> House:
    return measure()


def test_the_root_holds_what_a_newcomer_looks_for_first() -> None:
    assert house().root <= 8


def test_no_module_holds_two_subjects() -> None:
    assert not house().too_long


def test_imports_run_downward() -> None:
    assert circle() == []


def test_parts_are_whole_once_they_are_made() -> None:
    assert set_from_outside((PACKAGE / "app.py").read_text()) == []
