"""`/v1/responses/{response_id}…`: what is stored of responses, which are the stored completions of chats (ADR 27)."""

from typing import Any

from gateway.api.api_call import ApiCall, MethodEndpoint, received
from gateway.api.auth import KeyAuthenticator
from gateway.api.fields import invalid
from gateway.api.pagination import check_named, included, limit_of, listed, newest_first, parameters
from gateway.api.request.stored_answer import as_completion, replayed_chunks
from gateway.api.server.fast_router import EVENT_STREAM, Receive, Scope, Send, answer_headers, named_event, send_start
from gateway.core.errors import CompletionNotFound, GatewayError, InvalidRequest, ItemNotFound
from gateway.core.formats.compaction_items import CompactionSealer
from gateway.core.formats.responses.response_events import ResponseEvents
from gateway.core.formats.responses.serializer import as_incomplete, failed, response_of
from gateway.core.formats.responses.stored import echoed_of, input_of
from gateway.core.ids import RESPONSE, answer_id, completion_of
from gateway.core.types.turn import BROKE, OWN_INSTRUCTIONS, StoredCompletion
from gateway.storage.store import ConversationStore

Json = dict[str, Any]
OF_A_STORED_CHAT = ("status", "metadata")
"""Fields of a stored completion that a response has in other words."""

FEW_BYTES = 65_536
"""Of a body in which nothing can be said."""


class StoredResponses:
    """The endpoint of one response (read whole or as a stream, deleted), and those of `cancel` and `input_items`.
    Completions of chats are found as responses, and the other way round."""

    def __init__(self, store: ConversationStore, auth: KeyAuthenticator) -> None:
        self._store = store
        self._auth = auth
        self._one = MethodEndpoint(auth, 0, {"GET": self._find, "DELETE": self._delete})
        self.cancel = MethodEndpoint(auth, FEW_BYTES, {"POST": self._cancel})
        self.input_items = MethodEndpoint(auth, 0, {"GET": self._input_items})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET and DELETE."""
        text = scope["query_string"].decode("latin-1")
        query = parameters(text)
        if scope["method"] == "GET" and _flag(query.get("stream")):
            await self._stream(scope, receive, send, included(text), _number(query.get("starting_after")))
        else:
            await self._one(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send, include: tuple[str, ...], after: int) -> None:
        """The events of the response anew, those behind `starting_after`."""
        caller = (await received(scope, receive, self._auth, None)).caller
        stored, echoed = await self._stored(caller.tenant, scope["path_params"]["response_id"])
        sealer = CompactionSealer(caller.tenant, await self._store.secret())
        events = ResponseEvents(echoed, include, sealer.item)
        found = events.of(replayed_chunks(_completion(stored), 1, include_usage=True))
        error = _error(stored)
        found += events.end() if error is None else events.fault(error)
        if error is None and stored.ledger.status == "partial":
            broken = _broken_off(found[-1]["response"], None)
            found[-1] = {**found[-1], "type": "response.incomplete", "response": broken}
        conversation_id = stored.ledger.conversation_id
        scope["gateway"]["conversation_id"] = conversation_id
        await send_start(send, 200, {**EVENT_STREAM, **answer_headers(conversation_id)})
        body = b"".join(named_event(each) for each in found if each["sequence_number"] > after)
        await send({"type": "http.response.body", "body": body})

    async def _find(self, call: ApiCall) -> Json:
        stored, echoed = await self._stored(call.tenant, call.path["response_id"])
        completion = _completion(stored)
        item = CompactionSealer(call.tenant, await self._store.secret()).item(completion)
        found = response_of(completion, echoed, call.included, item)
        return _broken_off(found, _error(stored)) if stored.ledger.status == "partial" else found

    async def _stored(self, tenant: str, name: str) -> tuple[StoredCompletion, Json]:
        """The completion, and what its response repeats of its request."""
        stored = await self._store.find_completion(tenant, completion_of(name))
        if stored is None or stored.completion is None:
            raise _unknown(name)
        instructions: list[Json] = []
        if OWN_INSTRUCTIONS in (stored.asked or {}):
            found = await self._store.completion_input(tenant, completion_of(name), said=False)
            instructions = [body for _, body in found or ()]
        return stored, echoed_of(stored.asked, stored.completion_metadata, instructions)

    async def _delete(self, call: ApiCall) -> Json:
        name = call.path["response_id"]
        if not await self._store.delete_completion(call.tenant, completion_of(name), call.actor):
            raise _unknown(name)
        return {"id": name, "object": "response", "deleted": True}

    async def _cancel(self, call: ApiCall) -> Json:
        await self._stored(call.tenant, call.path["response_id"])
        raise InvalidRequest("Cannot cancel a synchronous response.", param="response_id")

    async def _input_items(self, call: ApiCall) -> Json:
        check_named(call.query, "after")
        name, limit, after = call.path["response_id"], limit_of(call.query), call.query.get("after")
        stored, _ = await self._stored(call.tenant, name)
        found = await self._store.completion_input(call.tenant, completion_of(name))
        items = input_of(stored.asked, found or (), call.included)
        data = [each if each.get("id") else {**each, "id": f"item_{number}"} for number, each in enumerate(items)]
        if newest_first(call.query, "desc"):
            data.reverse()
        ids = [each["id"] for each in data]
        if after is not None and after not in ids:
            raise ItemNotFound("No such item.", param="after")
        rest = data[ids.index(after) + 1 :] if after is not None else data
        return listed(rest[:limit], has_more=len(rest) > limit)


def _completion(stored: StoredCompletion) -> Json:
    found = as_completion(stored)
    return {name: value for name, value in found.items() if name not in OF_A_STORED_CHAT}


def _error(stored: StoredCompletion) -> GatewayError | None:
    """By which a response broke off, as its client was told; None where none did, or the client left."""
    told = (stored.asked or {}).get(BROKE)
    if not isinstance(told, dict):
        return None
    return GatewayError(str(told.get("message") or ""), param=told.get("param"), code=told.get("code"))


def _broken_off(response: Json, error: GatewayError | None) -> Json:
    """A response whose stream ended before its answer did."""
    output = [*response["output"][:-1], *map(as_incomplete, response["output"][-1:])]
    broken = {**response, "output": output, "completed_at": None}
    return {**broken, "status": "incomplete"} if error is None else {**broken, **failed(error)}


def _unknown(name: str) -> CompletionNotFound:
    shown = name if name.startswith("resp_") else answer_id(name, RESPONSE)
    return CompletionNotFound(f"Response with id '{shown}' not found.", param="response_id")


def _flag(value: str | None) -> bool:
    if value not in (None, "true", "false", "1", "0"):
        raise invalid("stream", "must be true or false")
    return value in ("true", "1")


def _number(value: str | None) -> int:
    if value is None:
        return -1
    if not (value.isascii() and value.isdigit() and len(value) <= 10):
        raise invalid("starting_after", "must be a whole number")
    return int(value)
