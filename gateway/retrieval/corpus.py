"""Turns words into search terms; indexes texts, all texts of one call as one corpus; and scores its chunks by the terms
that they share with a question (BM25), several rankings fused into one.

The terms of many words at once are numbers: the same terms that `TermLexicon.unstemmed` finds word by word, but numpy
cuts ASCII words in their bytes, since indexing would spend most of its time here.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from Stemmer import Stemmer

from gateway.core.types import places
from gateway.core.types.relevance import SearchedSource
from gateway.retrieval.chunks.chunk import PackedChunks, TextChunk, names_in, split_heading
from gateway.retrieval.chunks.split import passages

_ENGLISH = """
a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it its me
my no not of on or our out she so than that the their them then there these they this those to up us was we were what
when where which who whom whose why will with would you your tell please give show s t d m ll re ve just also am being
im about any some does did doing should shall may might must let lets want need know get got going
"""
_OTHERS = """
der die das den dem des ein eine einen einem einer und oder ist sind war wie wer wo wann warum welche welcher welches
mit von zu im auf für bei nicht es sie
le la les un une des du et ou est sont qui que quoi où quand comment pourquoi quel quelle dans pour avec par sur
el los las una y o es son quién qué dónde cuándo cómo por para con del
и в во не на что как кто где когда какой какая какие с по из за от для это
في من على إلى عن ما هو هي هل التي الذي هذا هذه أن كان متى كيف أين
"""
STOPWORDS = frozenset(_ENGLISH.split()) | frozenset(_OTHERS.split())
"""Words that are not searched: articles, pronouns, auxiliaries of the most common languages."""

SEARCHED_WORD = re.compile(r"[^\W_]+(?:[_./@\\-]+[^\W_]+)*")
"""A word, or a compound: an identifier, a path, an address, a date."""
WORD_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
JOINING = "_./@\\-"
APART = bytes(byte if chr(byte).isalnum() or chr(byte) in JOINING else 0x20 for byte in range(128)) + bytes(128)
"""Translates ASCII characters outside of words into spaces."""
SEGMENT_SEPARATOR = re.compile(r"[/@\\]")
WORD_RUN = re.compile(r"[^\W_]+")
COMPOUND = re.compile(r"[^\W_][_.-]+[^\W_]")
LETTER, TELLING = re.compile(r"[^\W\d_]"), re.compile(r"[\d_@/]")
CJK = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
CYRILLIC, ARABIC = re.compile(r"[\u0400-\u04ff]"), re.compile(r"[\u0600-\u06ff]")
YEAR, IDENTIFYING = 4, 6
"""Digits of a year, which is also a term by itself in a date; and minimum digits of a number that is an identifier."""
MAX_WORD_CHARS = 200
"""Characters of a word that are searched; anything longer is data."""

PLAIN, IDENTIFIER, NAME, NUMBER, PIECE_OF = 0, 1, 2, 3, 4
"""Kinds of terms. Texts that speak of the same thing share identifiers and names."""

SAYING_NOTHING = STOPWORDS.union(map(chr, range(128)))
"""Pieces of compounds that are not searched: stop words, single letters and digits."""

Terms = list[tuple[str, int]]
"""Terms, each with its kind."""
Stem = Callable[[list[str]], list[str]]


class TermLexicon:
    """Converts words into terms. One for each call: stemmers must not be shared between threads."""

    def __init__(self) -> None:
        # Without its cache: evicting from a full one takes longer than stemming everything again.
        self.stems: Stem = Stemmer("english", 0).stemWords
        self._russian: Stem = Stemmer("russian", 0).stemWords
        self._arabic: Stem = Stemmer("arabic", 0).stemWords

    def question(self, text: str) -> Terms:
        found = [term for word in SEARCHED_WORD.findall(text) for term in self.unstemmed(word)]
        return list(zip(self.stems([term for term, _ in found]), [kind for _, kind in found], strict=True))

    def unstemmed(self, word: str) -> Terms:
        """Returns the terms of a word before stemming. `numbered` does so for many words at once, faster."""
        if not word.isascii():
            return self._not_ascii(word[:MAX_WORD_CHARS])
        pieces = WORD_PIECE.findall(word[:MAX_WORD_CHARS])
        if not pieces:
            return []
        if len(pieces) > 1:
            return _compound(word[:MAX_WORD_CHARS], [piece.lower() for piece in pieces])
        if word.isdigit():
            return [(word[:MAX_WORD_CHARS], NUMBER if len(word) < IDENTIFYING else IDENTIFIER)]
        lower = word[:MAX_WORD_CHARS].lower()
        return [] if lower in STOPWORDS else [(lower, PLAIN if word.islower() else NAME)]

    def _not_ascii(self, word: str) -> Terms:
        folded = _folded(word)
        if CJK.search(folded):
            return [term for run in WORD_RUN.findall(folded) for term in _pairs(run)]
        parts = WORD_RUN.findall(folded)
        if len(parts) == 1:
            return [] if folded in STOPWORDS else [(self._stem(folded), _kind(word))]
        return [(folded, _kind(word)), *((self._stem(p), PIECE_OF) for p in parts if p not in STOPWORDS)]

    def _stem(self, folded: str) -> str:
        if CYRILLIC.search(folded):
            return self._russian([folded])[0]
        return self._arabic([folded])[0] if ARABIC.search(folded) else folded


def _compound(word: str, pieces: list[str]) -> Terms:
    """Returns the terms of an ASCII word of several pieces: the whole, and the pieces."""
    lower = word.lower()
    if not lower.islower():  # without a letter: a date, an amount
        return [(lower, NUMBER), *[(piece, PIECE_OF) for piece in pieces if len(piece) == YEAR]]
    kind = IDENTIFIER if TELLING.search(word) else NAME if word[0].isupper() else PLAIN
    named = [(segment, IDENTIFIER) for segment in segments(lower)]
    return [(lower, kind), *named, *[(piece, PIECE_OF) for piece in pieces if piece not in SAYING_NOTHING]]


def segments(word: str) -> list[str]:
    """Returns the parts of a path or an address that are compounds themselves."""
    pieces = SEGMENT_SEPARATOR.split(word) if SEGMENT_SEPARATOR.search(word) else ()
    return [segment for segment in pieces if COMPOUND.search(segment)]


def all_words(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Returns the words of all texts, and how many each text has. Words of ASCII texts still have signs around them, so
    that `bare` needs to strip each different word only once."""
    found: list[str] = []
    counts: list[int] = []
    for text in texts:
        here = text.encode().translate(APART).decode().split() if text.isascii() else SEARCHED_WORD.findall(text)
        found += here
        counts.append(len(here))
    return found, counts


