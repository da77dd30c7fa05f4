"""The index of a text: its chunks, and the terms of each as one stream of numbers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from gateway.relevance.chunks.chunk import Chunk
from gateway.relevance.chunks.packed import PackedChunks
from gateway.relevance.chunks.passages import passages
from gateway.relevance.numbering import Kinds, Numbers, begins_of, numbered, places
from gateway.relevance.words import Lexicon, all_words, bare

SHORT = 500
"""Characters up to which a text is a chunk of its own."""
CHUNK_BYTES = 200
MANY_CHUNKS = 1000
"""So many are packed: to pack a few of each of many texts takes longer than it saves."""


@dataclass(frozen=True, slots=True, eq=False)
class ContentIndex:
    """`terms` are the numbers of all terms of the text, in order; those of chunk i stand from `firsts[i]` to
    `firsts[i + 1]`. `kinds` says what each of them is (`words.PLAIN` …)."""

    chunks: Sequence[Chunk]
    terms: Numbers
    kinds: Kinds
    firsts: Numbers

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        chunks = self.chunks.nbytes if isinstance(self.chunks, PackedChunks) else CHUNK_BYTES * len(self.chunks)
        return self.terms.nbytes + self.kinds.nbytes + self.firsts.nbytes + chunks

    def alone(self) -> "ContentIndex":
        """The same with numbers of its own: those of texts that were indexed together are one piece of memory."""
        return ContentIndex(self.chunks, self.terms.copy(), self.kinds.copy(), self.firsts)


def index_texts(texts: Sequence[str], lexicon: Lexicon) -> list[ContentIndex]:
    """An index of each text. All of them at once: what is slow for one is done once for all."""
    cut = [chunks_of(text) for text in texts]
    pieces = [_searched(text, c) for text, chunks in zip(texts, cut, strict=True) for c in chunks]
    words, each = all_words(pieces)
    terms, kinds, counts = _streams(words, lexicon)
    ends = np.cumsum([0, *each])
    firsts = np.concatenate(([0], np.cumsum(counts)))[ends]
    indexes, at = [], 0
    for chunks in cut:
        here = firsts[at : at + len(chunks) + 1]
        start, end = int(here[0]), int(here[-1])
        held = PackedChunks(chunks) if len(chunks) > MANY_CHUNKS else chunks
        indexes.append(ContentIndex(held, terms[start:end], kinds[start:end], here - start))
        at += len(chunks)
    return indexes


def _searched(text: str, chunk: Chunk) -> str:
    """What a chunk is found by: its own words, and the heading that it cannot be understood without. The names of a
    table's columns are the same for all of its rows and tell none of them apart."""
    own = text[chunk.start : chunk.end]
    return f"{chunk.heading}\n{own}" if chunk.heading and chunk.kind != "row" else own


def chunks_of(text: str) -> list[Chunk]:
    """The chunks of a text; a short one is one."""
    if len(text) > SHORT:
        return passages(text)
    return [Chunk(0, len(text))] if text.strip() else []


def _streams(words: list[str], lexicon: Lexicon) -> tuple[Numbers, Kinds, Numbers]:
    """Terms and kinds of all words in order, and how many terms each word has."""
    known: defaultdict[str, int] = defaultdict(count().__next__)
    of_word = np.fromiter(map(known.__getitem__, words), np.int64, len(words))
    found = numbered(bare(known), lexicon)
    counts = found.counts[of_word]
    at = places(begins_of(found.counts)[of_word], counts)
    return found.numbers[at], found.kinds[at], counts
