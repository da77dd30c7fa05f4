"""Sends stored files upstream whole, instead of the ids that messages name (guarantee §14.6): images, identical each
time, or a text after they are deleted; PDFs that the model reads itself, with their costs (guarantee §14.1); with
`context.mode: off` all other files, too.

As long as everything fits, PDFs stay as they are. Else older ones are read and become artifacts as for any other model,
then those of the current turn. What an earlier request forwarded as text stays text (guarantee §4 I7).
"""

import asyncio
import base64
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from gateway.context.artifacts.collect import current_turn
from gateway.context.tokens.counter import CounterRegistry
from gateway.core import errors, ids, ports
from gateway.core.tasks import offload_if
from gateway.core.types import items, window
from gateway.core.types.artifacts import FilePlace
from gateway.core.types.chat import ChatRequest, ModelFacts, RequestCaller, StoredFile
from gateway.core.types.conversation import ConversationHistory, ConversationMessage
from gateway.documents import DocumentOwner, file_reader

DELETED_PICTURE = "(This picture was deleted.)"
NO_PICTURE = "is no picture: PNG, JPEG, GIF and WebP are taken"
HEADS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF": "application/pdf",
}
"""Media types by the first bytes of contents."""
UNKNOWN_MEDIA_TYPE = "application/octet-stream"
Message = dict[str, Any]
Part = dict[str, Any]
NO_PARTS: Mapping[str, dict[str, Any]] = {}


class InlinedFiles(NamedTuple):
    """What is sent upstream instead of ids: of `files` the content of the `file` part, of `pictures` the whole part."""

    files: Mapping[str, dict[str, Any]] = NO_PARTS
    pictures: Mapping[str, dict[str, Any]] = NO_PARTS


NO_INLINED_FILES = InlinedFiles()


@dataclass(slots=True)
class WholeFiles:
    """The files of one request, by the ids that parts name: `pictures` are the parts that replace image parts,
    `files` the contents of `file` parts."""

    store: ports.FileStore | None
    caller: RequestCaller
    counters: CounterRegistry | None = None
    """The counters that are given the sizes of images."""
    pictures: dict[str, Part] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def fetch(self, history: ConversationHistory, sent: Sequence[Message]) -> None:
        """Fetches the images of a conversation that may be forwarded, and notes their sizes.
        `sent`: the request's messages as they came, by which errors name parts.
        Raises NotFound: an image named in the request is not there; names the part. If a stored message names it, a
        text replaces it instead: its client did not send it now, and the conversation must continue; InvalidRequest: it
        is no image; the same rule applies; StorageUnavailable: it cannot be read now."""
        for part in _parts(message.body for message in history.new_messages):
            await self._picture(part, sent)
        first = window.first_forwarded(history.frame, history.messages)
        for part in _parts(message.body for message in history.messages[first : history.stored]):
            await self._picture(part, None)

    async def fetch_all(self, sent: Sequence[Message]) -> None:
        """Fetches all files of a relayed request. Ids that do not have the form of stored ids stay unchanged.
        Raises: as `inlined_files`."""
        for part in _parts(sent):
            picture, name = items.named_picture(part), items.named_file(part)
            if picture is not None and picture.startswith(ids.FILE):
                await self._picture(part, sent)
            if name is None or not name.startswith(ids.FILE) or name in self.files or not self._keeps:
                continue
            try:
                found = await self._fetched(name)
            except errors.NotFound as error:
                raise _not_there(error, file_reader.place_of(part, sent, ".file.file_id")) from error
            url = await asyncio.to_thread(_data_url, media_type_of(found.content) or found.media_type, found.content)
            self.files[name] = {"filename": found.name, "file_data": url}

    @property
    def _keeps(self) -> bool:
        return self.store is not None and self.store.keeps(self.caller)

    async def _picture(self, part: Part, sent: Sequence[Message] | None) -> None:
        """`sent` None: the part is of a stored message."""
        name = items.named_picture(part)
        if name is None or name in self.pictures or not self._keeps:
            return
        try:
            found = await self._fetched(name)
        except errors.NotFound as error:
            if sent is not None:
                raise _not_there(error, file_reader.place_of(part, sent, ".file_id")) from error
            self.pictures[name] = _text(DELETED_PICTURE)
            return
        kind = media_type_of(found.content)
        if kind is not None and kind.startswith("image/"):
            url = await asyncio.to_thread(_data_url, kind, found.content)
            if self.counters is not None:
                self.counters.note_picture(name, url)
            self.pictures[name] = {"type": "image_url", "image_url": {"url": url}}
        elif sent is not None:
            where = file_reader.place_of(part, sent, ".file_id")
            raise errors.InvalidRequest(f"{where} {NO_PICTURE}.", param=where, code="invalid_value")
        else:
            self.pictures[name] = _text(f"(This cannot be shown: it {NO_PICTURE}.)")

    async def _fetched(self, name: str) -> StoredFile:
        if self.store is None:
            raise errors.NotFound("There is no such file for this key.")
        return await self.store.fetch(name, self.caller)


