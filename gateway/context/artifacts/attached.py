"""Reads what is attached to a request: files, sent or named by their id, and contents that are HTML or data URLs.

What is left is text. It is read once: the conversation keeps the text.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from gateway.core.errors import InvalidRequest, NotFound
from gateway.core.ports.documents import FileStore
from gateway.core.tasks import offload_if
from gateway.core.types.artifacts import RequestAttachment
from gateway.core.types.chat import ChatRequest
from gateway.core.types.places import MARKER
from gateway.documents.document import DocumentFile, DocumentOwner, Reading, UnreadableDocument
from gateway.documents.process import DocumentReader
from gateway.documents.recognize import encoded_document, sent_document, stored_document

INLINE_CHARS = 100_000
"""A longer content is decoded in a thread."""
Kept = Callable[[DocumentFile, DocumentOwner], Awaitable[tuple[Reading, str]]]
"""`FileReader.best`: what a document says, from the cache if it is there."""


async def with_contents(request: ChatRequest, files: FileStore, documents: DocumentReader, kept: Kept) -> ChatRequest:
    """The request with a text as the content of each attachment.

    Args:
        kept: reads files that are kept here, unless nothing may outlive the request.

    Raises:
        NotFound: no such file for this client; names its field.
        InvalidRequest: an attachment is no readable document, or has no text; names its field.
    """
    found = []
    owner = DocumentOwner(request.caller.tenant, keeps=False)
    for index, attachment in enumerate(request.attachments):
        where = f"attachments[{index}]"
        if attachment.file_data is not None:
            found.append(await _sent(attachment, f"{where}.file_data", documents, owner))
        elif attachment.content is None:
            by = "attachment_id" if attachment.attachment_id is not None else "file_id"
            found.append(await _fetched(attachment, f"{where}.{by}", request, files, documents, kept))
        else:
            found.append(await _decoded(attachment, f"{where}.content", documents, owner))
    return replace(request, attachments=tuple(found))


async def _fetched(
    attachment: RequestAttachment,
    where: str,
    request: ChatRequest,
    files: FileStore,
    documents: DocumentReader,
    kept: Kept,
) -> RequestAttachment:
    file_id = attachment.attachment_id or attachment.file_id or ""
    try:
        file = await files.fetch(file_id, request.caller)
        name = attachment.filename or file.name
        document = stored_document(name, file.media_type, file.content, pictures=True)
    except NotFound as error:
        raise NotFound(error.message, param=where, code="attachment_not_found") from error
    except UnreadableDocument as error:
        raise _unreadable(f"The file {file_id!r} of {where}", error, where) from error
    owner = DocumentOwner(request.caller.tenant, keeps=file.own and request.store)
    text = await _text(document, f"The file {file_id!r} of {where}", where, documents, owner, kept)
    title = attachment.title or attachment.filename or file.name
    return attachment.model_copy(update={"content": text, "title": title, "file_id": file_id if file.own else None})


async def _sent(
    attachment: RequestAttachment, where: str, documents: DocumentReader, owner: DocumentOwner
) -> RequestAttachment:
    """The attachment with the text of the file that was sent with it; its bytes are not kept."""
    data, name = attachment.file_data or "", attachment.filename or attachment.title or ""
    try:
        document = await offload_if(len(data) > INLINE_CHARS, sent_document, data, name)
    except UnreadableDocument as error:
        raise _unreadable(where, error, where) from error
    text = await _text(document, where, where, documents, owner)
    title = attachment.title or attachment.filename
    return attachment.model_copy(update={"content": text, "title": title, "file_data": None})


async def _decoded(
    attachment: RequestAttachment, where: str, documents: DocumentReader, owner: DocumentOwner
) -> RequestAttachment:
    """The attachment itself, if its content is text as it is."""
    content = attachment.content or ""
    hints = (attachment.attachment_type, attachment.title or attachment.filename or "")
    try:
        document = await offload_if(len(content) > INLINE_CHARS, encoded_document, content, *hints)
    except UnreadableDocument as error:
        raise _unreadable(where, error, where) from error
    titled = {} if attachment.title or not attachment.filename else {"title": attachment.filename}
    if document is None:
        return attachment.model_copy(update=titled) if titled else attachment
    return attachment.model_copy(update={"content": await _text(document, where, where, documents, owner), **titled})


async def _text(
    document: DocumentFile,
    what: str,
    where: str,
    documents: DocumentReader,
    owner: DocumentOwner,
    kept: Kept | None = None,
) -> str:
    try:
        if kept is not None and owner.keeps:
            reading, _ = await kept(document, owner)
        else:
            reading = await documents.read(document, owner.tenant)
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
