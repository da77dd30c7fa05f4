"""`/v1/conversations/{id}/attachments…`: the documents of a conversation, listed, read and deleted singly."""

from typing import Any

from gateway.api.api_call import ApiCall, MethodEndpoint
from gateway.api.auth import KeyAuthenticator
from gateway.api.fields import invalid
from gateway.api.pagination import Query, check_named, limit_of, listed, newest_first
from gateway.core.errors import NotFound
from gateway.core.names import has_nul
from gateway.core.types.large import LargeIndex
from gateway.core.types.records import WHOLE_TEXT, AttachmentRecord, ItemQuery, TextPart
from gateway.storage.conversations.conversation_records import ConversationRecords

MAX_DIGITS = 12


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
        **({"index": _index(record.index)} if record.index is not None else {}),
        **({"file_id": record.file_id} if record.file_id is not None else {}),
    }


def _index(index: LargeIndex) -> dict[str, Any]:
    """How far a large document is indexed (guarantee §14.7)."""
    return {"status": index.status, "progress": index.progress}


class AttachmentEndpoints:
    """The endpoints `all` and `one`."""

    def __init__(self, records: ConversationRecords, auth: KeyAuthenticator) -> None:
        self._records = records
        self.all = MethodEndpoint(auth, 0, {"GET": self._list})
        self.one = MethodEndpoint(auth, 0, {"GET": self._find, "DELETE": self._delete})

    async def _list(self, call: ApiCall) -> dict[str, Any]:
        check_named(call.query, "after")
        query = ItemQuery(limit_of(call.query), call.query.get("after"), newest_first(call.query, "asc"))
        _check_name(query.after or "", "after")
        page = await self._records.attachments(call.tenant, call.conversation_id, query)
        return listed([as_attachment(each) for each in page.found], has_more=page.has_more)

    async def _find(self, call: ApiCall) -> dict[str, Any]:
        found = await self._records.attachment(call.tenant, call.conversation_id, _name(call), _part(call.query))
        answer = {**as_attachment(found), "content": found.document.content}
        if found.part is None:
            return answer
        end = found.part + len(found.document.content)
        more = found.document.content and end < found.document.size_chars
        return {**answer, "offset": found.part, "next_offset": end if more else None}

    async def _delete(self, call: ApiCall) -> dict[str, Any]:
        name = _name(call)
        await self._records.delete_attachment(call.tenant, call.conversation_id, name, call.actor)
        return {"id": name, "object": "conversation.attachment.deleted", "deleted": True}


def _part(query: Query) -> TextPart:
    """The part of the text that `offset` and `limit` name."""
    if "offset" not in query and "limit" not in query:
        return WHOLE_TEXT
    limit = _whole(query, "limit", 1) if "limit" in query else None
    return TextPart(_whole(query, "offset", 0) if "offset" in query else 0, limit)


def _whole(query: Query, name: str, least: int) -> int:
    value = query[name]
    if not (value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS and int(value) >= least):
        raise invalid(name, f"must be a whole number of characters, {least} or more")
    return int(value)


def _name(call: ApiCall) -> str:
    return _check_name(call.path["attachment_id"], "attachment_id")


def _check_name(name: str, param: str) -> str:
    if has_nul(name):
        raise NotFound("No such attachment.", param=param, code="attachment_not_found")
    return name
