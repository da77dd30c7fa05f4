"""Indexes of texts, all texts of one call as one corpus, and the scores of its chunks by the terms that they share with
a question (BM25), several rankings fused into one."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.core.types.places import is_marked
from gateway.core.types.relevance import SearchedSource
from gateway.retrieval.chunks.chunk import PackedChunks, TextChunk
from gateway.retrieval.chunks.marked import names_in, split_heading
from gateway.retrieval.chunks.split import passages
from gateway.retrieval.terms import (
    PIECE_OF,
    PLAIN,
    Kinds,
    Numbers,
    TermLexicon,
    Terms,
    all_words,
    bare,
    begins_of,
    numbered,
    numbers_of,
    places,
)

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
        source = int(self.source_of[number])
        return self.indexes[source].chunks[number - int(self.begins[source])]

    def text_of(self, number: int) -> str:
        chunk = self.chunk(number)
        return self.sources[int(self.source_of[number])].content[chunk.start : chunk.end]

    def chunk_at(self, source: int, place: int) -> int:
        """The chunk that holds a character of a source, or else the one before it."""
        inside = bisect_right(self.indexes[source].chunks, place, key=lambda chunk: chunk.start) - 1
        return int(self.begins[source]) + max(0, inside)


K1, B = 1.2, 0.6
"""BM25's saturation and length normalisation, in the range that its authors recommend (Robertson and Zaragoza, 2009: k1
1.2 to 2, b 0.5 to 0.8)."""
MAX_TERMS = 64
"""Different terms of a question that are looked up; bounds the time of a question that is itself a document."""
LABEL_SHARE = 0.3
"""Weight of a term in the label of a source (a tool's arguments, a title), as a fraction of one in the text. Tuned (ADR
11)."""
PIECE_SHARE = 0.6
"""Weight of `user` in `user_id`, as a fraction of the word `user` alone. Tuned (ADR 11)."""
TOGETHER_SHARE = 0.5
"""Weight of two terms that stand side by side in question and chunk, as a fraction of the two alone. Tuned (ADR 11)."""
OTHER_WORDS = 0.5
"""What an ordinary word of a question that no chunk holds says, as a fraction of one that a single chunk would hold."""
NEAR = 4
"""Terms within which two terms of a chunk stand side by side: a word or two may come between them."""
COVERAGE = 0.5
"""Fraction of a score that grows with how many of the question's terms the chunk holds. Tuned (ADR 11)."""


def lexical(corpus: SourceCorpus, terms: Terms, weights: Mapping[str, float] | None = None) -> Scores:
    """A score for each chunk, 0 where neither it nor its source's label holds any of the terms.
    `terms`: the terms to look up, in order; only the first `MAX_TERMS` different ones count; `weights`: of terms; 1 for
    those that are not in it."""
    order = list(dict.fromkeys(term for term, _ in terms))[:MAX_TERMS]
    if not order or not corpus.count:
        return np.zeros(corpus.count)
    weight = np.array([(weights or {}).get(term, 1.0) for term in order])
    hits = corpus.seek(order)
    share = np.where(corpus.kinds[hits.places] == PIECE_OF, PIECE_SHARE, 1.0)
    cells = hits.chunks * len(order) + hits.terms
    counts = np.bincount(cells, share, corpus.count * len(order)).reshape(corpus.count, len(order))
    held = counts > 0
    worth = rarity(held.sum(0), corpus.count) * weight
    length = corpus.lengths / max(1.0, float(corpus.lengths.mean()))
    scores = _product(saturated(counts, length[:, None]), worth)
    scores *= 1 - COVERAGE + COVERAGE * _product(held, worth) / max(1e-9, float(worth.sum()))
    scores += TOGETHER_SHARE * _together(corpus, hits, worth)
    in_labels = corpus.labels(order)
    of_labels = LABEL_SHARE * _product(in_labels, rarity(in_labels.sum(0), len(corpus.sources)) * weight)
    total: Scores = scores + of_labels[corpus.source_of]
    return total


