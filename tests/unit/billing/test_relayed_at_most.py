"""What relayed calls may cost at the most, by what their bodies tell (guarantee §12.3)."""

from decimal import Decimal
from typing import Any

import pytest

from gateway.billing.relayed_usage import most_price, most_usage

TEXT = {"input_cost_per_token": Decimal(1), "output_cost_per_token": Decimal(10)}
WORDS = "one two three"
LONGEST = 100
IN, OUT = 1, 10
CASES: list[tuple[str, dict[str, Any], int]] = [
    ("embeddings", {"input": [WORDS, WORDS]}, 6 * IN),
    ("moderations", {"input": WORDS}, 3 * IN),
    ("completions", {"prompt": WORDS}, 3 * IN + LONGEST * OUT),
    ("completions", {"prompt": WORDS, "max_tokens": 7}, 3 * IN + 7 * OUT),
    ("completions", {"prompt": WORDS, "max_tokens": 7, "n": 2, "best_of": 5}, 3 * IN + 35 * OUT),
    ("completions", {"prompt": [WORDS, WORDS], "max_tokens": 7, "n": 2}, 6 * IN + 28 * OUT),
    ("completions", {"prompt": [1, 2, 3, 4], "max_tokens": 7}, 4 * IN + 7 * OUT),
    ("images/generations", {"prompt": WORDS, "size": "1024x1024", "quality": "low"}, 3 * IN + 272 * OUT),
    ("images/generations", {"prompt": WORDS, "size": "1024x1024", "n": 3}, 3 * IN + 3 * 4160 * OUT),
    ("images/generations", {"prompt": WORDS}, 3 * IN + 6240 * OUT),
    ("images/edits", {"prompt": WORDS, "size": "2048x1024", "n": "2"}, 1000 * IN + 4 * 4160 * OUT),
    ("audio/speech", {"input": WORDS}, 3 * IN + 2 * len(WORDS) * OUT),
]


@pytest.mark.parametrize(("path", "fields", "cost"), CASES)
def test_s12_3_the_most_by_tokens(path: str, fields: dict[str, Any], cost: int) -> None:
    usage = most_usage(path, fields, (1000, 0), lambda text: len(text.split()), LONGEST)
    assert most_price(path, usage, TEXT) == cost


UNITS: list[tuple[str, dict[str, Any], str, int]] = [
    ("images/generations", {"n": 4, "size": "10x20"}, "output_cost_per_image", 4),
    ("images/generations", {"n": 4, "size": "10x20"}, "input_cost_per_pixel", 800),
    ("audio/speech", {"input": WORDS}, "input_cost_per_character", len(WORDS)),
    ("audio/transcriptions", {}, "input_cost_per_second", 5),
]


@pytest.mark.parametrize(("path", "fields", "price", "cost"), UNITS)
def test_s12_3_the_most_by_units(path: str, fields: dict[str, Any], price: str, cost: int) -> None:
    usage = most_usage(path, fields, (10_500, 10_000), len, LONGEST)
    assert most_price(path, usage, {price: Decimal(1)}) == cost
    assert most_price(path, usage, {}) is None


@pytest.mark.parametrize("wrong", ["many", -3, 1.5, None, [], True, "9" * 100])
def test_s12_3_what_is_no_number_counts_as_one(wrong: Any) -> None:
    for path in ("completions", "images/generations", "images/edits"):
        odd = {"prompt": WORDS, **dict.fromkeys(("n", "best_of", "max_tokens", "partial_images", "size"), wrong)}
        plain = most_usage(path, {"prompt": WORDS}, (9, 0), len, LONGEST)
        assert most_price(path, most_usage(path, odd, (9, 0), len, LONGEST), TEXT) == most_price(path, plain, TEXT)
