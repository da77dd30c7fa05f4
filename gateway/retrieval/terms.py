"""From words to search terms: stems, identifiers whole and in pieces, pairs of CJK characters.

The terms of many words at once, as numbers. It gives the same as `TermLexicon.unstemmed` word by word, but ASCII
words are cut in their bytes by numpy, since indexing would spend most of its time here.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from Stemmer import Stemmer

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
"""Words that are not searched: articles, pronouns, auxiliaries of the most used languages."""

WORD = re.compile(r"[^\W_]+(?:[_./@\\-]+[^\W_]+)*")
"""A word, or a compound: an identifier, a path, an address, a date."""
PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
JOINING = "_./@\\-"
APART = bytes(byte if chr(byte).isalnum() or chr(byte) in JOINING else 0x20 for byte in range(128)) + bytes(128)
"""Translates ASCII characters that are no part of a word into spaces."""
SEGMENT_SEPARATOR = re.compile(r"[/@\\]")
WORD_RUN = re.compile(r"[^\W_]+")
COMPOUND = re.compile(r"[^\W_][_.-]+[^\W_]")
LETTER, TELLING = re.compile(r"[^\W\d_]"), re.compile(r"[\d_@/]")
CJK = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
CYRILLIC, ARABIC = re.compile(r"[\u0400-\u04ff]"), re.compile(r"[\u0600-\u06ff]")
YEAR, IDENTIFYING = 4, 6
"""Digits of a year, which is also a term by itself in a date; and from how many digits a number is an identifier."""
LONGEST = 200
"""Characters of a word that are searched; what is longer is data."""

PLAIN, IDENTIFIER, NAME, NUMBER, PIECE_OF = 0, 1, 2, 3, 4
"""Kinds of terms. Texts that speak of the same thing share identifiers and names."""

SAYING_NOTHING = STOPWORDS.union(map(chr, range(128)))
"""Pieces of compounds that are not searched: stop words, single letters and digits."""

Terms = list[tuple[str, int]]
"""Terms, each with its kind."""
Stem = Callable[[list[str]], list[str]]


class TermLexicon:
    """Makes terms of words. One for each call: stemmers must not be shared between threads."""

    def __init__(self) -> None:
        # Without its cache: to make room in it, once it is full, takes longer than to stem everything anew.
        self._english: Stem = Stemmer("english", 0).stemWords
        self._russian: Stem = Stemmer("russian", 0).stemWords
        self._arabic: Stem = Stemmer("arabic", 0).stemWords

    def question(self, text: str) -> Terms:
        found = [term for word in words(text) for term in self.unstemmed(word)]
        return list(zip(self.stems([term for term, _ in found]), [kind for _, kind in found], strict=True))

    def unstemmed(self, word: str) -> Terms:
        """The terms of a word before stemming. `term_ids.numbered` finds the same for many words at once, faster."""
        if not word.isascii():
            return self._not_ascii(word[:LONGEST])
        pieces = PIECE.findall(word[:LONGEST])
        if not pieces:
            return []
        if len(pieces) > 1:
            return _compound(word[:LONGEST], [piece.lower() for piece in pieces])
        if word.isdigit():
            return [(word[:LONGEST], NUMBER if len(word) < IDENTIFYING else IDENTIFIER)]
        lower = word[:LONGEST].lower()
        return [] if lower in STOPWORDS else [(lower, PLAIN if word.islower() else NAME)]

    def stems(self, terms: list[str]) -> list[str]:
        return self._english(terms)

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
    """The terms of an ASCII word of several pieces: the whole, and the pieces."""
    lower = word.lower()
    if not lower.islower():  # without a letter: a date, an amount
        return [(lower, NUMBER), *[(piece, PIECE_OF) for piece in pieces if len(piece) == YEAR]]
    kind = IDENTIFIER if TELLING.search(word) else NAME if word[0].isupper() else PLAIN
    named = [(segment, IDENTIFIER) for segment in segments(lower)]
    return [(lower, kind), *named, *[(piece, PIECE_OF) for piece in pieces if piece not in SAYING_NOTHING]]


def segments(word: str) -> list[str]:
    """The parts of a path or an address that are compounds themselves."""
    return (
        [segment for segment in SEGMENT_SEPARATOR.split(word) if COMPOUND.search(segment)]
        if SEGMENT_SEPARATOR.search(word)
        else []
    )


def words(text: str) -> list[str]:
    return WORD.findall(text)


def all_words(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """The words of all texts, and how many each text has. Words of ASCII texts still have signs around them, so that
    `bare` needs to strip each different word only once."""
    found: list[str] = []
    counts: list[int] = []
    for text in texts:
        here = text.encode().translate(APART).decode().split() if text.isascii() else WORD.findall(text)
        found += here
        counts.append(len(here))
    return found, counts


def bare(words: Iterable[str]) -> list[str]:
    """The words of `all_words` without the signs around them; some may be empty."""
    return [word.strip(JOINING) for word in words]


def _folded(word: str) -> str:
    """The word without case and accents, in Unicode's compatible form."""
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
NOTHING = np.zeros(1, np.uint8)


