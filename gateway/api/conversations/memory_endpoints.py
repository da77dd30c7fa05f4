"""Serves `/v1/conversations/{id}/memory…` and `/v1/memory…`: entities, listed, searched, noted and deleted (guarantee
§11.17); and `/v1/conversations/{id}/attachments…`: the documents of a conversation, listed, read and deleted singly.
"""

from dataclasses import replace
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from gateway.api.api_call import ApiCall, MethodEndpoint
from gateway.api.auth import KeyAuthenticator
from gateway.api.pagination import Query, check_named, limit_of, listed, newest_first, number_of, paging_of
from gateway.api.request.remembered_entities import (
    MemoryThingObject,
    RememberedEntities,
    ThingField,
    as_memory,
    things_in,
)
from gateway.api.request.validation import CONVERSATION_ID
from gateway.api.shapes import Deleted, Json, ListObject, Unix, either, shown
from gateway.core import errors, names
from gateway.core.types import memory, records
from gateway.pipeline import entity_memory
from gateway.storage import EntityStore
from gateway.storage.conversations import ConversationRecords

MAX_QUERY_CHARS = 1000
THING_FIELDS = ("type", "id", "name", "aliases", "action")


NewThings = either("NewThings", ThingField, RememberedEntities)


class ThingConversationObject(TypedDict):
    """A conversation that is about a thing, with what was done with it there last."""

    id: str
    object: Literal["memory.conversation"]
    memory_id: str
    action: str
    times: int
    mentioned_at: Unix


class MemoryEndpoints:
    """The endpoints: `of_conversation`, `conversations` of an entity, `all`, and `one`, of a conversation or of any."""

    def __init__(self, memory: EntityStore, auth: KeyAuthenticator, max_body_bytes: int, days: float | None) -> None:
        self._memory = memory
        self._days = days
        self.of_conversation = MethodEndpoint(auth, max_body_bytes, {"GET": self._list, "POST": self._note})
        self.conversations = MethodEndpoint(auth, 0, {"GET": self._conversations})
        self.all = MethodEndpoint(auth, 0, {"GET": self._list_all})
        self.one = MethodEndpoint(auth, 0, {"GET": self._find, "DELETE": self._delete})

    async def _list(self, call: ApiCall) -> ListObject[MemoryThingObject]:
        place = call.conversation_id
        if call.query.get("query") is not None:
            await self._memory.require(call.tenant, place)
            return await self._found(call, place)
        page = await self._memory.page(call.tenant, _page_of(call, place), place)
        return listed([as_memory(each) for each in page.found], has_more=page.has_more)

    async def _list_all(self, call: ApiCall) -> ListObject[MemoryThingObject]:
        check_named(call.query, "user")
        user = _own(call, call.query.get("user"))
        if call.is_unnamed and user is None:
            raise errors.invalid("user", "is required without an API key")
        place = await self._memory.place_of(call.tenant, user) if user is not None else None
        own = await self._own_place(call)
        if call.query.get("query") is not None:
            return await self._found(call, place, own)
        page = await self._memory.page(call.tenant, replace(_page_of(call, place), own=own))
        return listed([as_memory(each) for each in page.found], has_more=page.has_more)

    async def _own_place(self, call: ApiCall) -> str | None:
        """Returns the place of the user that the caller's token names, who sees no other user's; None for a key."""
        user = call.received.caller.user
        return await self._memory.place_of(call.tenant, user) if user is not None else None

    async def _found(self, call: ApiCall, place: str | None, own: str | None = None) -> ListObject[MemoryThingObject]:
        """Returns the best matches of a search, which has one page."""
        check_named(call.query, "query")
        query, limit = call.query["query"], limit_of(call.query)
        if len(query) > MAX_QUERY_CHARS:
            raise errors.invalid("query", f"must have at most {MAX_QUERY_CHARS} characters")
        for name in ("after", "type"):
            if name in call.query:
                raise errors.invalid(name, "is for lists; a search has one page, of things of all types")
        found = await self._memory.search(call.tenant, place, entity_memory.search_of(query), limit, own)
        return listed([as_memory(each) for each in entity_memory.ranked(query, found)], has_more=False)

    async def _note(self, call: ApiCall) -> ListObject[MemoryThingObject]:
        place = call.conversation_id
        body = await call.body(*THING_FIELDS, "remember", "scope", "user")
        notes, user = things_in(body, call.received.caller.user)
        made = await self._memory.note(call.tenant, place, notes, user, self._days)
        return listed([as_memory(each) for each in made], has_more=False)

    async def _find(self, call: ApiCall) -> MemoryThingObject:
        return as_memory(await self._memory.one(call.tenant, _name(call), _place(call), await self._own_place(call)))

    async def _delete(self, call: ApiCall) -> Deleted[Literal["memory.thing.deleted"]]:
        place, own = _place(call), await self._own_place(call)
        await self._memory.delete(call.tenant, _name(call), place, call.actor, own)
        return {"id": _name(call), "object": "memory.thing.deleted", "deleted": True}

    async def _conversations(self, call: ApiCall) -> ListObject[ThingConversationObject]:
        if call.is_unnamed:
            raise errors.Unauthorized("An API key is required to list the conversations that are about a thing.")
        kind, thing_id = call.path["type"], call.path["thing_id"]
        if names.has_nul(kind, thing_id):
            return listed([], has_more=False)
        query = _page_of(call)
        if query.after is not None and not CONVERSATION_ID.match(query.after):
            raise errors.invalid("after", "must be the id of a conversation")
        page = await self._memory.conversations(call.tenant, kind, thing_id, query)
        found = [
            shown(ThingConversationObject, each, id=each.conversation_id, object="memory.conversation")
            for each in page.found
        ]
        return listed(found, has_more=page.has_more)


