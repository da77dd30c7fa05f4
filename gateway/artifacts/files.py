"""Reads the `file` parts of messages; texts that take long to read are kept in the cache, by tenant and content."""

import asyncio
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gateway.base import jsons
from gateway.base.tasks import offload_if
from gateway.config.documents_settings import DocumentSettings
from gateway.documents.document import DocumentFile, Reading, ReadOptions, UnreadableDocument
from gateway.documents.kinds import is_slow
from gateway.documents.kinds import read as read_document
from gateway.documents.process import DocumentReader
from gateway.documents.recognize import inline_file, stored_document
from gateway.errors import InvalidRequest, NotFound
from gateway.models.artifacts import cache_group
from gateway.models.conversation import ConversationMessage
from gateway.models.exchange import Caller
from gateway.ports import CacheBackend
from gateway.ports.documents import FileStore

FilePlace = tuple[int, int]
"""Indexes of a message and of a part of its content."""
Known = dict[tuple[str, str], Reading]
"""What a request has read, by the way and by the document's digest."""
VERSION = 2
"""Raised whenever readings of older versions are of no use: the cache may hold some."""
DEFAULTS = DocumentSettings()
DELETED = "(This document was deleted.)"
"""The text of a file that is not there any more."""
INLINE_CHARS = 100_000
INLINE_FILES = 100
"""More than this is read in a thread, since it takes milliseconds for which other requests would wait."""


