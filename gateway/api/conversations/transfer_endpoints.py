"""`GET /v1/conversations/{id}/export` and `POST /v1/conversations/import`: conversations as documents, lossless."""

import asyncio
from typing import Literal

from gateway.api.api_call import received
from gateway.api.auth import KeyAuthenticator
from gateway.api.conversations.endpoint import ConversationObject
from gateway.api.conversations.import_check import parse_export
from gateway.api.server.asgi import Receive, Scope, Send, answer_headers, send_json, send_start
from gateway.api.shapes import shape, unix
from gateway.core import errors
from gateway.core.types import audit_log, records
from gateway.storage import audit_events
from gateway.storage.conversations import ConversationTransfer

ConversationExport = shape(
    "ConversationExport",
    "All that a conversation is.",
    {"object": Literal["conversation.export"], "version": int},
    is_open=True,
)


class ExportedConversation:
    """Sends a whole conversation as a document, in pieces."""

    def __init__(self, transfer: ConversationTransfer, auth: KeyAuthenticator, trail: audit_events.AuditLog) -> None:
        self._transfer = transfer
        self._trail = trail
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = (await received(scope, receive, self._auth, None)).caller
        conversation_id: str = scope["path_params"]["conversation_id"]
        pieces = await self._transfer.export_conversation(caller.tenant, conversation_id)
        if pieces is None:
            raise errors.ConversationNotFound("No such conversation.", param="conversation_id")
        await self._trail.saw(
            audit_log.NewEvent(audit_log.actor_of(caller), "conversation.exported", conversation_id, caller.tenant)
        )
        await send_start(send, 200, {**answer_headers(conversation_id), "content-type": "application/json"})
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class ImportedConversations:
    """Makes a new conversation from an exported document."""

    def __init__(self, transfer: ConversationTransfer, auth: KeyAuthenticator, max_body_bytes: int) -> None:
        self._transfer = transfer
        self._auth = auth
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        got = await received(scope, receive, self._auth, self._max_body_bytes)
        made = await asyncio.to_thread(parse_export, got.raw)
        caller = got.caller
        days = caller.key.retention_days if caller.key is not None else None
        imported = await self._transfer.import_conversation(caller.tenant, made, audit_log.actor_of(caller), days)
        await send_json(send, 200, as_imported(imported, made), answer_headers(imported.conversation_id))


def as_imported(imported: records.ImportResult, made: records.ImportedConversation) -> ConversationObject:
    return {
        "id": imported.conversation_id,
        "object": "conversation",
        "created_at": unix(made.created_at),
        "metadata": made.metadata or {},
        "warnings": [f"the session {name!r} exists already: left out" for name in imported.taken_names],
    }
