"""`/v1/conversations/{id}/turns…`: what each turn was sent, why, and what it cost (guarantee §11.11)."""

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gateway.api.api_call import ApiCall, MethodEndpoint
from gateway.api.auth import KeyAuthenticator
from gateway.api.conversations.completion_endpoints import StoreMessage, as_store_message
from gateway.api.conversations.endpoint import SpentCost, as_spent
from gateway.api.pagination import check_named, limit_of, listed, newest_first
from gateway.api.shapes import AgentName, Json, ListObject, NamedConversation, Unix, one_of, shown
from gateway.billing import ledger_verification, metadata
from gateway.context.assembly import without_block_items
from gateway.core import errors
from gateway.core.jsons import picked
from gateway.core.types import bill, chain, past_turns, turn
from gateway.inspection import as_json, rebuilt_turns
from gateway.storage.conversations import PastReader, ReplayStore

MAX_DIGITS = 9
NOTHING = "msg_"
"""No message has this id: a replay of which nothing is done has no turns."""
EXCLUDED = ("messages_included", "messages_excluded", "tokens_used", "budget_tokens", "breakdown")
DECIDED = ("strategy", "priority", "relevance_rationale", "summarization_focus", "extraction_query")


class TurnObject(TypedDict):
    """A turn of the current branch, and what it cost."""

    id: str
    object: Literal["conversation.turn"]
    number: int
    status: Literal["complete", "partial", "unanswered"]
    created_at: Unix | None
    request_ids: list[str]
    models: list[str]
    agents: list[str]
    usage: bill.UsageMetadata
    cost: SpentCost


class TurnRequest(TypedDict):
    """One request of a turn: what it forwarded, why, and its bill."""

    request_id: str
    sent: Annotated[list[Json] | None, Field(description="The forwarded messages, rebuilt; null: not stored.")]
    sent_is_exact: Annotated[bool, Field(description="It is what was forwarded, equal as JSON.")]
    reason: Annotated[str | None, one_of((*rebuilt_turns.REASONS, None)), Field(description="Why it is not.")]
    why: Annotated[Json | None, Field(description="Strategy, reasons, window, and what was decided for artifacts.")]
    usage: bill.UsageMetadata | None
    cost: SpentCost | None
    completion_id: NotRequired[str | None]
    model: NotRequired[str]
    agent: NotRequired[AgentName | None]
    status: NotRequired[turn.TurnStatus]
    created_at: NotRequired[Unix]
    calls: NotRequired[list[Json]]


class TurnDetailsObject(TurnObject):
    """A turn with its messages and requests."""

    conversation: NamedConversation
    messages: list[StoreMessage]
    requests: list[TurnRequest]


class TurnEndpoints:
    """The endpoints `all` (a page of a branch's turns) and `one`."""

    def __init__(self, past: PastReader, replays: ReplayStore, auth: KeyAuthenticator) -> None:
        self._past = past
        self._replays = replays
        self.all = MethodEndpoint(auth, 0, {"GET": self._list})
        self.one = MethodEndpoint(auth, 0, {"GET": self._find})

    async def _list(self, call: ApiCall) -> ListObject[TurnObject]:
        check_named(call.query, "after")
        limit, after = limit_of(call.query), call.query.get("after")
        path = await self._path(call)
        turns = rebuilt_turns.turns_of(path)
        if newest_first(call.query, "asc"):
            turns.reverse()
        if after is not None:
            ids = [_id(turn) for turn in turns]
            if after not in ids:
                raise errors.ItemNotFound("No such turn in this branch.", param="after")
            turns = turns[ids.index(after) + 1 :]
        bills = await self._past.bills(call.tenant, path, turns[:limit])
        return listed([as_turn(turn, bills) for turn in turns[:limit]], has_more=len(turns) > limit)

    async def _find(self, call: ApiCall) -> TurnDetailsObject:
        path = await self._path(call)
        turns = rebuilt_turns.turns_of(path)
        turn = turns[_number(call.path["number"], len(turns)) - 1]
        details = await self._past.turn_details(call.tenant, path, turn)
        messages = [as_store_message(str(each.message.message_id), each.message.body) for each in turn.messages]
        requests = [as_request(path, request, details) for request in turn.answered]
        conversation: NamedConversation = {"id": path.conversation_id}
        told = as_turn(turn, details.bills)
        return {**told, "conversation": conversation, "messages": messages, "requests": requests}

    async def _path(self, call: ApiCall) -> past_turns.ConversationPath:
        check_named(call.query, "replay_id")
        name, last = call.query.get("replay_id"), None
        if name is not None:
            replay = await self._replays.find(call.tenant, call.conversation_id, name)
            last = replay.at_id or NOTHING
        return rebuilt_turns.in_turns(await self._past.path(call.tenant, call.conversation_id, last))


