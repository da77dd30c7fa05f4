"""However many messages a chat has, choosing among them takes time in proportion to their number (guarantee §7)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.context.manager import BuiltContext
from tests.support.growth import is_linear
from tests.unit.making import assistant, build, system, tool, user

Messages = list[dict[str, Any]]


def plain(count: int) -> Messages:
    """Turns of two small messages."""
    return [user(f"hi {n}") if n % 2 == 0 else assistant(f"ho {n}") for n in range(count)]


def tool_turns(count: int) -> Messages:
    """Turns with a tool step each."""
    turns: Messages = []
    for n in range(count // 4):
        turns += [user(f"ask {n}"), assistant(None, f"c{n}"), tool(f"c{n}", f"result {n}"), assistant(f"said {n}")]
    return [*turns, user("and result 7?")]


def tool_steps(count: int) -> Messages:
    """One turn of many tool steps, of which the oldest have to leave."""
    steps = [[assistant(None, f"c{n}"), tool(f"c{n}", f"result {n}")] for n in range(count // 2)]
    return [user("ask"), *(message for step in steps for message in step)]


@pytest.mark.long
@pytest.mark.parametrize("shape", [plain, tool_turns, tool_steps])
def test_s7_a_chat_of_very_many_messages_is_fitted_in_linear_time(shape: Callable[[int], Messages]) -> None:
    """Eight times as many messages take about eight times as long, and not sixty-four."""
    built: list[BuiltContext] = []

    def fit(count: int) -> None:
        built.append(asyncio.run(build(shape(count), 2 * count)))

    fit(100)  # which loads what is loaded once
    assert is_linear(fit, 4_001)
    fitted = max((each.fitted for each in built), key=lambda each: each.tokens)  # of the most messages
    assert fitted.exact
    assert 0.97 * 8_000 < fitted.tokens <= 8_002


async def test_i2_system_messages_between_turns_do_not_shorten_the_run() -> None:
    """§4 I2: they stand in any window, so no turn pays for those before it."""
    messages: Messages = []
    for n in range(500):
        messages += [user(f"ask {n}"), assistant(f"said {n}"), system(f"be {n} times as brief")]
    built = await build([*messages, user("now?")], 12_000)
    assert 0.97 * 12_000 < built.fitted.tokens <= 12_000
    assert sum(m["role"] == "system" for m in built.fitted.forwarded.messages) == 500