class FileReader:
    """Texts of documents by (message, part). `hits` and `misses` count the texts that were looked for in the cache."""

    def __init__(self, cache: CacheBackend, ttl: float, settings: DocumentSettings = DEFAULTS) -> None:
        options = ReadOptions(settings.ocr == "auto", settings.ocr_languages, settings.seconds)
        self.documents = DocumentReader(settings.seconds, options, settings.memory_bytes)
        self.store: FileStore | None = None
        self._cache = cache
        self._ttl = ttl
        self.hits = self.misses = 0

    async def read(
        self,
        messages: Sequence[ConversationMessage],
        first_new: int,
        caller: Caller,
        *,
        decode_pdf: bool,
        keep: bool,
        natively: Container[FilePlace] = (),
        known: Known | None = None,
    ) -> tuple[dict[FilePlace, str], tuple[str, ...]]:
        """The texts of all documents that are not to be forwarded as they are, and the digests of contents of which the
        cache keeps something.

        Args:
            first_new: index of the first message of this request, so that an error can name the part.
            keep: whether texts may outlive the request (`store`).
            natively: PDFs that are forwarded as they are, although others are read.
            known: what this request has read already, and will have.

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
                    document = inline_file(file, decode_pdf=decode_pdf and place not in natively)
                    if document is not None and is_slow(document):
                        slow[place] = document
                    elif document is not None:
                        texts[place] = read_document(document).told

        chars = sum(len(str(file.get("file_data") or "")) for file in parts.values())
        await offload_if(chars > INLINE_CHARS or len(parts) > INLINE_FILES, read_quick)
        kept: dict[str, None] = {}
        for place, file_id in self._own(parts, caller):
            with _unreadable_reported(place, first_new, texts):
                texts[place], digest = await self._own_text(file_id, caller, keep=keep, known=known)
                kept.update({digest: None, file_id: None} if keep else {})
        for place, document in slow.items():
            with _unreadable_reported(place, first_new, texts):
                texts[place], digest = await self._told(document, caller.tenant if keep else None, known)
                kept |= {digest: None} if keep else {}
        return texts, tuple(kept)

    async def pdf(self, data: dict[str, Any], tenant: str | None, known: Known) -> tuple[Reading | None, str]:
        """The pages of a `file` part's PDF that a model reads itself, and the digest under which the cache keeps it;
        None if it cannot be read: then the provider will say so.

        Args:
            tenant: None: nothing may outlive the request.
        """
        try:
            size = len(str(data.get("file_data") or ""))
            document = await offload_if(size > INLINE_CHARS, lambda: inline_file(data, decode_pdf=True))
            return (None, "") if document is None else await self._reading(document, tenant, known)
        except UnreadableDocument:
            return None, ""

    async def _told(self, document: DocumentFile, tenant: str | None, known: Known | None) -> tuple[str, str]:
        """What the document says, its pictures of text too, with the notes on it; and its digest."""
        reading, digest = await self._reading(document, tenant, known)
        if reading.empty and self.documents.options.ocr:
            reading, digest = await self._reading(document, tenant, known, ocr=True)
        return reading.told, digest

    def _own(self, parts: dict[FilePlace, dict[str, Any]], caller: Caller) -> list[tuple[FilePlace, str]]:
        """The parts that name files which are kept here: no upstream knows their ids."""
        if self.store is None or not self.store.keeps(caller):
            return []
        named = ((place, file) for place, file in parts.items() if not isinstance(file.get("file_data"), str))
        return [(place, file["file_id"]) for place, file in named if isinstance(file.get("file_id"), str)]

    async def _own_text(self, file_id: str, caller: Caller, *, keep: bool, known: Known | None) -> tuple[str, str]:
        """The text of a file that is kept here, from the cache if it is there, and the digest of the document. Messages
        keep the id alone: what was read of a file goes with the file (`cache_group` of its id, and of its digest)."""
        named = f"file:{caller.tenant}:{file_id}"
        digest = await self._cache.get(named) if keep else None
        if digest is not None and (text := await self._kept_text(digest.decode(), caller.tenant)) is not None:
            return text, digest.decode()
        if self.store is None:
            raise NotFound("There is no such file for this key.")
        file = await self.store.fetch(file_id, caller)
        document = await asyncio.to_thread(stored_document, file.name, file.media_type, file.content)
        read, name = await self._told(document, caller.tenant if keep else None, known)
        if keep:
            await self._cache.set(named, name.encode(), self._ttl, group=cache_group(caller.tenant, file_id))
        return read, name

    async def _kept_text(self, digest: str, tenant: str) -> str | None:
        """The text that the cache keeps of a document; None if it does not keep all of it."""
        found = _reading_of(await self._cache.get(self._key(digest, tenant, ocr=False)))
        if found is not None and found.empty and self.documents.options.ocr:
            found = _reading_of(await self._cache.get(self._key(digest, tenant, ocr=True)))
        self.hits += found is not None
        return found.told if found is not None else None

    async def _reading(
        self, document: DocumentFile, tenant: str | None, known: Known | None, *, ocr: bool = False
    ) -> tuple[Reading, str]:
        """What the document says, from the cache if it is there, and its digest."""
        digest = await offload_if(len(document.raw) >= INLINE_CHARS, lambda: document.digest)
        way = self._way(ocr=ocr)
        found = known.get((way, digest)) if known is not None else None
        key = self._key(digest, tenant or "", ocr=ocr)
        if found is None and tenant is not None:
            found = _reading_of(await self._cache.get(key))
            self.hits += found is not None
            self.misses += found is None
        if found is None:
            found = await self.documents.read(document, replace(self.documents.options, ocr=ocr))
            if tenant is not None:
                raw = jsons.dumps(found.as_json())
                await self._cache.set(key, raw, self._ttl, group=cache_group(tenant, digest))
        if known is not None:
            known[way, digest] = found
        return found, digest

    def _way(self, *, ocr: bool) -> str:
        return f"{VERSION}:{self.documents.options.ocr_languages if ocr else ''}"

    def _key(self, digest: str, tenant: str, *, ocr: bool) -> str:
        return f"document:{self._way(ocr=ocr)}:{tenant}:{digest}"


def _reading_of(raw: bytes | None) -> Reading | None:
    """What the cache keeps; None also if that is damaged."""
    try:
        return Reading.from_json(jsons.loads(raw)) if raw is not None else None
    except (ValueError, KeyError, TypeError):
        return None


def has_files(messages: Sequence[ConversationMessage]) -> bool:
    """Whether any user message has a `file` part."""
    return next(_file_parts(messages), None) is not None


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
