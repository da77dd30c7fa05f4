"""Places in documents are told from their text alone (guarantee §14.2)."""

import pytest

from gateway.core.types.places import TextPlaces, marker, page_list, sheet_marker

PDF = "[page 1]\none\n\n[page 2]\ntwo\n\n[page 3]\nthree"
SHEET = f"{sheet_marker('Sales', 4, 'F', 7)}\nname,x\na,1\nb,2\nc,3\n\n{sheet_marker('My sheet', 1, 'B', 2)}\nh,i\nj,k"
MAIL = f"Subject: x\n\n{marker('file', 'a b.txt')}\nfirst\nsecond\n{marker('file', 'c.pdf')}\n[page 1]\nin c"


@pytest.mark.parametrize(
    ("text", "words", "place"),
    [
        (PDF, "two", "page 2"),
        (PDF, "[page 2]\ntwo", "page 2"),
        (PDF, "two\n\n[page 3]\nthree", "pages 2-3"),
        (SHEET, "name,x", "Sales!A4:F4"),
        (SHEET, "a,1\nb,2", "Sales!A5:F6"),
        (SHEET, "c,3\n\n", "Sales!A7:F7"),
        (SHEET, "j,k", "'My sheet'!A2:B2"),
        (MAIL, "Subject: x", "line 1"),
        (MAIL, "second", "file a b.txt, line 2"),
        (MAIL, "first\nsecond", "file a b.txt, lines 1-2"),
        (MAIL, "in c", "file c.pdf, page 1"),
        (MAIL, "[file c.pdf]\n[page 1]\nin c", "file c.pdf, page 1"),
        ("a\nb\nc", "b\nc", "lines 2-3"),
        ("alone", "alone", ""),
    ],
)
def test_s14_2_a_place_is_told_of_any_stretch(text: str, words: str, place: str) -> None:
    start = text.index(words)
    assert TextPlaces(text).of(start, start + len(words)) == place


def test_s14_2_names_cannot_end_a_marker() -> None:
    assert marker("file", "a]\n[page 9]") == "[file a) (page 9)]"
    assert marker("file", "") == "[file ?]"


def test_s14_2_neighbours_are_joined_in_lists_of_pages() -> None:
    assert page_list([9, 3, 8, 7]) == "3, 7-9"


def test_s14_2_lines_far_below_the_first_one_are_found() -> None:
    """§14.2. Lines are counted by many characters at once."""
    lines = [f"line {number} {'x' * (number % 97)}" for number in range(1, 20_001)]
    text = "\n".join(lines)
    places = TextPlaces(text)
    for number in (1, 2, 600, 9_999, 20_000):
        ((start, end),) = places.find(f"line {number}")
        assert text[start:end] == lines[number - 1]
    assert places.find("line 20001") == []
