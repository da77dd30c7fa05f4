"""What tools tell of things (guarantee §11.15, ADR 24)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types.conversation import ConversationMessage, new_message
from gateway.core.types.memory import MAX_ID_CHARS, MAX_NAME_CHARS, MAX_TYPE_CHARS, is_line
from gateway.pipeline.features.entity_memory import MAX_OF_RESULT, singular, things_of, things_of_steps

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
