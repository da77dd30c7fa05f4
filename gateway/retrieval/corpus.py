"""Indexes of texts, and all texts of one call as one corpus in which terms are looked up."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from gateway.core.types.places import is_marked
from gateway.core.types.relevance import SearchedSource
from gateway.retrieval.chunks.chunk import PackedChunks, TextChunk
from gateway.retrieval.chunks.marked import names_in, split_heading
from gateway.retrieval.chunks.split import passages
from gateway.retrieval.term_ids import Kinds, Numbers, begins_of, numbered, numbers_of, places
from gateway.retrieval.terms import TermLexicon, all_words, bare

SHORT = 500
"""Characters up to which a text is one chunk."""
CHUNK_BYTES = 200
"""Bytes of a chunk as an object, roughly."""
MANY_CHUNKS = 1000
"""Chunks from which a text's are packed; to pack a few takes longer than it saves."""


@dataclass(frozen=True, slots=True, eq=False)
class ContentIndex:
    """The chunks of a text, and the numbers of all its terms in reading order: those of chunk i are
    `terms[firsts[i] : firsts[i + 1]]`. `kinds` says what each term is (`terms.PLAIN` …)."""

    chunks: Sequence[TextChunk]
    terms: Numbers
    kinds: Kinds
    firsts: Numbers

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        chunks = self.chunks.nbytes if isinstance(self.chunks, PackedChunks) else CHUNK_BYTES * len(self.chunks)
        return self.terms.nbytes + self.kinds.nbytes + self.firsts.nbytes + chunks

    def alone(self) -> "ContentIndex":
        """A copy that can be kept by itself: texts that are indexed together share one piece of memory."""
        return ContentIndex(self.chunks, self.terms.copy(), self.kinds.copy(), self.firsts)


def index_texts(texts: Sequence[str], lexicon: TermLexicon) -> list[ContentIndex]:
    """An index of each text. All at once is faster: each different word is looked at once."""
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


def _searched(text: str, chunk: TextChunk) -> str:
    """The text by which a chunk is found: its own and its heading, but no names of columns: all rows have the same."""
    own, heading = text[chunk.start : chunk.end], chunk.heading
    if not heading:
        return own
    markers, rest = split_heading(heading) if heading[0] == "[" else ("", heading)
    above = (names_in(markers), "" if chunk.kind == "row" else rest)
    return "\n".join(each for each in (*above, own) if each)


def chunks_of(text: str) -> list[TextChunk]:
    """The chunks of a text; a short one is one."""
    if len(text) > SHORT or is_marked(text):
        return passages(text)
    return [TextChunk(0, len(text))] if text.strip() else []


def _streams(words: list[str], lexicon: TermLexicon) -> tuple[Numbers, Kinds, Numbers]:
    """Terms and kinds of all words in order, and how many terms each word has."""
    known: defaultdict[str, int] = defaultdict(count().__next__)
    of_word = np.fromiter(map(known.__getitem__, words), np.int64, len(words))
    found = numbered(bare(known), lexicon)
    counts = found.counts[of_word]
    at = places(begins_of(found.counts)[of_word], counts)
    return found.numbers[at], found.kinds[at], counts


def _lengths(firsts: Sequence[Numbers]) -> Numbers:
    """How many terms each chunk has, of all indexes: differences at once, but for those from one index to the next."""
    if not firsts:
        return np.empty(0, np.int64)
    within = np.ones(sum(map(len, firsts)), bool)
    within[np.cumsum([len(each) for each in firsts]) - 1] = False
    every: Numbers = np.concatenate(firsts)
    lengths: Numbers = (every[1:] - every[:-1])[within[:-1]]
    return lengths


Scores = NDArray[np.float64]
LOW = 0xFFFF


@dataclass(frozen=True, slots=True, eq=False)
class TermHits:
    """Occurrences of terms, in order: the index in the stream, the chunk, and which of the terms it is."""

    places: Numbers
    chunks: Numbers
    terms: Numbers


