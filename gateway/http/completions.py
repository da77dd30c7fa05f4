"""`GET /v1/chat/completions…`: any bill can be checked afterwards (contract §6)."""

from typing import Any
from urllib.parse import parse_qs

from gateway.accounting.audit import repriced
from gateway.accounting.metadata import extended_usage
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
    if isinstance(body.get("usage"), dict):
        calls = tuple(repriced(call) for call in entry.calls)  # exact where a cost is more than its column holds
        body["usage"] = extended_usage(body["usage"], calls)
    if entry.conversation_id:
        body["conversation"] = {"id": entry.conversation_id}
    if stored.completion_metadata is not None:
        body["metadata"] = stored.completion_metadata
    return body
