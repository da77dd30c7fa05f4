"""Tool steps: the one that is still open, and where turns begin."""

from typing import Any

import pytest

from gateway.core.types.tool_steps import open_step, turn_starts
from tests.unit.making import assistant, stored, tool, user

CALLS = assistant(None, "a", "b", name="search", arguments='{"x":1}')


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user("q"), CALLS, tool("b", "two")], [1, 2]),
        ([user("q"), CALLS], [1]),
        ([user("q"), CALLS, tool("b", "two"), tool("a", "one"), assistant("done")], [4]),
        ([tool("b", "two")], [0]),
        ([], []),
    ],
)
def test_the_open_step_is_the_last_message_that_may_have_calls_and_its_results(
    messages: list[dict[str, Any]], expected: list[int]
) -> None:
    conversation = stored(messages)
    assert list(open_step(conversation)) == [conversation[index] for index in expected]


@pytest.mark.parametrize(
    ("roles", "starts"),
    [
        ("", []),
        ("u", [0]),
        ("s u a u", [1, 3]),
        ("a u u a", [1, 2]),
        ("u a t u a t a u", [0, 7]),
        ("u a t t s u u d u a t a", [0]),
        ("u a f u a u", [0, 5]),
        ("u a u", [0, 2]),
        ("t u a u", [3]),
    ],
)
def test_s4_i4_a_users_message_behind_results_of_tools_begins_no_turn(roles: str, starts: list[int]) -> None:
    """`a u`: whoever speaks behind calls without results waits for none."""
    names = {"u": "user", "a": "assistant", "t": "tool", "f": "function", "s": "system", "d": "developer"}
    assert turn_starts(names[role] for role in roles.split()) == starts
