"""The terms of many words at once, as numbers. It gives the same as `TermLexicon.unstemmed` word by word, but ASCII
words are cut in their bytes by numpy, since indexing would spend most of its time here."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.retrieval.terms import (
    COMPOUND,
    IDENTIFIER,
    IDENTIFYING,
    LONGEST,
    NAME,
    NUMBER,
    PIECE_OF,
    PLAIN,
    STOPWORDS,
    YEAR,
    TermLexicon,
    Terms,
)

Numbers = NDArray[np.int64]
Kinds = NDArray[np.uint8]
Mask = NDArray[np.bool_]

NONE, LOWER, UPPER, DIGIT = 0, 1, 2, 4
TELLING, PARTING = 8, 16


def _kind_of(character: str) -> int:
    kind = LOWER if character.islower() else UPPER if character.isupper() else DIGIT if character.isdigit() else NONE
    return kind | (TELLING if kind == DIGIT or character in "_@/" else 0) | (PARTING if character in "/@\\" else 0)


CHARACTERS = bytes(map(_kind_of, map(chr, range(128)))) + bytes(128)
"""The kind of each byte: a letter, a digit, or a sign that makes a word an identifier or a path."""
ALONE = bytes(b if chr(b).isalnum() else 0x20 for b in range(128)) + bytes(128)
PARTED = str.maketrans("@\\", "//")
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
    of_whole = np.where(has_letter, np.where(held & TELLING, IDENTIFIER, first_kind), NUMBER)
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
    apart[np.arange(len(begins)) + np.cumsum(begins)] = np.frombuffer(text.encode().translate(ALONE), np.uint8)
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
    which, different = _different("\n/".join(paths).translate(PARTED).split("/"))
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
