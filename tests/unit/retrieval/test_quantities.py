"""What the values of records say as numbers."""

import pytest

from gateway.retrieval.rank import quantity


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