def _page_of(call: ApiCall, place: str | None = None) -> memory.ThingQuery:
    check_named(call.query, "after", "type")
    after, kind = call.query.get("after"), call.query.get("type")
    if names.has_nul(after):
        raise errors.MemoryNotFound("No such memory.", param="after")
    if names.has_nul(kind):
        raise errors.invalid("type", "must be a type of things")
    return memory.ThingQuery(limit_of(call.query), after, newest_first(call.query, "desc"), place, kind)


def _place(call: ApiCall) -> str | None:
    """Returns the conversation that the path names; None: it names none."""
    return call.conversation_id if "conversation_id" in call.path else None


def _name(call: ApiCall) -> str:
    name = call.path["memory_id"]
    if names.has_nul(name):
        raise errors.MemoryNotFound("No such memory.", param="memory_id")
    return name


def _own(call: ApiCall, named: str | None) -> str | None:
    """Returns the user that a request means: a user named by the caller's token, and nobody else (guarantee §12.17)."""
    return named and (call.received.caller.user or named)


MAX_CHARACTERS = 10**12 - 1


class IndexProgress(TypedDict):
    """Of a large document: how far it is indexed."""

    status: str
    progress: float


class AttachmentObject(TypedDict):
    """An attached document; one alone has its content. `id` is its `artifact_id` on bills, `source` what its client
    said of it."""

    id: str
    object: Literal["conversation.attachment"]
    created_at: Unix
    title: str | None
    source: str | None
    attachment_type: str
    size_chars: int
    number: int
    index: NotRequired[IndexProgress]
    file_id: NotRequired[
        Annotated[str, Field(description="The file of `/v1/files` that it was read from, where that is kept here.")]
    ]
    content: NotRequired[str]
    offset: NotRequired[int]
    next_offset: NotRequired[int | None]


def as_attachment(record: records.AttachmentRecord) -> AttachmentObject:
    """Returns the object of an attached document, without its text."""
    document, index = record.document, record.index
    of_one: Json = dict.fromkeys(("content", "offset", "next_offset"))
    return shown(
        AttachmentObject,
        document,
        id=document.artifact_id,
        object="conversation.attachment",
        created_at=record.created_at,
        source=document.origin,
        attachment_type=record.kind,
        number=record.number,
        index=shown(IndexProgress, index) if index is not None else None,
        file_id=record.file_id,
        **of_one,
    )


class AttachmentEndpoints:
    """The endpoints `all` and `one`."""

    def __init__(self, records: ConversationRecords, auth: KeyAuthenticator) -> None:
        self._records = records
        self.all = MethodEndpoint(auth, 0, {"GET": self._list})
        self.one = MethodEndpoint(auth, 0, {"GET": self._find, "DELETE": self._delete})

    async def _list(self, call: ApiCall) -> ListObject[AttachmentObject]:
        query = paging_of(call.query, "asc")
        _check_name(query.after or "", "after")
        page = await self._records.attachments(call.tenant, call.conversation_id, query)
        return listed([as_attachment(each) for each in page.found], has_more=page.has_more)

    async def _find(self, call: ApiCall) -> AttachmentObject:
        found = await self._records.attachment(call.tenant, call.conversation_id, _attachment(call), _part(call.query))
        answer: AttachmentObject = {**as_attachment(found), "content": found.document.content}
        if found.part is not None:
            end = found.part + len(found.document.content)
            more = found.document.content and end < found.document.size_chars
            answer |= {"offset": found.part, "next_offset": end if more else None}
        return answer

    async def _delete(self, call: ApiCall) -> Deleted[Literal["conversation.attachment.deleted"]]:
        name = _attachment(call)
        await self._records.delete_attachment(call.tenant, call.conversation_id, name, call.actor)
        return {"id": name, "object": "conversation.attachment.deleted", "deleted": True}


def _part(query: Query) -> records.TextPart:
    """The part of the text that `offset` and `limit` name."""
    if "offset" not in query and "limit" not in query:
        return records.WHOLE_TEXT
    rule = "must be a whole number of characters, {} or more"
    limit = number_of(query, "limit", rule.format(1), 1, MAX_CHARACTERS)
    return records.TextPart(number_of(query, "offset", rule.format(0), 0, MAX_CHARACTERS) or 0, limit)


def _attachment(call: ApiCall) -> str:
    return _check_name(call.path["attachment_id"], "attachment_id")


def _check_name(name: str, param: str) -> str:
    if names.has_nul(name):
        raise errors.NotFound("No such attachment.", param=param, code="attachment_not_found")
    return name
