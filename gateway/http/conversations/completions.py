"""`GET /v1/chat/completions…`: any bill can be checked afterwards (guarantee §6)."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from gateway.accounting.audit import repriced
from gateway.accounting.metadata import extended_usage
from gateway.errors import CompletionNotFound, ConversationNotFound
from gateway.http.auth import ANONYMOUS, Authenticator
from gateway.http.edge import Receive, Scope, Send, answer_headers, send_json
from gateway.http.fields import invalid
from gateway.models.turn import CompletionQuery, StoredCompletion
from gateway.storage.store import ConversationStore

METADATA = re.compile(r"metadata\[(.*)\]", re.DOTALL)
MAX_PAGE = 100
MAX_METADATA_PAIRS = 16
FIGURES = ("prompt_tokens", "completion_tokens", "total_tokens")
"""Of an answer's `usage`, those that its bill knows."""
Query = Mapping[str, str]


def parameters(text: str) -> Query:
    """The parameters of a query string, each with its first value."""
    return {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}


def check_named(query: Query, *names: str) -> None:
    """
    Raises:
        InvalidRequest: one of these parameters is given and empty.
    """
    for name in names:
        if query.get(name) == "":
            raise invalid(name, "must not be empty")


def limit_of(query: Query) -> int:
    """`limit`: how many members a page may have, 20 by default."""
    limit = query.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 3 and 1 <= int(limit) <= MAX_PAGE):
        raise invalid("limit", f"must be a whole number from 1 to {MAX_PAGE}")
    return int(limit)


def newest_first(query: Query, default: str) -> bool:
    """Whether the order is `desc`."""
    order = query.get("order", default)
    if order not in ("asc", "desc"):
        raise invalid("order", "must be asc or desc")
    return order == "desc"


def metadata_of(query: Query) -> tuple[tuple[str, str], ...]:
    """The pairs of `metadata[KEY]=VALUE`."""
    found = tuple((m.group(1), value) for name, value in query.items() if (m := METADATA.fullmatch(name)))
    if len(found) > MAX_METADATA_PAIRS:
        raise invalid("metadata", f"may name {MAX_METADATA_PAIRS} keys")
    return found


def listed(data: list[Any], *, has_more: bool) -> dict[str, Any]:
    """A page as OpenAI sends it; the next one begins after `last_id`."""
    ends = {"first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None}
    return {"object": "list", "data": data, **ends, "has_more": has_more}


class StoredCompletions:
    """One completion by its id (`chatcmpl-…` or `req_…`), or a page of the tenant's or of a conversation's."""

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
            await send_json(send, 200, as_completion(found), answer_headers(found.ledger.conversation_id))
            return
        query = parse_query(scope["query_string"].decode("latin-1"))
        conversation_id = query.conversation_id
        if conversation_id is None and caller.tenant == ANONYMOUS:  # all callers without a key are one tenant
            raise invalid("conversation", "is required without an API key")
        if conversation_id is not None and not await self._store.has_conversation(caller.tenant, conversation_id):
            raise ConversationNotFound("No such conversation.", param="conversation")
        page = await self._store.list_completions(caller.tenant, query)
        if page is None:
            raise CompletionNotFound("No such completion.", param="after")
        data = [as_completion(each) for each in page.found]
        await send_json(send, 200, listed(data, has_more=page.has_more), answer_headers(conversation_id))


def parse_query(text: str) -> CompletionQuery:
    """OpenAI's parameters of a list, and `conversation`; others are ignored.

    Raises:
        InvalidRequest: a parameter breaks its rule; names it.
    """
    query = parameters(text)
    check_named(query, "conversation", "model", "after")
    found = (query.get("conversation"), query.get("model"), metadata_of(query), limit_of(query), query.get("after"))
    return CompletionQuery(*found, newest_first=newest_first(query, "asc"))


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
    body = {**bare, **answered(stored), "status": entry.status}
    if stored.completion_metadata is not None:
        body["metadata"] = stored.completion_metadata
    return body


def answered(stored: StoredCompletion) -> dict[str, Any]:
    """The completion as its client got it."""
    entry = stored.ledger
    body = {**(stored.completion or {}), "response_metadata": entry.metadata}
    primary = next((call for call in entry.calls if call.purpose == "primary"), None)
    if primary is not None:
        calls = tuple(repriced(call) for call in entry.calls)  # exact where a cost is more than its column holds
        reported = body["usage"] if isinstance(body.get("usage"), dict) else {}
        billed = {name: primary.usage[name] for name in FIGURES if name in primary.usage}
        body["usage"] = extended_usage({**reported, **billed}, calls)
    if entry.conversation_id:
        body["conversation"] = {"id": entry.conversation_id}
    return body
