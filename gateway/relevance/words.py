"""From words to search terms: stems, identifiers whole and in pieces, pairs of CJK characters."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from gateway.relevance.stopwords import STOPWORDS

WORD = re.compile(r"[^\W_]+(?:[_./@\\-]+[^\W_]+)*")
"""A word, or a compound: an identifier, a path, an address, a date."""
PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
SEGMENT = re.compile(r"[/@\\]")
RUN = re.compile(r"[^\W_]+")
COMPOUND = re.compile(r"[^\W_][_.-]+[^\W_]")
LETTER, DIGIT = re.compile(r"[^\W\d_]"), re.compile(r"\d")
CJK = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
CYRILLIC, ARABIC = re.compile(r"[\u0400-\u04ff]"), re.compile(r"[\u0600-\u06ff]")
YEAR, IDENTIFYING = 4, 6
"""Digits of a year, which is searched alone out of a date, too; and of a number that rather names than counts."""
LONGEST = 200
"""Characters of a word beyond which it is data, not a word: of it only its beginning is searched."""

PLAIN, IDENTIFIER, NAME, NUMBER, PIECE_OF = 0, 1, 2, 3, 4
"""What a term is; identifiers and names are what texts have in common when one speaks of what the other holds."""

Terms = list[tuple[str, int]]
"""Terms, each with what it is."""
Stem = Callable[[list[str]], list[str]]


class Lexicon:
    """Terms of words, each word looked at once. One for each call: it holds what texts say, and stemmers are
    not to be shared between threads."""

    def __init__(self) -> None:
        import Stemmer

        self._english: Stem = Stemmer.Stemmer("english").stemWords
        self._russian: Stem = Stemmer.Stemmer("russian").stemWords
        self._arabic: Stem = Stemmer.Stemmer("arabic").stemWords
        self._terms: dict[str, Terms] = {}

    def terms_of(self, words: Iterable[str]) -> list[Terms]:
        """The terms of each of these words."""
        words = list(words)
        plain: list[str] = []
        compound: list[str] = []
        for word in words:
            if word in self._terms:
                continue
            if not word.isascii():
                self._terms[word] = self._foreign(word[:LONGEST])
            elif word.isalpha() and (word.islower() or word.istitle() or word.isupper()):
                plain.append(word)
            elif word.isdigit():
                self._terms[word] = [(word, NUMBER if len(word) < IDENTIFYING else IDENTIFIER)]
            elif len(word) <= LONGEST:
                compound.append(word)
            else:
                self._terms[word] = [(word[:LONGEST].lower(), PLAIN)]
        self._add_plain(plain)
        self._add_compounds(compound)
        return list(map(self._terms.__getitem__, words))

    def question(self, text: str) -> Terms:
        """The terms of a text, in order."""
        return [term for terms in self.terms_of(words(text)) for term in terms]

    def _add_plain(self, words: list[str]) -> None:
        lowered = list(map(str.lower, words))
        for word, lower, stem in zip(words, lowered, self._english(lowered), strict=True):
            kind = PLAIN if word == lower else NAME
            self._terms[word] = [] if lower in STOPWORDS else [(stem, kind)]

    def _add_compounds(self, words: list[str]) -> None:
        """Words in ASCII that consist of pieces; stemmed all at once, a call for each costs more than the stems."""
        found = list(map(PIECE.findall, words))
        stems = iter(self._english([piece.lower() for pieces in found for piece in pieces]))
        for word, pieces in zip(words, found, strict=True):
            lower, own = word.lower(), [next(stems) for _ in pieces]
            if len(own) < 2:
                self._terms[word] = [] if lower in STOPWORDS else [(stem, _kind(word)) for stem in own]
            elif LETTER.search(word) is None:
                self._terms[word] = [(lower, _kind(word)), *((p, PIECE_OF) for p in pieces if len(p) == YEAR)]
            else:
                segments = [s for s in SEGMENT.split(lower) if COMPOUND.search(s)] if SEGMENT.search(word) else []
                kept = [(p, PIECE_OF) for p in own if len(p) > 1 and p not in STOPWORDS]
                self._terms[word] = [(lower, _kind(word)), *((s, IDENTIFIER) for s in segments), *kept]

    def _foreign(self, word: str) -> Terms:
        folded = _folded(word)
        if CJK.search(folded):
            return [term for run in RUN.findall(folded) for term in _pairs(run)]
        parts = RUN.findall(folded)
        if len(parts) == 1:
            return [] if folded in STOPWORDS else [(self._stem(folded), _kind(word))]
        return [(folded, _kind(word)), *((self._stem(p), PIECE_OF) for p in parts if p not in STOPWORDS)]

    def _stem(self, folded: str) -> str:
        if folded.isascii():
            return self._english([folded])[0]
        if CYRILLIC.search(folded):
            return self._russian([folded])[0]
        return self._arabic([folded])[0] if ARABIC.search(folded) else self._english([folded])[0]


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    return WORD.findall(text)


def all_words(texts: Sequence[str]) -> list[list[str]]:
    """The words of each text."""
    return list(map(WORD.findall, texts))


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
    if DIGIT.search(word) or "_" in word or "@" in word or "/" in word:
        return IDENTIFIER
    return NAME if word[0].isupper() else PLAIN