def bare(words: Iterable[str]) -> list[str]:
    """Strips the signs around the words of `all_words`; some may be empty then."""
    return [word.strip(JOINING) for word in words]


def _folded(word: str) -> str:
    """Returns the word without case and accents, in Unicode's compatibility form."""
    word = unicodedata.normalize("NFKC", word).casefold()
    if CYRILLIC.search(word) or CJK.search(word):
        return word
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


def _pairs(run: str) -> Terms:
    if not CJK.search(run):
        return [(run, _kind(run))]
    return [(run[i : i + 2], PLAIN) for i in range(max(1, len(run) - 1))]


def _kind(word: str) -> int:
    if LETTER.search(word) is None:
        return NUMBER
    if TELLING.search(word):
        return IDENTIFIER
    return NAME if word[0].isupper() else PLAIN


Numbers = NDArray[np.int64]
Kinds = NDArray[np.uint8]
Mask = NDArray[np.bool_]

NONE, LOWER, UPPER, DIGIT = 0, 1, 2, 4
TELLING_BIT, PARTING = 8, 16


def _kind_of(character: str) -> int:
    kind = LOWER if character.islower() else UPPER if character.isupper() else DIGIT if character.isdigit() else NONE
    return kind | (TELLING_BIT if kind == DIGIT or character in "_@/" else 0) | (PARTING if character in "/@\\" else 0)


CHARACTERS = bytes(map(_kind_of, map(chr, range(128)))) + bytes(128)
"""The kind of each byte: a letter, a digit, or a sign that makes a word an identifier or a path."""
ALPHANUMERIC_BYTES = bytes(b if chr(b).isalnum() else 0x20 for b in range(128)) + bytes(128)
PATH_SEPARATORS = str.maketrans("@\\", "//")
NEW_LINE, SPACE = 10, 32
NO_CHARACTER = np.zeros(1, np.uint8)


