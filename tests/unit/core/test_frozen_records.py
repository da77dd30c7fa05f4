"""Records that are made for each request."""

from dataclasses import replace

import pytest

from gateway.core.frozen_records import record


@record
class Place:
    name: str


def test_records_have_slots_equality_and_a_hash_and_can_be_replaced() -> None:
    assert len({Place("a"), Place("a"), Place("b")}) == 2
    assert replace(Place("a"), name="b") == Place("b")
    with pytest.raises(AttributeError):
        Place("a").size = 3  # type: ignore[attr-defined]
