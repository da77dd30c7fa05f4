"""Files kept here that go up whole in the place of the ids that messages name (guarantee §14.6).

Messages keep the id alone. A picture goes up as a data URL, equal each time; once its file is deleted, a text says so.
What is passed on without a look (`context.mode: off`) takes all other files along, too. PDFs that a model reads itself
are `native_files`.
"""

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.context.assembly.hosted_files import OwnFiles
from gateway.context.tokens.counter import CounterRegistry
from gateway.core.errors import InvalidRequest, NotFound
from gateway.core.ids import FILE
from gateway.core.ports.documents import FileStore
from gateway.core.types.chat import ChatRequest, RequestCaller, StoredFile
from gateway.core.types.conversation import ConversationHistory
from gateway.core.types.items import named_file, named_picture
from gateway.core.types.window import first_forwarded
from gateway.documents.file_reader import place_of

DELETED = "(This picture was deleted.)"
NO_PICTURE = "is no picture: PNG, JPEG, GIF and WebP are taken"
HEADS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF": "application/pdf",
}
"""Media types by how contents begin."""
UNKNOWN = "application/octet-stream"
Message = dict[str, Any]
Part = dict[str, Any]


@dataclass(slots=True)
class WholeFiles:
    """The files of one request, by the ids that parts name: `pictures` are the parts that go up in the place of
    theirs, `files` what `file` parts hold then."""

    store: FileStore | None
    caller: RequestCaller
    counters: CounterRegistry | None = None
    """Which are to know the sizes of pictures."""
    pictures: dict[str, Part] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def fetch(self, history: ConversationHistory, sent: Sequence[Message]) -> None:
        """Gets the pictures of a conversation that may be forwarded, and notes their sizes.

        Args:
            sent: the request's messages as they came, by which errors name parts.

        Raises:
            NotFound: one that came with the request is not there; names it. Of a stored one a text in its place says
                so: its client did not send it now, and the conversation must go on.
            InvalidRequest: it is no picture; as above.
            StorageUnavailable: it cannot be read now.
        """
        for part in _parts(message.body for message in history.new_messages):
            await self._picture(part, sent)
        first = first_forwarded(history.frame, history.messages)
        for part in _parts(message.body for message in history.messages[first : history.stored]):
            await self._picture(part, None)

    async def fetch_sent(self, sent: Sequence[Message]) -> None:
        """Gets the pictures of a request that has no conversation. Raises: as `fetch`."""
        for part in _parts(sent):
            await self._picture(part, sent)

    async def fetch_all(self, sent: Sequence[Message]) -> None:
        """Gets all files of a request that is passed on. What is none of our ids by its form stays as it is.

        Raises: as `passed_on`.
        """
        for part in _parts(sent):
            picture, name = named_picture(part), named_file(part)
            if picture is not None and picture.startswith(FILE):
                await self._picture(part, sent)
            if name is None or not name.startswith(FILE) or name in self.files or not self._keeps:
                continue
            try:
                found = await self._fetched(name)
            except NotFound as error:
                raise _not_there(error, place_of(part, sent, ".file.file_id")) from error
            url = await asyncio.to_thread(_data_url, media_type_of(found.content) or found.media_type, found.content)
            self.files[name] = {"filename": found.name, "file_data": url}

    @property
    def _keeps(self) -> bool:
        return self.store is not None and self.store.keeps(self.caller)

    async def _picture(self, part: Part, sent: Sequence[Message] | None) -> None:
        """`sent` None: the part is of a stored message."""
        name = named_picture(part)
        if name is None or name in self.pictures or not self._keeps:
            return
        try:
            found = await self._fetched(name)
        except NotFound as error:
            if sent is not None:
                raise _not_there(error, place_of(part, sent, ".file_id")) from error
            self.pictures[name] = _text(DELETED)
            return
        kind = media_type_of(found.content)
        if kind is not None and kind.startswith("image/"):
            url = await asyncio.to_thread(_data_url, kind, found.content)
            if self.counters is not None:
                self.counters.note_picture(name, url)
            self.pictures[name] = {"type": "image_url", "image_url": {"url": url}}
        elif sent is not None:
            where = place_of(part, sent, ".file_id")
            raise InvalidRequest(f"{where} {NO_PICTURE}.", param=where, code="invalid_value")
        else:
            self.pictures[name] = _text(f"(This cannot be shown: it {NO_PICTURE}.)")

    async def _fetched(self, name: str) -> StoredFile:
        if self.store is None:
            raise NotFound("There is no such file for this key.")
        return await self.store.fetch(name, self.caller)


async def passed_on(request: ChatRequest, store: FileStore) -> OwnFiles:
    """The files kept here that a request names which goes up as it was sent.

    Raises:
        NotFound: one of them is not there; names the part.
        InvalidRequest: what is named as a picture is none; names the part.
        StorageUnavailable: it cannot be read now.
    """
    whole = WholeFiles(store, request.caller)
    if request.plain is None:
        await whole.fetch_all(request.messages)
    return OwnFiles(whole.files, whole.pictures)


def media_type_of(content: bytes) -> str | None:
    """Of a picture that models take, or a PDF, by its first bytes; None of any other content."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for head, kind in HEADS.items() if content.startswith(head)), None)


def _parts(messages: Any) -> list[Part]:
    contents = (message.get("content") for message in messages)
    return [part for content in contents if type(content) is list for part in content if isinstance(part, dict)]


def _data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type or UNKNOWN};base64,{base64.b64encode(content).decode('ascii')}"


def _not_there(error: NotFound, where: str) -> NotFound:
    return NotFound(error.message, param=where, code=error.code)


def _text(text: str) -> Part:
    return {"type": "text", "text": text}
