"""How long an answer may become is said where the provider wants to be told, and only there (guarantee §4 I1)."""

from typing import Any

import pytest

from gateway.core.types.chat import ModelDeployment, ModelFacts
from gateway.pipeline.payload import with_output_limit

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
