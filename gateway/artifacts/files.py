"""Reads the `file` parts of messages; what takes long to read is kept in the cache, by tenant and content."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gateway.artifacts.documents import InlineFile, UnreadableDocument, inline_file
from gateway.artifacts.reading import DocumentReader
from gateway.errors import InvalidRequest
from gateway.models.artifacts import cache_group
from gateway.models.conversation import ConversationMessage
from gateway.ports import CacheBackend

FilePlace = tuple[int, int]
FileParts = dict[FilePlace, dict[str, Any]]
INLINE_CHARS = 100_000
INLINE_FILES = 100
"""What takes longer to read than this much is read in a thread: others must not wait for it."""


class FileReader:
    """Texts of documents by (message, part)."""

    def __init__(self, cache: CacheBackend, ttl: float) -> None:
        self.documents = DocumentReader()
        self._cache = cache
        self._ttl = ttl

    async def read(
        self, messages: Sequence[ConversationMessage], first_new: int, tenant: str, *, decode_pdf: bool, keep: bool
    ) -> tuple[dict[FilePlace, str], tuple[str, ...]]:
        """The texts of all documents that are not to be forwarded as they are, and digests of those contents of which
        the cache keeps something.

        Args:
            first_new: index of the first message of this request, so that an error can name the part.
            keep: whether texts may outlive the request (`store`).

        Raises:
            InvalidRequest: a part of this request holds no readable document; names it. A stored one says so in its
                text instead: its client did not send it now, and the conversation must go on.
        """
        parts = _file_parts(messages)
        if not parts:
            return {}, ()
        large = sum(len(str(part.get("file_data") or "")) for part in parts.values()) > INLINE_CHARS
        texts: dict[FilePlace, str] = {}
        slow: dict[FilePlace, InlineFile] = {}
        if large or len(parts) > INLINE_FILES:
            await asyncio.to_thread(_read_quick, parts, first_new, decode_pdf, texts, slow)
        else:
            _read_quick(parts, first_new, decode_pdf, texts, slow)
        kept: dict[str, None] = {}
        for place, file in slow.items():
            with _told(place, first_new, texts):
                if keep:
                    texts[place], digest = await self._kept_text(file, tenant)
                    kept[digest] = None
                else:
                    texts[place] = await self.documents.text(file)
        return texts, tuple(kept)

    async def _kept_text(self, file: InlineFile, tenant: str) -> tuple[str, str]:
        """The text, out of the cache where it is there; and the digest by which it is kept."""
        digest = file.digest if len(file.raw) < INLINE_CHARS else await asyncio.to_thread(lambda: file.digest)
        key = f"document:{tenant}:{digest}"
        known = await self._cache.get(key)
        if known is not None:
            return known.decode("utf-8", "replace"), digest
        text = await self.documents.text(file)
        await self._cache.set(key, text.encode("utf-8", "replace"), self._ttl, group=cache_group(tenant, digest))
        return text, digest


def _file_parts(messages: Sequence[ConversationMessage]) -> FileParts:
    """What the `file` parts of user messages hold."""
    found: FileParts = {}
    for index, message in enumerate(messages):
        content = message.body.get("content") if message.role == "user" else None
        if type(content) is list:
            for number, part in enumerate(content):
                if isinstance(part, dict) and part.get("type") == "file":
                    found[index, number] = part.get("file") or {}
    return found


def _read_quick(
    parts: FileParts, first_new: int, decode_pdf: bool, texts: dict[FilePlace, str], slow: dict[FilePlace, InlineFile]
) -> None:
    """Reads into `texts` what is quickly read, and puts the other documents into `slow`."""
    for place, part in parts.items():
        with _told(place, first_new, texts):
            file = inline_file(part, decode_pdf=decode_pdf)
            if file is not None and file.is_slow:
                slow[place] = file
            elif file is not None:
                texts[place] = file.text()


@contextmanager
def _told(place: FilePlace, first_new: int, texts: dict[FilePlace, str]) -> Iterator[None]:
    """An unreadable document is the client's mistake, in that part; of a stored one its text tells."""
    try:
        yield
    except UnreadableDocument as error:
        if place[0] < first_new:
            texts[place] = f"(This document cannot be read: {error}.)"
            return
        where = f"messages[{place[0] - first_new}].content[{place[1]}].file"
        raise InvalidRequest(f"The document in {where} cannot be read: {error}.", param=where) from error
