"""Reads a planner's answer: strictly where it keeps the schema, tolerantly where it means well (guarantee §5)."""

import json
from collections.abc import Collection, Iterator
from typing import Any

from gateway.base import jsons
from gateway.models.artifacts import MAX_QUERIES, ArtifactDecision, ArtifactPlan, ProcessingStrategy

MAX_ANSWER_CHARS = 200_000
"""Many times what a planner may answer; a longer answer is not searched for a plan."""
MAX_QUERY_CHARS = 1000
"""Of one search query: a passage, not a document."""
MAX_TEXT_CHARS = 500
"""Of rationale, focus and extraction query: they go into prompts and metadata."""
MAX_PRIORITY = 1000
"""The last; also of a decision without a usable one."""
MAX_OBJECTS_TRIED = 8
"""At so many braces of an answer a plan is looked for: each costs one reading of the rest."""
THOUGHTS_END = "</think>"
DECODER = json.JSONDecoder()
STRATEGIES = {  # the schema's names, and those that models without a schema use
    "full": ProcessingStrategy.INCLUDE_FULL,
    "include": ProcessingStrategy.INCLUDE_FULL,
    "summary": ProcessingStrategy.SUMMARIZE,
    "summarise": ProcessingStrategy.SUMMARIZE,
    "extract": ProcessingStrategy.RAG_EXTRACT,
    "rag": ProcessingStrategy.RAG_EXTRACT,
    "omit": ProcessingStrategy.EXCLUDE,
} | {each.value: each for each in ProcessingStrategy}


class InvalidPlan(ValueError):
    """The planner's answer cannot be used; the message is the `fallback_reason`."""


def read_plan(text: str, known: Collection[str]) -> ArtifactPlan:
    """The plan in a planner's answer, its decisions by priority.

    Unknown ids are dropped, of two entries for one id the first counts, fields of the wrong type are as if they were
    not there.

    Raises:
        InvalidPlan: it is no JSON object, or names no known artifact and brings no query.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise InvalidPlan("planner_answer_too_long")
    value = _object(text)
    if value is None:
        raise InvalidPlan("planner_answer_no_json")
    decisions: dict[str, ArtifactDecision] = {}
    entries = value.get("artifacts")
    for entry in entries if isinstance(entries, list) else ():
        decision = _decision(entry, known)
        if decision is not None:
            decisions.setdefault(decision.artifact_id, decision)
    queries = _queries(value.get("search_queries"))
    if not decisions and not queries:
        raise InvalidPlan("planner_answer_rubbish")
    ordered = sorted(decisions.values(), key=lambda decision: decision.priority)
    return ArtifactPlan(artifacts=tuple(ordered), search_queries=queries, reasoning=_text(value.get("reasoning")) or "")


def is_plan(text: str, known: Collection[str]) -> bool:
    """Whether a planner's answer can be used."""
    try:
        read_plan(text, known)
    except InvalidPlan:
        return False
    return True


def _object(text: str) -> dict[str, Any] | None:
    """The plan that an answer is, or the last object in it that looks like one, whatever is said and thought before;
    else any object."""
    found = [value for value in map(_unwrapped, _values(text)) if isinstance(value, dict)]
    plans = [value for value in found if "artifacts" in value or "search_queries" in value]
    return next(reversed(plans or found), None)


def _values(text: str) -> Iterator[Any]:
    """The JSON values in an answer, from the first braces on. No part is read twice, so that no answer takes long."""
    try:
        yield jsons.loads(text)
        return
    except jsons.JSONDecodeError:
        pass
    at = text.rfind(THOUGHTS_END) + 1  # what comes after the thoughts, else all of it
    for _ in range(MAX_OBJECTS_TRIED):
        at = text.find("{", at)
        if at < 0:
            return
        end = at + 1
        try:
            _, end = DECODER.raw_decode(text, at)
            yield jsons.loads(text[at:end])
        except (ValueError, RecursionError):
            end = at + 1
        at = end


def _unwrapped(value: Any) -> Any:
    """A plan without what models without a schema like to put it in: its name, or a list."""
    if isinstance(value, list):
        entries = [item for item in value if isinstance(item, dict)]
        return {"artifacts": entries} if entries and "artifact_id" in entries[0] else next(iter(entries), None)
    if isinstance(value, dict) and len(value) == 1:
        (inner,) = value.values()
        return inner if isinstance(inner, dict) else value
    return value


def _decision(entry: Any, known: Collection[str]) -> ArtifactDecision | None:
    if not isinstance(entry, dict):
        return None
    artifact_id, named = entry.get("artifact_id"), entry.get("strategy")
    strategy = STRATEGIES.get(named.strip().lower()) if isinstance(named, str) else None
    if not isinstance(artifact_id, str) or artifact_id not in known or strategy is None:
        return None
    given = entry.get("priority")
    priority = given if isinstance(given, int) and not isinstance(given, bool) else MAX_PRIORITY
    return ArtifactDecision(
        artifact_id=artifact_id,
        strategy=strategy,
        priority=min(MAX_PRIORITY, max(1, priority)),
        relevance_rationale=_text(entry.get("relevance_rationale")) or "",
        summarization_focus=_text(entry.get("summarization_focus")),
        extraction_query=_text(entry.get("extraction_query")),
    )


def _queries(value: Any) -> tuple[str, ...]:
    """Up to four, each once; a single text is one query."""
    given = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = [" ".join(item.split())[:MAX_QUERY_CHARS] for item in given if isinstance(item, str)]
    return tuple(dict.fromkeys(filter(None, texts)))[:MAX_QUERIES]


def _text(value: Any) -> str | None:
    """One line, cut at its longest; None for an empty text or what is none."""
    return (" ".join(value.split())[:MAX_TEXT_CHARS] or None) if isinstance(value, str) else None
