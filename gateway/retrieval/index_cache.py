"""Indexes of contents, kept in the process for later questions on the same texts."""

from collections.abc import Container, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from gateway.core.bounded_cache import BoundedCache
from gateway.core.ids import content_digest
from gateway.core.ports import ClaimingCache, Clock
from gateway.core.types.artifacts import cache_group
from gateway.core.types.conversation import NotedForms
from gateway.core.types.relevance import RankedPassage, RelevanceQuery, SearchedSource

if TYPE_CHECKING:
    from gateway.retrieval.corpus import ContentIndex, TermLexicon

MAX_FORGOTTEN = 10_000
"""Deleted groups that are remembered, so that a request which is still running does not store them again."""


class ContentIndexes:
    """An LRU cache of indexes by tenant and content digest, for threads. `hits` and `misses` count what was asked for.
    `max_bytes`: of all indexes together; `ttl`: seconds for which an index is kept."""

    def __init__(self, max_bytes: int, ttl: float, clock: Clock) -> None:
        self._indexes: BoundedCache[str, ContentIndex] = BoundedCache(
            max_weight=max_bytes, now=clock.monotonic, ttl=ttl
        )
        self._forgotten: BoundedCache[str, int] = BoundedCache(MAX_FORGOTTEN)
        self._moment = 0
        self._lock = Lock()
        self.hits = self.misses = 0

    @property
    def size(self) -> int:
        """Bytes of all kept indexes."""
        return self._indexes.weight

    @property
    def moment(self) -> int:
        """A counter of deletions: what is built from here on may be kept if it is not deleted later."""
        return self._moment

    def get(self, tenant: str, digest: str) -> "ContentIndex | None":
        """The index of that content, None if it is not kept."""
        with self._lock:
            found = self._indexes.get(cache_group(tenant, digest))
            self.hits += found is not None
            self.misses += found is None
            return found

    def keep(self, tenant: str, built: "Mapping[str, ContentIndex]", since: int) -> None:
        """Keeps indexes by content digest, except of contents that were deleted after the moment `since`."""
        with self._lock:
            for digest, index in built.items():
                group = cache_group(tenant, digest)
                if (self._forgotten.peek(group) or 0) <= since:
                    self._indexes.put(group, index, weight=index.size)

    def evict(self, *groups: str) -> None:
        """Deletes the indexes of these groups (`cache_group`), also those that are still being built."""
        with self._lock:
            self._moment += 1
            for group in groups:
                self._indexes.pop(group)
                self._forgotten.put(group, self._moment)


KEPT_CHARS = 2000
"""Characters from which an index is kept; a shorter text is indexed faster than it is looked up by its digest."""


class PassageFinder:
    """Relevance for one request (`core.types.relevance.Relevance`): indexes each text once, and not at all if its index
    is kept. numpy and the stemmers are loaded at the first call.
    `kept`: where indexes are kept beyond the request; None: nowhere; `noted`: indexes of short texts that can be
    recalled, as the request before had them."""

    def __init__(
        self, kept: ContentIndexes | None, tenant: str, noted: "NotedForms[str, ContentIndex] | None" = None
    ) -> None:
        self._kept, self._tenant = kept, tenant
        self._noted = noted
        self._since = kept.moment if kept else 0
        self._known: dict[str, ContentIndex] = {}
        self._built: dict[str, ContentIndex] = {}
        self._digests: dict[str, None] = {}

    def __call__(self, query: RelevanceQuery, sources: Sequence[SearchedSource]) -> list[list[RankedPassage]]:
        from gateway.retrieval.question import is_large, search_by_regions
        from gateway.retrieval.rank import relevance

        if not any(map(is_large, sources)):
            return relevance(query, sources, self._indexes)
        whole = {source.content for source in sources if not is_large(source)}

        def indexes(texts: Sequence[str], lexicon: "TermLexicon") -> "list[ContentIndex]":
            """Regions are not kept: each question has its own, and the deletion of their text would miss them."""
            return self._indexes(texts, lexicon, kept=whole)

        return search_by_regions(lambda parts: relevance(query, parts, indexes), query, sources)

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests of the contents whose indexes are kept, or will be by `keep`."""
        return tuple(self._digests)

    def keep(self) -> None:
        """Keeps the new indexes; to be called once the conversation that holds the contents is stored."""
        if self._kept is not None:
            built = {digest: index.alone() for digest, index in self._built.items()}
            self._kept.keep(self._tenant, built, self._since)

    def _indexes(
        self, texts: Sequence[str], lexicon: "TermLexicon", kept: Container[str] | None = None
    ) -> "list[ContentIndex]":
        """An index of each text; `kept` are those that may be kept, None: all."""
        from gateway.retrieval.corpus import index_texts

        def may_be_kept(text: str) -> bool:
            return self._kept is not None and len(text) >= KEPT_CHARS and (kept is None or text in kept)

        new = [
            text
            for text in dict.fromkeys(texts)
            if text not in self._known and not self._is_noted(text) and not (may_be_kept(text) and self._is_kept(text))
        ]
        for text, index in zip(new, index_texts(new, lexicon), strict=True):
            self._known[text] = index
            if self._noted is not None and len(text) < KEPT_CHARS and (kept is None or text in kept):
                self._noted.put(text, index.alone())
            if may_be_kept(text):
                self._built[content_digest(text)] = index
        return [self._known[text] for text in texts]

    def _is_noted(self, text: str) -> bool:
        found = self._noted.get(text) if self._noted is not None else None
        if found is not None:
            self._known[text] = found
        return found is not None

    def _is_kept(self, text: str) -> bool:
        if self._kept is None:
            return False
        digest = content_digest(text)
        self._digests[digest] = None
        found = self._kept.get(self._tenant, digest)
        if found is not None:
            self._known[text] = found
        return found is not None


class IndexedCache:
    """A cache that deletes a content's index together with the content (guarantee §5); all else goes to `cache`."""

    def __init__(self, cache: ClaimingCache, indexes: ContentIndexes) -> None:
        self._cache, self._indexes = cache, indexes

    async def get(self, key: str) -> bytes | None:
        """The value, None if there is none."""
        return await self._cache.get(key)

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key, None if there is none."""
        return await self._cache.get_many(keys)

    async def set(self, key: str, value: bytes, ttl: float, *, group: str | None = None) -> None:
        """Keeps a value for `ttl` seconds, in a group with which it is deleted."""
        await self._cache.set(key, value, ttl, group=group)

    async def evict(self, *groups: str) -> None:
        self._indexes.evict(*groups)
        await self._cache.evict(*groups)

    async def claim(self, key: str, owner: str, ttl: float) -> bool:
        return await self._cache.claim(key, owner, ttl)

    async def get_or_claim(self, key: str, claim: str, owner: str, ttl: float) -> tuple[bytes | None, bool]:
        return await self._cache.get_or_claim(key, claim, owner, ttl)

    async def release(self, key: str, owner: str) -> None:
        await self._cache.release(key, owner)

    async def close(self) -> None:
        """Closes the cache."""
        await self._cache.close()
