"""A module is one subject, whole (ADR 1). `make house` prints more."""

import functools
from pathlib import Path

from tests.house.measure import OWN_LINES, PACKAGE, House, circle, measure, one_reader, set_from_outside


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


def test_imports_run_downward() -> None:
    assert circle() == []


def test_parts_are_whole_once_they_are_made() -> None:
    assert set_from_outside((PACKAGE / "app.py").read_text()) == []
