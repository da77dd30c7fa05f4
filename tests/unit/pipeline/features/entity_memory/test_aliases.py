"""By which words things are called, and which things a question names (guarantee §11.14)."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types.memory import (
    KEY_WORDS,
    MAX_ALIASES,
    MAX_LOOKUP_KEY_CHARS,
    MemoryEntity,
    as_line,
    is_line,
    lookup_key,
)
from gateway.pipeline.features.entity_memory import (
    aliases_of,
    named_by,
    phrases_of,
    question_words,
    ranked,
    runs_of,
    search_of,
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
