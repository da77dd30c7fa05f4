"""Usage and price of other APIs than chats (guarantee §13.8), and what their calls may cost at the most (§12.3)."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.ledger_verification import repriced
from gateway.billing.relayed_usage import (
    RELAYED_ENDPOINTS,
    chat_usage,
    input_tokens,
    most_price,
    most_usage,
    price_relayed,
    units_of,
)
from gateway.core import jsons
from gateway.core.types.bill import CallCost
from gateway.upstream.routing.catalogue import ModelCatalogue

DRAWN = {"input_tokens": 50, "output_tokens": 4160, "input_tokens_details": {"text_tokens": 10, "image_tokens": 40}}


def priced(path: str, model: str, usage: dict[str, Any], *, estimated: bool = False) -> CallCost:
    """At a model's public price; an audit finds the same by what is stored of the call."""
    prices = ModelCatalogue().facts(model, None).prices
    call = price_relayed(path, model, usage, prices, estimated=estimated)
    stored = replace(call, usage=jsons.loads_decimal(jsons.dumps(call.usage)))
    assert repriced(stored) == replace(call, usage=stored.usage)
    return call


def reported(path: str, usage: dict[str, Any]) -> dict[str, Any]:
    found = chat_usage(path, usage)
    assert found is not None
    return found


AT_PUBLIC_PRICES: list[tuple[str, str, dict[str, Any], str]] = [
    ("embeddings", "text-embedding-3-small", {"prompt_tokens": 1000, "total_tokens": 1000}, "0.00002"),
    ("moderations", "omni-moderation-latest", {"prompt_tokens": 7}, "0"),
    (
        "completions",
        "gpt-3.5-turbo-instruct",
        {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": None},
        "0.000023",
    ),
    ("audio/transcriptions", "whisper-1", {"type": "duration", "seconds": 12.5}, "0.00125"),
    ("audio/transcriptions", "whisper-1", {"type": "duration", "seconds": 3}, "0.0003"),
    (
        "audio/transcriptions",
        "gpt-4o-transcribe",
        {"type": "tokens", "input_tokens": 14, "input_token_details": {"audio_tokens": 14}, "output_tokens": 9},
        "0.000125",
    ),
    ("audio/speech", "gpt-4o-mini-tts", {"input_tokens": 10, "output_tokens": 100}, "0.001206"),
    ("images/generations", "gpt-image-1", DRAWN, "0.16685"),
    (
        "images/edits",
        "gpt-image-1.5",
        {**DRAWN, "output_tokens_details": {"image_tokens": 4000, "text_tokens": 160}},
        "0.12997",
    ),
]


@pytest.mark.parametrize(("path", "model", "usage", "cost"), AT_PUBLIC_PRICES)
def test_usage_at_public_prices(path: str, model: str, usage: dict[str, Any], cost: str) -> None:
    assert priced(path, model, reported(path, usage)).total == Decimal(cost)


def test_cached_pictures_have_a_price_of_their_own() -> None:
    details = {"image_tokens": 40, "cached_tokens": 30, "cached_tokens_details": {"image_tokens": 20}}
    usage = reported("images/edits", {**DRAWN, "output_tokens": 0, "input_tokens_details": details})
    expected = 20 * Decimal("2.5e-6") + 10 * Decimal("1.25e-6") + 20 * Decimal("1e-5")
    assert priced("images/edits", "gpt-image-1", usage).total == expected


def test_characters_and_pictures_where_tokens_have_no_price() -> None:
    spoken: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": None, "units": {"characters": 11}}
    assert priced("audio/speech", "tts-1", spoken, estimated=True).total == Decimal("0.000165")
    assert priced("audio/speech", "gpt-4o-mini-tts", spoken, estimated=True).total is None
    drawn = {"prompt_tokens": 3, "completion_tokens": None, "units": {"images": 3}}
    price = {"output_cost_per_image": Decimal("0.04"), "input_cost_per_token": Decimal(1)}
    assert price_relayed("images/edits", "m", drawn, price, estimated=True).total == Decimal("0.12")


@pytest.mark.parametrize("path", RELAYED_ENDPOINTS)
def test_what_nobody_knows_has_no_price(path: str) -> None:
    """However many prices there are; never 0."""
    prices = {f"{side}_cost_per_token": Decimal(1) for side in ("input", "output")}
    unknown: list[dict[str, Any]] = [{}, {"prompt_tokens": None, "completion_tokens": None}]
    for usage in (*unknown, {"prompt_tokens": 5, "completion_tokens": None}, {"prompt_tokens": None}):
        assert price_relayed(path, "m", usage, prices, estimated=True).total is None
    assert price_relayed(path, "m", {"prompt_tokens": 5, "completion_tokens": 1}, {}, estimated=False).total is None


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "input_tokens",
                "prompt_tokens",
                "output_tokens",
                "completion_tokens",
                "type",
                "seconds",
                "units",
                "input_tokens_details",
            ]
        ),
        st.none() | st.text(max_size=3) | st.integers(-2, 10**14) | st.floats(),
        max_size=6,
    ),
    st.sampled_from(sorted(RELAYED_ENDPOINTS)),
)
def test_usage_of_any_kind_is_priced_or_none(usage: dict[str, Any], path: str) -> None:
    """An upstream may report anything: what is taken can be stored, and priced again to the same."""
    found = chat_usage(path, usage)
    if found is not None:
        assert priced(path, "gpt-4o", found).usage == found


