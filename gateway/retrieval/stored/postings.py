"""Encodes an index in a compact form: which regions hold a term, and how often.

A segment covers the regions of some megabytes of a text, and never changes. It is stored in buckets by the first bits
of a term's hash, so that a question reads only a few rows. A bucket is, compressed: the numbers of terms and of
occurrences (32 bits each); the terms' 32-bit hashes, each as its distance from the previous one; in how many regions
each term is; the regions, each as its distance from the previous one; how often each term is in it (255 at most). Of
numbers longer than a byte all first bytes come first, then all second ones: so they compress to a third.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.retrieval.corpus import TermLexicon, all_words, bare, begins_of, run_places

BUCKET_BITS = 8
BUCKETS = 1 << BUCKET_BITS
PLACES = BUCKETS
"""The number of the bucket that holds the places of the regions, and no terms."""
SEGMENT_REGIONS = 1024
"""Regions of a segment: eight million characters. Their numbers in it have 16 bits."""
MAX_POSTING_COUNT = 255

Hashes = NDArray[np.uint32]
Numbers = NDArray[np.int64]


class TermPosting(NamedTuple):
    """The regions of a segment that hold a term, by their numbers in it, and how often each holds it."""

    regions: Numbers
    counts: Numbers


NO_POSTING = TermPosting(np.zeros(0, np.int64), np.zeros(0, np.int64))


def hash_of(term: str) -> int:
    """Returns a term's 32-bit hash, the same in any process. Two terms of a document collide less than once in a
    thousand documents, and then some regions score a little higher."""
    return zlib.crc32(term.encode("utf-8", "surrogatepass"))


def bucket_of(term: str) -> int:
    """Returns the number of the bucket that holds a term's postings."""
    return hash_of(term) >> (32 - BUCKET_BITS)


def segment(texts: Sequence[str], lexicon: TermLexicon) -> Iterator[tuple[int, bytes]]:
    """Yields the non-empty buckets of the index of these regions, with their numbers.
    `texts`: `SEGMENT_REGIONS` at most."""
    found = _occurrences(texts, lexicon)
    keys, often = np.unique(found, return_counts=True)
    hashes, regions = (keys >> np.uint64(16)).astype(np.uint32), (keys & np.uint64(0xFFFF)).astype(np.int64)
    buckets = hashes >> np.uint32(32 - BUCKET_BITS)
    edges = np.flatnonzero(np.diff(buckets)) + 1
    for start, end in zip([0, *edges.tolist()], [*edges.tolist(), len(keys)], strict=True):
        if end > start:
            yield int(buckets[start]), _encoded(hashes[start:end], regions[start:end], often[start:end])


def _occurrences(texts: Sequence[str], lexicon: TermLexicon) -> NDArray[np.uint64]:
    """Returns for each occurrence of a term its hash and its region, as one number."""
    words, counts = all_words(texts)
    known: defaultdict[str, int] = defaultdict(count().__next__)
    which = np.fromiter(map(known.__getitem__, words), np.int64, len(words))
    del words
    terms = [[term for term, _ in lexicon.unstemmed(word)] for word in bare(known)]
    per_word = np.fromiter(map(len, terms), np.int64, len(terms))
    stems = lexicon.stems([term for each in terms for term in each])
    hashes = np.fromiter(map(hash_of, stems), np.uint64, len(stems))
    region = np.repeat(np.arange(len(texts), dtype=np.uint64), np.array(counts, np.int64))
    each = per_word[which]
    at = run_places(begins_of(per_word)[which], each)
    found: NDArray[np.uint64] = (hashes[at] << np.uint64(16)) | np.repeat(region, each)
    return found


def _encoded(hashes: Hashes, regions: Numbers, often: Numbers) -> bytes:
    firsts = np.flatnonzero(np.diff(hashes, prepend=hashes[0] ^ np.uint32(1)))
    different = hashes[firsts]
    held = np.diff(firsts, append=len(hashes))
    distances = np.diff(regions, prepend=0)
    distances[firsts] = regions[firsts]
    parts = (
        np.array([len(different), len(hashes)], np.uint32).tobytes(),
        _planes(np.diff(different, prepend=np.uint32(0)).astype(np.uint32)),
        _planes(held.astype(np.uint16)),
        _planes(distances.astype(np.uint16)),
        np.minimum(often, MAX_POSTING_COUNT).astype(np.uint8).tobytes(),
    )
    return zlib.compress(b"".join(parts), 6)


def _planes(values: NDArray[np.generic]) -> bytes:
    """Returns all first bytes, then all second ones."""
    return values.view(np.uint8).reshape(len(values), values.itemsize).T.tobytes()


class PostingBucket:
    """A bucket that was read."""

    def __init__(self, data: bytes) -> None:
        """Raises ValueError, zlib.error: the data is no bucket."""
        raw = np.frombuffer(zlib.decompress(data), np.uint8)
        terms, occurrences = (int(each) for each in raw[:8].view(np.uint32))
        at = 8
        self._hashes, at = _numbers(raw, at, terms, np.uint32)
        np.cumsum(self._hashes, out=self._hashes)
        self._held, at = _numbers(raw, at, terms, np.uint16)
        self._distances, at = _numbers(raw, at, occurrences, np.uint16)
        self._counts = raw[at : at + occurrences]

    def of(self, term: str) -> TermPosting:
        """Returns the regions that hold a term."""
        wanted = hash_of(term)
        number = int(np.searchsorted(self._hashes, wanted))
        if number == len(self._hashes) or self._hashes[number] != wanted:
            return NO_POSTING
        begin = int(self._held[:number].sum())
        end = begin + int(self._held[number])
        return TermPosting(np.cumsum(self._distances[begin:end]), self._counts[begin:end].astype(np.int64))


def _numbers(raw: NDArray[np.uint8], at: int, many: int, kind: type[np.generic]) -> tuple[Numbers, int]:
    width = np.dtype(kind).itemsize
    end = at + many * width
    values = np.ascontiguousarray(raw[at:end].reshape(width, many).T).reshape(-1).view(kind)
    return values.astype(np.int64), end
