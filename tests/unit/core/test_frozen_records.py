"""Records that are made for each request: equality, hash and text as a dataclass has them."""

from dataclasses import field, replace

import pytest

from gateway.core.frozen_records import record


@record
class Place:
    name: str
    floor: int = 0
    note: str = field(default="", compare=False)
    secret: str = field(default="", repr=False)


@record
class Room(Place):
    bed: bool = False


@record
class Nothing:
    pass


@record
class Named:
    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"


def test_records_have_slots_and_can_be_replaced() -> None:
    assert replace(Place("a"), name="b") == Place("b")
    with pytest.raises(AttributeError):
        Place("a").size = 3  # type: ignore[attr-defined]


def test_records_are_equal_by_their_fields_and_their_class() -> None:
    others: list[object] = [Place("b"), Place("a", 1), Place("a", secret="s"), Room("a"), ("a", 0, ""), Nothing()]
    assert Place("a") == Place("a", note="n")
    assert Place("a") not in others
    assert {Place("a"), Place("a", note="n"), Room("a"), Nothing(), Nothing()} == {Place("a"), Room("a"), Nothing()}


def test_a_record_shows_its_fields_but_no_secret() -> None:
    assert repr(Room("a", secret="s", bed=True)) == "Room(name='a', floor=0, note='', bed=True)"
    assert (repr(Nothing()), repr(Named("n"))) == ("Nothing()", "<n>")