class NumberedTerms(NamedTuple):
    """Terms of words one after the other: their numbers, their kinds (`terms.PLAIN` …), and how many each word has."""

    numbers: Numbers
    kinds: Kinds
    counts: Numbers


def numbers_of(terms: Terms) -> Numbers:
    """The numbers of these terms, in order: 64-bit hashes, the same for the life of the process and different in any
    other. Two terms of a text share one less than once in 10^9 texts, and then a passage scores a little more."""
    return _hashes([term for term, _ in terms])


def numbered(words: Sequence[str], lexicon: TermLexicon) -> NumberedTerms:
    """The terms of each of these words, which hold no line ends."""
    if "".join(words).isascii() and max(map(len, words), default=0) <= LONGEST:
        return _numbered_ascii(words, lexicon)
    usual = [word.isascii() and len(word) <= LONGEST for word in words]
    ascii_words = _numbered_ascii([word for word, is_usual in zip(words, usual, strict=True) if is_usual], lexicon)
    others = _one_by_one([word for word, is_usual in zip(words, usual, strict=True) if not is_usual], lexicon)
    of_ascii = np.array(usual)
    counts = np.zeros(len(words), np.int64)
    counts[of_ascii], counts[~of_ascii] = ascii_words.counts, others.counts
    result = _empty(counts)
    begins = begins_of(counts)
    for part, mask in ((ascii_words, of_ascii), (others, ~of_ascii)):
        at = places(begins[mask], part.counts)
        result.numbers[at], result.kinds[at] = part.numbers, part.kinds
    return result


def begins_of(counts: Numbers) -> Numbers:
    """Where each of several stretches of these lengths begins."""
    return np.cumsum(counts) - counts


def places(begins: Numbers, counts: Numbers) -> Numbers:
    """The indexes of all elements of several stretches, one stretch after the other."""
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
    each = np.diff(np.searchsorted(firsts, starts), append=len(firsts))  # how many pieces a word has
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
    inner = places(at + whole, parts)
    result.numbers[inner], result.kinds[inner] = segments, IDENTIFIER
    last = places(at + whole + parts, pieces)
    result.numbers[last] = numbers[which[searched]]
    alone = np.where(has_letter, first_kind, np.where(ends - starts < IDENTIFYING, NUMBER, IDENTIFIER))
    result.kinds[last] = np.where(whole, PIECE_OF, alone)[of_word[searched]]
    return result


def _begins_piece(characters: Kinds) -> Mask:
    """Where a piece begins (see `terms.PIECE`): where the kind of character changes, but not from a capital to a small
    letter; and at the last capital before one."""
    framed = np.concatenate((NOTHING, characters, NOTHING))
    before, after = framed[:-2], framed[2:]
    after_capital = before == UPPER
    changes = (characters != before) & ~((characters == LOWER) & after_capital)
    begins: Mask = (characters != NONE) & (changes | ((characters == UPPER) & after_capital & (after == LOWER)))
    return begins


def _cut(text: str, begins: Mask) -> list[str]:
    """The pieces of a text that begin there: with a space before each, and instead of what joins them."""
    apart = np.full(len(begins) + int(np.count_nonzero(begins)), SPACE, np.uint8)
    apart[np.arange(len(begins)) + np.cumsum(begins)] = np.frombuffer(
        text.encode().translate(ALPHANUMERIC_BYTES), np.uint8
    )
    return apart.tobytes().decode().split()


def _pieces(
    pieces: list[str], of_several: Mask, has_letter: Mask, lexicon: TermLexicon
) -> tuple[Numbers, Numbers, Mask]:
    """The numbers of the different pieces, which of them each piece is, and whether it is searched."""
    which, different = _different(pieces)
    count = len(different)
    lengths = np.fromiter(map(len, different), np.int64, count)
    is_stopword = np.fromiter(map(STOPWORDS.__contains__, different), np.bool_, count)
    says_nothing = is_stopword | (lengths == 1)
    searched = np.where(has_letter, ~says_nothing[which], lengths[which] == YEAR)
    return _hashes(lexicon.stems(different)), which, np.where(of_several, searched, ~is_stopword[which])


def _segments(paths: list[str], lexicon: TermLexicon) -> tuple[Numbers, Numbers]:
    """The numbers of what `terms.segments` finds in these words, and how many there are in each."""
    which, different = _different("\n/".join(paths).translate(PATH_SEPARATORS).split("/"))
    is_one = np.fromiter((COMPOUND.search(part) is not None for part in different), np.bool_, len(different))
    ended = np.fromiter((part[-1:] == "\n" for part in different), np.bool_, len(different))[which]
    numbers = _hashes(lexicon.stems([part.rstrip("\n") for part in different]))
    of_path: Numbers = np.cumsum(ended) - ended
    return numbers[which][is_one[which]], np.bincount(of_path[is_one[which]], minlength=len(paths))


def _different(texts: Sequence[str]) -> tuple[Numbers, list[str]]:
    """Which of the different ones each text is, and these."""
    known: defaultdict[str, int] = defaultdict(count().__next__)
    return np.fromiter(map(known.__getitem__, texts), np.int64, len(texts)), list(known)


def _hashes(terms: Sequence[str]) -> Numbers:
    return np.fromiter(map(hash, terms), np.int64, len(terms))
