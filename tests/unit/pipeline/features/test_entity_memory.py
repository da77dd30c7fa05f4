"""By which words things are called and questions name them (guarantee §11.14), what tools tell of them (§11.15, ADR
24), and when their memory is asked, and for what (§11.16)."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.request.validation import RequestArrival, parse_chat_request
from gateway.core.config.settings import Settings
from gateway.core.errors import StorageUnavailable
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.conversation import ConversationHistory, ConversationMessage, new_message
from gateway.core.types.memory import (
    KEY_WORDS,
    MAX_ALIASES,
    MAX_ID_CHARS,
    MAX_LOOKUP_KEY_CHARS,
    MAX_NAME_CHARS,
    MAX_TYPE_CHARS,
    MemoryEntity,
    SearchPhrases,
    as_line,
    is_line,
    lookup_key,
)
from gateway.pipeline.features.entity_memory import (
    MAX_OF_RESULT,
    aliases_of,
    named_by,
    phrases_of,
    question_words,
    ranked,
    runs_of,
    search_of,
    singular,
    things_of,
    things_of_steps,
    with_things,
    words_of,
)

NOW = datetime(2026, 1, 30, tzinfo=UTC)


def thing(kind: str, thing_id: str, name: str, age: int = 0, aliases: tuple[str, ...] = ()) -> MemoryEntity:
    at = NOW - timedelta(days=age)
    every = aliases_of(kind, thing_id, name, aliases)
    return MemoryEntity(f"mem_{thing_id}", "conversation", "conv_1", kind, thing_id, name, every, "created", 1, at, at)


def names(question: str, *things: MemoryEntity) -> list[str]:
    return [each.thing_id for each in named_by(question, things)]


TASKS = thing("workflow", "wf_12", "Task Management")


def test_the_aliases_of_the_sources_example() -> None:
    """Source: "Task Management" -> "task management", "my task", "task management workflow"."""
    assert {"task management", "my task", "task management workflow", "my task workflow"} <= set(TASKS.aliases)


@pytest.mark.parametrize(
    "question",
    [
        "update my task workflow",
        "Show Task-Management!",
        "TASK_MANAGEMENT, please",
        "the task management workflow",
        "what became of wf_12?",
        "ｔａｓｋ management",
    ],
)
def test_a_question_names_it_however_it_is_written(question: str) -> None:
    assert names(question, TASKS) == ["wf_12"]


@pytest.mark.parametrize("question", ["create a task", "management by walking about", "which workflow?", "wf 1 2"])
def test_other_words_do_not_name_it(question: str) -> None:
    assert names(question, TASKS) == []


@pytest.mark.parametrize(
    ("kind", "thing_id", "name", "question", "is_named"),
    [
        ("order", "7", "7", "7 lamps, please", False),
        ("order", "7", "7", "where is order 7", True),
        ("order", "4711", "4711", "what about 4711?", True),
        ("file", "src/main.py", "main.py", "the main reason", False),
        ("file", "src/main.py", "main.py", "open main.py", True),
        ("file", "src/main.py", "main.py", "open the main file", True),
        ("file", "q/report_q3.pdf", "report_q3.pdf", "what does the report q3 say", True),
        ("workflow", "w1", "The", "update the workflow", False),
        ("workflow", "w1", "A", "create a workflow", False),
        ("workflow", "w1", "任务管理", "请更新任务管理", True),
        ("workflow", "w1", "Lampenverwaltung für Köln", "zeig die lampenverwaltung für köln", True),
        ("workflow", "w1", "ניהול משימות", "עדכן ניהול משימות", True),
        ("doc", "d1", "The quarterly report on lamps", "the quarterly report on lamps", True),
        ("doc", "d1", "The quarterly report on lamps", "the quarterly report on chairs", False),
    ],
)
def test_what_may_name_a_thing(kind: str, thing_id: str, name: str, question: str, is_named: bool) -> None:
    assert names(question, thing(kind, thing_id, name)) == ([thing_id] if is_named else [])


def test_words_that_name_one_thing_do_not_name_others_by_fewer_of_them() -> None:
    numbered = [thing("workflow", f"w{number}", f"Workflow {number}") for number in range(8)]
    assert names("update my workflow 5", *numbered) == ["w5"]
    assert len(names("update my workflow", *numbered)) == 5


def test_among_equals_the_latest_comes_first() -> None:
    old, new = thing("workflow", "w1", "Task Lists", age=3), thing("workflow", "w2", "Task Boards", age=1)
    assert names("update my task workflow", old, new) == ["w2", "w1"]


def test_of_one_thing_in_two_places_the_later_note_counts() -> None:
    old, new = thing("workflow", "w1", "Task Lists", age=3), thing("workflow", "w1", "Task Boards", age=1)
    assert [each.name for each in named_by("my task workflow", [new, old])] == ["Task Boards"]


def test_a_search_prefers_what_is_named_and_knows_single_words() -> None:
    lists = thing("workflow", "w1", "Task Lists", age=1)
    assert [each.thing_id for each in ranked("task management", [lists, TASKS])] == ["wf_12", "w1"]
    assert search_of("task management").words == ("task", "management")


@given(st.text(max_size=300), st.text(min_size=1, max_size=60), st.lists(st.text(max_size=60), max_size=16))
def test_any_name_is_called_by_aliases_that_a_question_can_hold(
    question: str, name: str, given_aliases: list[str]
) -> None:
    """What is looked up for a question that holds an alias leads to it; nothing is without bounds."""
    found = aliases_of("workflow", "wf_1", name, given_aliases)
    assert len(found) <= MAX_ALIASES
    for alias in found:
        assert alias.split(" ") == words_of(alias)
        looked_up = runs_of(words_of(f"{alias} x"))
        assert lookup_key(alias) in looked_up
        assert len(lookup_key(alias)) <= MAX_LOOKUP_KEY_CHARS
    assert all(len(run.split(" ")) <= KEY_WORDS for run in phrases_of(question).whole)


def test_a_long_question_is_looked_at_where_it_begins_and_ends() -> None:
    words = question_words("first things " + "filler words " * 100_000 + "last things")
    assert len(words) < 200
    assert ("first things" in runs_of(words), "last things" in runs_of(words)) == (True, True)


@pytest.mark.parametrize("text", ["", " ", "a\nb", "a\x00", "a\u2028b", "a\u202eb", "\ud800", "x" * 11])
def test_what_is_no_line(text: str) -> None:
    assert not is_line(text, 10)
    made = as_line(text, 10)
    assert made == "" or is_line(made, 10)


def test_lines_of_any_script_are_lines() -> None:
    assert all(is_line(text, 20) for text in ("חתול", "نرم\u200cافزار", "👩\u200d🔧", "a b"))


Noted = tuple[str, str, str | None, str]


def told(tool: str, arguments: Any, result: Any) -> list[Noted]:
    texts = (each if isinstance(each, str) else json.dumps(each) for each in (arguments, result))
    return [(note.type, note.thing_id, note.name, note.action) for note in things_of(tool, *texts)]


@pytest.mark.parametrize(
    ("tool", "arguments", "result", "noted"),
    [
        ("create_workflow", {"name": "Tasks"}, {"id": "w1"}, [("workflow", "w1", "Tasks", "created")]),
        ("create_workflow_from_description", {}, {"id": "w1", "name": "T"}, [("workflow", "w1", "T", "created")]),
        ("createPurchaseOrder", {}, {"purchase_order_id": 7}, [("purchase_order", "7", None, "created")]),
        ("github.create_issue", {"title": "Bug"}, {"number": 12}, [("issue", "12", "Bug", "created")]),
        ("orders.list", {}, [{"id": "a"}, {"id": "b"}], [("order", x, None, "discussed") for x in "ab"]),
        ("workflow_create", {}, {"data": {"id": "w1"}}, [("workflow", "w1", None, "created")]),
        (
            "search_tickets",
            {"name": "x"},
            {"results": [{"key": "T-1", "title": "A"}]},
            [("ticket", "T-1", "A", "discussed")],
        ),
        ("list_workflows", {}, {"workflows": [{"spec_id": "w1", "name": "A"}]}, [("workflow", "w1", "A", "discussed")]),
        ("get_order_by_id", {"order_id": "4711"}, "on its way", [("order", "4711", None, "discussed")]),
        ("rename_workflow", {"id": "w1", "new_name": "B"}, {"ok": True}, [("workflow", "w1", "B", "modified")]),
        (
            "update_workflow",
            {"workflow_id": "w1"},
            {"workflow": {"id": "w1", "name": "C"}},
            [("workflow", "w1", "C", "modified")],
        ),
        ("delete_workflow", {"id": "w1"}, "", [("workflow", "w1", None, "deleted")]),
        ("read_file", {"path": "src/a.py"}, "import os", [("file", "src/a.py", "a.py", "discussed")]),
        ("write_file", {"file_path": "C:\\x\\b.txt"}, "ok", [("file", "C:\\x\\b.txt", "b.txt", "modified")]),
        ("run_checks", {"path": "a.py"}, "fine", [("file", "a.py", "a.py", "discussed")]),
        ("create_workflow", {"name": "Tasks"}, "Created.", []),
        ("create_workflow", {"name": "Tasks"}, {"error": "no room", "id": "w1"}, []),
        ("create_workflow", {"name": "Tasks"}, {"success": False, "id": "w1"}, []),
        ("read_file", {"path": "a.py"}, "Error: no such file", []),
        ("run_query", {"sql": "x"}, {"id": 1}, []),
        ("bash", {"command": "ls"}, "a b", []),
        ("get_weather", {"city": "Paris"}, {"temperature": 20}, []),
        ("create_workflow", "not json", "[1, null, {}]", []),
        ("get_order", [1], {"id": True}, []),
        ("get_order", {}, {"id": "a\nb"}, []),
        ("", {}, {"id": 1}, []),
    ],
)
def test_the_rules(tool: str, arguments: Any, result: Any, noted: list[Noted]) -> None:
    assert told(tool, arguments, result) == noted


@pytest.mark.parametrize(
    ("word", "one"),
    [
        ("orders", "order"),
        ("queries", "query"),
        ("boxes", "box"),
        ("classes", "class"),
        ("status", "status"),
        ("glass", "glass"),
    ],
)
def test_singulars(word: str, one: str) -> None:
    assert singular(word) == one


def test_one_result_notes_a_few_things_with_names_of_one_line() -> None:
    many = [{"id": str(number), "name": "n\n" * 500} for number in range(1000)]
    assert things_of("list_orders", "{}", json.dumps(many)) == []  # too long to be read
    found = things_of("list_orders", "{}", json.dumps(many[:10] + many[:5] + [{"id": "z" * 10_000}]))
    assert len(found) == MAX_OF_RESULT
    assert all(note.name and is_line(note.name, MAX_NAME_CHARS) for note in found)


def test_results_find_their_calls_and_only_new_ones_are_noted() -> None:
    """Calls of one message are answered by several; those of earlier requests have been noted."""
    names = ("call_a", "call_b")
    calls = [{"id": name, "type": "function", "function": {"name": "get_order", "arguments": "{}"}} for name in names]
    bodies: list[dict[str, Any]] = [
        {"role": "user", "content": "Which?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_a", "content": '{"id": "a"}'},
        {"role": "tool", "tool_call_id": "call_b", "content": '{"id": "b"}'},
        {"role": "tool", "tool_call_id": "call_c", "content": '{"id": "c"}'},
    ]
    messages: list[ConversationMessage] = [new_message(body) for body in bodies]
    assert [note.thing_id for note in things_of_steps(messages, 2)] == ["a", "b"]
    assert [note.thing_id for note in things_of_steps(messages, 3)] == ["b"]
    assert things_of_steps(messages, 5) == ()
    assert things_of_steps([], 0) == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "name", "order", "data", "error", "results", "path"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(st.sampled_from(["get_order", "create_order", "list_orders", "delete_order", "x", "read_file"]), JSON, JSON)
def test_whatever_a_tool_says_is_a_note_within_bounds_or_none(tool: str, arguments: Any, result: Any) -> None:
    for note in things_of(tool, json.dumps(arguments), json.dumps(result)):
        assert is_line(note.thing_id, MAX_ID_CHARS)
        assert len(note.type) <= MAX_TYPE_CHARS
        assert note.name is None or is_line(note.name, MAX_NAME_CHARS)


ALIASES = aliases_of("workflow", "wf_12", "Task Management")
REMEMBERED = MemoryEntity(
    "mem_1", "user", None, "workflow", "wf_12", "Task Management", ALIASES, "created", 1, NOW, NOW
)
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


class Reader:
    """A memory that knows one thing, and notes what it is asked (adapter of `EntityReader`)."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.asked: list[tuple[list[str], SearchPhrases]] = []
        self._fault = fault

    async def place_of(self, tenant: str, user: str) -> str:
        return f"user_{tenant}_{user}"

    async def recall(self, tenant: str, places: list[str], phrases: SearchPhrases) -> tuple[MemoryEntity, ...]:
        self.asked.append((places, phrases))
        if self._fault is not None:
            raise self._fault
        return (REMEMBERED,)


