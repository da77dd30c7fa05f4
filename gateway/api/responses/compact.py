"""Compacts: `POST /v1/responses/compact`, a final `compaction_trigger`, and compaction items that a client sends back.
No model is called for it, so it costs nothing and leaves no bill. Also finds stored items that a request names
(`item_reference`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from gateway.api.api_call import received
from gateway.api.auth import KeyAuthenticator
from gateway.api.fields import renamed
from gateway.api.request.validation import RequestArrival, parse_chat_request
from gateway.api.server.asgi import EVENT_STREAM, Receive, Scope, Send, named_event, send_json, send_start
from gateway.api.server.middleware import note_caller
from gateway.api.shapes import Json, said, shape
from gateway.conversations import rebuild
from gateway.core import errors, ids, ports
from gateway.core.config.settings import Settings
from gateway.core.formats import compaction_items
from gateway.core.formats.compaction_items import CompactionMark, CompactionSealer
from gateway.core.formats.responses import request_parser, response_completion, stored_response
from gateway.core.formats.responses.item_reader import text_of
from gateway.core.formats.responses.request_parser import CompactedExtract, ResponsesReading
from gateway.core.formats.responses.response_events import whole_events
from gateway.core.formats.responses.sealed_thoughts import ThoughtSealer, is_own_thought, readable
from gateway.core.types import items
from gateway.core.types.chain import ChainKeys
from gateway.core.types.chat import ChatRequest, RequestCaller
from gateway.core.types.conversation import (
    INSTRUCTION_ROLES,
    UNNAMED,
    ConversationMessage,
    ConversationRef,
    HistoryLookup,
    StoredConversation,
)
from gateway.storage import ConversationStore

HISTORY = {
    "previous_response_id?": said(str | None, "The response behind which it goes on."),
    "conversation?": str | Json | None,
}
CompactRequest = shape(
    "CompactRequest",
    "What is to be compacted: a history by its name, or its items.",
    {"model": str, "input?": str | list[Json] | None, **HISTORY},
    is_open=True,
)
CompactedResponse = shape(
    "CompactedResponse",
    "The users' messages that were sent, then the item that stands for all.",
    {"id": str, "object": Literal["response.compaction"], "created_at": int, "output": list[Json], "usage": Json},
)


def refers(body: Json) -> bool:
    """Returns whether the body has or asks for an item that represents a stored item, or all items before it; or for
    sealed thoughts."""
    if body.get("context_management") is not None or _wants_thoughts(body):
        return True
    given = body.get("input")
    if not isinstance(given, list):
        return False
    return any(
        isinstance(item, dict)
        and (item.get("type") in request_parser.STANDING or is_reference(item) or is_own_thought(item))
        for item in given
    )


def _wants_thoughts(body: Json) -> bool:
    return isinstance(include := body.get("include"), list) and response_completion.ENCRYPTED in include


def is_reference(item: Any) -> bool:
    """Returns whether an item names a stored one and is nothing else."""
    if not isinstance(item, dict):
        return False
    is_bare = item.get("type") is None and "role" not in item and isinstance(item.get("id"), str)
    return is_bare or item.get("type") == "item_reference"


async def with_referred(body: Json, tenant: str, store: ConversationStore) -> Json:
    """Returns the body with references to stored items replaced by the items.
    Raises InvalidRequest: one names none, or ItemNotFound: the tenant has no such item; `param` of both is
    `input[i].id`; StorageUnavailable: the storage cannot be reached."""
    given = body.get("input")
    if not isinstance(given, list):
        return body
    named = {i: text_of(item, "id", f"input[{i}]") for i, item in enumerate(given) if is_reference(item)}
    if not named:
        return body
    places = {index: items.message_id_of(item_id) for index, item_id in named.items()}
    stored = await store.said_anywhere(tenant, list({each for each in places.values() if each is not None}))
    found = list(given)
    near: list[ConversationMessage] | None = None
    for index, item_id in named.items():
        message = stored.get(places[index] or "")
        item = stored_response.referred(message, item_id) if message is not None else None
        if item is None and not item_id.startswith(items.NEVER_HOSTED):
            near = [*stored.values(), *await _named_history(body, tenant, store)] if near is None else near
            item = next((call for each in near if (call := stored_response.referred(each, item_id)) is not None), None)
        if item is None:
            text = f"Item with id '{item_id}' not found. Items are not kept where `store` is false."
            raise errors.ItemNotFound(text, param=f"input[{index}].id")
        found[index] = item
    return {**body, "input": found}


async def _named_history(body: Json, tenant: str, store: ConversationStore) -> Sequence[ConversationMessage]:
    """Returns the messages of the history that a request names, latest first. A hosted call has its maker's id, which
    does not tell its message."""
    ref = _history_ref(body)
    found = await store.find_conversation(tenant, ref, max_bytes=None) if ref is not None else None
    return found.path[::-1] if found is not None else ()


def _history_ref(body: Json) -> ConversationRef | None:
    previous, named = body.get("previous_response_id"), body.get("conversation")
    named = named.get("id") if isinstance(named, dict) else named
    if previous is not None:
        return ConversationRef(behind=str(previous))
    return ConversationRef(str(named)) if named is not None else None


TRIGGER = "compaction_trigger"
COMPACT_LOOKUP_BYTES = 2000
"""Bytes to read of a stored path where only its end is needed."""


class ResolvedItems(NamedTuple):
    """A body with its compaction items and references expanded; and the stored message after which it continues, where
    that was compacted."""

    body: Json
    at: str | None = None
    before: bool = False
    """Whether the request continues before that message."""
    sealer: CompactionSealer | None = None
    """Makes the compaction item where the client wants one when its history is compacted."""
    thoughts: ThoughtSealer | None = None
    """Seals the answer's thoughts, if the client wants them sealed."""