def _number(text: str, most: int) -> int:
    """Raises TurnNotFound: there is no such turn."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else 0
    if not 1 <= number <= most:
        known = f"it has {most}, counted from 1" if most else "it has none"
        raise errors.TurnNotFound(f"No such turn in this branch: {known}.", param="number")
    return number


def as_turn(turn: past_turns.PastTurn, bills: Mapping[str, past_turns.PastBill]) -> TurnObject:
    """Returns the object of a turn without its messages. `cost` is that of its requests on this branch."""
    first, last = turn.messages[0].message, turn.messages[-1].message
    known = [bills[request.request_id] for request in turn.answered if request.request_id in bills]
    return shown(
        TurnObject,
        turn,
        id=_id(turn),
        object="conversation.turn",
        status=last.status if last.role == "assistant" and not chain.is_step(last.body) else "unanswered",
        created_at=first.created_at,
        request_ids=[request.request_id for request in turn.answered],
        models=list(dict.fromkeys(bill.completion.ledger.model for bill in known)),
        agents=list(dict.fromkeys(each.message.agent for each in turn.messages if each.message.agent)),
        **as_spent(*(each.spent for each in known)),
    )


def as_request(
    path: past_turns.ConversationPath, request: past_turns.PastRequest, details: past_turns.TurnDetails
) -> TurnRequest:
    bill = details.bills.get(request.request_id)
    entry = bill.completion.ledger if bill is not None else None
    sent = rebuilt_turns.sent_messages(
        path, request, entry, details.frames.get(request.request_id), without_block_items
    )
    found: TurnRequest = {
        "request_id": request.request_id,
        "sent": sent.messages,
        "sent_is_exact": sent.is_exact,
        "reason": sent.reason,
        "why": None,
        "usage": None,
        "cost": None,
    }
    if bill is None or entry is None:
        return found
    shown = metadata.with_plan(entry.metadata, bill.completion.plan)
    return {
        **found,
        "completion_id": entry.completion_id,
        "model": entry.model,
        "agent": entry.metadata.get("agent"),
        "status": entry.status,
        "created_at": int(entry.created_at.timestamp()),
        "why": _why(shown.get("context_utilization") or {}),
        **as_spent(bill.spent),
        "calls": [_call(ledger_verification.repriced(call)) for call in entry.calls],
    }


def _why(used: Json) -> Json:
    """Explains the context: what was decided for each artifact, and the planner's reasons."""
    plan = used.get("plan") or {}
    said = {each.get("artifact_id"): each for each in plan.get("artifacts", ())}
    artifacts = [
        _artifact(record, said.get(record.get("artifact_id"))) for record in used.get("artifacts_processed", ())
    ]
    found: Json = {name: used[name] for name in as_json.WHY if used.get(name) is not None}
    found["window"] = {name: used.get(name) for name in EXCLUDED}
    found["artifacts"] = artifacts
    if plan:
        found["plan"] = {name: plan.get(name) for name in ("reasoning", "search_queries")}
    return found


def _artifact(record: Json, decision: Json | None) -> Json:
    if decision is None:
        return record
    return {**record, "planned": {name: decision.get(name) for name in DECIDED if decision.get(name) is not None}}


def _call(call: bill.CallCost) -> Json:
    return picked(call, "purpose", "model", "usage", "prompt_cost", "completion_cost", "estimated")


def _id(turn: past_turns.PastTurn) -> str:
    """The id of the message that begins it."""
    return str(turn.messages[0].message.message_id)
