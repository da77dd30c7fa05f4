"""`/v1/responses`: creates responses, plain and streamed, and serves stored ones."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from starlette.routing import Route

from gateway.api.api_call import ApiCall, MethodEndpoint, received
from gateway.api.auth import KeyAuthenticator
from gateway.api.completion_handler import CompletionHandler, Instead, NamedEventWriter, StreamWriter
from gateway.api.pagination import included, number_of, paging_of, parameters, part_of
from gateway.api.request.body_cache import BodyCache, ReadAsChat
from gateway.api.request.chat_shapes import BILL, OURS
from gateway.api.request.stored_answer import as_completion, replayed_chunks
from gateway.api.request.validation import RequestArrival, check_spelling
from gateway.api.responses.compact import HISTORY, CompactionEndpoint, ResolvedItems, refers, triggered
from gateway.api.server import asgi
from gateway.api.shapes import Deleted, Json, ListObject, shape
from gateway.core import errors, ids, jsons
from gateway.core.config.settings import Settings
from gateway.core.formats.compaction_items import CompactionSealer
from gateway.core.formats.responses import request_parser, response_completion, stored_response
from gateway.core.formats.responses.request_parser import ResponsesReading
from gateway.core.formats.responses.response_events import ResponseEvents
from gateway.core.formats.responses.sealed_thoughts import ThoughtSealer
from gateway.core.types import turn
from gateway.core.types.chat import ChatRequest, ContextOptions, PlainMessages, RequestCaller
from gateway.core.types.conversation import UNNAMED, ConversationRef
from gateway.storage import ConversationStore

# `/v1/responses/{response_id}…`: what is stored of responses, which are the stored completions of chats (ADR 27).

PATH = "/v1/responses"
OF_A_STORED_CHAT = ("status", "metadata")
"""Fields of a stored completion that a response has in another form."""

NO_INPUT = PlainMessages([], [], [])
MAX_EVENT = 10**10 - 1
FEW_BYTES = 65_536
"""Bytes of a body, at most, where the request takes no content."""


ResponseRequest = shape(
    "ResponseRequest",
    "OpenAI's fields and the gateway's own; those that it does not know go up untouched where the upstream speaks "
    "Responses.",
    {"model": str, "input?": str | list[Json] | None, "instructions?": str | None, "max_output_tokens?": int | None}
    | {"tools? context_management?": list[Json] | None, "truncation?": Literal["auto", "disabled"] | None}
    | OURS
    | HISTORY,
    is_open=True,
)
Response = shape(
    "Response",
    "OpenAI's response with its bill.",
    {
        "id model": str,
        "object": Literal["response"],
        "status": Literal["completed", "incomplete", "failed", "in_progress"],
        "output": list[Json],
        "usage? conversation?": Json | None,
        **BILL,
    },
    is_open=True,
)
ResponseEvent = shape("ResponseEvent", "OpenAI's event.", {"type": str, "sequence_number": int}, is_open=True)


class StoredResponses:
    """The endpoint of one response (read whole or as a stream, deleted), and those of `cancel` and `input_items`.
    Completions of chats are found as responses, and vice versa."""

    def __init__(self, store: ConversationStore, auth: KeyAuthenticator) -> None:
        self._store = store
        self._auth = auth
        self._one = MethodEndpoint(auth, 0, {"GET": self._find, "DELETE": self._delete})
        self.cancel = MethodEndpoint(auth, FEW_BYTES, {"POST": self._cancel})
        self.input_items = MethodEndpoint(auth, 0, {"GET": self._input_items})

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        text = scope["query_string"].decode("latin-1")
        query = parameters(text)
        is_read = scope["method"] == "GET"
        after = number_of(query, "starting_after", most=MAX_EVENT) if is_read else None
        if is_read and _flag(query.get("stream")):
            await self._stream(scope, receive, send, included(text), after)
        else:
            await self._one(scope, receive, send)

    async def _stream(
        self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send, include: tuple[str, ...], after: int | None
    ) -> None:
        """Sends the events of the response again, those after `starting_after`."""
        caller = (await received(scope, receive, self._auth, None)).caller
        stored, echoed = await self._stored(caller.tenant, scope["path_params"]["response_id"])
        secret = await self._store.secret()
        sealer = CompactionSealer(caller.tenant, secret)
        events = ResponseEvents(echoed, include, sealer.item, ThoughtSealer(caller.tenant, secret, stored.ledger.model))
        found = events.of(replayed_chunks(_completion(stored), 1, include_usage=True))
        error = _error(stored)
        found += events.end() if error is None else events.fault(error)
        if error is None and stored.ledger.status == "partial":
            broken = _broken_off(found[-1]["response"], None)
            found[-1] = {**found[-1], "type": "response.incomplete", "response": broken}
        conversation_id = stored.ledger.conversation_id
        scope["gateway"]["conversation_id"] = conversation_id
        await asgi.send_start(send, 200, {**asgi.EVENT_STREAM, **asgi.answer_headers(conversation_id)})
        body = b"".join(asgi.named_event(each) for each in found if after is None or each["sequence_number"] > after)
        await send({"type": "http.response.body", "body": body})

    async def _find(self, call: ApiCall) -> Json:
        stored, echoed = await self._stored(call.tenant, call.path["response_id"])
        completion = _completion(stored)
        secret = await self._store.secret()
        item = CompactionSealer(call.tenant, secret).item(completion)
        thoughts = ThoughtSealer(call.tenant, secret, stored.ledger.model)
        found = response_completion.response_of(completion, echoed, call.included, item, thoughts)
        return _broken_off(found, _error(stored)) if stored.ledger.status == "partial" else found

    async def _stored(self, tenant: str, name: str) -> tuple[turn.StoredCompletion, Json]:
        """Returns the completion, and what its response repeats of its request."""
        stored = await self._store.find_completion(tenant, ids.completion_of(name))
        if stored is None or stored.completion is None:
            raise _unknown(name)
        instructions: list[Json] = []
        if turn.OWN_INSTRUCTIONS in (stored.asked or {}):
            found = await self._store.completion_input(tenant, ids.completion_of(name), said=False)
            instructions = [body for _, body in found or ()]
        return stored, stored_response.echoed_of(stored.asked, stored.completion_metadata, instructions)

    async def _delete(self, call: ApiCall) -> Deleted[Literal["response"]]:
        name = call.path["response_id"]
        if not await self._store.delete_completion(call.tenant, ids.completion_of(name), call.actor):
            raise _unknown(name)
        return {"id": name, "object": "response", "deleted": True}

    async def _cancel(self, call: ApiCall) -> Json:
        await self._stored(call.tenant, call.path["response_id"])
        raise errors.InvalidRequest("Cannot cancel a synchronous response.", param="response_id")

    async def _input_items(self, call: ApiCall) -> ListObject[Json]:
        name, paging = call.path["response_id"], paging_of(call.query, "desc")
        stored, _ = await self._stored(call.tenant, name)
        found = await self._store.completion_input(call.tenant, ids.completion_of(name), answered=True)
        items = stored_response.input_of(stored.asked, found or (), call.included)
        data = [each if each.get("id") else {**each, "id": f"item_{number}"} for number, each in enumerate(items)]
        return part_of(data, paging, "No such item.")


def _completion(stored: turn.StoredCompletion) -> Json:
    found = as_completion(stored)
    return {name: value for name, value in found.items() if name not in OF_A_STORED_CHAT}


def _error(stored: turn.StoredCompletion) -> errors.GatewayError | None:
    """Returns the error by which a response broke off, as its client got it; None: none did, or the client left."""
    told = (stored.asked or {}).get(turn.BROKE)
    if not isinstance(told, dict):
        return None
    return errors.GatewayError(str(told.get("message") or ""), param=told.get("param"), code=told.get("code"))


def _broken_off(response: Json, error: errors.GatewayError | None) -> Json:
    """Returns a response whose stream ended before its answer did."""
    output = [*response["output"][:-1], *map(response_completion.as_incomplete, response["output"][-1:])]
    broken = {**response, "output": output, "completed_at": None}
    return {**broken, "status": "incomplete"} if error is None else {**broken, **response_completion.failed(error)}


def _unknown(name: str) -> errors.CompletionNotFound:
    shown = name if name.startswith("resp_") else ids.answer_id(name, ids.RESPONSE)
    return errors.CompletionNotFound(f"Response with id '{shown}' not found.", param="response_id")


def _flag(value: str | None) -> bool:
    if value not in (None, "true", "false", "1", "0"):
        raise errors.invalid("stream", "must be true or false")
    return value in ("true", "1")


@dataclass(slots=True)
class ResponsesEndpoint:
    _answering: CompletionHandler
    _settings: Settings
    _resends: BodyCache
    _compaction: CompactionEndpoint

    async def __call__(
        self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send, caller: RequestCaller | None = None
    ) -> None:
        """Answers the request. `caller`: who sends it, where that is known already."""
        adapter = ResponsesAdapter(self._settings, self._resends, self._compaction)
        await self._answering.answer(scope, receive, send, adapter, caller)


class ResponsesAdapter(ReadAsChat[ResponsesReading]):
    """One request in the form of Responses (an `ApiAdapter`)."""

    def __init__(self, settings: Settings, resends: BodyCache, compaction: CompactionEndpoint) -> None:
        super().__init__(settings, resends)
        self._compaction = compaction
        self._resolved: ResolvedItems | None = None
        self._compaction_of: CompactionSealer | None = None
        """Makes the compaction item where the client wants one when its history is compacted."""
        self._thoughts: ThoughtSealer | None = None
        self._repeated: dict[str, Any] = {}
        self._include: tuple[str, ...] = ()

    def read(
        self, raw: bytes, headers: Mapping[str, str], caller: RequestCaller, arrival: RequestArrival
    ) -> ChatRequest | None:
        """Parses the request as a chat; None: it has items to look up, which are expanded before it is read again."""
        if self._resolved is None and refers(self._parse(raw, caller, ResponsesReading)):
            return None
        body, at, before, sealer, self._thoughts = self._resolved or ResolvedItems(self._body)
        check_spelling(body, self._settings)
        earlier, count = self._before(body, ResponsesReading)
        reading = request_parser.read_request(body, earlier, count, is_kept=self._is_kept(body))
        self._include = tuple(body.get("include") or ())
        plain = NO_INPUT if reading.says_nothing else None
        request = self._request(reading, body, headers, caller, arrival, plain)
        self._repeated = response_completion.echo(body, store=request.store)
        conversation = request.conversation
        if reading.previous is not None:
            conversation = ConversationRef(behind=reading.previous)
        elif at is not None and conversation == UNNAMED:
            conversation = ConversationRef(at=at, before=before)
            request = replace(request, size=len(jsons.dumps(request.messages)))  # of the messages from the item on
        if sealer is not None and reading.threshold is not None:
            told = None if request.keeps_content else request.messages
            self._compaction_of = replace(sealer, messages=told, tokens=reading.threshold)
        return replace(
            request,
            api="responses",
            native=reading.native,
            include_usage=request.stream,
            options=_options(request.options, reading),
            conversation=conversation,
            asked=stored_response.asked_of(body, request.messages),
        )

    async def look_up(self, caller: RequestCaller) -> Instead | None:
        """Expands the items of the request; where it asks only for a compaction, returns what sends that instead."""
        if (rest := triggered(self._body)) is not None:
            return partial(self._compaction.answer, rest, caller)
        self._resolved = await self._compaction.resolved(self._body, caller.tenant)
        return None

    def whole(self, body: dict[str, Any], request: ChatRequest) -> bytes:
        item = self._compaction_of.item(body) if self._compaction_of is not None else None
        return jsons.dumps(response_completion.response_of(body, self._repeated, self._include, item, self._thoughts))

    def writer(self, request: ChatRequest) -> StreamWriter:
        item = self._compaction_of.item if self._compaction_of is not None else None
        events = ResponseEvents(self._repeated, self._include, item, self._thoughts)
        return NamedEventWriter(events, events.fault, asgi.comment)


def _options(options: ContextOptions, reading: ResponsesReading) -> ContextOptions:
    """Returns the options, changed by the request's own fields about its window."""
    if reading.whole:
        options = replace(options, planning="never", whole=True)
    if reading.threshold is not None:
        options = replace(options, clear_above=reading.threshold, compacts=True)
    return options


def response_routes(
    answers: ResponsesEndpoint, compaction: CompactionEndpoint, stored: StoredResponses, relay: asgi.App
) -> list[Route]:
    """Lists every path of responses that the gateway serves itself. Other methods are relayed, as are other paths."""
    one = PATH + "/{response_id}"
    return [
        Route(PATH, answers, methods=["POST"]),
        Route(PATH, relay),
        Route(PATH + "/compact", compaction, methods=["POST"]),
        Route(one, stored, methods=["GET", "DELETE"]),
        Route(one, relay),
        Route(one + "/cancel", stored.cancel, methods=["POST"]),
        Route(one + "/input_items", stored.input_items, methods=["GET"]),
    ]
