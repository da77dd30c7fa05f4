"""How many tokens a prompt may have; the length of an answer is said where the provider wants to be told (§4 I1)."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.context.window.fitting import SelectionLimits
from gateway.core.config.settings import ContextSettings
from gateway.core.errors import ContextLengthExceeded
from gateway.core.types.chat import ModelDeployment, ModelFacts, PromptBudget
from gateway.pipeline.payload import budget_for, tightened, with_output_limit, writable


@pytest.mark.parametrize(
    ("facts", "forward", "requested", "ceiling", "tokens"),
    [
        ({"max_input_tokens": 1000}, {"max_tokens": 300}, None, None, 700),
        ({"max_input_tokens": 1000, "context_window": 2000}, {"max_tokens": 300}, None, None, 1000),
        ({"context_window": 2000}, {"max_completion_tokens": 1500}, None, None, 500),
        ({"context_window": 2000}, {"max_completion_tokens": 5, "max_tokens": 1500}, None, None, 1995),
        ({"max_input_tokens": 1000}, {"max_tokens": 300}, 100, None, 100),
        ({"max_input_tokens": 1000}, {"max_tokens": 300}, None, 50, 50),
        ({"max_input_tokens": 1000}, {"max_tokens": 300}, 40, 50, 40),
        ({}, {}, 40, None, 40),
        ({}, {"max_tokens": 9}, None, 50, 50),
        ({}, {}, None, None, None),
        ({"max_input_tokens": 100_000, "max_output_tokens": 1000}, {}, None, None, 99_000),
        ({"max_input_tokens": 100_000, "max_output_tokens": 9000}, {}, None, None, 95_904),
        ({"max_input_tokens": 1000}, {}, None, None, 750),
    ],
)
def test_the_least_of_all_limits_counts(
    facts: dict[str, int], forward: dict[str, Any], requested: int | None, ceiling: int | None, tokens: int | None
) -> None:
    settings = ContextSettings(max_input_tokens=ceiling)
    assert budget_for(ModelFacts("m", **facts), forward, requested, settings).tokens == tokens  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low_water", "fresh", "estimated", "goal"),
    [
        (None, 0, False, 10_000),
        (None, 500, False, 10_000),
        (None, 0, True, 9900),
        (4000, 0, False, 4000),
        (4000, 2500, False, 6500),
        (4000, 8000, False, 10_000),
        (4000, 8000, True, 9900),
        (300, 0, False, 1024),
        (300, 100, False, 1124),
    ],
)
def test_s4_i7_a_pass_leaves_room_where_that_pays(
    low_water: int | None, fresh: int, estimated: bool, goal: int
) -> None:
    """At first sight none; never below what providers cache, nor for what the model has not seen yet."""
    assert SelectionLimits(10_000, 0.1, low_water, lambda: fresh, estimated).goal == goal


@pytest.mark.parametrize(
    ("facts", "named", "cut"),
    [
        ({"max_input_tokens": 8000, "max_output_tokens": 1000}, 64_000, 1000),
        ({"max_input_tokens": 8000, "max_output_tokens": 1000}, 999, 999),
        ({"max_input_tokens": 8000}, 32_000, 2000),
        ({"max_input_tokens": 8000, "max_output_tokens": 8000}, 32_000, 2000),
        ({"context_window": 8000}, 7999, 7999),
        ({}, 64_000, 64_000),
    ],
)
def test_more_than_a_model_can_write_is_cut_to_that(facts: dict[str, int], named: int, cut: int) -> None:
    found = writable({"max_tokens": named, "top_p": 1}, ModelFacts("m", **facts))  # type: ignore[arg-type]
    assert found == {"max_tokens": cut, "top_p": 1}
    assert writable({"top_p": 1}, ModelFacts("m", **facts)) == {"top_p": 1}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_that_leaves_no_room_for_a_prompt_is_an_error_that_names_its_field(name: str) -> None:
    with pytest.raises(ContextLengthExceeded) as raised:
        budget_for(ModelFacts("m", max_input_tokens=1000), {name: 1000}, None, ContextSettings())
    assert raised.value.param == name
    said = "This model's maximum context length is 1000 tokens. However, you requested more than 1000 tokens"
    assert raised.value.message.startswith(said)


NEITHER = "This model's maximum context length is {} tokens. However, your messages resulted in {} tokens."
TOGETHER = "This model's maximum context length is 4096 tokens. However, you requested {} in the completion)."
SETS = " {} sets this limit."
WINDOW, LONG_ANSWER = {"context_window": 4096}, {"max_tokens": 1000}


@pytest.mark.parametrize(
    ("facts", "forward", "requested", "tokens", "said"),
    [
        (WINDOW, LONG_ANSWER, 2000, 3000, NEITHER.format(2000, 3000) + SETS.format("The request's max_input_tokens")),
        (WINDOW, LONG_ANSWER, 2000, 5000, NEITHER.format(2000, 5000) + SETS.format("The request's max_input_tokens")),
        (WINDOW, LONG_ANSWER, 3096, 4000, TOGETHER.format("5000 tokens (4000 in the messages, 1000")),
        (WINDOW, LONG_ANSWER, None, 4097, NEITHER.format(4096, 4097)),
        (WINDOW, LONG_ANSWER, None, 4000, TOGETHER.format("5000 tokens (4000 in the messages, 1000")),
        (WINDOW, {}, None, 4000, TOGETHER.format("5024 tokens (4000 in the messages, 1024")),
        (WINDOW, {"max_tokens": 96}, None, 4000, TOGETHER.format("more tokens (96")),
        (WINDOW, LONG_ANSWER, None, None, TOGETHER.format("more tokens (1000")),
        (
            {"context_window": 9000, "max_input_tokens": 2000},
            {},
            None,
            3000,
            NEITHER.format(2000, 3000) + SETS.format("The model's max_input_tokens"),
        ),
        (
            {"max_input_tokens": 4096},
            LONG_ANSWER,
            None,
            4000,
            TOGETHER.format("5000 tokens (4000 in the messages, 1000"),
        ),
        ({}, {}, 50, None, NEITHER.format(50, "more") + SETS.format("The request's max_input_tokens")),
        ({}, {}, 7000, 7500, NEITHER.format(6000, 7500) + SETS.format("The gateway's context.max_input_tokens")),
    ],
)
def test_s7_5_an_overflow_names_the_limit_that_was_broken(
    facts: dict[str, int], forward: dict[str, Any], requested: int | None, tokens: int | None, said: str
) -> None:
    settings = ContextSettings(max_input_tokens=6000)
    budget = budget_for(ModelFacts("m", **facts), forward, requested, settings)  # type: ignore[arg-type]
    assert budget.overflow(tokens) == said
    assert replace(budget, tokens=7).overflow(tokens) == said, "a budget that is tightened is no other limit"


@pytest.mark.parametrize(
    ("counted", "reported", "limit", "tokens"),
    [
        (1000, None, None, 800),
        (500, None, None, 400),
        (1000, 1200, 1000, 735),
        (1000, 4000, 1000, 220),
        (1000, 900, 1000, 800),
        (1000, 1001, 1000, 881),
        (1000, 10_001, 10_000, 950),
        (1, 100, 50, 1),
    ],
)
def test_after_an_overflow_the_budget_is_tightened_by_what_upstream_said(
    counted: int, reported: int | None, limit: int | None, tokens: int
) -> None:
    refitted = tightened(PromptBudget(1000, 1000, 100, reserve_named=True), counted, reported, limit)
    assert refitted.tokens == tokens
    assert refitted.context_window == 1000


def test_after_an_overflow_a_reserve_that_nobody_named_does_not_take_all_of_a_smaller_window() -> None:
    """A model configured with a window of 128,000 whose upstream says that it has 3,000."""
    facts = ModelFacts("m", context_window=128_000, max_output_tokens=4096)
    budget = budget_for(facts, {}, None, ContextSettings())
    refitted = tightened(budget, 4000, 4000, 3000)
    assert refitted.tokens is not None
    assert 2000 < refitted.tokens <= 2250
    named = budget_for(facts, {"max_tokens": 2000}, None, ContextSettings())
    assert tightened(named, 4000, 4000, 3000).tokens == int(1000 * 0.98)


def test_a_prompt_of_unknown_budget_is_tightened_too() -> None:
    assert tightened(PromptBudget(None, None), 1000, None, None).tokens == 800


FACTS = ModelFacts("claude", max_input_tokens=200_000, max_output_tokens=64_000)


def deployment(route: str = "anthropic/claude-sonnet-4-5", **more: Any) -> ModelDeployment:
    fields: dict[str, Any] = {"protocol": "litellm", "api_base": "", "api_key": None, "operator_key": True, **more}
    return ModelDeployment("claude", route.partition("/")[2], route, **fields)


def limit(
    prompt: int,
    forward: dict[str, Any] | None = None,
    at: ModelDeployment | None = None,
    facts: ModelFacts = FACTS,
    **more: Any,
) -> Any:
    named = {"window": 200_000, "reserved": 4096, "refitted": False, **more}
    return with_output_limit(forward or {}, at or deployment(), facts, prompt=prompt, **named).get("max_tokens")


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [(0, 64_000), (129_000, 64_000), (140_000, 53_000), (180_000, 11_000), (190_000, 4096), (195_000, 4096)],
)
def test_what_the_model_can_write_or_what_is_left_but_never_less_than_was_reserved(prompt: int, expected: int) -> None:
    assert limit(prompt) == expected


def test_after_a_refusal_it_is_what_was_reserved() -> None:
    assert limit(100_000, refitted=True) == 4096


@pytest.mark.parametrize(
    "forward",
    [{"max_tokens": 10}, {"max_completion_tokens": 10}, {"thinking": {"type": "enabled"}}, {"reasoning_effort": "low"}],
)
def test_who_named_it_or_has_it_think_is_left_alone(forward: dict[str, Any]) -> None:
    assert limit(195_000, forward) == forward.get("max_tokens")
    assert limit(195_000, at=deployment(parameters=forward)) is None
    assert limit(195_000, at=deployment(options=forward)) is None


def test_others_are_told_nothing() -> None:
    assert limit(195_000, at=deployment("gemini/gemini-2.5-pro")) is None
    assert limit(195_000, at=deployment(protocol="openai")) is None
    assert limit(195_000, window=None) is None
    assert limit(195_000, facts=ModelFacts("claude", max_input_tokens=200_000)) is None
