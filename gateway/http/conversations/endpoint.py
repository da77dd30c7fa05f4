"""`/v1/conversations…`: OpenAI's Conversations API over the stored histories, and a list of them (guarantee §3, §8)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from gateway.base.ids import new_id
from gateway.base.tasks import offload_if
from gateway.errors import ConversationNotFound, InvalidRequest, StorageUnavailable
from gateway.http.auth import ANONYMOUS, UNKNOWN, Authenticator
from gateway.http.chat.validation import CONVERSATION_ID
from gateway.http.conversations.completions import check_named, limit_of, listed, metadata_of, newest_first, parameters
from gateway.http.conversations.items import parse_items
from gateway.http.edge import Receive, Scope, Send, answer_headers, send_json
from gateway.http.fields import invalid, is_session_name, keeps_metadata_rules
from gateway.http.receive import LARGE_BODY, json_body, read_body
from gateway.models.conversation import ConversationMessage
from gateway.models.records import ConversationRecord, ItemQuery, RecordQuery
from gateway.storage.conversations.records import ConversationRecords
from gateway.storage.store import ConversationStore

T = TypeVar("T")
LATEST = 253_402_300_798
"""Latest Unix time of a query: a second may be added, and databases hold no time after the year 9999."""


def as_conversation(record: ConversationRecord) -> dict[str, Any]:
    """OpenAI's object; `updated_at` and `session` are the gateway's own."""
    return {
        "id": record.conversation_id,
        "object": "conversation",
        "created_at": int(record.created_at.timestamp()),
        "metadata": record.metadata,
        "updated_at": int(record.updated_at.timestamp()),
        "session": record.session,
    }


def record_query(query: Mapping[str, str]) -> RecordQuery:
    """The parameters of a list of conversations.

    Raises:
        InvalidRequest: a parameter breaks its rule; names it.
    """
    check_named(query, "after", "session")
    after = query.get("after")
    if after is not None and not CONVERSATION_ID.match(after):
        raise ConversationNotFound("No such conversation.", param="after")
    session = query.get("session")
    if session is not None and not is_session_name(session):
        raise invalid("session", "must be 1 to 256 printable characters")
    return RecordQuery(
        limit=limit_of(query),
        after=after,
        newest_first=newest_first(query, "desc"),
        created_from=_unix_time(query, "created_after", plus=1),
        created_until=_unix_time(query, "created_before"),
        updated_from=_unix_time(query, "updated_after", plus=1),
        updated_until=_unix_time(query, "updated_before"),
        metadata=metadata_of(query),
        session=session,
    )


def _unix_time(query: Mapping[str, str], name: str, *, plus: int = 0) -> datetime | None:
    """A Unix time in whole seconds, as conversations show theirs. With `plus` 1, the first that is after it."""
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= LATEST):
        raise invalid(name, "must be a Unix time in whole seconds")
    return datetime.fromtimestamp(int(text) + plus, UTC)


def given_metadata(value: Any) -> dict[str, str]:
    """
    Raises:
        InvalidRequest: it breaks OpenAI's rules.
    """
    if value is None:
        return {}
    if not keeps_metadata_rules(value):
        raise invalid("metadata", "must be an object of up to 16 strings of up to 512 characters, keys of up to 64")
    return dict(value)


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request to this API, read and authenticated; `path` and `query` are its parameters."""

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
            ConversationNotFound: no conversation can have the id of the path.
        """
        found = self.path["conversation_id"]
        if not CONVERSATION_ID.match(found):
            raise ConversationNotFound("No such conversation.", param="conversation_id")
        return found

    async def body(self, *known: str) -> dict[str, Any]:
        """The body, which may have these fields alone.

        Raises:
            InvalidRequest: it is no JSON object, or has another field.
        """
        body = await self._run(json_body, self.raw, self.scope)
        for name in body:
            if name not in known:
                raise invalid(name, f"is not known; known are {', '.join(known)}")
        return body

    async def messages(self, items: Any) -> tuple[ConversationMessage, ...]:
        """The chat messages that these items are."""
        return await self._run(parse_items, items)

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        return await offload_if(len(self.raw) >= LARGE_BODY, work, *args)


Answer = Callable[[ApiCall], Awaitable[dict[str, Any]]]


class Endpoint:
    """A path, with the function that answers each of its methods."""

    def __init__(self, auth: Authenticator, max_body_bytes: int, answers: Mapping[str, Answer]) -> None:
        self._auth = auth
        self._max_body_bytes = max_body_bytes
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._auth.caller(scope)
        raw = await read_body(scope, receive, self._max_body_bytes) if scope["method"] == "POST" else b""
        if caller.tenant == UNKNOWN:
            raise StorageUnavailable("The storage cannot be reached.")
        log_facts = scope["gateway"]
        log_facts["tenant"] = caller.tenant
        query = parameters(scope["query_string"].decode("latin-1"))
        call = ApiCall(caller.tenant, log_facts["request_id"], scope["path_params"], query, raw, scope)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        answer = await self._answers[method](call)
        conversation_id = call.path.get("conversation_id") or (answer["id"] if method == "POST" else None)
        log_facts["conversation_id"] = conversation_id
        await send_json(send, 200, answer, answer_headers(conversation_id))


class Conversations:
    """The endpoints of the API: `all`, `one`, `items` and `item`."""

    def __init__(
        self, records: ConversationRecords, store: ConversationStore, auth: Authenticator, max_body_bytes: int
    ) -> None:
        self._records = records
        self._store = store
        self._auth = auth
        self._max_body_bytes = max_body_bytes
        self.all = self._endpoint({"GET": self._list, "POST": self._create})
        self.one = self._endpoint({"GET": self._find, "POST": self._update, "DELETE": self._delete})
        self.items = self._endpoint({"GET": self._items, "POST": self._add})
        self.item = self._endpoint({"GET": self._item, "DELETE": self._delete_item})

    def _endpoint(self, answers: Mapping[str, Answer]) -> Endpoint:
        return Endpoint(self._auth, self._max_body_bytes, answers)

    async def _create(self, call: ApiCall) -> dict[str, Any]:
        body = await call.body("metadata", "items")
        metadata = given_metadata(body.get("metadata"))
        messages = await call.messages(body["items"]) if body.get("items") is not None else ()
        made = await self._records.create(call.tenant, new_id("conv_"), metadata, messages, call.request_id)
        return as_conversation(made)

    async def _find(self, call: ApiCall) -> dict[str, Any]:
        return as_conversation(await self._records.find(call.tenant, call.conversation_id))

    async def _update(self, call: ApiCall) -> dict[str, Any]:
        conversation_id = call.conversation_id
        body = await call.body("metadata")
        if "metadata" not in body:
            raise InvalidRequest("metadata is required.", param="metadata", code="missing_required_parameter")
        return as_conversation(
            await self._records.update(call.tenant, conversation_id, given_metadata(body["metadata"]))
        )

    async def _delete(self, call: ApiCall) -> dict[str, Any]:
        conversation_id = call.conversation_id
        if not await self._store.delete_conversation(call.tenant, conversation_id):
            raise ConversationNotFound("No such conversation.", param="conversation_id")
        return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}

    async def _list(self, call: ApiCall) -> dict[str, Any]:
        query = record_query(call.query)
        if call.tenant == ANONYMOUS and query.session is None:  # all callers without a key are one tenant
            raise invalid("session", "is required without an API key")
        page = await self._records.list_page(call.tenant, query)
        return listed([as_conversation(each) for each in page.found], has_more=page.has_more)

    async def _items(self, call: ApiCall) -> dict[str, Any]:
        check_named(call.query, "after")
        paging = (limit_of(call.query), call.query.get("after"), newest_first(call.query, "desc"))
        page = await self._records.items(call.tenant, call.conversation_id, ItemQuery(*paging))
        return listed(list(page.items), has_more=page.has_more)

    async def _add(self, call: ApiCall) -> dict[str, Any]:
        conversation_id = call.conversation_id
        body = await call.body("items")
        messages = await call.messages(body.get("items"))
        made = await self._records.add_items(call.tenant, conversation_id, messages, call.request_id)
        return listed(made, has_more=False)

    async def _item(self, call: ApiCall) -> dict[str, Any]:
        return await self._records.item(call.tenant, call.conversation_id, call.path["item_id"])

    async def _delete_item(self, call: ApiCall) -> dict[str, Any]:
        found = await self._records.delete_item(call.tenant, call.conversation_id, call.path["item_id"])
        return as_conversation(found)
