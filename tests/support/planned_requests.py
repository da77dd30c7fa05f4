"""Mixed requests whose contexts are planned, by internal models that have fates of their own."""

import random
from dataclasses import replace
from typing import Any

from tests.support.documents import lamps
from tests.support.edges import EDGES
from tests.support.http_server import Record
from tests.support.internal_models import Json, decision, plan_of, role_of, shown
from tests.support.mixed_requests import Provider, Request, configured_models, mixed
from tests.support.mock_upstream import MockUpstream
from tests.support.random_planner import RandomPlanner
from tests.support.reply import Reply

HELD = 30.0
"""Seconds: longer than anybody waits."""
LEFT_IN_PLANNING = {"planner": "left while planned", "summarizer": "left while summarized"}
PLANNER = "gpt-4o-mini"


def planned_models(upstream: MockUpstream) -> list[Json]:
    """`model_list` of mixed requests, and the planner and summarizer, with LiteLLM's prices."""
    params = {"model": f"openai/{PLANNER}", "api_base": upstream.base_url, "api_key": "sk-upstream"}
    return [*configured_models(upstream), {"model_name": PLANNER, "litellm_params": params}]


def planned(number: int, seed: int) -> list[Request]:
    """Mixed requests of all three APIs, most of them with documents, about which planners are asked; some are left in
    the midst of that.

    No two ask about the same document: whoever waits for another's summary is not at a known place when it leaves.
    """
    dice = random.Random(seed)
    found: list[Request] = []
    for request in mixed(number, seed, EDGES):
        if dice.random() < 0.1:
            found.append(request)
            continue
        fate = dice.choice([*LEFT_IN_PLANNING.values()]) if dice.random() < 0.12 else request.fate
        found.append(replace(request, fate=fate, options=_options(request, fate, dice)))
    return found


def _document(number: int, dice: random.Random) -> Json:
    return {"title": f"Report {number}", "content": f"Of request #{number} it says:\n\n{lamps(dice.randint(20, 60))}"}


def _options(request: Request, fate: str, dice: random.Random) -> Json:
    always = fate in LEFT_IN_PLANNING.values() or dice.random() < 0.6
    context: Json = {"mode": "auto", "planning": "always" if always else "auto"}
    if not always or dice.random() < 0.5:
        context["max_input_tokens"] = 3000  # less than the document takes, or little more
    options = {**request.options, "context": context, "attachments": [_document(request.number, dice)]}
    if fate == LEFT_IN_PLANNING["summarizer"] and not options["store"]:
        options.pop("tools", None)  # what goes on without being stored is told by ranges, which no summary has (ADR 12)
    return options


class PlannedProvider(Provider):
    """Plays planner and summarizer, too: well, badly, late, broken, or held until their client has left."""

    def __init__(self, requests: list[Request], seed: int) -> None:
        super().__init__(requests)
        self.planner = RandomPlanner(seed, late=HELD)
        self.asked: dict[str, list[Json]] = {"planner": [], "summarizer": []}
        self.unreported: list[Json] = []
        """Calls that had no answer with a usage, and cost their prompt all the same."""
        self._held: set[int] = set()

    def __call__(self, record: Record) -> Reply:
        """The reply to one call."""
        body: Json = record.body or {}
        role = role_of(body)
        if role == "primary":
            return super().__call__(record)
        self.asked[role].append(body)
        reply = self._internal(role, body)
        if reply.delay_first == HELD or reply.cut_after is not None or isinstance(reply.json, list):
            self.unreported.append(body)
        return reply

    def holds(self, request: Request) -> bool:
        """See `Provider`; the call may be one for its context."""
        return request.number in self._held or super().holds(request)

    def _internal(self, role: str, body: Json) -> Reply:
        request = self.request_of(body)
        if request.fate == LEFT_IN_PLANNING[role]:
            self._held.add(request.number)
            return Reply(text="{}", delay_first=HELD)
        if role == "summarizer":
            return self.planner.summarize(body["messages"][1]["content"])
        artifacts = shown(body)
        if request.fate == LEFT_IN_PLANNING["summarizer"]:
            return self.planner.answer(body, plan_of(*(_summary_of(a.artifact_id) for a in artifacts)))
        return self.planner.plan(artifacts)


def _summary_of(artifact_id: str) -> dict[str, Any]:
    return decision(artifact_id, "summarize", summarization_focus="focus 1")
