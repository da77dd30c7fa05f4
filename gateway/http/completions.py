"""`GET /v1/chat/completions…`: any bill can be checked afterwards (contract §6)."""

from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs

from gateway.errors import CompletionNotFound, ConversationNotFound
from gateway.http.auth import Authenticator
from gateway.http.edge import Receive, Scope, Send, send_json
from gateway.http.messages import invalid
from gateway.models.turn import StoredCompletion
from gateway.ports import ConversationStore


class StoredCompletions:
    """One by id (`chatcmpl-…` or `req_…`), or all of a conversation."""

    def __init__(self, store: ConversationStore, auth: Authenticator) -> None:
        self._store = store
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._auth.caller(scope)
        completion_id = scope["path_params"].get("completion_id")
        if completion_id is not None:
            found = await self._store.find_completion(caller.tenant, completion_id)
            if found is None:
                raise CompletionNotFound("No such completion.", param="completion_id")
            await send_json(send, 200, as_completion(found))
            return
        query = parse_qs(scope["query_string"].decode("latin-1"))
        conversation_id = query.get("conversation", [""])[0]
        if not conversation_id:
            raise invalid("conversation", "is required")
        if not await self._store.has_conversation(caller.tenant, conversation_id):
            raise ConversationNotFound("No such conversation.", param="conversation")
        data = [as_completion(each) for each in await self._store.list_completions(caller.tenant, conversation_id)]
        ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
        await send_json(send, 200, {"object": "list", "data": data, **ends, "has_more": False})


def _details(cost: dict[str, Any], utilization: dict[str, Any]) -> dict[str, Any]:
    """The parts of `usage.cost`, as they were delivered."""
    planning = utilization.get("planning_cost") or {}
    parts = [Decimal(str(cost[name])) for name in ("prompt_cost", "completion_cost") if cost.get(name) is not None]
    return {
        "upstream_inference_cost": sum(parts) if len(parts) == 2 else None,
        "planner_cost": planning.get("planner_cost", 0.0),
        "summarizer_cost": planning.get("summarizer_cost", 0.0),
    }


def as_completion(stored: StoredCompletion) -> dict[str, Any]:
    """The completion with its bill; without content where none was stored (`store: false`, failed turns)."""
    entry = stored.ledger
    bare: dict[str, Any] = {
        "id": entry.completion_id,
        "object": "chat.completion",
        "created": int(entry.created_at.timestamp()),
        "model": entry.model,
        "choices": [],
    }
    body = {**bare, **(stored.completion or {}), "response_metadata": entry.metadata, "status": entry.status}
    cost, planning = entry.metadata.get("cost") or {}, (entry.metadata.get("context_utilization") or {})
    if isinstance(body.get("usage"), dict):
        body["usage"] = {**body["usage"], "cost": cost.get("total_cost"), "cost_details": _details(cost, planning)}
    if entry.conversation_id:
        body["conversation"] = {"id": entry.conversation_id}
    if stored.completion_metadata is not None:
        body["metadata"] = stored.completion_metadata
    return body
