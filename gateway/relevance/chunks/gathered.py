"""Bounds how many chunks a text has: of hundreds of thousands of tiny ones nobody needs each by itself."""

from gateway.relevance.chunks.chunk import MAX_CHARS, Chunk

MOST_CHUNKS = 50_000
"""About as many has a text at most, unless its chunks are long. One chunk takes some 20 µs of every question."""


def gathered(chunks: list[Chunk], most: int = MOST_CHUNKS) -> list[Chunk]:
    """The same chunks if they are not too many, else those that are shorter than an even share of the text are gathered
    with the next ones of their kind and heading until they are not. What was gathered counts as the first of them."""
    if len(chunks) <= most:
        return chunks
    least = (chunks[-1].end - chunks[0].start) // most
    found: list[Chunk] = []
    first = chunks[0]
    until = first.end
    for chunk in chunks[1:]:
        is_alike = chunk.kind == first.kind and chunk.heading == first.heading
        if is_alike and until - first.start < least and chunk.end - first.start <= MAX_CHARS:
            until = chunk.end
            continue
        found.append(Chunk(first.start, until, *first[2:]))
        first, until = chunk, chunk.end
    return [*found, Chunk(first.start, until, *first[2:])]
