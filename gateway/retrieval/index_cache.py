"""Caches indexes of contents in the process for later questions on the same texts."""

from collections.abc import Container, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from gateway.core import ids, ports
from gateway.core.bounded_cache import BoundedCache
from gateway.core.types import artifacts
from gateway.core.types.conversation import CarriedCache
from gateway.core.types.relevance import RankedPassage, RelevanceQuery, SearchedSource

if TYPE_CHECKING:
    from gateway.retrieval.corpus import ContentIndex, TermLexicon

MAX_FORGOTTEN = 10_000
"""Deleted groups that are remembered, so that a running request does not store their indexes again."""


class ContentIndexes:
    """A thread-safe LRU cache of indexes by tenant and content digest. `hits` and `misses` count lookups.
    `max_bytes`: of all indexes together; `ttl`: lifetime of an index in seconds."""

    def __init__(self, max_bytes: int, ttl: float, clock: ports.Clock) -> None:
        self._indexes: BoundedCache[str, ContentIndex] = BoundedCache(
            max_weight=max_bytes, now=clock.monotonic, ttl=ttl
        )
        self._forgotten: BoundedCache[str, int] = BoundedCache(MAX_FORGOTTEN)
        self.moment = 0
        """A counter of deletions: an index built from this moment on may be cached unless it is deleted later."""
        self._lock = Lock()
        self.hits = self.misses = 0

    @property
    def size(self) -> int:
        """Bytes of all cached indexes."""
        return self._indexes.weight

    def get(self, tenant: str, digest: str) -> "ContentIndex | None":
        """Returns the index of this content; None if it is not cached."""
        with self._lock:
            found = self._indexes.get(artifacts.cache_group(tenant, digest))
            self.hits += found is not None
            self.misses += found is None
            return found

    def keep(self, tenant: str, built: "Mapping[str, ContentIndex]", since: int) -> None:
        """Caches indexes by content digest, except those of contents that were deleted after the moment `since`."""
        with self._lock:
            for digest, index in built.items():
                group = artifacts.cache_group(tenant, digest)
                if (self._forgotten.peek(group) or 0) <= since:
                    self._indexes.put(group, index, weight=index.size)

    def evict(self, *groups: str) -> None:
        """Deletes the indexes of these groups (`cache_group`), including those still being built: they leave with their
        contents (guarantee §5)."""
        with self._lock:
            self.moment += 1
            for group in groups:
                self._indexes.pop(group)
                self._forgotten.put(group, self.moment)


KEPT_CHARS = 2000
"""Characters from which an index is cached; indexing a shorter text is faster than looking it up by its digest."""


class PassageFinder:
    """Relevance for one request (`core.types.relevance.Relevance`): indexes each text once, and not at all if its index
    is cached. numpy and the stemmers are loaded at the first call.
    `kept`: cache of indexes beyond the request; None: there is none; `noted`: the previous request's indexes of short
    texts that can be recalled."""

    def __init__(
        self, kept: ContentIndexes | None, tenant: str, noted: "CarriedCache[str, ContentIndex] | None" = None
    ) -> None:
        self._kept, self._tenant = kept, tenant
        self._noted = noted
        self._since = kept.moment if kept else 0
        self._known: dict[str, ContentIndex] = {}
        self._built: dict[str, ContentIndex] = {}
        self._digests: dict[str, None] = {}

    def __call__(self, query: RelevanceQuery, sources: Sequence[SearchedSource]) -> list[list[RankedPassage]]:
        from gateway.retrieval import question, rank  # numpy and the stemmers, which no start waits for

        if not any(map(question.is_large, sources)):
            return rank.relevance(query, sources, self._indexes)
        whole = {source.content for source in sources if not question.is_large(source)}

        def indexes(texts: Sequence[str], lexicon: "TermLexicon") -> "list[ContentIndex]":
            """Indexes texts without caching regions: each question has its own, and deletion would miss them."""
            return self._indexes(texts, lexicon, kept=whole)

        return question.search_by_regions(lambda parts: rank.relevance(query, parts, indexes), query, sources)

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests of the contents whose indexes are cached, or will be by `keep`."""
        return tuple(self._digests)

    def keep(self) -> None:
        """Caches the new indexes; to be called after the conversation that holds the contents is stored."""
        if self._kept is not None:
            built = {digest: index.alone() for digest, index in self._built.items()}
            self._kept.keep(self._tenant, built, self._since)

    def _indexes(
        self, texts: Sequence[str], lexicon: "TermLexicon", kept: Container[str] | None = None
    ) -> "list[ContentIndex]":
        """Returns an index of each text; `kept` are those that may be cached, None: all."""
        from gateway.retrieval import corpus

        new = [text for text in dict.fromkeys(texts) if not self._is_known(text, kept is None or text in kept)]
        for text, index in zip(new, corpus.index_texts(new, lexicon), strict=True):
            self._known[text] = index
            if kept is not None and text not in kept:
                continue
            if len(text) >= KEPT_CHARS and self._kept is not None:
                self._built[ids.content_digest(text)] = index
            elif len(text) < KEPT_CHARS and self._noted is not None:
                self._noted.put(text, index.alone())
        return [self._known[text] for text in texts]

    def _is_known(self, text: str, may_be_kept: bool) -> bool:
        """Returns whether this request, or an earlier one, has indexed the text."""
        if text in self._known:
            return True
        found = self._noted.get(text) if self._noted is not None else None
        if found is None and may_be_kept and self._kept is not None and len(text) >= KEPT_CHARS:
            digest = ids.content_digest(text)
            self._digests[digest] = None
            found = self._kept.get(self._tenant, digest)
        if found is not None:
            self._known[text] = found
        return found is not None