@dataclass(slots=True)
class CompactionEndpoint:
    """The endpoint, and the functions that the endpoint of responses shares."""

    _store: ConversationStore
    _auth: KeyAuthenticator
    _settings: Settings
    _clock: ports.Clock
    _check_model: Callable[[str, RequestCaller], object]
    """Raises the error of a model that the caller may not use."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers `POST /v1/responses/compact`."""
        got = await received(scope, receive, self._auth, self._settings.server.max_body_bytes)
        body = await got.object()
        given = body.get("input")
        item = await self.item(body, got.caller, len(got.raw))
        users = [each for each in given if _is_users(each)] if isinstance(given, list) else []
        if isinstance(given, str):
            users = [{"role": "user", "content": given}]
        answer = {
            "id": ids.new_id(ids.RESPONSE),
            "object": "response.compaction",
            "created_at": int(self._clock.now().timestamp()),
            "output": [*map(_as_output, users), item],
            "usage": response_completion.usage_of({}),
        }
        await send_json(send, 200, answer)

    async def answer(self, body: Json, caller: RequestCaller, scope: Scope, send: Send) -> None:
        """Sends a response that is only a compaction item, whole or streamed. `body`: the request without trigger."""
        item = await self.item(body, caller, 0)
        made = {
            "id": ids.new_id(ids.COMPLETION),
            "created": int(self._clock.now().timestamp()),
            "model": body.get("model"),
        }
        begins = response_completion.begun(made, response_completion.echo(body, store=False))
        response = response_completion.ended(begins, [item], None, {}, {})
        note_caller(scope["gateway"], caller)
        if not body.get("stream"):
            await send_json(send, 200, response)
            return
        await send_start(send, 200, EVENT_STREAM)
        events = b"".join(map(named_event, whole_events(begins, response)))
        await send({"type": "http.response.body", "body": events})

    async def item(self, body: Json, caller: RequestCaller, size: int) -> Json:
        """Makes the item that represents the history that a request names, and the input that it brings.
        Raises InvalidRequest: a field breaks a rule, or names nothing that is there; `param` names it; ModelNotFound,
        ModelNotAllowed, Unauthorized: the model cannot answer this caller."""
        model = body.get("model")
        if not isinstance(model, str):
            raise errors.missing("model")
        self._check_model(model, caller)
        body, at, before, *_ = await self.resolved(body, caller.tenant)
        names_history = body.get("previous_response_id") is not None or body.get("conversation") is not None
        if names_history:
            at, before = await self._end_of(caller.tenant, body), False
        if names_history and not body.get("input"):
            compacted = CompactionMark(at)
        else:
            reading = request_parser.read_request(body)
            request = self._request(reading, caller, size)
            compacted = await self._compacted(request, at, before=before, is_known=not names_history)
        return compacted.sealed_for(caller.tenant, await self._store.secret())

    async def resolved(self, body: Json, tenant: str) -> "ResolvedItems":
        """Expands the compaction items and references of a body.
        Raises GatewayError: an item is not there, or not this tenant's; `param` names the field."""
        sealer = None
        if body.get("context_management") is not None:
            sealer = CompactionSealer(tenant, await self._store.secret())
            if body.get("store") is False:
                names_history = body.get("previous_response_id") is not None or body.get("conversation") is not None
                end = await self._end_of(tenant, body) if names_history else None
                sealer = replace(sealer, messages=(), at=end)
        expanded = await self._expanded(body, tenant)
        resolved = await with_referred(expanded.body, tenant, self._store)
        thoughts = await self._thought_sealer(body, tenant)
        return expanded._replace(body=_with_opened(resolved, thoughts), sealer=sealer, thoughts=thoughts)

    async def _thought_sealer(self, body: Json, tenant: str) -> ThoughtSealer | None:
        """Returns what opens and seals thoughts; None if the storage cannot be reached, which has its secret: this
        costs the thoughts, not the answer."""
        try:
            return ThoughtSealer(tenant, await self._store.secret(), body.get("model"))
        except errors.StorageUnavailable:
            return None

    async def _expanded(self, body: Json, tenant: str) -> ResolvedItems:
        """Returns the body in which the content of its last compaction item replaces that item and all before it; and
        the stored message after which, or before which, the rest continues, if there is one.
        Raises InvalidRequest: the item is another tenant's, was changed, or represents what was deleted."""
        given = body.get("input")
        if not isinstance(given, list):
            return ResolvedItems(body)
        places = [i for i, each in enumerate(given) if isinstance(each, dict) and each.get("type") == "compaction"]
        if not places:
            return ResolvedItems(body)
        last = places[-1]
        where = f"input[{last}].encrypted_content"
        compacted = compaction_items.opened(given[last].get("encrypted_content"), tenant, await self._store.secret())
        if compacted is None:
            raise errors.invalid(where, "must be what this gateway made for this key, unchanged")
        at = compacted.at
        if at is not None and not await self._store.said_anywhere(tenant, [at]):
            at = None
            if compacted.extract is None and compacted.question is None:
                raise errors.invalid(where, "stands for a conversation that was deleted")
        before = [each if _is_systems(each) else request_parser.COVERED for each in given[:last]]
        is_covered = compacted.at is not None and compacted.before
        extract = CompactedExtract(compacted.extract, compacted.question)
        here = request_parser.COVERED if is_covered else extract
        resolved = {**body, "input": [*before, here, *given[last + 1 :]]}
        return ResolvedItems(resolved, at, before=compacted.before and at is not None)

    async def _end_of(self, tenant: str, body: Json) -> str | None:
        """Returns the last message of the history that a request names."""
        previous, ref = body.get("previous_response_id"), _history_ref(body)
        found = await self._store.find_conversation(tenant, ref, max_bytes=COMPACT_LOOKUP_BYTES) if ref else None
        if found is not None:
            return found.resume_point.message_id
        if previous is None:
            raise errors.ConversationNotFound("No such conversation.", param="conversation")
        text = f"Previous response with id '{previous}' not found."
        raise errors.InvalidRequest(text, param="previous_response_id", code="previous_response_not_found")

    def _request(self, reading: ResponsesReading, caller: RequestCaller, size: int) -> ChatRequest:
        arrival = RequestArrival(ids.new_id("req_"), self._clock.now(), self._clock.monotonic(), size)
        try:
            return parse_chat_request(reading.chat, {}, caller, self._settings, arrival)
        except errors.InvalidRequest as error:
            renamed(error, reading.external_field_name)
            raise

    async def _compacted(self, request: ChatRequest, at: str | None, *, before: bool, is_known: bool) -> CompactionMark:
        """Returns a mark that names what is stored of the messages by its position, and holds an extract of the rest.
        `is_known`: some of them may be stored."""
        sent = rebuild.sent_chain(request)
        kept = 0
        if is_known:
            found = await self._stored(request, ConversationRef(at=at, before=before))
            if found is not None and found.resume_point.message_id is not None:
                at, kept, before = found.resume_point.message_id, found.resume_point.kept, False
        return CompactionMark(at, compaction_items.extract_of(sent.bodies[kept:]), before)

    async def _stored(self, request: ChatRequest, ref: ConversationRef) -> StoredConversation | None:
        """Finds the stored conversation that begins with these messages, as far as its sender proves ownership."""
        sent, tenant = rebuild.sent_chain(request), request.caller.tenant
        match = self._settings.conversation.match
        answers = any(body["role"] == "assistant" for body in sent.bodies)
        if not answers or (ref.at is None and match == "off"):
            return None
        lookup = HistoryLookup(sent.bodies, sent.digests, maybe_delta=ref.at is not None)
        if ref.at is not None:
            return await self._store.find_conversation(tenant, ref, max_bytes=COMPACT_LOOKUP_BYTES, lookup=lookup)
        people = request.users
        if match == "user" and not people:
            return None
        keys = rebuild.recognition_keys(sent, ChainKeys(await self._store.secret(), tenant, people))
        lookup = HistoryLookup(lookup.bodies, lookup.digests, keys=keys, instructed=True)
        found = await self._store.find_conversation(tenant, UNNAMED, max_bytes=COMPACT_LOOKUP_BYTES, lookup=lookup)
        if found is None or not rebuild.has_evidence(lookup.bodies, found.resume_point.kept, found.path):
            return None
        return found