class NumberedTerms(NamedTuple):
    """Terms of consecutive words: their numbers, their kinds (`PLAIN` …), and how many each word has."""

    numbers: Numbers
    kinds: Kinds
    counts: Numbers


def numbers_of(terms: Terms) -> Numbers:
    """Returns the numbers of these terms, in order: 64-bit hashes, the same for the life of the process and different
    in any other. Two terms of a text collide less than once in 10^9 texts; then a passage scores a little higher."""
    return _hashes([term for term, _ in terms])


def numbered(words: Sequence[str], lexicon: TermLexicon) -> NumberedTerms:
    """Returns the terms of each of these words, which hold no line ends."""
    if "".join(words).isascii() and max(map(len, words), default=0) <= MAX_WORD_CHARS:
        return _numbered_ascii(words, lexicon)
    usual = [word.isascii() and len(word) <= MAX_WORD_CHARS for word in words]
    ascii_words = _numbered_ascii([word for word, is_usual in zip(words, usual, strict=True) if is_usual], lexicon)
    others = _one_by_one([word for word, is_usual in zip(words, usual, strict=True) if not is_usual], lexicon)
    of_ascii = np.array(usual)
    counts = np.zeros(len(words), np.int64)
    counts[of_ascii], counts[~of_ascii] = ascii_words.counts, others.counts
    result = _empty(counts)
    begins = begins_of(counts)
    for part, mask in ((ascii_words, of_ascii), (others, ~of_ascii)):
        at = run_places(begins[mask], part.counts)
        result.numbers[at], result.kinds[at] = part.numbers, part.kinds
    return result


def begins_of(counts: Numbers) -> Numbers:
    """Returns where each of several consecutive stretches of these lengths begins."""
    return np.cumsum(counts) - counts


def run_places(begins: Numbers, counts: Numbers) -> Numbers:
    """Returns the indexes of all elements of several stretches, one stretch after the other."""
    return np.arange(int(counts.sum())) + np.repeat(begins - begins_of(counts), counts)


def _empty(counts: Numbers) -> NumberedTerms:
    total = int(counts.sum())
    return NumberedTerms(np.zeros(total, np.int64), np.zeros(total, np.uint8), counts)


def _one_by_one(words: Sequence[str], lexicon: TermLexicon) -> NumberedTerms:
    found: list[Terms] = [lexicon.unstemmed(word) for word in words]
    terms = [term for each in found for term in each]
    kinds = np.fromiter((kind for _, kind in terms), np.uint8, len(terms))
    numbers = _hashes(lexicon.stems([term for term, _ in terms]))
    return NumberedTerms(numbers, kinds, np.fromiter(map(len, found), np.int64, len(found)))


def _numbered_ascii(words: Sequence[str], lexicon: TermLexicon) -> NumberedTerms:
    if not words:
        return _empty(np.zeros(0, np.int64))
    text = "\n".join((*words, ""))
    small, data = text.lower(), text.encode()
    characters = np.frombuffer(data.translate(CHARACTERS), np.uint8)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == NEW_LINE)
    starts = np.concatenate(([0], ends[:-1] + 1))
    held = np.bitwise_or.reduceat(characters, starts)
    has_letter = (held & (LOWER | UPPER)) != 0
    begins = _begins_piece(characters & np.uint8(LOWER | UPPER | DIGIT))
    firsts = np.flatnonzero(begins)
    each = np.diff(np.searchsorted(firsts, starts), append=len(firsts))  # pieces of each word
    of_word = np.repeat(np.arange(len(words)), each)
    whole = each > 1
    numbers, which, searched = _pieces(_cut(small, begins), whole[of_word], has_letter[of_word], lexicon)
    pieces = np.bincount(of_word[searched], minlength=len(words))
    paths = np.flatnonzero(whole & has_letter & ((held & PARTING) != 0))
    lowered = small.split("\n")
    segments, of_path = _segments([lowered[word] for word in paths.tolist()], lexicon)
    parts = np.zeros(len(words), np.int64)
    parts[paths] = of_path

    result = _empty(whole + parts + pieces)
    at = begins_of(result.counts)
    result.numbers[at[whole]] = _hashes(lexicon.stems([lowered[word] for word in np.flatnonzero(whole).tolist()]))
    first_kind = np.where(characters[starts] & UPPER, NAME, PLAIN)
    of_whole = np.where(has_letter, np.where(held & TELLING_BIT, IDENTIFIER, first_kind), NUMBER)
    result.kinds[at[whole]] = of_whole[whole]
    inner = run_places(at + whole, parts)
    result.numbers[inner], result.kinds[inner] = segments, IDENTIFIER
    last = run_places(at + whole + parts, pieces)
    result.numbers[last] = numbers[which[searched]]
    alone = np.where(has_letter, first_kind, np.where(ends - starts < IDENTIFYING, NUMBER, IDENTIFIER))
    result.kinds[last] = np.where(whole, PIECE_OF, alone)[of_word[searched]]
    return result


