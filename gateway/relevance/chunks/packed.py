"""The chunks of a long text as columns of numbers: a ninth of the memory, and nothing for the garbage collector."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from gateway.relevance.chunks.chunk import Chunk, Kind

KINDS: tuple[Kind, ...] = ("record", "row", "line", "code", "prose")
COLUMNS = ("start", "end", "ordinal", "origin")
STRING_BYTES = 60


class PackedChunks(Sequence[Chunk]):
    """The same sequence; each chunk is made when it is asked for."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        numbers: dict[str, int] = {}
        headings = (numbers.setdefault(chunk.heading, len(numbers)) for chunk in chunks)
        self._heading_of = np.fromiter(headings, np.int32, len(chunks))
        self._headings = list(numbers)
        self._kinds = np.fromiter((KINDS.index(chunk.kind) for chunk in chunks), np.uint8, len(chunks))
        self._columns: list[NDArray[np.int32]] = [
            np.fromiter((getattr(chunk, name) for chunk in chunks), np.int32, len(chunks)) for name in COLUMNS
        ]

    @property
    def nbytes(self) -> int:
        """Bytes, roughly."""
        texts = sum(STRING_BYTES + len(heading) for heading in self._headings)
        columns = sum(column.nbytes for column in self._columns)
        return texts + columns + self._heading_of.nbytes + self._kinds.nbytes

    def __len__(self) -> int:
        return len(self._kinds)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...

    @overload
    def __getitem__(self, index: slice) -> list[Chunk]: ...

    def __getitem__(self, index: int | slice) -> Chunk | list[Chunk]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        start, end, ordinal, origin = (int(column[index]) for column in self._columns)
        return Chunk(start, end, self._headings[self._heading_of[index]], KINDS[self._kinds[index]], ordinal, origin)

    def __iter__(self) -> Iterator[Chunk]:
        starts, ends, ordinals, origins = (column.tolist() for column in self._columns)
        headings = map(self._headings.__getitem__, self._heading_of.tolist())
        kinds = map(KINDS.__getitem__, self._kinds.tolist())
        return map(Chunk, starts, ends, headings, kinds, ordinals, origins)
