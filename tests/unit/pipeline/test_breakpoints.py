"""Where marks for prompt caches are put, and where none are (guarantee §4 I7)."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types.chat import ModelDeployment, ModelFacts
from gateway.pipeline.payload import wants_breakpoints, with_breakpoints
from tests.unit.making import assistant, system, tool, user

Json = dict[str, Any]
LONG = "words " * 1000
MARK = {"type": "ephemeral"}
TALK = [system(LONG), user("one"), assistant("1"), user("two"), assistant("", "c"), tool("c", LONG)]


def marks(
    messages: list[Json], forward: Json | None = None, *, goes_on: bool = True, translated: bool = True, kept: int = 0
) -> list[int]:
    """Behind which messages a mark was put; everything else is as it was."""
    before = copy.deepcopy(messages)
    marked = with_breakpoints(messages, forward or {}, goes_on=goes_on, translated=translated, kept=kept)
    assert messages == before
    for old, new in zip(messages, marked, strict=True):
        assert _texts(new) == _texts(old)
        assert _rest(new) == _rest(old)
    return [at for at, new in enumerate(marked) if new != messages[at]]


def _rest(message: Json) -> Json:
    return {k: v for k, v in message.items() if k not in ("content", "cache_control")}


def _texts(message: Json) -> Any:
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [{k: v for k, v in part.items() if k != "cache_control"} for part in parts or ()]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (TALK, [0, 3, 5]),
        (TALK[:4], [0, 1, 3]),
        (TALK[:2], [0, 1]),
        ([system("short"), user("one")], []),
        ([user(LONG)], [0]),
        ([system("short"), user(LONG), assistant("1"), user("two")], [1, 3]),
        ([system(LONG), user("one"), assistant("to begin with")], [0, 1]),
        ([system(LONG), user(" \n")], [0]),
        ([system(LONG), user([{"type": "image_url", "image_url": {"url": "x"}}])], [0]),
        ([system(LONG), system("more"), user("one")], [1, 2]),
        ([user(LONG), assistant("1"), assistant("2"), user("two")], [0, 3]),
        ([assistant(LONG)], []),
        ([], []),
    ],
)
def test_behind_the_system_messages_at_the_previous_end_and_at_this_one(
    messages: list[Json], expected: list[int]
) -> None:
    assert marks(messages) == expected


def test_what_nobody_goes_on_with_is_not_written() -> None:
    assert marks([system(LONG), user(LONG)], goes_on=False) == [0]


def test_tools_stand_before_the_messages() -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": LONG}}]
    assert marks([system("short"), user("one")], {"tools": tools}) == [0, 1]


def test_a_mark_stands_at_the_last_text_of_its_message() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    parts: list[Json] = [{"type": "text", "text": text} for text in (LONG, "b", "")]
    parts.insert(2, image)
    (found,) = with_breakpoints([user(parts)], {}, goes_on=True, translated=True)
    assert found["content"] == [parts[0], {**parts[1], "cache_control": MARK}, image, parts[3]]


def test_of_a_tool_result_the_whole_is_marked_where_litellm_translates() -> None:
    assert with_breakpoints(TALK, {}, goes_on=True, translated=True)[5] == {**TALK[5], "cache_control": MARK}
    parts = [{"type": "text", "text": LONG, "cache_control": MARK}]
    assert with_breakpoints(TALK, {}, goes_on=True, translated=False)[5] == {**TALK[5], "content": parts}


@pytest.mark.parametrize(
    ("at", "changes", "forward"),
    [
        (1, {"content": [{"type": "text", "text": "one", "cache_control": MARK}]}, {}),
        (0, {"cache_control": MARK}, {}),
        (4, {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}, "cache_control": MARK}]}, {}),
        (0, {}, {"tools": [{"type": "function", "function": {"name": "f"}, "cache_control": MARK}]}),
        (0, {}, {"tools": [{"type": "function", "function": {"name": "f", "cache_control": MARK}}]}),
        (0, {}, {"cache_control": MARK}),
    ],
)
def test_where_the_client_set_any_there_are_no_others(at: int, changes: Json, forward: Json) -> None:
    messages = [*TALK[:at], {**TALK[at], **changes}, *TALK[at + 1 :]]
    assert marks(messages, forward) == []


@pytest.mark.parametrize(
    ("kept", "expected"), [(0, [0, 7, 9]), (2, [0, 1, 7, 9]), (4, [0, 3, 7, 9]), (5, [0, 3, 7, 9]), (8, [0, 7, 9])]
)
def test_s4_i7_behind_what_a_pass_keeps(kept: int, expected: list[int]) -> None:
    """Providers look for what they have cached a few blocks before a breakpoint, and no further."""
    talk = [*TALK, assistant("", "d"), tool("d", LONG), assistant("2"), user("three")]
    assert marks(talk, kept=kept) == expected


HOUR = {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, {0: MARK, 3: MARK, 5: MARK}),
        ({5: HOUR}, {1: HOUR, 5: HOUR}),
        ({0: HOUR, 3: HOUR, 5: MARK}, {0: HOUR, 1: HOUR, 3: HOUR, 5: MARK}),
        ({0: HOUR}, {0: HOUR, 1: HOUR}),
        ({1: HOUR, 5: MARK}, {1: HOUR, 5: MARK}),
        ({0: MARK, 2: MARK, 3: MARK, 5: MARK}, {0: MARK, 2: MARK, 3: MARK, 5: MARK}),
    ],
)
def test_s4_i7_behind_what_a_pass_keeps_beside_the_clients_own(own: dict[int, Json], expected: dict[int, Json]) -> None:
    """Where there are fewer than four. None may live shorter than one behind it."""
    talk = [{**each, "cache_control": own[at]} if at in own else each for at, each in enumerate(TALK)]
    found = with_breakpoints(talk, {}, goes_on=True, translated=True, kept=2 if own else 0)
    plain = {at: str(each) for at, each in enumerate(found) if "cache_control" in str(each)}
    assert {at: HOUR if "1h" in each else MARK for at, each in plain.items()} == expected


@given(
    st.lists(st.sampled_from([*TALK, user(LONG), assistant(LONG), user("")]), max_size=12),
    st.booleans(),
    st.integers(0, 12),
)
def test_never_more_than_the_provider_takes(messages: list[Json], translated: bool, kept: int) -> None:
    found = with_breakpoints(messages, {}, goes_on=True, translated=translated, kept=min(kept, len(messages)))
    assert json.dumps(found).count("cache_control") <= 4
    assert all(new == old for new, old in zip(found, messages, strict=True) if old["role"] == "assistant")


AT = ModelDeployment("m", "claude-x", "anthropic/claude-x", "", "k", operator_key=True, protocol="litellm")
FACTS = ModelFacts("claude-x")


@pytest.mark.parametrize(
    ("changes", "supports", "wants"),
    [
        ({}, None, True),
        ({}, True, True),
        ({}, False, False),
        ({"route": "bedrock/eu.anthropic.claude-x-v1:0"}, True, True),
        ({"route": "bedrock/anthropic.claude-v2"}, False, False),
        ({"route": "bedrock/anthropic.claude-new"}, None, False),
        ({"route": "gemini/gemini-2.5-pro", "provider_model": "gemini-2.5-pro"}, True, False),
        ({"route": "openrouter/anthropic/claude-x", "protocol": "openai"}, None, True),
        (
            {"route": "openai/anthropic/claude-x", "protocol": "openai", "api_base": "https://openrouter.ai/api/v1"},
            None,
            True,
        ),
        ({"route": "openai/claude-x", "protocol": "openai", "api_base": "http://127.0.0.1/v1"}, True, False),
        ({"options": {"cache_control_injection_points": [{"location": "message", "role": "system"}]}}, True, False),
        ({"parameters": {"cache_control_injection_points": []}}, True, False),
    ],
)
def test_which_models_want_them(changes: Json, supports: bool | None, wants: bool) -> None:
    facts = replace(FACTS, supports_prompt_caching=supports)
    assert wants_breakpoints(replace(AT, **changes), facts) is wants
