"""References to pages in what was forwarded before: what they stand for is found again, or they leave (guarantee
§14.13)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gateway.context.whole_files import NativeFiles
from gateway.core.errors import Overloaded, StorageUnavailable
from gateway.core.tasks import offload_if
from gateway.core.types.artifacts import Artifact
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.core.types.items import named_file, pdf_data
from gateway.core.types.window import first_forwarded
from gateway.documents.document import DocumentFile, Reading, UnreadableDocument
from gateway.documents.recognize import inline_file
from gateway.pipeline.features.pdf_pages.cutting import CutPages, PageCutter, as_file, referenced

Part = dict[str, Any]
INLINE_BYTES = 100_000
"""A PDF of more characters of base64 is decoded in a thread."""


async def with_kept_pages(
    history: ConversationHistory, natives: NativeFiles, cutter: PageCutter
) -> ConversationHistory:
    """Returns the conversation in which each reference to pages can be filled: those that cannot, since the PDF was
    deleted or the model takes none, are left out of the forms in which messages were forwarded."""
    found = list(history.messages)
    for index in range(first_forwarded(history.frame, found), len(found)):
        message = found[index]
        for part in _page_parts(message):
            if not await _fill(part, history, natives, cutter):
                message = _without(message, part)
        found[index] = message
    changed = any(new is not old for new, old in zip(found, history.messages, strict=True))
    return replace(history, messages=tuple(found)) if changed else history


async def read_pdf(part: Part, natives: NativeFiles) -> tuple[DocumentFile, Reading] | None:
    """A PDF that a part holds or names; None if there is none, or it cannot be read now."""
    file, keep = part["file"], natives.tenant is not None
    try:
        if (file_id := named_file(part)) is not None:
            file, _ = await natives.files.own_pdf(file_id, natives.caller, keep=keep)
        if file is None:
            return None
        reading, digest = await natives.files.pdf(file, natives.owner, natives.known)
    except (StorageUnavailable, Overloaded):
        return None
    if reading is None or not reading.pages:
        return None
    natives.digests |= {digest: None} if keep else {}
    try:
        size = len(str(file.get("file_data") or ""))
        document = await offload_if(size > INLINE_BYTES, lambda: inline_file(file, decode_pdf=True))
    except UnreadableDocument:
        return None
    return (document, reading) if document is not None and document.kind == "pdf" else None


def note_cut(name: str, numbers: Sequence[int], cut: CutPages, natives: NativeFiles) -> None:
    """The request knows from now on what the reference stands for, and what that costs."""
    natives.own[name] = as_file(cut, numbers)
    natives.counters.note_pdf(natives.facts, name, cut.reading)


def _page_parts(message: ConversationMessage) -> list[Part]:
    """The references to pages in the form in which a message was forwarded: they stand before its own parts."""
    return [part for part in message.parts_before if referenced(part)]


async def _fill(part: Part, history: ConversationHistory, natives: NativeFiles, cutter: PageCutter) -> bool:
    """Whether it is known what the reference stands for: from the cache, else from the PDF, if that is still there."""
    found = referenced(part)
    if found is None or not (natives.facts.supports_pdf_input and cutter.most_pages):
        return False
    name, digest, numbers = found
    if name in natives.own:
        return True
    tenant = natives.tenant
    cut = await cutter.kept(name, tenant) if tenant is not None else None
    if cut is None and (read := await _source(digest, history, natives)) is not None:
        cut = await cutter.cut(*read, numbers, name, natives.owner)
    if cut is None:
        return False
    natives.digests |= {digest: None} if tenant is not None else {}
    note_cut(name, numbers, cut, natives)
    return True


async def _source(
    digest: str, history: ConversationHistory, natives: NativeFiles
) -> tuple[DocumentFile, Reading] | None:
    """The PDF with this digest among the parts of messages and the attachments."""
    for part in _holding_pdfs(history):
        read = await read_pdf(part, natives)
        if read is not None and read[0].digest == digest:
            return read
    return None


def _holding_pdfs(history: ConversationHistory) -> Iterator[Part]:
    """The parts that may hold or name a PDF, and one for each attachment that names a file."""
    for message in history.messages:
        content = message.body.get("content") if message.role == "user" else None
        for part in content if type(content) is list else ():
            if isinstance(part, dict) and (pdf_data(part) is not None or named_file(part) is not None):
                yield part
    yield from (part for artifact in history.attachments if (part := attached_file(artifact)) is not None)


def attached_file(artifact: Artifact) -> Part | None:
    """A part that names the file that was attached; None where there is no file but its text."""
    file_id = artifact.metadata.get("file_id")
    return {"type": "file", "file": {"file_id": file_id}} if file_id is not None else None


def _without(message: ConversationMessage, part: Part) -> ConversationMessage:
    form = message.rendered or {}
    return replace(message, rendered={**form, "content": [each for each in form["content"] if each is not part]})