def test_of_a_usage_figures_alone_are_kept() -> None:
    """A provider may write anything into it, and the ledger holds no content."""
    said = {"prompt_tokens": 5, "completion_tokens": 1, "type": "tokens", "details": {"a": 1, "said": "word " * 50}}
    more = {"list": ["words"], "x" * 70: 1, "deep": {"a": {"b": {"c": 1}}}, **{f"n{each}": 1 for each in range(60)}}
    kept = reported("completions", {**said, **more})
    assert kept["details"] == {"a": 1}
    assert kept["deep"] == {"a": {}}
    assert not {"list", "x" * 70, "n59"} & kept.keys()


def words(text: str) -> int:
    return len(text.split())


INPUTS: list[tuple[str, dict[str, Any], int | None]] = [
    ("embeddings", {"input": "one two"}, 2),
    ("embeddings", {"input": ["one two", "three"]}, 3),
    ("embeddings", {"input": [5, 6, 7]}, 3),
    ("embeddings", {"input": [[5, 6, 7], [8]]}, 4),
    ("embeddings", {}, None),
    ("moderations", {"input": [{"type": "text", "text": "one two"}]}, 2),
    ("moderations", {"input": [{"type": "image_url", "image_url": {"url": "data:"}}]}, None),
    ("completions", {"prompt": "one two"}, 2),
    ("audio/speech", {"input": "one two"}, 2),
    ("audio/transcriptions", {"prompt": "one"}, None),
    ("images/generations", {"prompt": "one two"}, 2),
    ("images/edits", {"prompt": "one two"}, None),
]


@pytest.mark.parametrize(("path", "fields", "tokens"), INPUTS)
def test_what_a_request_gives_its_model_to_read(path: str, fields: dict[str, Any], tokens: int | None) -> None:
    assert input_tokens(path, fields, words) == tokens


@pytest.mark.parametrize(
    ("path", "fields", "units"),
    [
        ("audio/speech", {"input": "hällo"}, {"characters": 5}),
        ("audio/speech", {"input": 5}, {}),
        ("images/generations", {}, {"images": 1}),
        ("images/edits", {"n": "3"}, {"images": 3}),
        ("images/generations", {"n": -1}, {}),
        ("embeddings", {"n": 3}, {}),
    ],
)
def test_units(path: str, fields: dict[str, Any], units: dict[str, int]) -> None:
    assert units_of(path, fields) == units


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
