"""`/v1/conversations…`: OpenAI's Conversations API over the stored histories, and a list of them (contract §3, §8)."""

from collections.abc import Mapping
from typing import Any

from gateway.errors import ConversationNotFound, InvalidRequest
from gateway.http.auth import ANONYMOUS, Authenticator
from gateway.http.messages import invalid
from gateway.http.paging import check_named, limit_of, listed, newest_first
from gateway.http.records import as_conversation, given_metadata, record_query
from gateway.http.resource import Answer, Call, Endpoint
from gateway.ids import new_id
from gateway.models.records import ItemQuery
from gateway.ports import ConversationRecords, ConversationStore


class Conversations:
    """What the paths answer."""

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

    async def _create(self, call: Call) -> dict[str, Any]:
        body = await call.body("metadata", "items")
        metadata = given_metadata(body.get("metadata"))
        messages = await call.messages(body["items"]) if body.get("items") is not None else ()
        made = await self._records.create(call.tenant, new_id("conv_"), metadata, messages, call.request_id)
        return as_conversation(made)

    async def _find(self, call: Call) -> dict[str, Any]:
        return as_conversation(await self._records.find(call.tenant, call.conversation_id))

    async def _update(self, call: Call) -> dict[str, Any]:
        conversation_id = call.conversation_id
        body = await call.body("metadata")
        if "metadata" not in body:
            raise InvalidRequest("metadata is required.", param="metadata", code="missing_required_parameter")
        return as_conversation(
            await self._records.update(call.tenant, conversation_id, given_metadata(body["metadata"]))
        )

    async def _delete(self, call: Call) -> dict[str, Any]:
        conversation_id = call.conversation_id
        if not await self._store.delete_conversation(call.tenant, conversation_id):
            raise ConversationNotFound("No such conversation.", param="conversation_id")
        return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}

    async def _list(self, call: Call) -> dict[str, Any]:
        query = record_query(call.query)
        if call.tenant == ANONYMOUS and query.session is None:  # everyone without a key is that tenant
            raise invalid("session", "is required without an API key")
        page = await self._records.list_page(call.tenant, query)
        return listed([as_conversation(each) for each in page.found], has_more=page.has_more)

    async def _items(self, call: Call) -> dict[str, Any]:
        check_named(call.query, "after")
        paging = (limit_of(call.query), call.query.get("after"), newest_first(call.query, "desc"))
        page = await self._records.items(call.tenant, call.conversation_id, ItemQuery(*paging))
        return listed(list(page.items), has_more=page.has_more)

    async def _add(self, call: Call) -> dict[str, Any]:
        conversation_id = call.conversation_id
        body = await call.body("items")
        messages = await call.messages(body.get("items"))
        made = await self._records.add_items(call.tenant, conversation_id, messages, call.request_id)
        return listed(made, has_more=False)

    async def _item(self, call: Call) -> dict[str, Any]:
        return await self._records.item(call.tenant, call.conversation_id, call.path["item_id"])

    async def _delete_item(self, call: Call) -> dict[str, Any]:
        found = await self._records.delete_item(call.tenant, call.conversation_id, call.path["item_id"])
        return as_conversation(found)
