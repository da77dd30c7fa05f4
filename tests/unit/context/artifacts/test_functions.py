"""Results of functions, as they were called before there were tools, are artifacts like those of tools
(§3.3, §4 I3)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.context.artifacts.collect import extract_artifacts_from_messages, steps_as_text
from gateway.context.assembly.shown_block import without_block_items
from gateway.conversations.message_forms import forwardable, regrouped, without_open_calls
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from tests.unit.making import assistant, build, stored, tool, user

LAMPS = "\n".join(f"lamp {n}: {n * 37 % 91} watt, made in {1900 + n % 90}, room {n % 14}" for n in range(900))
QUESTION = "What does the table say of lamp 712?"
ANSWER = "lamp 712: 45 watt"


def calling(name: str = "lamps", content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "function_call": {"name": name, "arguments": '{"all":1}'}}


def result(content: str, name: str = "lamps") -> dict[str, Any]:
    return {"role": "function", "name": name, "content": content}


def bodies(messages: Sequence[ConversationMessage]) -> list[dict[str, Any]]:
    return [message.body for message in messages]


def test_it_is_an_artifact_with_the_source_of_a_tools_result() -> None:
    talk = [user("a"), calling(), result("old"), assistant("b"), user("c"), calling("rooms"), result("new", "rooms")]
    old, new = extract_artifacts_from_messages(stored(talk), 4)
    assert (old.source, old.content, old.historical, old.arguments) == ("history:msg_2:lamps", "old", True, '{"all":1}')
    assert (new.source, new.content, new.historical, new.place.message) == ("step_1:rooms", "new", False, 6)


async def test_in_the_current_turn_it_is_reduced_to_what_the_question_asks_for() -> None:
    built = await build([user(QUESTION), calling(), result(LAMPS)], 2000)
    asked, call, shown = built.fitted.forwarded.messages
    assert (asked, call) == (user(QUESTION), calling())
    assert (shown["role"], shown["name"]) == ("function", "lamps")
    assert ANSWER in shown["content"]
    assert shown["content"].startswith('[Extract of tool result "lamps", id art_')
    assert [r.source for r in built.utilization.artifacts_processed] == ["step_1:lamps"]
    assert built.fitted.breakdown["artifacts"] > built.fitted.breakdown["current"]


async def test_in_history_it_is_reduced_too_and_quoted_in_the_block_where_its_turn_has_left() -> None:
    talk = [user("Get the lamps."), calling(), result(LAMPS), assistant("I have them.")]
    for more in ([], [user("And? " * 900), assistant("Well. " * 900)]):
        built = await build([*talk, *more, user(QUESTION)], 2500)
        assert ANSWER in str(built.fitted.forwarded.messages)
        assert built.fitted.tokens <= 2500


async def test_steps_that_leave_are_whole() -> None:
    steps = [each for n in range(60) for each in (calling(f"f{n}"), result(f"row {n} " + "x y z " * 30, f"f{n}"))]
    built = await build([user("Which row is 59?"), *steps], 1500)
    sent = built.fitted.forwarded.messages
    assert sent[0]["content"].endswith("Which row is 59?")
    assert len(sent) < len(steps)
    for call, shown in zip(sent[1::2], sent[2::2], strict=True):
        assert call["function_call"]["name"] == shown["name"]


@pytest.mark.parametrize("has_tools", [False, True])
def test_a_restored_step_is_shown_as_text_where_the_request_calls_nothing(has_tools: bool) -> None:
    path = [
        replace(message, message_id=f"msg_{n}")
        for n, message in enumerate(stored([user("a"), calling(content="I look."), result("found"), assistant("b")]))
    ]
    history = ConversationHistory("conv_1", False, (), (*path, *stored([user("c")])), stored=4, restored_count=4)
    shown = steps_as_text(history, without_block_items, has_tools=has_tools, origin=None)
    if has_tools:
        assert (shown.history, shown.artifacts) == (history, ())
        return
    assert bodies(shown.history.messages) == [user("a"), assistant("I look."), assistant("b"), user("c")]
    (artifact,) = shown.artifacts
    assert (artifact.content, artifact.title, artifact.call and artifact.call.arguments) == (
        "found", "lamps", '{"all":1}',
    )  # fmt: skip


def test_a_call_that_nobody_answered_is_not_restored() -> None:
    path = stored([user("a"), calling(content="I look."), user("b"), calling(), result("x"), assistant("c")])
    assert bodies(forwardable(path))[:2] == [user("a"), assistant("I look.")]
    assert bodies(forwardable(path))[2:] == bodies(path)[2:]
    assert bodies(without_open_calls(path[:2])) == [user("a"), assistant("I look.")]
    assert forwardable(path[:2]) == path[:2], "its result may be what comes next"


def test_what_the_client_sends_of_functions_is_its_own_affair() -> None:
    """There was never a rule that they come in pairs."""
    path = stored([user("a"), calling(), user("b"), result("by itself"), assistant("c"), calling()])
    assert forwardable(path, (), frozenset()) == path
    assert without_open_calls(path, frozenset()) == path


def test_results_go_back_to_the_call_that_another_turn_was_committed_behind() -> None:
    turn, other = [user("a"), calling()], [user("b"), assistant("c")]
    after = [result("x"), assistant("d")]
    assert bodies(regrouped(stored([*turn, *other, *after]))) == [*other, *turn, *after]
    done = [*turn, *after[:1], *other, result("a second one, of nobody's call")]
    assert bodies(regrouped(stored(done))) == done


def test_a_tool_of_the_same_name_is_not_the_function() -> None:
    assert bodies(forwardable(stored([user("a"), calling(), tool("lamps", "x"), user("b")]))) == [user("a"), user("b")]
