"""Reads what is attached to a request: files named by their id, and contents that are HTML or data URLs (guarantee §2).

What is left is text. It is read once: the conversation keeps the text.
"""

from dataclasses import replace

from gateway.base.tasks import offload_if
from gateway.documents.document import DocumentFile, UnreadableDocument
from gateway.documents.process import DocumentReader
from gateway.documents.recognize import encoded_document, stored_document
from gateway.errors import InvalidRequest, NotFound
from gateway.models.artifacts import RequestAttachment
from gateway.models.exchange import ChatRequest
from gateway.models.places import MARKER
from gateway.ports import FileStore

INLINE_CHARS = 100_000
"""A longer content is decoded in a thread."""


async def with_contents(request: ChatRequest, files: FileStore, documents: DocumentReader) -> ChatRequest:
    """The request with a text as the content of each attachment.

    Raises:
        NotFound: no such file for this client; names `attachments[i].attachment_id`.
        InvalidRequest: an attachment is no readable document, or has no text; names its field.
    """
    found = []
    for index, attachment in enumerate(request.attachments):
        if attachment.content is None:
            found.append(await _fetched(attachment, f"attachments[{index}].attachment_id", request, files, documents))
        else:
            found.append(await _decoded(attachment, f"attachments[{index}].content", documents))
    return replace(request, attachments=tuple(found))


async def _fetched(
    attachment: RequestAttachment, where: str, request: ChatRequest, files: FileStore, documents: DocumentReader
) -> RequestAttachment:
    name = attachment.attachment_id or ""
    try:
        file = await files.fetch(name, request.caller)
        document = stored_document(file.name, file.media_type, file.content)
    except NotFound as error:
        raise NotFound(error.message, param=where, code="attachment_not_found") from error
    except UnreadableDocument as error:
        raise _unreadable(f"The file {name!r} of {where}", error, where) from error
    text = await _text(document, f"The file {name!r} of {where}", where, documents)
    return attachment.model_copy(update={"content": text, "title": attachment.title or file.name})


async def _decoded(attachment: RequestAttachment, where: str, documents: DocumentReader) -> RequestAttachment:
    """The attachment itself, if its content is text as it is."""
    content = attachment.content or ""
    hints = (attachment.attachment_type, attachment.title or "")
    try:
        document = await offload_if(len(content) > INLINE_CHARS, encoded_document, content, *hints)
    except UnreadableDocument as error:
        raise _unreadable(where, error, where) from error
    if document is None:
        return attachment
    return attachment.model_copy(update={"content": await _text(document, where, where, documents)})


async def _text(document: DocumentFile, what: str, where: str, documents: DocumentReader) -> str:
    try:
        reading = await documents.read(document)
    except UnreadableDocument as error:
        raise _unreadable(what, error, where) from error
    if reading.pages and len(reading.empty) == len(reading.pages):
        raise _unreadable(what, UnreadableDocument("it has no text, but pictures alone"), where)
    said = MARKER.sub("", reading.text) if reading.pages else reading.text
    if not said or said.isspace():
        raise _unreadable(what, UnreadableDocument("it has no text"), where)
    return reading.told


def _unreadable(what: str, error: UnreadableDocument, where: str) -> InvalidRequest:
    return InvalidRequest(f"{what} cannot be read: {error}.", param=where, code="invalid_value")
