"""A past request made again without its model: what would be forwarded with an artifact in full, and what it would
cost (guarantee §13.3).

It is a dry run behind the message that the request went on from, with the window it had and the plan of its planner.
No model is asked, and nothing is stored. What is not stored of a request (its tools, its parameters) it does not have;
names stand for the tools.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from pydantic import ValidationError

from gateway.errors import GatewayError
from gateway.explain.artifacts import FULL, ExplainedArtifact
from gateway.explain.messages import MessageChange, compared
from gateway.explain.request import ExplainedRequest, StoredRequest
from gateway.history.replay import single_request
from gateway.http.conversations.replay_request import RequestMaker
from gateway.http.ui.parts import PageParts
from gateway.models.agents import CHAT
from gateway.models.artifacts import ArtifactPlan
from gateway.models.conversation import BranchPoint
from gateway.models.exchange import Caller, ChatRequest, WhatIf, stays
from gateway.models.past_turns import PastBill
from gateway.models.records import Spending
from gateway.models.replays import Replay, ReplayChanges
from gateway.models.tool_steps import asked, calls_of
from gateway.turn.stages import not_paused

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """What a dry run told. `fault` says why there is nothing to tell.

    Attributes:
        changes: what was forwarded then beside what would be forwarded.
        is_in_full: whether the artifact is; else `fault`, or its block was fixed by an earlier step.
        tokens_then, tokens: of the prompt, by the gateway's count.
        cost_then: of the prompt, as billed. `least`, `most`: of the call that was not made, in USD; None: unknown.
    """

    changes: list[MessageChange]
    is_in_full: bool = False
    tokens_then: int | None = None
    tokens: int | None = None
    cost_then: Decimal | None = None
    least: Decimal | None = None
    most: Decimal | None = None
    fault: str | None = None


class WhatIfs:
    """Makes dry runs for the page."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts

    async def in_full(
        self, stored: StoredRequest, found: ExplainedRequest, artifact: ExplainedArtifact
    ) -> WhatIfAnswer:
        """The request with that artifact in full."""
        try:
            request = self._request(stored, found, artifact)
            told = not_paused(await self._parts.pipeline.dry_run(request))
        except GatewayError as error:
            return WhatIfAnswer([], fault=error.message)
        changes = await asyncio.to_thread(compared, found.sent.messages or [], told["messages"])
        used = told["response_metadata"].get("context_utilization") or {}
        name = artifact.artifact_id.partition("-")[0]
        records = [each for each in used.get("artifacts_processed", ()) if each["artifact_id"].startswith(name)]
        text = artifact.original or ""
        is_in_full = any(each["strategy"] == FULL for each in records) or _holds(told["messages"], text)
        primary = next((call for call in found.bill.calls if call.purpose == "primary"), None)
        return WhatIfAnswer(
            changes,
            is_in_full,
            found.used.get("tokens_used"),
            used.get("tokens_used"),
            primary.prompt_cost if primary is not None else None,
            told["estimated_cost"]["min"],
            told["estimated_cost"]["max"],
        )

    def _request(self, stored: StoredRequest, found: ExplainedRequest, artifact: ExplainedArtifact) -> ChatRequest:
        """
        Raises:
            GatewayError: a rule of chats is broken, or the model is not served any more.
        """
        entry, path, past = stored.entry, stored.path, stored.request
        assert path is not None
        assert past is not None
        context = {"mode": "simple", "goal": found.used.get("goal") or "synthesis"}
        if isinstance(budget := found.used.get("budget_tokens"), int) and budget > 0:
            context |= {"max_input_tokens": budget}
        change = ReplayChanges(parameters=_tools(stored, found.used), context=context)
        bills = {entry.request_id: PastBill(stored.completion, Spending())}
        ask, behind = single_request(path, past, bills, change)
        replay = Replay("replay_what_if", path.conversation_id, behind or "", 1, 1, change)
        caller = Caller(entry.tenant, key_id=entry.key_id, project=entry.project)
        make = RequestMaker(replay, caller, self._parts.settings, self._parts.clock, stays)
        branch = BranchPoint(replay.replay_id, behind, found.number or 1, until=ask.until)
        request = make(ask, ask.messages, branch, dry_run=True)
        what_if = WhatIf(frozenset((artifact.artifact_id.partition("-")[0],)), _plan(found.plan))
        return replace(request, options=replace(request.options, what_if=what_if))


def can_ask(stored: StoredRequest) -> bool:
    """Whether the request can be made again: it is stored, its window was managed, and its words were its client's."""
    used = stored.entry.metadata.get("context_utilization") or {}
    agent = stored.entry.metadata.get("agent")
    is_worded = isinstance(agent, dict) and agent.get("type") != CHAT
    return stored.request is not None and stored.request.answer is not None and bool(used) and not is_worded


def _plan(plan: Mapping[str, Any] | None) -> ArtifactPlan | None:
    try:
        return ArtifactPlan.model_validate(plan) if plan is not None else None
    except ValidationError:  # of a later version
        return None


def _tools(stored: StoredRequest, used: Mapping[str, Any]) -> Json:
    """Tools by the names that were called, where the request had some: without any, results would go up as text."""
    if not (used.get("breakdown") or {}).get("tools") or stored.path is None:
        return {}
    names = {asked(call)[0] for each in stored.path.messages for call in calls_of(each.message.body)}
    tools = [{"type": "function", "function": {"name": name}} for name in sorted(names)]
    return {"tools": tools} if tools else {}


def _holds(messages: list[Json], text: str) -> bool:
    """Whether a message has the text word for word."""
    return bool(text) and any(text in str(message.get("content")) for message in messages)