def _begins_piece(characters: Kinds) -> Mask:
    """Returns where a piece begins (see `WORD_PIECE`): where the kind of character changes, but not from a capital to a
    lower-case letter; and at the last capital before one."""
    framed = np.concatenate((NO_CHARACTER, characters, NO_CHARACTER))
    before, after = framed[:-2], framed[2:]
    after_capital = before == UPPER
    changes = (characters != before) & ~((characters == LOWER) & after_capital)
    begins: Mask = (characters != NONE) & (changes | ((characters == UPPER) & after_capital & (after == LOWER)))
    return begins


def _cut(text: str, begins: Mask) -> list[str]:
    """Returns the pieces of a text that begin there, separated by spaces instead of the signs that join them."""
    apart = np.full(len(begins) + int(np.count_nonzero(begins)), SPACE, np.uint8)
    apart[np.arange(len(begins)) + np.cumsum(begins)] = np.frombuffer(
        text.encode().translate(ALPHANUMERIC_BYTES), np.uint8
    )
    return apart.tobytes().decode().split()


def _pieces(
    pieces: list[str], of_several: Mask, has_letter: Mask, lexicon: TermLexicon
) -> tuple[Numbers, Numbers, Mask]:
    """Returns the numbers of the distinct pieces, which of them each piece is, and whether it is searched."""
    which, different = _different(pieces)
    count = len(different)
    lengths = np.fromiter(map(len, different), np.int64, count)
    is_stopword = np.fromiter(map(STOPWORDS.__contains__, different), np.bool_, count)
    says_nothing = is_stopword | (lengths == 1)
    searched = np.where(has_letter, ~says_nothing[which], lengths[which] == YEAR)
    return _hashes(lexicon.stems(different)), which, np.where(of_several, searched, ~is_stopword[which])


def _segments(paths: list[str], lexicon: TermLexicon) -> tuple[Numbers, Numbers]:
    """Returns the numbers of the `segments` of these words, and how many each word has."""
    which, different = _different("\n/".join(paths).translate(PATH_SEPARATORS).split("/"))
    is_one = np.fromiter((COMPOUND.search(part) is not None for part in different), np.bool_, len(different))
    ended = np.fromiter((part[-1:] == "\n" for part in different), np.bool_, len(different))[which]
    numbers = _hashes(lexicon.stems([part.rstrip("\n") for part in different]))
    of_path: Numbers = np.cumsum(ended) - ended
    return numbers[which][is_one[which]], np.bincount(of_path[is_one[which]], minlength=len(paths))


def _different(texts: Sequence[str]) -> tuple[Numbers, list[str]]:
    """Returns for each text its index among the distinct texts, and the distinct texts."""
    known: defaultdict[str, int] = defaultdict(count().__next__)
    return np.fromiter(map(known.__getitem__, texts), np.int64, len(texts)), list(known)


def _hashes(terms: Sequence[str]) -> Numbers:
    return np.fromiter(map(hash, terms), np.int64, len(terms))


SHORT_TEXT_CHARS = 500
"""Characters up to which a text is one chunk."""
CHUNK_BYTES = 200
"""Approximate bytes of a chunk as an object."""
MANY_CHUNKS = 1000
"""A text's chunks are packed if they are more; packing a few takes longer than it saves."""


