"""Reads the `file` parts of messages; what takes long to read is kept in the cache, by tenant and content."""

import asyncio
from collections.abc import Sequence

from gateway.artifacts.documents import InlineFile, UnreadableDocument, inline_file
from gateway.errors import InvalidRequest
from gateway.models.conversation import ConversationMessage
from gateway.ports import CacheBackend

FilePlace = tuple[int, int]


class FileReader:
    """Texts of documents by (message, part)."""

    def __init__(self, cache: CacheBackend, ttl: float) -> None:
        self._cache = cache
        self._ttl = ttl

    async def read(
        self, messages: Sequence[ConversationMessage], first_new: int, tenant: str, *, decode_pdf: bool, keep: bool
    ) -> dict[FilePlace, str]:
        """The texts of all documents that are not to be forwarded as they are.

        Args:
            first_new: index of the first message of this request, so that an error can name the part.
            keep: whether texts may outlive the request (`store`).

        Raises:
            InvalidRequest: a part holds no readable document; names it.
        """
        texts: dict[FilePlace, str] = {}
        for index, message in enumerate(messages):
            content = message.content if message.role == "user" else None
            for number, part in enumerate(content if isinstance(content, list) else ()):
                if not isinstance(part, dict) or part.get("type") != "file":
                    continue
                try:
                    found = inline_file(part.get("file") or {}, decode_pdf=decode_pdf)
                    if found is not None:
                        texts[index, number] = await self._text(found, tenant, keep=keep)
                except UnreadableDocument as error:
                    where = f"messages[{max(0, index - first_new)}].content[{number}].file"
                    raise InvalidRequest(f"The document in {where} cannot be read: {error}.", param=where) from error
        return texts

    async def _text(self, file: InlineFile, tenant: str, *, keep: bool) -> str:
        if not file.is_slow:
            return file.text()
        key = f"document:{tenant}:{file.digest}"
        known = await self._cache.get(key) if keep else None
        if known is not None:
            return known.decode("utf-8", "replace")
        text = await asyncio.to_thread(file.text)
        if keep:
            await self._cache.set(key, text.encode("utf-8", "replace"), self._ttl)
        return text
