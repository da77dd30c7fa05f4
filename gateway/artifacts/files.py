"""Reads the `file` parts of messages; texts that take long to read are kept in the cache, by tenant and content."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gateway.base.tasks import offload_if
from gateway.config.documents_settings import DocumentSettings
from gateway.documents.document import DocumentFile, UnreadableDocument
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
AS_USUAL = DocumentSettings()
INLINE_CHARS = 100_000
INLINE_FILES = 100
"""More than this is read in a thread, since it takes milliseconds for which other requests would wait."""


class FileReader:
    """Texts of documents by (message, part). `hits` and `misses` count the texts that were looked for in the cache."""

    def __init__(self, cache: CacheBackend, ttl: float, documents: DocumentSettings = AS_USUAL) -> None:
        self.documents = DocumentReader(documents.seconds, memory_bytes=documents.memory_bytes)
        self._cache = cache
        self._ttl = ttl
        self.hits = self.misses = 0

    async def read(
        self, messages: Sequence[ConversationMessage], first_new: int, tenant: str, *, decode_pdf: bool, keep: bool
    ) -> tuple[dict[FilePlace, str], tuple[str, ...]]:
        """The texts of all documents that are not to be forwarded as they are, and the digests of contents of which the
        cache keeps something.

        Args:
            first_new: index of the first message of this request, so that an error can name the part.
            keep: whether texts may outlive the request (`store`).

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
                    document = inline_file(file, decode_pdf=decode_pdf)
                    if document is not None and is_slow(document):
                        slow[place] = document
                    elif document is not None:
                        texts[place] = read_document(document).text

        chars = sum(len(str(file.get("file_data") or "")) for file in parts.values())
        await offload_if(chars > INLINE_CHARS or len(parts) > INLINE_FILES, read_quick)
        kept: dict[str, None] = {}
        for place, document in slow.items():
            with _unreadable_reported(place, first_new, texts):
                if keep:
                    texts[place], digest = await self._kept_text(document, tenant)
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
