"""`/v1/chat/completions…`, stored: any bill can be checked afterwards (guarantee §6)."""

from typing import Literal, NotRequired, cast

from typing_extensions import TypedDict

from gateway.api.api_call import ApiCall, MethodEndpoint
from gateway.api.auth import KeyAuthenticator
from gateway.api.fields import Metadata
from gateway.api.pagination import (
    Query,
    check_named,
    given_metadata,
    limit_of,
    listed,
    metadata_of,
    newest_first,
    paging_of,
    part_of,
)
from gateway.api.request.chat_shapes import BILL, COMPLETION
from gateway.api.request.stored_answer import as_completion
from gateway.api.shapes import Deleted, Json, ListObject, Unix, open_ended, shape
from gateway.core import errors, ids
from gateway.core.types import items, turn
from gateway.core.types.content_parts import texts_of
from gateway.storage import ConversationStore

MetadataUpdate = shape("MetadataUpdate", "Replaces the metadata as a whole.", {"metadata": Metadata | None})
StoredChat = shape(
    "StoredCompletion",
    "A completion with its bill; without choices where its content was not stored.",
    COMPLETION
    | BILL
    | {"object": Literal["chat.completion"], "created": Unix, "status": turn.TurnStatus, "metadata?": Metadata},
    is_open=True,
)


@open_ended
class StoreMessage(TypedDict):
    """A message that a completion answers."""

    id: str
    role: str
    content: NotRequired[str | None]


class StoredCompletions:
    """The endpoints `all` (a page of the tenant's or of a conversation's), `one` (by `chatcmpl-…` or `req_…`: read,
    changed, deleted) and `messages` (what it answers)."""

    def __init__(self, store: ConversationStore, auth: KeyAuthenticator, max_body_bytes: int) -> None:
        self._store = store
        self.all = MethodEndpoint(auth, 0, {"GET": self._list})
        self.one = MethodEndpoint(
            auth, max_body_bytes, {"GET": self._find, "POST": self._update, "DELETE": self._delete}
        )
        self.messages = MethodEndpoint(auth, 0, {"GET": self._messages})

    async def _list(self, call: ApiCall) -> ListObject[Json]:
        query = completion_query(call.query)
        conversation_id = query.conversation_id
        if conversation_id is None and call.is_unnamed:
            raise errors.invalid("conversation", "is required without an API key")
        if conversation_id is not None and not await self._store.has_conversation(call.tenant, conversation_id):
            raise errors.ConversationNotFound("No such conversation.", param="conversation")
        page = await self._store.list_completions(call.tenant, query)
        if page is None:
            raise errors.CompletionNotFound("No such completion.", param="after")
        return listed([_shown(each) for each in page.found], has_more=page.has_more)

    async def _find(self, call: ApiCall) -> Json:
        return _found(await self._store.find_completion(call.tenant, ids.completion_of(call.path["completion_id"])))

    async def _update(self, call: ApiCall) -> Json:
        body = await call.body("metadata")
        if "metadata" not in body:
            raise errors.InvalidRequest("metadata is required.", param="metadata", code="missing_required_parameter")
        metadata = given_metadata(body["metadata"])
        return _found(
            await self._store.update_completion(call.tenant, ids.completion_of(call.path["completion_id"]), metadata)
        )

    async def _delete(self, call: ApiCall) -> Deleted[Literal["chat.completion.deleted"]]:
        name = call.path["completion_id"]
        if not await self._store.delete_completion(call.tenant, ids.completion_of(name), call.actor):
            raise _unknown()
        return {"id": name, "object": "chat.completion.deleted", "deleted": True}

    async def _messages(self, call: ApiCall) -> ListObject[StoreMessage]:
        paging = paging_of(call.query, "asc")
        found = await self._store.completion_input(call.tenant, ids.completion_of(call.path["completion_id"]))
        if found is None:
            raise _unknown()
        return part_of([as_store_message(name, body) for name, body in found], paging, "No such message.")


def _found(stored: turn.StoredCompletion | None) -> Json:
    if stored is None:
        raise _unknown()
    return _shown(stored)


def _shown(stored: turn.StoredCompletion) -> Json:
    found = as_completion(stored)
    choices = [
        {**each, "message": items.without_stand_ins(each["message"])} if each.get("message") else each
        for each in found["choices"]
    ]
    return {**found, "choices": choices}


def _unknown() -> errors.CompletionNotFound:
    return errors.CompletionNotFound("No such completion.", param="completion_id")


def as_store_message(name: str, body: Json) -> StoreMessage:
    """Returns OpenAI's object of a message: a content of parts is in `content_parts`, its text in `content`."""
    content, parts = body.get("content"), None
    if not isinstance(content, str | None):
        content, parts = "\n".join(texts_of(content, "text")) or None, content
    shown = {key: value for key, value in items.without_stand_ins(body).items() if key != items.BOUND}
    return cast("StoreMessage", {**shown, "id": name, "content": content, "content_parts": parts})


def completion_query(query: Query) -> turn.CompletionQuery:
    """Parses the query of a list of completions: OpenAI's parameters, `conversation` and `agent`; others are ignored.
    Raises InvalidRequest: a parameter breaks its rule; `param` names it."""
    check_named(query, "conversation", "model", "after", "agent")
    found = (query.get("conversation"), query.get("model"), metadata_of(query), limit_of(query), query.get("after"))
    return turn.CompletionQuery(*found, newest_first=newest_first(query, "asc"), agent=query.get("agent"))
