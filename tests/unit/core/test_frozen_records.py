"""Records that are made for each request: a changed one is what dataclasses make of it."""

import dataclasses

import pytest

from gateway.core.frozen_records import record, replace


@record
class Place:
    name: str


@record
class Shown:
    place: Place
    tokens: int = 0
    notes: list[str] = dataclasses.field(default_factory=list)


@pytest.mark.parametrize(
    ("before", "changes"),
    [(Shown(Place("a"), 3, ["b"]), {"tokens": 4}), (Shown(Place("a")), {}), (Place("a"), {"name": "b"})],
)
def test_a_changed_record_is_what_dataclasses_make_of_it(before: Place | Shown, changes: dict[str, object]) -> None:
    changed = replace(before, **changes)  # type: ignore[arg-type]
    assert changed == dataclasses.replace(before, **changes)  # type: ignore[arg-type]
    assert changed is not before
    assert type(changed) is type(before)


def test_nothing_but_its_fields_is_changed() -> None:
    with pytest.raises(TypeError, match="size"):
        replace(Place("a"), size=3)  # type: ignore[call-arg]


def test_records_have_slots_equality_and_a_hash() -> None:
    assert len({Place("a"), Place("a"), Place("b")}) == 2
    with pytest.raises(AttributeError):
        Place("a").size = 3  # type: ignore[attr-defined]