@dataclass(frozen=True, slots=True, eq=False)
class ContentIndex:
    """The chunks of a text, and the numbers of all its terms in reading order: those of chunk i are
    `terms[firsts[i] : firsts[i + 1]]`. `kinds` holds the kind of each term (`PLAIN` …)."""

    chunks: Sequence[TextChunk]
    terms: Numbers
    kinds: Kinds
    firsts: Numbers

    @property
    def size(self) -> int:
        """Approximate bytes of memory."""
        chunks = self.chunks.nbytes if isinstance(self.chunks, PackedChunks) else CHUNK_BYTES * len(self.chunks)
        return self.terms.nbytes + self.kinds.nbytes + self.firsts.nbytes + chunks

    def alone(self) -> "ContentIndex":
        """Returns a copy that can be cached by itself: texts that are indexed together share one piece of memory."""
        return ContentIndex(self.chunks, self.terms.copy(), self.kinds.copy(), self.firsts)


def index_texts(texts: Sequence[str], lexicon: TermLexicon) -> list[ContentIndex]:
    """Returns an index of each text. Indexing all at once is faster: each distinct word is examined once."""
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
    """Returns the text by which a chunk is found: its own and its heading, without column names, which recur."""
    own, heading = text[chunk.start : chunk.end], chunk.heading
    if not heading:
        return own
    markers, rest = split_heading(heading) if heading[0] == "[" else ("", heading)
    above = (names_in(markers), "" if chunk.kind == "row" else rest)
    return "\n".join(each for each in (*above, own) if each)


def chunks_of(text: str) -> list[TextChunk]:
    if len(text) > SHORT_TEXT_CHARS or places.is_marked(text):
        return passages(text)
    return [TextChunk(0, len(text))] if text.strip() else []


def _streams(words: list[str], lexicon: TermLexicon) -> tuple[Numbers, Kinds, Numbers]:
    """Returns terms and kinds of all words in order, and how many terms each word has."""
    known: defaultdict[str, int] = defaultdict(count().__next__)
    of_word = np.fromiter(map(known.__getitem__, words), np.int64, len(words))
    found = numbered(bare(known), lexicon)
    counts = found.counts[of_word]
    at = run_places(begins_of(found.counts)[of_word], counts)
    return found.numbers[at], found.kinds[at], counts


def _lengths(firsts: Sequence[Numbers]) -> Numbers:
    """Returns how many terms each chunk of all indexes has: the differences within each index, computed at once."""
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
    """Occurrences of terms, in order: the index in the stream, the chunk, and the index of the term."""

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
        """Returns all occurrences of these terms (distinct, sorted): one scan of the stream in C, no inverted index."""
        table = np.zeros(LOW + 1, bool)
        table[wanted & LOW] = True
        places = np.flatnonzero(table[self._low])
        terms = np.searchsorted(wanted, self.terms[places])
        terms[terms == len(wanted)] = 0
        exact = wanted[terms] == self.terms[places] if len(wanted) else np.zeros(len(places), bool)
        places, terms = places[exact], terms[exact]
        return TermHits(places, np.searchsorted(self.firsts, places, "right") - 1, terms)

    def seek(self, terms: Sequence[str]) -> TermHits:
        """Returns all occurrences of these distinct terms; `TermHits.terms` are indexes into them. Nothing may depend
        on the order of the terms' numbers, which differs in every process."""
        wanted, first = np.unique(numbers_of([(term, 0) for term in terms]), return_index=True)
        hits = self.find(wanted)
        return replace(hits, terms=first[hits.terms])

    def labels(self, terms: Sequence[str]) -> NDArray[np.bool_]:
        """Returns which source's label holds which of these distinct terms (sources × terms)."""
        wanted, first = np.unique(numbers_of([(term, 0) for term in terms]), return_index=True)
        found = np.zeros((len(self.sources), len(terms)), bool)
        at = np.minimum(np.searchsorted(wanted, self._labels), len(wanted) - 1)
        exact = wanted[at] == self._labels
        found[self._labelled[exact], first[at[exact]]] = True
        return found

    def records(self, source: int) -> list[list[int]]:
        """Returns the chunks of each record, row or line of a source, in order; empty for prose and code."""
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
        """Returns the chunk that holds a character of a source, or else the one before it."""
        inside = bisect_right(self.indexes[source].chunks, place, key=lambda chunk: chunk.start) - 1
        return int(self.begins[source]) + max(0, inside)


