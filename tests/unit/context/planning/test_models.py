"""Which models are internal ones, and which primary models are expensive (guarantee §5, ADR 15)."""

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from gateway.context.planning.decision import DEFAULT_INTERNAL, ModelConfig
from gateway.core.config.settings import ContextSettings
from gateway.upstream.routing.catalogue import ModelCatalogue
from tests.unit.making import OPTIONS, chat, user

THRESHOLD = ContextSettings().expensive_input_cost_per_token
ADR = (Path(__file__).parents[4] / "docs/adr/0015-when-a-planner-pays.md").read_text()
PLANNER_PROMPT_TOKENS, PLANNER_ANSWER_TOKENS = 6000, 700


@pytest.mark.parametrize(
    ("asked", "configured", "expected"),
    [
        ({}, {}, (DEFAULT_INTERNAL, DEFAULT_INTERNAL, [])),
        ({}, {"planner_model": "p"}, ("p", DEFAULT_INTERNAL, ["p"])),
        ({"context_planner": "q"}, {"planner_model": "p", "summarizer_model": "s"}, ("q", "s", ["q", "s"])),
        ({"summarizer": "t"}, {}, (DEFAULT_INTERNAL, "t", ["t"])),
    ],
)
def test_s5_the_request_names_internal_models_else_the_settings_else_there_is_a_default(
    asked: dict[str, str], configured: dict[str, str], expected: tuple[str, str, list[str]]
) -> None:
    request = chat([user("Hello")], options=replace(OPTIONS, models=asked))
    found = ModelConfig.from_request(request, ContextSettings.model_validate(configured))
    assert (found.context_planner, found.summarizer, sorted(found.chosen)) == expected
    assert found.primary == request.model


@pytest.mark.parametrize(("price", "expensive"), [(None, False), ("0.000003", False), ("0.0000031", True)])
def test_s5_an_unknown_price_is_cheap(price: str | None, expensive: bool) -> None:
    prices = {"input_cost_per_token": Decimal(price)} if price else {}
    assert ModelConfig("m").is_expensive_primary(prices, THRESHOLD) is expensive


@pytest.mark.parametrize(
    ("model", "expensive"),
    [("claude-opus-4-5", True), ("gpt-4o", False), ("gpt-4o-mini", False), ("unheard-of", False)],
)
def test_s5_todays_prices_tell_expensive_models_from_others(model: str, expensive: bool) -> None:
    assert ModelConfig(model).is_expensive_primary(ModelCatalogue().facts(model, None).prices, THRESHOLD) is expensive


def test_the_table_of_what_a_plan_saves_is_what_the_defaults_and_todays_prices_give() -> None:
    assert f"context.expensive_input_cost_per_token` is {THRESHOLD:f} " in ADR
    assert f"context.planner_prompt_chars` ({ContextSettings().planner_prompt_chars:,} characters" in ADR
    prices = ModelCatalogue().facts(DEFAULT_INTERNAL, None).prices
    prompt = prices["input_cost_per_token"] * PLANNER_PROMPT_TOKENS
    plan = prompt + prices["output_cost_per_token"] * PLANNER_ANSWER_TOKENS
    rows = re.findall(r"^\| ([\d.]+) USD \| ([\d,]+) \| ([\d,]+) \|$", ADR, re.MULTILINE)
    assert len(rows) == 5
    for price, once, cached in rows:
        tokens = plan / (Decimal(price) / 10**6)
        assert int(once.replace(",", "")) == pytest.approx(float(tokens), rel=0.03)
        assert int(cached.replace(",", "")) == pytest.approx(10 * float(tokens), rel=0.03)