def share_held(corpus: SourceCorpus, terms: Terms, *, labels: bool = True) -> Scores:
    """For each chunk how much of what the terms say it or its source's label holds, from 0 to 1: a rare term says more
    than a common one. What no chunk holds says the most if it names something; an ordinary word may stand there as
    another."""
    kinds = dict(reversed(terms))
    order = list(dict.fromkeys(term for term, _ in terms))[:MAX_TERMS]
    if not order or not corpus.count:
        return np.zeros(corpus.count)
    hits = corpus.seek(order)
    held = np.zeros((corpus.count, len(order)), bool)
    held[hits.chunks, hits.terms] = True
    holders = held.sum(0)
    worth = np.log(1 + (corpus.count - holders + 0.5) / (holders + 0.5))
    ordinary = np.array([kinds[term] in (PLAIN, PIECE_OF) for term in order])
    worth[(holders == 0) & ordinary] *= OTHER_WORDS
    if labels:
        held |= corpus.labels(order)[corpus.source_of]
    return _product(held, worth) / float(worth.sum())


def saturated(counts: NDArray[Any], length: NDArray[np.float64]) -> NDArray[np.float64]:
    """BM25's term frequency. `length` is the chunk's, as a multiple of the mean; short chunks have no advantage."""
    result: NDArray[np.float64] = counts * (K1 + 1) / (counts + K1 * (1 - B + B * np.maximum(1, length)))
    return result


def rarity(held: Numbers, of: int) -> NDArray[np.float64]:
    """BM25's inverse document frequency of terms that `held` of so many chunks hold; 0 if none does."""
    return np.where(held > 0, np.log(1 + (of - held + 0.5) / (held + 0.5)), 0.0)


def _product(matrix: NDArray[Any], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matrix times vector. A linear algebra library adds in an order that depends on where memory happens to lie, and
    the same request would be answered differently in another process."""
    result: NDArray[np.float64] = np.add.reduce(matrix * vector, axis=1)
    return result


def _together(corpus: SourceCorpus, hits: TermHits, worth: NDArray[np.float64]) -> Scores:
    """For each chunk the worth of the pairs of terms that stand side by side in it as they do in the question."""
    if len(hits.places) < 2:
        return np.zeros(corpus.count)
    a, b = slice(None, -1), slice(1, None)
    near = (hits.chunks[a] == hits.chunks[b]) & (hits.places[b] - hits.places[a] <= NEAR)
    near &= hits.terms[a] + 1 == hits.terms[b]
    pairs = np.unique(hits.chunks[a][near] * len(worth) + hits.terms[a][near])
    chunks, terms = pairs // len(worth), pairs % len(worth)
    return np.bincount(chunks, worth[terms] + worth[terms + 1], corpus.count).astype(np.float64)


DAMPING = 6
"""Constant of reciprocal rank fusion, in ranks: the best chunk of one ranking alone equals the eighth of two. The usual
60 is meant for lists of documents; here a few chunks fill the budget. Tuned (ADR 11)."""


@dataclass(frozen=True, slots=True, eq=False)
class TermRanking:
    """Scores of all chunks by one criterion, 0 for those that it does not rank, and the weight of the criterion."""

    scores: Scores
    weight: float = 1.0
    calls: bool = False
    """What is ranked is what the question asks for: it holds what is named there, or stands where it points."""


def fuse(rankings: Sequence[TermRanking], count: int) -> Scores:
    """Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): the sum of weight / (DAMPING + rank) over the
    rankings that rank a chunk. Equal scores have equal ranks."""
    total = np.zeros(count)
    for ranking in rankings:
        ranked = ranking.scores > 0
        better = np.sort(-ranking.scores[ranked])
        rank = 1 + np.searchsorted(better, -ranking.scores[ranked], "left")
        total[ranked] += ranking.weight / (DAMPING + rank)
    return total
