"""Paths of one kind of thing: each method has its answer, made from a call that is read and checked alike."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.errors import ConversationNotFound, StorageUnavailable
from gateway.http.auth import UNKNOWN, Authenticator
from gateway.http.edge import Receive, Scope, Send, named, send_json
from gateway.http.item_wire import parse_items
from gateway.http.messages import invalid
from gateway.http.paging import parameters
from gateway.http.receive import json_body, read_body
from gateway.http.wire import CONVERSATION_ID
from gateway.models.conversation import ConversationMessage

LARGE_BODY = 2**20


@dataclass(frozen=True, slots=True)
class Call:
    """One request: whose, by which id, where to, and its body."""

    tenant: str
    request_id: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    raw: bytes
    scope: Scope

    @property
    def conversation_id(self) -> str:
        """
        Raises:
            ConversationNotFound: no conversation can have that id.
        """
        found = self.path["conversation_id"]
        if not CONVERSATION_ID.match(found):
            raise ConversationNotFound("No such conversation.", param="conversation_id")
        return found

    async def body(self, *known: str) -> dict[str, Any]:
        """The body with these fields and no other.

        Raises:
            InvalidRequest: it is no JSON object, or has another field.
        """
        large = len(self.raw) >= LARGE_BODY
        body = await asyncio.to_thread(json_body, self.raw, self.scope) if large else json_body(self.raw, self.scope)
        for name in body:
            if name not in known:
                raise invalid(name, f"is not known; known are {', '.join(known)}")
        return body

    async def messages(self, items: Any) -> tuple[ConversationMessage, ...]:
        """The messages that these items stand for."""
        large = len(self.raw) >= LARGE_BODY  # streams of other requests must not wait for it
        return await asyncio.to_thread(parse_items, items) if large else parse_items(items)


Answer = Callable[[Call], Awaitable[dict[str, Any]]]


class Endpoint:
    """One path, with what answers each of its methods."""

    def __init__(self, auth: Authenticator, max_body_bytes: int, answers: Mapping[str, Answer]) -> None:
        self._auth = auth
        self._max_body_bytes = max_body_bytes
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._auth.caller(scope)
        raw = await read_body(scope, receive, self._max_body_bytes) if scope["method"] == "POST" else b""
        if caller.tenant == UNKNOWN:
            raise StorageUnavailable("The storage cannot be reached.")
        facts = scope["gateway"]
        facts["tenant"] = caller.tenant
        query = parameters(scope["query_string"].decode("latin-1"))
        call = Call(caller.tenant, facts["request_id"], scope["path_params"], query, raw, scope)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        answer = await self._answers[method](call)
        about = call.path.get("conversation_id") or (answer["id"] if method == "POST" else None)
        facts["conversation_id"] = about
        await send_json(send, 200, answer, named(about))
