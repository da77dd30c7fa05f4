"""Reads the `file` parts of messages; texts that take long to read are kept in the cache, by tenant and content."""

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
from gateway.documents.recognize import inline_file
from gateway.errors import InvalidRequest
from gateway.models.artifacts import cache_group
from gateway.models.conversation import ConversationMessage
from gateway.ports import CacheBackend

FilePlace = tuple[int, int]
"""Indexes of a message and of a part of its content."""
Known = dict[tuple[str, str], Reading]
"""What a request has read, by the way and by the document's digest."""
VERSION = 2
"""Raised whenever readings of older versions are of no use: the cache may hold some."""
DEFAULTS = DocumentSettings()
INLINE_CHARS = 100_000
INLINE_FILES = 100
"""More than this is read in a thread, since it takes milliseconds for which other requests would wait."""


class FileReader:
    """Texts of documents by (message, part). `hits` and `misses` count the texts that were looked for in the cache."""

    def __init__(self, cache: CacheBackend, ttl: float, settings: DocumentSettings = DEFAULTS) -> None:
        options = ReadOptions(settings.ocr == "auto", settings.ocr_languages, settings.seconds)
        self.documents = DocumentReader(settings.seconds, options, settings.memory_bytes)
        self._cache = cache
        self._ttl = ttl
        self.hits = self.misses = 0

    async def read(
        self,
        messages: Sequence[ConversationMessage],
        first_new: int,
        tenant: str,
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
        for place, document in slow.items():
            with _unreadable_reported(place, first_new, texts):
                reading, digest = await self._reading(document, tenant if keep else None, known)
                if reading.empty and self.documents.options.ocr:
                    reading, digest = await self._reading(document, tenant if keep else None, known, ocr=True)
                texts[place] = reading.told
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

    async def _reading(
        self, document: DocumentFile, tenant: str | None, known: Known | None, *, ocr: bool = False
    ) -> tuple[Reading, str]:
        """What the document says, from the cache if it is there, and its digest."""
        digest = await offload_if(len(document.raw) >= INLINE_CHARS, lambda: document.digest)
        options = self.documents.options
        way = f"{VERSION}:{options.ocr_languages if ocr else ''}"
        found = known.get((way, digest)) if known is not None else None
        key = f"document:{way}:{tenant}:{digest}"
        if found is None and tenant is not None:
            found = _reading_of(await self._cache.get(key))
            self.hits += found is not None
            self.misses += found is None
        if found is None:
            found = await self.documents.read(document, replace(options, ocr=ocr))
            if tenant is not None:
                raw = jsons.dumps(found.as_json())
                await self._cache.set(key, raw, self._ttl, group=cache_group(tenant, digest))
        if known is not None:
            known[way, digest] = found
        return found, digest


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
    try:
        yield
    except UnreadableDocument as error:
        if place[0] < first_new:
            texts[place] = f"(This document cannot be read: {error}.)"
            return
        where = f"messages[{place[0] - first_new}].content[{place[1]}].file"
        raise InvalidRequest(f"The document in {where} cannot be read: {error}.", param=where) from error
