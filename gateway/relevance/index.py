"""The index of a text: its chunks, and the terms of each as one stream of numbers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from gateway.relevance.chunks.chunk import Chunk
from gateway.relevance.chunks.passages import passages
from gateway.relevance.words import Lexicon, Terms, all_words, bare

Numbers = NDArray[np.int64]
Kinds = NDArray[np.uint8]
SHORT = 500
"""Characters up to which a text is a chunk of its own."""
CHUNK_BYTES = 200


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
        return self.terms.nbytes + self.kinds.nbytes + self.firsts.nbytes + CHUNK_BYTES * len(self.chunks)

    def alone(self) -> "ContentIndex":
        """The same with numbers of its own: those of texts that were indexed together are one piece of memory."""
        return ContentIndex(self.chunks, self.terms.copy(), self.kinds.copy(), self.firsts)


def index_texts(texts: Sequence[str], lexicon: Lexicon) -> list[ContentIndex]:
    """An index of each text. All of them at once: what is slow for one is done once for all."""
    cut = [chunks_of(text) for text in texts]
    pieces = [_searched(text, c) for text, chunks in zip(texts, cut, strict=True) for c in chunks]
    found = all_words(pieces)
    terms, kinds, counts = _streams(list(chain.from_iterable(found)), lexicon)
    ends = np.cumsum([0, *map(len, found)])
    firsts = np.concatenate(([0], np.cumsum(counts)))[ends]
    indexes, at = [], 0
    for chunks in cut:
        here = firsts[at : at + len(chunks) + 1]
        start, end = int(here[0]), int(here[-1])
        indexes.append(ContentIndex(chunks, terms[start:end], kinds[start:end], here - start))
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


def numbers_of(terms: Terms) -> Numbers:
    """The numbers of these terms, in order: the same for the life of the process, strange to every other one. Two of
    a text's terms share one less than once in 10^9 texts, and then a passage scores a little more."""
    return np.fromiter(map(hash, (term for term, _ in terms)), np.int64, len(terms))


def _streams(words: list[str], lexicon: Lexicon) -> tuple[Numbers, Kinds, Numbers]:
    """Terms and kinds of all words in order, and how many terms each word has."""
    known: defaultdict[str, int] = defaultdict(count().__next__)
    of_word = np.fromiter(map(known.__getitem__, words), np.int64, len(words))
    flat = lexicon.flat(bare(known))
    numbers = np.fromiter(map(hash, flat.terms), np.int64, len(flat.terms))
    kinds = np.frombuffer(flat.kinds, np.uint8)
    lengths = np.array(flat.counts, np.int64)
    begins = np.cumsum(lengths) - lengths
    counts = lengths[of_word]
    total = int(counts.sum())
    at = np.arange(total) + np.repeat(begins[of_word] - (np.cumsum(counts) - counts), counts)
    return numbers[at], kinds[at], counts
