"""Relevance as it is handed to fitting, for one request; numpy and the stemmers are loaded when something is ranked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.ids import content_digest
from gateway.models.relevance import Passage, Query, Source
from gateway.relevance.kept import ContentIndexes

if TYPE_CHECKING:
    from gateway.relevance.index import ContentIndex
    from gateway.relevance.words import Lexicon

KEPT_CHARS = 2000
"""Shorter texts are indexed anew faster than they are looked up."""


class PassageFinder:
    """`models.relevance.Relevance`: each text is indexed once, and not at all if its index is kept.

    Without `kept` nothing is kept beyond the request.
    """

    def __init__(self, kept: ContentIndexes | None, tenant: str) -> None:
        self._kept, self._tenant = kept, tenant
        self._since = kept.moment if kept else 0
        self._known: dict[str, ContentIndex] = {}
        self._built: dict[str, ContentIndex] = {}
        self._digests: dict[str, None] = {}

    def __call__(self, query: Query, sources: Sequence[Source]) -> list[list[Passage]]:
        from gateway.relevance.relevance import relevance

        return relevance(query, sources, self._indexes)

    @property
    def digests(self) -> tuple[str, ...]:
        """Of the contents whose indexes are kept, or will be by `keep`."""
        return tuple(self._digests)

    def keep(self) -> None:
        """Keeps what was built. To be called once the conversation that holds the contents is stored."""
        if self._kept is not None:
            built = {digest: index.alone() for digest, index in self._built.items()}
            self._kept.keep(self._tenant, built, self._since)

    def _indexes(self, texts: Sequence[str], lexicon: "Lexicon") -> "list[ContentIndex]":
        from gateway.relevance.index import index_texts

        new = [text for text in dict.fromkeys(texts) if text not in self._known and not self._is_kept(text)]
        for text, index in zip(new, index_texts(new, lexicon), strict=True):
            self._known[text] = index
            if self._kept is not None and len(text) >= KEPT_CHARS:
                self._built[content_digest(text)] = index
        return [self._known[text] for text in texts]

    def _is_kept(self, text: str) -> bool:
        if self._kept is None or len(text) < KEPT_CHARS:
            return False
        digest = content_digest(text)
        self._digests[digest] = None
        found = self._kept.get(self._tenant, digest)
        if found is not None:
            self._known[text] = found
        return found is not None
