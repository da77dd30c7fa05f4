"""Reads what is attached to a request: each attachment becomes a text, once; the conversation keeps the text."""

from dataclasses import replace
from typing import Any, NamedTuple

from gateway.core import errors, ports
from gateway.core.tasks import offload_if
from gateway.core.types import places
from gateway.core.types.artifacts import RequestAttachment
from gateway.core.types.chat import ChatRequest
from gateway.documents.document import DocumentFile, DocumentOwner, UnreadableDocument
from gateway.documents.file_reader import FileReader, encoded_document, sent_document, stored_document

INLINE_CHARS = 100_000
"""Fewer characters are decoded in less time than a thread takes to start."""


class HeldDocument(NamedTuple):
    """The document that an attachment holds or names, None where its content is a text as it is. `fields`: what the
    attachment says of it; `keeps`: what is read of it may outlive the request."""

    document: DocumentFile | None
    fields: dict[str, Any]
    keeps: bool = False


class AttachmentReader:
    """Puts texts into the attachments of requests.
    `files`: where those are that an attachment names; `reader`: reads them as those of messages are read."""

    def __init__(self, files: ports.FileStore, reader: FileReader) -> None:
        self._files = files
        self._reader = reader

    async def with_contents(self, request: ChatRequest) -> ChatRequest:
        """The request with a text as the content of each attachment.
        Raises NotFound: no such file for this client; names its field; InvalidRequest: an attachment is no readable
        document, or has no text; names its field."""
        found = []
        for index, attachment in enumerate(request.attachments):
            where = f"attachments[{index}].{_field_of(attachment)}"
            found.append(await self._with_content(attachment, where, request))
        return replace(request, attachments=tuple(found))

    async def _with_content(self, attachment: RequestAttachment, where: str, request: ChatRequest) -> RequestAttachment:
        what, by_id = where, _id_of(attachment)
        if attachment.file_data is None and attachment.content is None:
            what = f"The file {by_id!r} of {where}"
        try:
            held = await self._held(attachment, request)
            if held.document is None:
                return attachment.model_copy(update=held.fields) if held.fields else attachment
            text = await self._text(held.document, DocumentOwner(request.caller.tenant, keeps=held.keeps))
        except errors.NotFound as error:
            raise errors.NotFound(error.message, param=where, code="attachment_not_found") from error
        except UnreadableDocument as error:
            raise errors.InvalidRequest(
                f"{what} cannot be read: {error}.", param=where, code="invalid_value"
            ) from error
        return attachment.model_copy(update={"content": text, **held.fields})

    async def _held(self, attachment: RequestAttachment, request: ChatRequest) -> HeldDocument:
        """The document of an attachment; the bytes that were sent are not kept."""
        title = attachment.title or attachment.filename
        if (data := attachment.file_data) is not None:
            document = await offload_if(
                len(data) > INLINE_CHARS, sent_document, data, attachment.filename or title or ""
            )
            return HeldDocument(document, {"title": title, "file_data": None})
        if (content := attachment.content) is not None:
            hints = (attachment.attachment_type, title or "")
            encoded = await offload_if(len(content) > INLINE_CHARS, encoded_document, content, *hints)
            return HeldDocument(encoded, {"title": title} if title else {})
        file = await self._files.fetch(_id_of(attachment), request.caller)
        name = attachment.filename or file.name
        fields = {"title": title or file.name, "file_id": _id_of(attachment) if file.own else None}
        document = stored_document(name, file.media_type, file.content, pictures=True)
        return HeldDocument(document, fields, keeps=file.own and request.store)

    async def _text(self, document: DocumentFile, owner: DocumentOwner) -> str:
        """What a document says, with the notes on it; from the cache if it may be there.
        Raises UnreadableDocument: also where it has no text."""
        if owner.keeps:
            reading, _ = await self._reader.best(document, owner)
        else:
            reading = await self._reader.documents.read(document, owner.tenant)
        if reading.pages and len(reading.empty) == len(reading.pages):
            raise UnreadableDocument("it has no text, but pictures alone")
        said = places.PLACE_MARKER.sub("", reading.text) if reading.pages else reading.text
        if not said or said.isspace():
            raise UnreadableDocument("it has no text")
        return reading.told


def _field_of(attachment: RequestAttachment) -> str:
    """The field that says what is attached."""
    if attachment.file_data is not None:
        return "file_data"
    if attachment.content is not None:
        return "content"
    return "attachment_id" if attachment.attachment_id is not None else "file_id"


def _id_of(attachment: RequestAttachment) -> str:
    return attachment.attachment_id or attachment.file_id or ""
