"""From words to search terms: stems, identifiers whole and in pieces, pairs of CJK characters."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gateway.relevance.stopwords import STOPWORDS

WORD = re.compile(r"[^\W_]+(?:[_./@\\-]+[^\W_]+)*")
"""A word, or a compound: an identifier, a path, an address, a date."""
PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
PIECES = re.compile(rf"{PIECE.pattern}|\n")
JOINING = "_./@\\-"
APART = bytes(byte if chr(byte).isalnum() or chr(byte) in JOINING else 0x20 for byte in range(128)) + bytes(128)
"""What cannot stand in a word in ASCII becomes a space."""
SEGMENT = re.compile(r"[/@\\]")
RUN = re.compile(r"[^\W_]+")
COMPOUND = re.compile(r"[^\W_][_.-]+[^\W_]")
LETTER, TELLING = re.compile(r"[^\W\d_]"), re.compile(r"[\d_@/]")
CJK = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
CYRILLIC, ARABIC = re.compile(r"[\u0400-\u04ff]"), re.compile(r"[\u0600-\u06ff]")
YEAR, IDENTIFYING = 4, 6
"""Digits of a year, which is searched alone out of a date, too; and of a number that rather names than counts."""
LONGEST = 200
"""Characters of a word beyond which it is data, not a word: of it only its beginning is searched."""

PLAIN, IDENTIFIER, NAME, NUMBER, PIECE_OF = 0, 1, 2, 3, 4
"""What a term is; identifiers and names are what texts have in common when one speaks of what the other holds."""

PIECES_OF = bytes([PIECE_OF])
SAYING_NOTHING = STOPWORDS.union(map(chr, range(128)))
"""Pieces that are not searched: single letters and digits, too."""

Terms = list[tuple[str, int]]
"""Terms, each with what it is."""
Stem = Callable[[list[str]], list[str]]


@dataclass(slots=True)
class Flat:
    """The terms of many words one after the other, what each of them is, and how many of them each word has."""

    terms: list[str] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    counts: list[int] = field(default_factory=list)

    def add(self, *terms: tuple[str, int]) -> None:
        """One word with its terms."""
        for term, kind in terms:
            self.terms.append(term)
            self.kinds.append(kind)
        self.counts.append(len(terms))


class Lexicon:
    """Terms of words. One for each call: stemmers are not to be shared between threads."""

    def __init__(self) -> None:
        from Stemmer import Stemmer

        # Without its cache: to make room in it, once it is full, takes longer than to stem everything anew.
        self._english: Stem = Stemmer("english", 0).stemWords
        self._russian: Stem = Stemmer("russian", 0).stemWords
        self._arabic: Stem = Stemmer("arabic", 0).stemWords

    def flat(self, words: Sequence[str]) -> Flat:
        """The terms of these words. This is where indexing spends its time: plain words are dealt with on the spot, and
        what takes several steps is done in one call for all."""
        flat = Flat()
        terms, kinds, counts = flat.terms, flat.kinds, flat.counts
        # Of one piece is a number, and letters of one case but perhaps for the first.
        one = [w.isdigit() or (w.isalpha() and (w.islower() or w.istitle() or w.isupper())) for w in words]
        others = (word for word, is_one in zip(words, one, strict=True) if not is_one)
        pieces = _pieces([word[:LONGEST] for word in others if word and word.isascii()])
        for word, is_one in zip(words, one, strict=True):
            if not word.isascii():
                flat.add(*self._foreign(word[:LONGEST]))
            elif is_one and word.isalpha():
                lower = word.lower()
                if lower in STOPWORDS:
                    counts.append(0)
                    continue
                terms.append(lower)
                kinds.append(PLAIN if lower == word else NAME)
                counts.append(1)
            elif is_one:
                terms.append(word[:LONGEST])
                kinds.append(NUMBER if len(word) < IDENTIFYING else IDENTIFIER)
                counts.append(1)
            elif word:
                before = len(terms)
                _add_compound(terms, kinds, word[:LONGEST], next(pieces))
                counts.append(len(terms) - before)
            else:
                counts.append(0)
        flat.terms = self._english(terms)
        return flat

    def question(self, text: str) -> Terms:
        """The terms of a text, in order."""
        flat = self.flat(words(text))
        return list(zip(flat.terms, flat.kinds, strict=True))

    def _foreign(self, word: str) -> Terms:
        folded = _folded(word)
        if CJK.search(folded):
            return [term for run in RUN.findall(folded) for term in _pairs(run)]
        parts = RUN.findall(folded)
        if len(parts) == 1:
            return [] if folded in STOPWORDS else [(self._stem(folded), _kind(word))]
        return [(folded, _kind(word)), *((self._stem(p), PIECE_OF) for p in parts if p not in STOPWORDS)]

    def _stem(self, folded: str) -> str:
        if CYRILLIC.search(folded):
            return self._russian([folded])[0]
        return self._arabic([folded])[0] if ARABIC.search(folded) else folded


def _pieces(words: Sequence[str]) -> Iterator[list[str]]:
    """The pieces of words in ASCII, in small letters, all found in one call."""
    return map(str.split, " ".join(PIECES.findall("\n".join(words))).lower().split("\n"))


def _add_compound(terms: list[str], kinds: bytearray, word: str, pieces: list[str]) -> None:
    """A word in ASCII that is of several pieces: whole, and in pieces."""
    lower = word.lower()
    terms.append(lower)
    if not lower.islower():  # without a letter: a date, an amount
        kinds.append(NUMBER)
        pieces = [piece for piece in pieces if len(piece) == YEAR]
    else:
        kinds.append(IDENTIFIER if TELLING.search(word) else NAME if word[0].isupper() else PLAIN)
        if "/" in word or "@" in word or "\\" in word:
            segments = [segment for segment in SEGMENT.split(lower) if COMPOUND.search(segment)]
            terms += segments
            kinds += bytes([IDENTIFIER]) * len(segments)
        pieces = [piece for piece in pieces if piece not in SAYING_NOTHING]
    terms += pieces
    kinds += PIECES_OF * len(pieces)


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return WORD.findall(text)


def all_words(texts: Sequence[str]) -> list[list[str]]:
    """The words of each text, in ASCII with the signs that stand around them: to be taken off of each word once
    (`bare`), not wherever it stands."""
    return [t.encode().translate(APART).decode().split() if t.isascii() else WORD.findall(t) for t in texts]


def bare(words: Iterable[str]) -> list[str]:
    """Words of `all_words` without the signs around them; empty if there is nothing else."""
    return [word.strip(JOINING) for word in words]


def _folded(word: str) -> str:
    """Without case and accents; what is written in several ways is one."""
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
