"""Planner and summarizer of the mock upstream: scripted, told apart from primary calls by what they are asked."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_server import Record
from tests.support.reply import Reply

Json = dict[str, Any]
PLANS, SUMMARIZES = "You plan what another model", ("You summarize one document", "You summarize the oldest turns")
SHOWN = re.compile(r'^\{"artifact_id":"[^\n]*\}$', re.MULTILINE)


@dataclass(frozen=True)
class Shown:
    """One artifact as a planner is shown it."""

    artifact_id: str
    source: str
    preview: str


@dataclass
class InternalModels:
    """To be the `handler` of a `MockUpstream`. `planner` and `summarizer` make replies of what they are asked; what is
    asked of the primary model is answered by `primary`, else echoed."""

    planner: Callable[[list[Shown]], Reply]
    summarizer: Callable[[str], Reply] = lambda text: Reply(text="A short summary.")
    primary: Callable[[Json], Reply | None] = lambda body: None
    planned: list[Json] = field(default_factory=list)
    summarized: list[Json] = field(default_factory=list)
    answered: list[Json] = field(default_factory=list)

    def __call__(self, record: Record) -> Reply | None:
        body: Json = record.body or {}
        match role_of(body):
            case "planner":
                self.planned.append(body)
                return self.planner(shown(body))
            case "summarizer":
                self.summarized.append(body)
                return self.summarizer(body["messages"][1]["content"])
        self.answered.append(body)
        return self.primary(body)


def role_of(body: Json) -> str:
    """`planner`, `summarizer` or `primary`, by the system message."""
    first = (body.get("messages") or [{}])[0]
    said = first.get("content") if first.get("role") == "system" else ""
    text = said if isinstance(said, str) else ""
    return "planner" if text.startswith(PLANS) else "summarizer" if text.startswith(SUMMARIZES) else "primary"


def shown(body: Json) -> list[Shown]:
    """The artifacts in a planner's prompt, in their order."""
    prompt = body["messages"][1]["content"]
    found = []
    for match in SHOWN.finditer(prompt):
        head = json.loads(match.group())
        preview = prompt[match.end() :].partition("<preview>\n")[2].partition("\n</preview>")[0]
        found.append(Shown(head["artifact_id"], head["source"], preview))
    return found


def decision(artifact_id: str, strategy: str, priority: int = 1, **more: Any) -> Json:
    """One entry of a plan, as the strict schema wants it."""
    blank = {"relevance_rationale": "", "summarization_focus": None, "extraction_query": None}
    return {"artifact_id": artifact_id, "strategy": strategy, "priority": priority, **blank, **more}


def plan_of(*decisions: Json, queries: tuple[str, ...] = ()) -> Reply:
    """A plan as an honest planner answers it."""
    plan = {"artifacts": list(decisions), "search_queries": list(queries), "reasoning": "scripted"}
    return Reply(text=json.dumps(plan))


def every(strategy: str, *, queries: tuple[str, ...] = (), **more: Any) -> Callable[[list[Shown]], Reply]:
    """A planner that gives every artifact the same strategy."""

    def plan(artifacts: list[Shown]) -> Reply:
        return plan_of(
            *(decision(a.artifact_id, strategy, n, **more) for n, a in enumerate(artifacts, 1)), queries=queries
        )

    return plan
