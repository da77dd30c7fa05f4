"""`/v1/conversations/{id}/attachments…`: the documents of a conversation, listed, read and deleted singly."""

from typing import Any

from gateway.errors import NotFound
from gateway.http.api_call import ApiCall, Endpoint
from gateway.http.auth import Authenticator
from gateway.http.queries import check_named, limit_of, listed, newest_first
from gateway.models.records import AttachmentRecord, ItemQuery
from gateway.storage.conversations.records import ConversationRecords


def as_attachment(record: AttachmentRecord) -> dict[str, Any]:
    """A document without its text; `id` is its `artifact_id` on bills, `source` what its client said of it."""
    document = record.document
    return {
        "id": document.artifact_id,
        "object": "conversation.attachment",
        "created_at": int(record.created_at.timestamp()),
        "title": document.title,
        "source": document.origin,
        "attachment_type": record.kind,
        "size_chars": document.size_chars,
        "number": record.number,
        **({"file_id": record.file_id} if record.file_id is not None else {}),
    }


class Attachments:
    """The endpoints `all` and `one`."""

    def __init__(self, records: ConversationRecords, auth: Authenticator) -> None:
        self._records = records
        self.all = Endpoint(auth, 0, {"GET": self._list})
        self.one = Endpoint(auth, 0, {"GET": self._find, "DELETE": self._delete})

    async def _list(self, call: ApiCall) -> dict[str, Any]:
        check_named(call.query, "after")
        query = ItemQuery(limit_of(call.query), call.query.get("after"), newest_first(call.query, "asc"))
        _check_name(query.after or "", "after")
        page = await self._records.attachments(call.tenant, call.conversation_id, query)
        return listed([as_attachment(each) for each in page.found], has_more=page.has_more)

    async def _find(self, call: ApiCall) -> dict[str, Any]:
        found = await self._records.attachment(call.tenant, call.conversation_id, _name(call))
        return {**as_attachment(found), "content": found.document.content}

    async def _delete(self, call: ApiCall) -> dict[str, Any]:
        name = _name(call)
        await self._records.delete_attachment(call.tenant, call.conversation_id, name, call.actor)
        return {"id": name, "object": "conversation.attachment.deleted", "deleted": True}


def _name(call: ApiCall) -> str:
    return _check_name(call.path["attachment_id"], "attachment_id")


def _check_name(name: str, param: str) -> str:
    if "\x00" in name:  # PostgreSQL takes no NUL, and nothing has such an id
        raise NotFound("No such attachment.", param=param, code="attachment_not_found")
    return name
