"""Records of a text, and what their values say as numbers."""

import json

import pytest

from gateway.relevance.records import quantity, records_of

BOATS = [{"boat": "Ida", "crew": [{"age": 30}, {"age": 41}]}, {"boat": "Elk", "crew": [], "home": {"port": "Hull"}}]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(BOATS),
        json.dumps(BOATS, indent=2),
        json.dumps({"count": 2, "boats": BOATS}),
        "\n".join(map(json.dumps, BOATS)),
    ],
)
def test_records_of_json_with_the_ways_to_their_values(text: str) -> None:
    found = records_of(text)
    assert [json.loads(text[record.start : record.end]) for record in found] == BOATS
    assert found[0].fields == (("boat", "Ida"), ("crew age", 30), ("crew age", 41))
    assert found[1].fields == (("boat", "Elk"), ("home port", "Hull"))


def test_a_position_of_geojson_has_names() -> None:
    found = records_of(json.dumps([{"at": {"coordinates": [1.5, 2.5, 9.0]}}, {"at": {"coordinates": [1, 2, 3]}}]))
    assert found[0].fields[2] == ("at coordinates depth altitude elevation", 9.0)


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_rows_beneath_a_row_of_names(separator: str) -> None:
    rows = [["name", "height"], ["Ben", "12"], ["Tor", "7"], ["Hag", "30"]]
    text = "\n".join(separator.join(row) for row in rows)
    found = records_of(text)
    assert [text[r.start : r.end].split(separator) for r in found] == rows[1:]
    assert found[2].fields == (("name", "Hag"), ("height", "30"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "[",
        "{",
        "[1, 2]",
        '{"a": 1}',
        "Once, upon\na time, there\nwas a, b, c, d",
        "[{]",
        "12,13\n14,15\n16,17",
    ],
)
def test_other_texts_have_none(text: str) -> None:
    assert records_of(text) == []


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        ("12", 12.0),
        ("$1,250.50", 1250.5),
        ("2.5 million", 2_500_000.0),
        ("4 KB", 4000.0),
        ("90 min", 5400.0),
        ("1h 30m", 5400.0),
        ("2021-03-01", quantity("Mar 1, 2021")),
        ("1 March 2021", quantity("3/1/2021")),
        (None, None),
        (True, None),
        ("Hull", None),
        ("2021-99-01", None),
        ([1], None),
    ],
)
def test_quantities(value: object, number: float | None) -> None:
    assert quantity(value) == number


def test_dates_are_in_order() -> None:
    dates = ["Dec 31 1974", "1975-01-01", "2 January 1975", "1975-01-02T00:00:01", "1/3/1975"]
    values = [quantity(each) or 0.0 for each in dates]
    assert values == sorted(values)