class SourceCorpus:
    """Sources with their indexes. Chunks are numbered through all sources: those of source i from `begins[i]` up to
    `begins[i + 1]`."""

    def __init__(
        self, sources: Sequence[SearchedSource], indexes: Sequence[ContentIndex], lexicon: TermLexicon
    ) -> None:
        self.sources, self.indexes, self.lexicon = sources, indexes, lexicon
        sizes = [len(index.chunks) for index in indexes]
        self.begins: Numbers = np.cumsum([0, *sizes])
        self.count = int(self.begins[-1])
        self.source_of: Numbers = np.repeat(np.arange(len(sources)), sizes)
        self.is_turn: NDArray[np.bool_] = np.repeat([source.kind == "turn" for source in sources], sizes).astype(bool)
        self.terms: Numbers = np.concatenate([i.terms for i in indexes] or [np.empty(0, np.int64)])
        self.kinds: Kinds = np.concatenate([i.kinds for i in indexes] or [np.empty(0, np.uint8)])
        self.lengths: Numbers = _lengths([index.firsts for index in indexes])
        self.firsts: Numbers = np.concatenate(([0], np.cumsum(self.lengths)))
        known = {label: numbers_of(lexicon.question(label)) for label in {source.label for source in sources}}
        labels = [known[source.label] for source in sources]
        self._labels: Numbers = np.concatenate(labels or [np.empty(0, np.int64)])
        self._labelled: Numbers = np.repeat(np.arange(len(labels)), list(map(len, labels)))
        self._low = (self.terms & LOW).astype(np.uint16)

    def find(self, wanted: Numbers) -> TermHits:
        """All occurrences of these terms (distinct, sorted): one scan of the whole stream in C, no inverted index."""
        table = np.zeros(LOW + 1, bool)
        table[wanted & LOW] = True
        places = np.flatnonzero(table[self._low])
        terms = np.searchsorted(wanted, self.terms[places])
        terms[terms == len(wanted)] = 0
        exact = wanted[terms] == self.terms[places] if len(wanted) else np.zeros(len(places), bool)
        places, terms = places[exact], terms[exact]
        return TermHits(places, np.searchsorted(self.firsts, places, "right") - 1, terms)

    def seek(self, terms: Sequence[str]) -> TermHits:
        """All occurrences of these distinct terms; `TermHits.terms` are indexes into them. Nothing may depend on the
        order of the terms' numbers, which differ in every process."""
        wanted, first = np.unique(numbers_of([(term, 0) for term in terms]), return_index=True)
        hits = self.find(wanted)
        return replace(hits, terms=first[hits.terms])

    def labels(self, terms: Sequence[str]) -> NDArray[np.bool_]:
        """Which source's label holds which of these distinct terms (sources × terms)."""
        wanted, first = np.unique(numbers_of([(term, 0) for term in terms]), return_index=True)
        found = np.zeros((len(self.sources), len(terms)), bool)
        at = np.minimum(np.searchsorted(wanted, self._labels), len(wanted) - 1)
        exact = wanted[at] == self._labels
        found[self._labelled[exact], first[at[exact]]] = True
        return found

    def records(self, source: int) -> list[list[int]]:
        """The chunks of each record, row or line of a source, in order; empty for prose and code."""
        found: dict[tuple[int, int], list[int]] = {}
        for number, chunk in enumerate(self.indexes[source].chunks, int(self.begins[source])):
            if chunk.ordinal >= 0:
                found.setdefault(chunk.record, []).append(number)
        return list(found.values())

    def chunk(self, number: int) -> TextChunk:
        """The chunk of that number."""
        source = int(self.source_of[number])
        return self.indexes[source].chunks[number - int(self.begins[source])]

    def text_of(self, number: int) -> str:
        """A chunk's text."""
        chunk = self.chunk(number)
        return self.sources[int(self.source_of[number])].content[chunk.start : chunk.end]

    def chunk_at(self, source: int, place: int) -> int:
        """The chunk that holds a character of a source, or else the one before it."""
        inside = bisect_right(self.indexes[source].chunks, place, key=lambda chunk: chunk.start) - 1
        return int(self.begins[source]) + max(0, inside)