def asked(memory: Any = None, **fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "Update my task workflow"}], **fields}
    if memory is not None:
        body["memory"] = memory
    return parse_chat_request(body, {}, RequestCaller("t"), Settings(), RequestArrival("req_1", NOW, 0.0, 100))


def history(request: ChatRequest, *before: ConversationMessage, **more: Any) -> ConversationHistory:
    messages = (*before, *(new_message(dict(body)) for body in request.messages))
    found = ConversationHistory("conv_1", created=False, instructions=(), messages=messages, stored=len(before))
    return replace(found, **more)


def said(body: dict[str, Any]) -> ConversationMessage:
    return replace(new_message(body), message_id="msg_1")


@pytest.mark.parametrize(
    ("request_", "more", "places"),
    [
        (asked(), {}, None),
        (asked({"things": False}), {}, None),
        (asked({}, context={"mode": "off"}), {}, None),
        (asked({}), {"created": True}, None),
        (asked({}), {"unproven": True}, None),
        (asked({}), {}, ["conv_1"]),
        (asked({"scope": "user"}, user="ann"), {}, ["conv_1", "user_t_ann"]),
        (asked({"scope": "user"}, safety_identifier="ann"), {"created": True}, ["user_t_ann"]),
        (asked({}, user="ann"), {"created": True}, None),
    ],
)
async def test_the_storage_is_asked_once_where_there_is_anything_to_read(
    request_: ChatRequest, more: dict[str, Any], places: list[str] | None
) -> None:
    reader = Reader()
    found = await with_things(request_, history(request_, **more), reader)
    assert [place for place, _ in reader.asked] == ([places] if places else [])
    assert found.things == ((REMEMBERED,) if places else ())