def triggered(body: Mapping[str, Any]) -> Json | None:
    """Returns the request without a trigger as last item; None without one. Raises InvalidRequest: one is elsewhere."""
    given: Sequence[Any] = body["input"] if isinstance(body.get("input"), list) else ()
    places = [i for i, each in enumerate(given) if isinstance(each, dict) and each.get("type") == TRIGGER]
    if not places:
        return None
    if places != [len(given) - 1]:
        raise errors.invalid(f"input[{places[0]}].type", f"must not be {TRIGGER}: only the last item may be one")
    return {**body, "input": list(given[:-1])}


def _with_opened(body: Json, sealer: ThoughtSealer | None) -> Json:
    """Returns the body with the thoughts that the gateway sealed."""
    given = body.get("input")
    if not isinstance(given, list) or not any(map(is_own_thought, given)):
        return body
    opened = readable if sealer is None else sealer.opened
    return {**body, "input": [opened(item) if is_own_thought(item) else item for item in given]}


def _is_users(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") in (None, "message") and item.get("role") == "user"


def _is_systems(item: Any) -> bool:
    is_message = isinstance(item, dict) and item.get("type") in (None, "message")
    return is_message and item.get("role") in INSTRUCTION_ROLES


def _as_output(item: Json) -> Json:
    """Returns a user's message as an item of an answer."""
    content = item.get("content")
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    item_id = item.get("id") or ids.answer_id(ids.new_id(ids.COMPLETION))
    return {"id": item_id, "type": "message", "status": "completed", "role": "user", "content": parts}
