"""What a planner answers is read strictly where it keeps the schema, and tolerantly where it means well."""

import json
from typing import Any

import pytest

from gateway.context.planner import MAX_PLAN_CHARS, MAX_PRIORITY, InvalidPlan, read_plan
from gateway.core.types.artifacts import ProcessingStrategy
from tests.support.growth import is_linear

KNOWN = ("art_1", "art_2")


def entry(artifact_id: Any = "art_1", strategy: Any = "rag_extract", **more: Any) -> dict[str, Any]:
    return {"artifact_id": artifact_id, "strategy": strategy, "priority": 1, **more}


def answer(*artifacts: Any, queries: Any = (), **more: Any) -> str:
    return json.dumps({"artifacts": list(artifacts), "search_queries": list(queries), "reasoning": "r", **more})


def test_s5_a_plan_as_the_schema_says() -> None:
    first = entry(priority=2, extraction_query="late order", summarization_focus=None, relevance_rationale="has it")
    plan = read_plan(answer(first, entry("art_2", "exclude", priority=1), queries=["order 4411 is late"]), KNOWN)
    assert [d.artifact_id for d in plan.artifacts] == ["art_2", "art_1"]
    assert plan.artifacts[1].extraction_query == "late order"
    assert plan.search_queries == ("order 4411 is late",)
    assert plan.reasoning == "r"


@pytest.mark.parametrize(
    "wrapped",
    [
        "```json\n{}\n```",
        "Sure! Here is the plan:\n{}\nHope it helps.",
        "```\n{}```",
        "  {}  ",
        "```JSON\n{}\n```\nTell me where {it} is wrong.",
        "```\nls\n```\n```json\n{}\n```",
        '<think>Is it {"artifacts": []}, or {this}?</think>{}',
        '{"artifact_plan": {}}',
        "[{}]",
    ],
)
def test_s5_prose_around_a_plan_is_passed_over(wrapped: str) -> None:
    plan = read_plan(wrapped.replace("{}", answer(entry())), KNOWN)
    assert [d.artifact_id for d in plan.artifacts] == ["art_1"]


def test_s5_unknown_ids_are_dropped_and_the_first_of_two_entries_counts() -> None:
    plan = read_plan(answer(entry("art_9"), entry(strategy="exclude"), entry(strategy="include_full")), KNOWN)
    assert [(d.artifact_id, d.strategy) for d in plan.artifacts] == [("art_1", ProcessingStrategy.EXCLUDE)]


@pytest.mark.parametrize(
    "bad",
    [
        None,
        7,
        "art_1",
        [],
        entry(artifact_id=3),
        entry(strategy="keep it"),
        entry(strategy=None),
        {"strategy": "exclude"},
    ],
)
def test_s5_entries_of_wrong_types_are_dropped(bad: Any) -> None:
    plan = read_plan(answer(bad, entry("art_2")), KNOWN)
    assert [d.artifact_id for d in plan.artifacts] == ["art_2"]


@pytest.mark.parametrize(("given", "read"), [(3, 3), (0, 1), (-5, 1), (10**9, MAX_PRIORITY), ("1", MAX_PRIORITY)])
def test_s5_a_priority_is_a_number_within_bounds(given: Any, read: int) -> None:
    assert read_plan(answer(entry(priority=given)), KNOWN).artifacts[0].priority == read


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "planner_answer_no_json"),
        ("I would keep the first two.", "planner_answer_no_json"),
        ("[]", "planner_answer_no_json"),
        ("null", "planner_answer_no_json"),
        ('{"artifacts": [', "planner_answer_no_json"),
        ("{}", "planner_answer_rubbish"),
        (answer(entry("art_9")), "planner_answer_rubbish"),
        (answer(queries=["", "  ", 3]), "planner_answer_rubbish"),
        ("{" + " " * MAX_PLAN_CHARS + "}", "planner_answer_too_long"),
        ("[" * 100_000, "planner_answer_no_json"),
    ],
)
def test_s5_a_plan_that_names_no_known_artifact_and_brings_no_query_is_rubbish(text: str, reason: str) -> None:
    with pytest.raises(InvalidPlan, match=reason):
        read_plan(text, KNOWN)


def test_s5_queries_alone_are_a_plan_of_at_most_four() -> None:
    plan = read_plan(answer(queries=["a  b", "a b", "c", "d", "e", "f"]), KNOWN)
    assert plan.search_queries == ("a b", "c", "d", "e")
    assert read_plan('{"search_queries": "one passage"}', KNOWN).search_queries == ("one passage",)


def test_s5_a_list_of_decisions_is_a_plan() -> None:
    plan = read_plan(json.dumps([entry(), entry("art_2", "exclude")]), KNOWN)
    assert [d.artifact_id for d in plan.artifacts] == ["art_1", "art_2"]


@pytest.mark.parametrize(
    ("opening", "piece"),
    [("```", " "), ("", "{"), ("", '{"a":'), ("", "["), ("", "```a"), ("", "{} ")],
    ids=["fence never closed", "braces", "nested", "lists", "fences", "objects"],
)
def test_s5_no_answer_takes_long_to_be_found_rubbish(opening: str, piece: str) -> None:
    """It is read where streams of other requests are relayed; 200,000 blanks behind a fence took ten minutes."""

    def read(size: int) -> None:
        with pytest.raises(InvalidPlan):
            read_plan(opening + piece * (size // len(piece)), KNOWN)

    assert is_linear(read, MAX_PLAN_CHARS - 10)
