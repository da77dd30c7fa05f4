"""What in a request is an artifact, and how its source is named (guarantee §4, §6): results of functions, as they were
called before there were tools (§3.3), and documents by the names that stand around them, too."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.context.artifacts.collect import (
    attachments_to_artifacts,
    current_turn,
    documents_in_messages,
    extract_artifacts_from_messages,
    steps_as_text,
    title_of,
    unique_ids,
)
from gateway.context.assembly.shown_block import without_block_items
from gateway.conversations.message_forms import forwardable, regrouped, without_open_calls
from gateway.core.types.artifacts import Artifact, ArtifactType, RequestAttachment
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.core.types.tool_steps import text_of
from tests.support.answers import text_part
from tests.support.growth import is_linear
from tests.unit.making import assistant, build, history, stored, tool, user

LONG = "\n".join(f"row {n} of the document" for n in range(600))
TALK = [
    user("q1"), assistant(None, "a", "b", name="search"), tool("b", "two"), tool("a", "one"), assistant("a1"),
    user("q2"), assistant(None, "a", name="fetch"), tool("a", "three"), assistant("more", "c", name="search"),
    tool("c", "four"),
]  # fmt: skip


def test_tool_results_are_named_by_message_in_history_and_by_step_in_the_turn_under_way() -> None:
    found = extract_artifacts_from_messages(stored(TALK), 5)
    assert [(a.source, a.content, a.title, a.historical, a.place.message) for a in found] == [
        ("history:msg_2:search", "two", "search", True, 2),
        ("history:msg_3:search", "one", "search", True, 3),
        ("step_1:fetch", "three", "fetch", False, 7),
        ("step_2:search", "four", "search", False, 9),
    ]
    assert all(a.artifact_type is ArtifactType.TOOL_RESULT and a.size_chars == len(a.content) for a in found)


def test_ids_are_stable_for_the_same_content_and_apart_within_a_request() -> None:
    one, other = extract_artifacts_from_messages(stored([assistant(None, "a", "b"), tool("a", "x"), tool("b", "x")]), 0)
    assert one.artifact_id == other.artifact_id
    first, second = unique_ids([one, other])
    assert first.artifact_id == one.artifact_id
    assert second.artifact_id == one.artifact_id + "-2"
    assert attachments_to_artifacts([RequestAttachment(content="x")])[0].artifact_id == one.artifact_id


def test_the_same_text_has_the_same_id_wherever_it_stands() -> None:
    fenced = f"Look:\n```text\n{LONG}\n```\nWhat?"
    file = [{"type": "file", "file": {"filename": "a.txt"}}, text_part("?")]
    found = [
        *extract_artifacts_from_messages(stored([assistant(None, "a"), tool("a", LONG)]), 0),
        *extract_artifacts_from_messages(stored([assistant(None, "a"), tool("a", [text_part(LONG)])]), 0),
        *attachments_to_artifacts([RequestAttachment(content=f"{LONG}\n")]),
        *documents(fenced),
        *documents(f"<doc>\n{LONG}\n</doc> What?"),
        *documents([text_part(LONG), text_part("What?")]),
        *documents(file, files={(0, 0): f"{LONG}\r\n"}),
    ]
    assert len(found) == 7
    assert len({a.artifact_id for a in found}) == 1


def test_what_turns_up_later_does_not_change_the_names_of_what_was_there() -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    (attached,) = attachments_to_artifacts([RequestAttachment(content="x")])
    (result,) = extract_artifacts_from_messages(stored([assistant(None, "a"), tool("a", "x")]), 0)
    old, new = replace(attached, timestamp=early), replace(result, timestamp=late)
    for turns_up in (result, new):
        first, second = unique_ids([turns_up, old])
        assert (first.artifact_id, second.artifact_id) == (f"{old.artifact_id}-2", old.artifact_id)
    first, second = unique_ids([replace(result, timestamp=early), attached])
    assert (first.artifact_id, second.artifact_id) == (result.artifact_id, f"{result.artifact_id}-2")
    assert second.block_name == attached.block_name


def test_a_result_knows_what_was_asked_of_its_tool() -> None:
    call = assistant(None, "a", "a", name="grep", arguments='{"pattern": "one"}')
    call["tool_calls"][1]["function"]["arguments"] = '{"pattern": "two"}'
    custom = {"role": "assistant", "tool_calls": [{"id": "c", "custom": {"name": "sh", "input": "ls -l"}}]}
    talk = [call, tool("a", "1"), tool("a", "2"), custom, tool("c", "3"), tool("lost", "4")]
    found = extract_artifacts_from_messages(stored(talk), 0)
    assert [a.search_label for a in found] == ['grep {"pattern": "one"}', 'grep {"pattern": "two"}', "sh ls -l", "tool"]


def test_a_document_in_a_message_has_its_title() -> None:
    (found,) = documents(f"<file path='rows.txt'>\n{LONG}\n</file>\nWhat?")
    assert found.title == "rows.txt"


def test_attachments_are_counted_through_the_conversation() -> None:
    sent = [RequestAttachment(content="a", title="T"), RequestAttachment(content="b", source="https://x")]
    found = attachments_to_artifacts(sent, 3)
    assert [(a.source, a.title, a.content) for a in found] == [
        ("attachment:3:T", "T", "a"), ("attachment:4:https://x", "https://x", "b"),
    ]  # fmt: skip
    assert found[0].metadata["attachment_type"] == "document"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([text_part("a"), text_part("b")], "a\nb"),
        ([{"type": "image_url", "image_url": {}}, text_part("b")], "b"),
        (None, ""),
        ([], ""),
        (["odd"], ""),
    ],
)
def test_the_text_of_a_result_is_its_text_parts(content: Any, text: str) -> None:
    assert text_of(content) == text


@pytest.mark.parametrize(
    ("messages", "current"),
    [
        ([user("a")], 0),
        ([user("a"), assistant("b"), user("c")], 2),
        (TALK, 5),
        ([user("a"), assistant(None, "c"), tool("c", "x")], 0),
        ([assistant("hello")], 0),
        ([], 0),
    ],
)
def test_the_turn_under_way_begins_with_the_last_user_message(messages: list[dict[str, Any]], current: int) -> None:
    assert current_turn(history(messages)) == current


def documents(content: Any, current: int = 0, files: dict[tuple[int, int], str] | None = None) -> list[Artifact]:
    return documents_in_messages(stored([user(content)]), current, 8000, files or {})


def test_a_document_in_a_message_knows_its_place_so_that_it_can_be_replaced() -> None:
    content = f"Read:\n\n{LONG}\n\nWhat?"
    (found,) = documents(content)
    assert found.place.span is not None
    start, end = found.place.span
    assert content[start:end] == found.content == LONG
    assert found.source == f"document:{start}-{end}"
    assert (found.historical, found.place.message, found.place.part) == (False, 0, None)


def test_documents_of_earlier_turns_are_named_by_their_message() -> None:
    (found,) = documents_in_messages(stored([user(f"R\n\n{LONG}\n\nW"), user("q")]), 1, 8000, {})
    assert found.source.startswith("history:msg_0:document:")
    assert found.historical


def test_a_text_part_beside_the_question_is_a_document_and_the_question_is_not() -> None:
    (found,) = documents([text_part(LONG), text_part("What?")])
    assert (found.place.part, found.place.span, found.content) == (0, (0, len(LONG)), LONG)


@pytest.mark.parametrize("text", ["text of it", ""])
def test_a_file_is_an_artifact_with_its_name_where_its_text_is_known(text: str) -> None:
    part = {"type": "file", "file": {"filename": "a.md", "file_data": "…"}}
    (found,) = documents([part, text_part("?")], files={(0, 0): text})
    assert (found.title, found.content, found.place.part, found.place.span) == ("a.md", text, 0, None)
    assert found.source == f"file:{found.artifact_id}"
    assert documents([part]) == []


def test_the_users_own_words_are_no_artifact() -> None:
    assert documents("short") == []
    assert documents([text_part("short"), {"type": "image_url", "image_url": {}}]) == []
    assert documents_in_messages(stored([assistant(f"a\n\n{LONG}\n\nb")]), 0, 8000, {}) == []


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


BODY = "the content"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (f'<document title="Lamps &amp; oil">{BODY}</document>', "Lamps & oil"),
        (f"<file path='src/a b.py' id=\"7\">\n{BODY}\n</file>", "src/a b.py"),
        (f'<doc id="7">{BODY}</doc>', "7"),
        (f"<doc>{BODY}</doc>", None),
        (f'<document><source>a.txt</source>\n<document_content>\n{BODY}</document_content></document>', "a.txt"),
        (f"<document><title>T</title> {BODY}</document>", "T"),
        (f"```python\n{BODY}\n```", None),
        (f"```src/app.py\n{BODY}\n```", "src/app.py"),
        (f'```python title="app.py"\n{BODY}\n```', "app.py"),
        (f"```12:40:src/app.py\n{BODY}\n```", "src/app.py"),
        (f"Here is `orders.csv`:\n```\n{BODY}\n```", "orders.csv"),
        (f"### notes.md\n\n~~~text\n{BODY}\n~~~", "notes.md"),
        (f"My list (lamps.csv):\n\n{BODY}\n\nWhat?", "lamps.csv"),
        (f"Please read this. It is 3.14 long.\n\n{BODY}\n\nWhat?", None),
        (f'<document title="">{BODY}</document>', None),
        (f'<document title="{"x" * 300}">{BODY}</document>', "x" * 100),
        (BODY, None),
    ],
)  # fmt: skip
def test_the_name_of_a_document_in_a_message(text: str, title: str | None) -> None:
    start = text.index("<title>") if "<title>" in text else text.index(BODY)
    assert title_of(text, (start, text.index(BODY) + len(BODY))) == title


@pytest.mark.parametrize("piece", ["<", "<a ", "a.", "`", "'", '="', "<title>", "[", "/", " x=", "\n```", "./\\"])
def test_s7_no_text_takes_long_to_look_through(piece: str) -> None:
    def look(count: int) -> None:
        text = piece * count
        title_of(text, (len(text) // 2, len(text)))

    assert is_linear(look, 20_000)