async def inlined_files(request: ChatRequest, store: ports.FileStore) -> InlinedFiles:
    """Returns the stored files that a relayed request names.
    Raises NotFound: one of them is not there; names the part; InvalidRequest: a file named as an image is none; names
    the part; StorageUnavailable: a file cannot be read now."""
    whole = WholeFiles(store, request.caller)
    if request.plain is None:
        await whole.fetch_all(request.messages)
    return InlinedFiles(whole.files, whole.pictures)


def media_type_of(content: bytes) -> str | None:
    """Detects the media type of an image that models accept, or of a PDF, by its first bytes; else None."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for head, kind in HEADS.items() if content.startswith(head)), None)


def _parts(messages: Any) -> list[Part]:
    contents = (message.get("content") for message in messages)
    return [part for content in contents if type(content) is list for part in content if isinstance(part, dict)]


def _data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type or UNKNOWN_MEDIA_TYPE};base64,{base64.b64encode(content).decode('ascii')}"


def _not_there(error: errors.NotFound, where: str) -> errors.NotFound:
    return errors.NotFound(error.message, param=where, code=error.code)


def _text(text: str) -> Part:
    return {"type": "text", "text": text}


NO_FILES: Mapping[FilePlace, dict[str, Any]] = MappingProxyType({})
INLINE_PDF_CHARS = 50_000
"""A PDF with a longer text is counted in a thread."""


class NativePdfs(IntEnum):
    """Which PDFs are forwarded unchanged."""

    ALL = 0
    CURRENT = 1
    NONE = 2


@dataclass(slots=True)
class NativeFiles:
    """The PDFs of one request. `known`: what it has read; `digests`: contents with entries in the cache."""

    files: file_reader.FileReader
    counters: CounterRegistry
    facts: ModelFacts
    tenant: str | None
    """None: nothing may outlive the request."""
    caller: RequestCaller
    in_results: bool = False
    """The model's upstream accepts PDFs in tool results, too."""
    own: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Stored PDFs as they are sent upstream, by the ids that parts name."""
    known: file_reader.Known = field(default_factory=dict)
    digests: dict[str, None] = field(default_factory=dict)
    _other: set[str] = field(default_factory=set)
    """Ids that name no stored PDF: a context is made several times, and each id is looked up once."""

    async def of(
        self, history: ConversationHistory, stays: NativePdfs, *, counted: bool
    ) -> Mapping[FilePlace, dict[str, Any]]:
        """Returns the parts that are forwarded unchanged; `counted`: there is a budget that they have to fit."""
        if not self.facts.supports_pdf_input:
            return NO_FILES
        if stays is not NativePdfs.NONE:
            bodies = [
                message.body for message in history.messages[window.first_forwarded(history.frame, history.messages) :]
            ]
            await self._fetch(bodies, counted=counted)
        places = native_places(history, stays, self.own, self._holders)
        if counted:
            await self._note(places.values())
        return places

    def contents(self, places: Mapping[FilePlace, dict[str, Any]]) -> dict[FilePlace, str]:
        """Returns the content ids of the texts of these PDFs, as far as they were counted."""
        names = ((place, items.pdf_data(part) or items.named_file(part)) for place, part in places.items())
        found = ((place, self.counters.pdfs.content_id(name)) for place, name in names if name is not None)
        return {place: content_id for place, content_id in found if content_id is not None}

    @property
    def owner(self) -> DocumentOwner:
        """The owner of the PDFs."""
        return DocumentOwner(self.caller.tenant, keeps=self.tenant is not None)

    @property
    def _holders(self) -> Sequence[str]:
        return file_reader.HOLDERS if self.in_results else file_reader.HOLDERS[:1]

    async def _fetch(self, bodies: Sequence[dict[str, Any]], *, counted: bool) -> None:
        """Fetches the stored PDFs that parts name by their ids. Skips what cannot be read."""
        for body in bodies:
            content = body.get("content") if body.get("role") in self._holders else None
            for part in content if type(content) is list else ():
                file_id = items.named_file(part) if isinstance(part, dict) else None
                if file_id is None or file_id in self.own or file_id in self._other:
                    continue
                file = await self._own_pdf(file_id, counted=counted)
                if file is not None:
                    self.own[file_id] = file
                else:
                    self._other.add(file_id)

    async def _own_pdf(self, file_id: str, *, counted: bool) -> dict[str, Any] | None:
        """Returns a stored PDF, counted; None if it is no PDF, or cannot be read."""
        keep = self.tenant is not None
        file, digest = await self.files.own_pdf(file_id, self.caller, keep=keep)
        if file is not None and counted and not self.counters.has_read(self.facts, file_id):
            reading, digest = await self.files.pdf(file, self.owner, self.known)
            if reading is None:
                return None
            chars, data = len(reading.text), str(file["file_data"])
            await offload_if(chars > INLINE_PDF_CHARS, self.counters.note_pdf, self.facts, data, reading, file_id)
        self.digests |= {digest: None} if keep and file is not None else {}
        return file

    async def _note(self, parts: Iterable[dict[str, Any]]) -> None:
        """Reads and counts PDFs whose costs are not known."""
        for part in parts:
            data = items.pdf_data(part)
            if data is None or self.counters.has_read(self.facts, data):
                continue
            reading, digest = await self.files.pdf(part["file"], self.owner, self.known)
            if reading is not None:
                chars = len(reading.text)
                await offload_if(chars > INLINE_PDF_CHARS, self.counters.note_pdf, self.facts, data, reading)
                self.digests |= {digest: None} if self.tenant is not None else {}


def native_places(
    history: ConversationHistory,
    stays: NativePdfs,
    own: Container[str] = (),
    holders: Sequence[str] = file_reader.HOLDERS[:1],
) -> dict[FilePlace, dict[str, Any]]:
    """Returns the `file` parts with PDFs that are forwarded unchanged, for a model that accepts them in messages of the
    roles `holders`; `own` are the ids of stored PDFs."""
    messages = history.messages
    if stays is NativePdfs.NONE or not messages:
        return {}
    first = window.first_forwarded(history.frame, messages)
    if stays is NativePdfs.CURRENT:
        first = max(first, current_turn(history))
    return {
        (index, number): part
        for index in range(first, len(messages))
        for number, part in (_pdf_parts(messages[index], own) if messages[index].role in holders else ())
        if not _became_text(messages[index], number)
    }


def _pdf_parts(message: ConversationMessage, own: Container[str]) -> list[tuple[int, dict[str, Any]]]:
    content = message.body.get("content")
    parts = enumerate(content if type(content) is list else ())
    return [
        (n, part)
        for n, part in parts
        if isinstance(part, dict) and (items.pdf_data(part) or items.named_file(part) in own)
    ]


def _became_text(message: ConversationMessage, number: int) -> bool:
    """Returns whether the part was forwarded as text before."""
    if message.rendered is None or not isinstance(message.rendered.get("content"), list):
        return False
    found = message.forwarded_part(number)
    return found is None or found[1].get("type") != "file"