K1, B = 1.2, 0.6
"""BM25's saturation and length normalisation, in the range that its authors recommend (Robertson and Zaragoza, 2009: k1
1.2 to 2, b 0.5 to 0.8)."""
MAX_QUESTION_TERMS = 64
"""Distinct terms of a question that are looked up; bounds the time of a question that is itself a document."""
LABEL_SHARE = 0.3
"""Weight of a term in the label of a source (a tool's arguments, a title), as a fraction of one in the text. Tuned (ADR
11)."""
PIECE_SHARE = 0.6
"""Weight of `user` in `user_id`, as a fraction of the word `user` alone. Tuned (ADR 11)."""
TOGETHER_SHARE = 0.5
"""Weight of two terms that are adjacent in question and chunk, as a fraction of the two alone. Tuned (ADR 11)."""
OTHER_WORDS = 0.5
"""Worth of a question's ordinary word that no chunk holds, as a fraction of one that a single chunk would hold."""
NEAR_TERMS = 4
"""Distance up to which two terms of a chunk count as adjacent: a word or two may come between them."""
COVERAGE = 0.5
"""Fraction of a score that grows with how many of the question's terms the chunk holds. Tuned (ADR 11)."""


def lexical(corpus: SourceCorpus, terms: Terms, weights: Mapping[str, float] | None = None) -> Scores:
    """Returns a score for each chunk, 0 if neither it nor its source's label holds any of the terms.
    `terms`: the terms to look up, in order; only the first `MAX_QUESTION_TERMS` distinct ones count; `weights`: of
    terms; 1 for terms that are not in it."""
    order = list(dict.fromkeys(term for term, _ in terms))[:MAX_QUESTION_TERMS]
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
    """Returns for each chunk the share of the terms' worth that it or its source's label holds, from 0 to 1: a rare
    term is worth more than a common one. A term that no chunk holds is worth the most if it is a name; an ordinary word
    may occur there in another form."""
    kinds = dict(reversed(terms))
    order = list(dict.fromkeys(term for term, _ in terms))[:MAX_QUESTION_TERMS]
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
    """Returns BM25's term frequency. `length` is the chunk's, as a multiple of the mean; short chunks gain nothing."""
    result: NDArray[np.float64] = counts * (K1 + 1) / (counts + K1 * (1 - B + B * np.maximum(1, length)))
    return result


def rarity(held: Numbers, of: int) -> NDArray[np.float64]:
    """Returns BM25's inverse document frequency of terms that `held` of `of` chunks hold; 0 if none does."""
    return np.where(held > 0, np.log(1 + (of - held + 0.5) / (held + 0.5)), 0.0)


def _product(matrix: NDArray[Any], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Multiplies matrix and vector. A linear algebra library adds in an order that depends on memory layout, so that
    the same request would be answered differently in another process."""
    result: NDArray[np.float64] = np.add.reduce(matrix * vector, axis=1)
    return result


def _together(corpus: SourceCorpus, hits: TermHits, worth: NDArray[np.float64]) -> Scores:
    """Returns for each chunk the worth of the pairs of terms that are adjacent in it and in the question."""
    if len(hits.places) < 2:
        return np.zeros(corpus.count)
    a, b = slice(None, -1), slice(1, None)
    near = (hits.chunks[a] == hits.chunks[b]) & (hits.places[b] - hits.places[a] <= NEAR_TERMS)
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
    """The question calls for the ranked chunks: they hold what it names, or are at the place that it points to."""


def fuse(rankings: Sequence[TermRanking], count: int) -> Scores:
    """Fuses rankings by reciprocal rank (Cormack, Clarke and Büttcher, 2009): the sum of weight / (DAMPING + rank) over
    the rankings that rank a chunk. Equal scores have equal ranks."""
    total = np.zeros(count)
    for ranking in rankings:
        ranked = ranking.scores > 0
        better = np.sort(-ranking.scores[ranked])
        rank = 1 + np.searchsorted(better, -ranking.scores[ranked], "left")
        total[ranked] += ranking.weight / (DAMPING + rank)
    return total
