"""Reads the `file` parts of messages; texts that take long to read are kept in the cache, by tenant and content."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gateway.base.tasks import offload_if
from gateway.config.documents_settings import DocumentSettings
from gateway.documents.document import DocumentFile, UnreadableDocument
from gateway.documents.kinds import is_slow
from gateway.documents.kinds import read as read_document
from gateway.documents.process import DocumentReader
from gateway.documents.recognize import inline_file, stored_document
from gateway.errors import InvalidRequest, NotFound
from gateway.models.artifacts import cache_group
from gateway.models.conversation import ConversationMessage
from gateway.models.exchange import Caller
from gateway.ports import CacheBackend, FileStore

FilePlace = tuple[int, int]
"""Indexes of a message and of a part of its content."""
AS_USUAL = DocumentSettings()
DELETED = "(This document was deleted.)"
"""The text of a file that is not there any more."""
INLINE_CHARS = 100_000
INLINE_FILES = 100
"""More than this is read in a thread, since it takes milliseconds for which other requests would wait."""


class FileReader:
    """Texts of documents by (message, part). `hits` and `misses` count the texts that were looked for in the cache."""

    def __init__(self, cache: CacheBackend, ttl: float, documents: DocumentSettings = AS_USUAL) -> None:
        self.documents = DocumentReader(documents.seconds, memory_bytes=documents.memory_bytes)
        self.store: FileStore | None = None
        self._cache = cache
        self._ttl = ttl
        self.hits = self.misses = 0

    async def read(
        self, messages: Sequence[ConversationMessage], first_new: int, caller: Caller, *, decode_pdf: bool, keep: bool
    ) -> tuple[dict[FilePlace, str], tuple[str, ...]]:
        """The texts of all documents that are not to be forwarded as they are, and the digests of contents of which the
        cache keeps something.

        Args:
            first_new: index of the first message of this request, so that an error can name the part.
            keep: whether texts may outlive the request (`store`).

        Raises:
            InvalidRequest: a part of this request is no readable document; names it. Of a stored one the text says so
                instead: its client did not send it now, and the conversation must go on.
            NotFound: a part of this request names a file that is not there, where files are kept here; names it.
        """
        parts = dict(_file_parts(messages))
        if not parts:
            return {}, ()
        texts: dict[FilePlace, str] = {}
        slow: dict[FilePlace, DocumentFile] = {}

        def read_quick() -> None:
            for place, file in parts.items():
                with _unreadable_reported(place, first_new, texts):
                    document = inline_file(file, decode_pdf=decode_pdf)
                    if document is not None and is_slow(document):
                        slow[place] = document
                    elif document is not None:
                        texts[place] = read_document(document).text

        chars = sum(len(str(file.get("file_data") or "")) for file in parts.values())
        await offload_if(chars > INLINE_CHARS or len(parts) > INLINE_FILES, read_quick)
        kept: dict[str, None] = {}
        for place, file_id in self._own(parts, caller):
            with _unreadable_reported(place, first_new, texts):
                texts[place], digest = await self._own_text(file_id, caller, keep=keep)
                kept.update({digest: None} if keep else {})
        for place, document in slow.items():
            with _unreadable_reported(place, first_new, texts):
                if keep:
                    texts[place], digest = await self._kept_text(document, caller.tenant)
                    kept[digest] = None
                else:
                    texts[place] = (await self.documents.read(document)).text
        return texts, tuple(kept)

    async def _kept_text(self, document: DocumentFile, tenant: str) -> tuple[str, str]:
        """The text, from the cache if it is there, and the digest of the document."""
        digest = await offload_if(len(document.raw) >= INLINE_CHARS, lambda: document.digest)
        key = f"document:{tenant}:{digest}"
        known = await self._cache.get(key)
        self.hits += known is not None
        self.misses += known is None
        if known is not None:
            return known.decode("utf-8", "replace"), digest
        text = (await self.documents.read(document)).text
        await self._cache.set(key, text.encode("utf-8", "replace"), self._ttl, group=cache_group(tenant, digest))
        return text, digest

    def _own(self, parts: dict[FilePlace, dict[str, Any]], caller: Caller) -> list[tuple[FilePlace, str]]:
        """The parts that name files which are kept here: no upstream knows their ids."""
        if self.store is None or not self.store.keeps(caller):
            return []
        named = ((place, file) for place, file in parts.items() if not isinstance(file.get("file_data"), str))
        return [(place, file["file_id"]) for place, file in named if isinstance(file.get("file_id"), str)]

    async def _own_text(self, file_id: str, caller: Caller, *, keep: bool) -> tuple[str, str]:
        """The text of a file that is kept here, from the cache if it is there, and the digest of the document. Messages
        keep the id alone: what was read of a file goes with the file (`cache_group` of its id, and of its digest)."""
        named = f"file:{caller.tenant}:{file_id}"
        known = await self._cache.get(named) if keep else None
        text = await self._cache.get(f"document:{caller.tenant}:{known.decode()}") if known is not None else None
        if known is not None and text is not None:
            self.hits += 1
            return text.decode("utf-8", "replace"), known.decode()
        if self.store is None:
            raise NotFound("There is no such file for this key.")
        file = await self.store.fetch(file_id, caller)
        document = await asyncio.to_thread(stored_document, file.name, file.media_type, file.content)
        if not keep:
            return (await self.documents.read(document)).text, ""
        read, digest = await self._kept_text(document, caller.tenant)
        await self._cache.set(named, digest.encode(), self._ttl, group=cache_group(caller.tenant, file_id))
        return read, digest


def _file_parts(messages: Sequence[ConversationMessage]) -> Iterator[tuple[FilePlace, dict[str, Any]]]:
    """What the `file` parts of user messages hold."""
    for index, message in enumerate(messages):
        content = message.body.get("content") if message.role == "user" else None
        if type(content) is list:
            for number, part in enumerate(content):
                if isinstance(part, dict) and part.get("type") == "file":
                    yield (index, number), part.get("file") or {}


@contextmanager
def _unreadable_reported(place: FilePlace, first_new: int, texts: dict[FilePlace, str]) -> Iterator[None]:
    """Reports an unreadable document: as the client's error, or as the text of a stored one."""
    where = f"messages[{place[0] - first_new}].content[{place[1]}].file"
    try:
        yield
    except NotFound as error:
        if place[0] < first_new:
            texts[place] = DELETED
            return
        raise NotFound(error.message, param=f"{where}.file_id", code=error.code) from error
    except UnreadableDocument as error:
        if place[0] < first_new:
            texts[place] = f"(This document cannot be read: {error}.)"
            return
        raise InvalidRequest(f"The document in {where} cannot be read: {error}.", param=where) from error
