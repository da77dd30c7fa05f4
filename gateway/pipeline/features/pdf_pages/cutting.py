"""Pages of PDFs as PDFs of their own: cut out once, kept in the cache, named by references (guarantee §14.13).

What is stored of a conversation holds the reference alone, a `file` part that names the PDF by its content and the
pages by their numbers. The bytes are put in its place at the very last, equal each time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.core import jsons
from gateway.core.errors import Overloaded
from gateway.core.ports import CacheBackend
from gateway.core.tasks import offload_if
from gateway.core.types.artifacts import cache_group
from gateway.core.types.items import named_file
from gateway.core.types.places import named_pages
from gateway.documents.document import DocumentFile, DocumentOwner, Reading, UnreadableDocument
from gateway.documents.process import DocumentReader

REFERENCE = re.compile(r"pages:(pdf:[0-9a-f]{64}):(\d{1,6}(?:,\d{1,6}){0,99})\Z")
VERSION = 2
"""Raised whenever pages are cut in another way: the cache may hold older ones."""
MAX_BYTES = 8 * 2**20
"""Of pages as base64: providers take 32 MB in a whole request."""
INLINE_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class CutPages:
    """Pages as a PDF of their own. `reading`: what was read of them; `data`: the PDF in base64."""

    reading: Reading
    data: str


def reference(digest: str, numbers: Sequence[int]) -> dict[str, Any]:
    """The `file` part that stands for pages of a PDF. `digest`: of the PDF (`DocumentFile.digest`)."""
    return {"type": "file", "file": {"file_id": f"pages:{digest}:{','.join(map(str, numbers))}"}}


def referenced(part: Any) -> tuple[str, str, tuple[int, ...]] | None:
    """The id that a part's reference has, the PDF's digest and the numbers of its pages; None of any other part."""
    name = named_file(part) if isinstance(part, dict) else None
    found = REFERENCE.match(name) if name is not None else None
    return (found[0], found[1], tuple(map(int, found[2].split(",")))) if found is not None else None


def as_file(cut: CutPages, numbers: Sequence[int]) -> dict[str, Any]:
    """What goes up in the place of the reference's own `file`."""
    return {"filename": f"{named_pages(numbers)}.pdf", "file_data": f"data:application/pdf;base64,{cut.data}"}


class PageCutter:
    """Cuts pages out of PDFs, in the process apart."""

    def __init__(self, documents: DocumentReader, cache: CacheBackend, ttl: float, most_pages: int) -> None:
        """`most_pages` of one question, beside its block (`documents.native_pages`)."""
        self.most_pages = most_pages
        self._documents = documents
        self._cache = cache
        self._ttl = ttl

    async def kept(self, name: str, tenant: str) -> CutPages | None:
        """What the cache keeps under a reference's id."""
        raw = await self._cache.get(_key(name, tenant))
        return None if raw is None else await offload_if(len(raw) > INLINE_CHARS, _cut_of, raw)

    async def cut(
        self, document: DocumentFile, reading: Reading, numbers: Sequence[int], name: str, owner: DocumentOwner
    ) -> CutPages | None:
        """The pages; None if they cannot be cut out, or are too large.
        `reading`: what was read of the whole PDF; `name`: the id of their reference."""
        if not numbers or max(numbers) > len(reading.pages):
            return None
        try:
            data = await self._documents.cut(document, owner.tenant, numbers)
        except (UnreadableDocument, Overloaded):
            return None
        if len(data) > MAX_BYTES:
            return None
        found = CutPages(reading.of_pages(numbers), data)
        if owner.keeps:
            raw = await offload_if(len(data) > INLINE_CHARS, _raw_of, found)
            group = cache_group(owner.tenant, document.digest)
            await self._cache.set(_key(name, owner.tenant), raw, self._ttl, group=group)
        return found


def _key(name: str, tenant: str) -> str:
    return f"cut:{VERSION}:{tenant}:{name}"


def _raw_of(cut: CutPages) -> bytes:
    return jsons.dumps({"reading": cut.reading.as_json(), "data": cut.data})


def _cut_of(raw: bytes) -> CutPages | None:
    """None also if what is kept is damaged."""
    try:
        found = jsons.loads(raw)
        return CutPages(Reading.from_json(found["reading"]), str(found["data"]))
    except (ValueError, KeyError, TypeError):
        return None