async def test_without_the_storage_the_question_goes_on_alone() -> None:
    request, reader = asked({}), Reader(StorageUnavailable("away"))
    assert (await with_things(request, history(request), reader)).things == ()
    assert len(reader.asked) == 1


async def test_a_later_step_keeps_the_block_of_the_first() -> None:
    """§4 I6: the question is stored, so nothing is looked up for it again."""
    request, reader = asked({}), Reader()
    messages = (
        said({"role": "user", "content": "my task workflow"}),
        said({"role": "assistant", "tool_calls": [CALL]}),
    )
    step = ConversationHistory("conv_1", created=False, instructions=(), messages=messages, stored=2)
    assert (await with_things(request, step, reader)).things == ()
    assert not reader.asked


async def test_an_agent_with_sections_is_told_by_what_was_said_last() -> None:
    """§11.2: another agent's message may be delivered; what it said beside its tool calls is no question."""
    request, reader = asked({}, agent={"id": "max", "type": "claude-code"}), Reader()
    messages = (
        said({"role": "user", "content": "Which one?"}),
        said({"role": "assistant", "content": "My task workflow."}),
        said({"role": "assistant", "content": "I look.", "tool_calls": [CALL]}),
        said({"role": "tool", "tool_call_id": "c", "content": "found"}),
    )
    given = ConversationHistory("conv_1", created=False, instructions=(), messages=messages, stored=4)
    assert (await with_things(request, given, reader)).things == (REMEMBERED,)
    assert "my task workflow" in reader.asked[0][1].whole
