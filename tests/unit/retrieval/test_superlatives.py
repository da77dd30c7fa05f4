"""Superlatives put the records with the highest or lowest value of the field they mean first."""

import json
import random

import pytest

from gateway.core.types.relevance import SearchedSource
from gateway.retrieval.rank import superlative
from tests.unit.retrieval.asking import ranked

RANDOM = random.Random(5)
LAKES: list[dict[str, object]] = [
    {
        "lake": f"Lake {n}",
        "basin": {"depth_m": d, "area_km2": 500 - d},
        "surveyed": f"20{d % 90 + 10}-01-05",
        "fee": f"${d}.50",
    }
    for n, d in enumerate(RANDOM.sample(range(100, 400), 60))
]


PROSE = SearchedSource(
    "Which one is deep? This one is about none of which anybody asked.", "artifact", "notes", True, 3
)


def lake(question: str, text: str | None = None) -> dict[str, object]:
    source = SearchedSource(text or json.dumps(LAKES), "artifact", "list_lakes {}", True, 3)
    best = ranked(question, [source, SearchedSource("A lake is deep.", "turn", "user", True, 1)])[0]
    found: dict[str, object] = json.loads(best.strip().strip(",[]"))
    return found


def depth(record: dict[str, object]) -> int:
    return int(record["basin"]["depth_m"])  # type: ignore[index]


@pytest.mark.parametrize(
    "question",
    [
        "Which lake is the deepest?",
        "Which one has the smallest area?",
        "the lake with the highest depth",
        "Where is the most expensive fee charged, and for which lake?",
        "What is the maximum depth?",
    ],
)
def test_the_extreme_record_is_first(question: str) -> None:
    assert depth(lake(question)) == max(map(depth, LAKES))


@pytest.mark.parametrize("question", ["Which lake is the shallowest?", "cheapest lake?", "the least expensive lake"])
def test_the_other_end(question: str) -> None:
    assert depth(lake(question)) == min(map(depth, LAKES))


def test_dates_have_an_order_too() -> None:
    assert lake("Which lake was surveyed latest?")["surveyed"] == max(str(each["surveyed"]) for each in LAKES)


def test_rows_of_a_table() -> None:
    rows = [f"{name},{weight} kg" for name, weight in zip("abcdefghij", [5, 9, 12, 3, 8, 7, 6, 4, 2, 10], strict=True)]
    table = "parcel,weight\n" + "\n".join(rows) + "\n" + "\n".join(f"x{n},1 kg" for n in range(80))
    source = SearchedSource(table, "artifact", "list_parcels", True, 1)
    assert "c,12 kg" in ranked("Which parcel is the heaviest?", [source])[0]


@pytest.mark.parametrize("question", ["Is it deep?", "the forest", "an honest guest", "Does the rest arrest you?", ""])
def test_no_superlative(question: str) -> None:
    assert superlative(question) is None


@pytest.mark.parametrize("question", ["Who is the tallest?", "the loudest lake"])
def test_without_such_a_field_words_decide(question: str) -> None:
    plain = SearchedSource("The tallest, loudest tree.", "artifact", "", True, 9)
    assert ranked(question, [SearchedSource(json.dumps(LAKES), "artifact", "", True, 3), plain])[0] == plain.content


def test_a_table_of_a_few_rows_has_an_order_too() -> None:
    """It is one passage: that one is found, although no word of the question stands in it."""
    rows = "\n".join(f"{name},{depth}" for name, depth in (("Ammer", 81), ("Chiem", 73), ("Boden", 251)))
    found = ranked(
        "Which one is the deepest?", [SearchedSource(f"name,depth\n{rows}", "artifact", "list {}", True, 1), PROSE]
    )
    assert found[0].startswith("name,depth")
