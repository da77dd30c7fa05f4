"""A module is one subject, whole (ADR 1). `make house` prints more."""

import functools
from pathlib import Path

import pytest

from tests.house.measure import (
    OWN_LINES,
    PACKAGE,
    House,
    circle,
    faces,
    measure,
    one_reader,
    past_faces,
    set_from_outside,
    without_a_verb,
)


@functools.cache
def house() -> House:
    return measure()


def test_the_root_holds_what_a_newcomer_looks_for_first() -> None:
    assert house().root <= 8


def test_no_module_holds_two_subjects() -> None:
    assert not house().too_long


def test_the_packages_are_as_few_as_the_map_shows() -> None:
    assert house().packages <= 12


def test_a_class_name_stands_for_one_class() -> None:
    assert not house().classes_twice


def test_a_file_name_tells_one_subject() -> None:
    assert len(house().names_twice) <= 5, house().names_twice


def test_a_part_of_one_module_is_in_that_module() -> None:
    assert len(house().one_reader) <= 10, house().one_reader


def test_a_part_is_what_one_neighbour_reads_and_has_few_lines(tmp_path: Path) -> None:
    package = tmp_path / "house" / "room"
    package.mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "part": "X = 1",
        "shared": "Y = 1",
        "long": "Z = 1\n" * OWN_LINES,
        "first": "from house.room.part import X\nfrom house.room.shared import Y\nfrom house.room.long import Z",
        "second": "from house.room import shared",
    }.items():
        (package / f"{name}.py").write_text(text)
    assert one_reader(tmp_path / "house") == ["house.room.part"]


def test_a_docstring_says_first_what_its_function_does(tmp_path: Path) -> None:
    assert without_a_verb() == []
    (tmp_path / "a.py").write_text(
        'def f():\n    """The sum."""\ndef g():\n    """Adds."""\ndef h():\n    """Bytes of it."""'
    )
    assert [line.split()[1] for line in without_a_verb(tmp_path)] == ["f:", "h:"]


def test_imports_run_downward() -> None:
    assert circle() == []


@pytest.mark.parametrize("path", [PACKAGE / "app.py", *sorted(PACKAGE.rglob("wiring.py"))], ids=str)
def test_parts_are_whole_once_they_are_made(path: Path) -> None:
    assert set_from_outside(path.read_text()) == []


def test_a_room_is_entered_by_its_face() -> None:
    assert past_faces() == []


def test_a_face_has_few_names() -> None:
    assert [face for face, names in faces().items() if len(names) > 20] == []


@pytest.mark.parametrize("face", sorted(faces()))
def test_a_face_offers_the_same_whatever_was_loaded_before(face: str) -> None:
    offered = faces()[face]
    first = [_offered(face, name) for name in offered]
    assert [_offered(face, name) is found for name, found in zip(offered, first, strict=True)] == [True] * len(offered)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _offered(face, "nothing")


def _offered(face: str, name: str) -> object:
    """As `from face import name` finds it."""
    return getattr(__import__(face, fromlist=[name]), name)


def test_what_goes_past_a_face_is_found(tmp_path: Path) -> None:
    package = tmp_path / "house"
    for name, text in {
        "room/__init__": "if TYPE_CHECKING:\n    from house.room.chairs import Chair",
        "room/chairs": "from house.room.legs import Leg\nclass Chair: ...",
        "room/shelf/__init__": "if TYPE_CHECKING:\n    from house.room.shelf.books import Book",
        "hall": "from house.room import Chair\nfrom house.room.shelf import Book\nfrom house.cellar.coal import Coal",
        "thief": "from house import room\nfrom house.room.legs import Leg\nfrom house.room import chairs\nroom.rug",
        "cellar/__init__": "",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").write_text(text)
    assert sorted(past_faces(package)) == [
        "house.thief: house.room.chairs",
        "house.thief: house.room.legs.Leg",
        "house.thief: house.room.rug",
    ]
