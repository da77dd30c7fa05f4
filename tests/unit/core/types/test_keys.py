"""What a key of ours may do (guarantee §12.1)."""

import pytest

from gateway.core.config.setting_sections import KeyFields
from gateway.core.types.keys import policy_of


@pytest.mark.parametrize(
    ("models", "asked", "may"),
    [
        ((), "gpt-4o", True),
        (("gpt-4o",), "gpt-4o", True),
        (("gpt-4o",), "gpt-4o-mini", False),
        (("gpt-*",), "gpt-4o-mini", True),
        (("gpt-*",), "GPT-4o", False),
        (("gpt-*", "claude-3"), "claude-3", True),
        (("*",), "anything", True),
        (("claude[1m]",), "claude[1m]", True),
        (("claude[*",), "claude[1m]", True),
        (("gpt-[45]*", "gpt-?o"), "gpt-4o", False),
    ],
)
def test_s12_1_a_key_names_the_models_that_it_may_ask(models: tuple[str, ...], asked: str, may: bool) -> None:
    """Without any, all of them."""
    assert policy_of("key_1", KeyFields(tenant="acme", models=models)).may_ask(asked) is may
