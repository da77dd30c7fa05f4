"""Attachments that are named by a file's id become attachments with content (contract §2)."""

from dataclasses import replace

from gateway.artifacts.documents import stored_document
from gateway.artifacts.reading import DocumentReader
from gateway.artifacts.unreadable import UnreadableDocument
from gateway.errors import InvalidRequest, NotFound
from gateway.models.exchange import ChatRequest
from gateway.ports import FileStore


async def with_content(request: ChatRequest, files: FileStore, documents: DocumentReader) -> ChatRequest:
    """The request with the content of each attachment.

    Raises:
        NotFound: no such file for this client; names `attachments[i].attachment_id`.
        InvalidRequest: the file is no readable document; names it too.
    """
    if all(attachment.content is not None for attachment in request.attachments):
        return request
    found = []
    for index, attachment in enumerate(request.attachments):
        if attachment.attachment_id is None:
            found.append(attachment)
            continue
        where = f"attachments[{index}].attachment_id"
        try:
            file = await files.fetch(attachment.attachment_id, request.caller)
            text = await documents.text(stored_document(file.name, file.media_type, file.content))
        except NotFound as error:
            raise NotFound(error.message, param=where, code="attachment_not_found") from error
        except UnreadableDocument as error:
            raise InvalidRequest(f"The file of {where} cannot be read: {error}.", param=where) from error
        title = attachment.title or file.name
        found.append(attachment.model_copy(update={"content": text, "title": title}))
    return replace(request, attachments=tuple(found))
