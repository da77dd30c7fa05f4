"""Short ways to ask which passage of made-up texts is best."""

from collections.abc import Sequence

from gateway.core.types.relevance import RelevanceQuery, SearchedSource
from gateway.retrieval.chunks.chunk import MAX_CHUNK_CHARS, TextChunk
from gateway.retrieval.chunks.split import passages
from gateway.retrieval.rank import relevance


def turns(*texts: str) -> list[SearchedSource]:
    """A talk, user and assistant in turn."""
    return [SearchedSource(text, "turn", ("user", "assistant")[n % 2], True, n) for n, text in enumerate(texts)]


def documents(*texts: str, label: str = "") -> list[SearchedSource]:
    """Texts of old tool results, one after the other."""
    return [SearchedSource(text, "artifact", label, True, n) for n, text in enumerate(texts)]


def ranked(query: RelevanceQuery | str, sources: Sequence[SearchedSource]) -> list[str]:
    """The texts of all passages that bear on the question, best first."""
    query = RelevanceQuery(query) if isinstance(query, str) else query
    found = relevance(query, sources)
    scored = [(p.score, s.content[p.start : p.end]) for s, ps in zip(sources, found, strict=True) for p in ps]
    return [text for score, text in sorted(scored, key=lambda pair: -pair[0]) if score > 0]


def covers(text: str, found: list[TextChunk]) -> None:
    """In order, without overlap, bounded; between and around them there is only white space."""
    at = 0
    for chunk in found:
        assert chunk.start >= at
        assert not text[at : chunk.start].strip()
        assert text[chunk.start : chunk.end].strip()
        assert chunk.end - chunk.start <= MAX_CHUNK_CHARS
        at = chunk.end
    assert not text[at:].strip()


def cut(text: str) -> list[tuple[str, str]]:
    """(heading, text) of each chunk."""
    found = passages(text)
    covers(text, found)
    return [(chunk.heading, text[chunk.start : chunk.end]) for chunk in found]
