"""From words to search terms: stems, identifiers whole and in pieces, pairs of CJK characters."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from gateway.relevance.stopwords import STOPWORDS

WORD = re.compile(r"[^\W_]+(?:[_./@\\-]+[^\W_]+)*")
"""A word, or a compound: an identifier, a path, an address, a date."""
PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
SEGMENT = re.compile(r"[/@\\]")
JOINER = re.compile(r"[^\W_]+")
CJK = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
CYRILLIC, ARABIC = re.compile(r"[\u0400-\u04ff]"), re.compile(r"[\u0600-\u06ff]")
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
        new = [word for word in words if word not in self._terms]
        plain = [word for word in new if word.isascii() and word.isalpha() and (word.islower() or word.istitle())]
        lowered = [word.lower() for word in plain]
        for word, lower, stem in zip(plain, lowered, self._english(lowered), strict=True):
            kind = PLAIN if word is lower or word == lower else NAME
            self._terms[word] = [] if lower in STOPWORDS else [(stem, kind)]
        for word in new:
            if word not in self._terms:
                self._terms[word] = self._unusual(word[:LONGEST])
        return [self._terms[word] for word in words]

    def question(self, text: str) -> Terms:
        """The terms of a text, in order."""
        return [term for terms in self.terms_of(words(text)) for term in terms]

    def _unusual(self, word: str) -> Terms:
        folded = word.lower() if word.isascii() else _folded(word)
        if not word.isascii() and CJK.search(folded):
            return [term for run in JOINER.findall(folded) for term in _pairs(run)]
        parts = PIECE.findall(word)
        if len(parts) == 1:
            return [] if folded in STOPWORDS else [(self._stem(folded), _kind(word))]
        whole = [(folded, _kind(word))]
        if _is_number(word):
            return whole + [(part, PIECE_OF) for part in parts if len(part) == 4]
        segments = [s.lower() for s in SEGMENT.split(word) if s != word and len(JOINER.findall(s)) > 1]
        pieces = [part if part.isascii() else _folded(part) for part in (p.lower() for p in parts)]
        stems = [self._stem(piece) for piece in pieces if len(piece) > 1 and piece not in STOPWORDS]
        return whole + [(s, IDENTIFIER) for s in segments] + [(s, PIECE_OF) for s in stems]

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


def _is_number(word: str) -> bool:
    return not any(c.isalpha() for c in word)


def _kind(word: str) -> int:
    if _is_number(word):
        return IDENTIFIER if len(word) >= 6 and word.isdigit() else NUMBER
    if any(c.isdigit() for c in word) or "_" in word or "@" in word or "/" in word:
        return IDENTIFIER
    return NAME if word[0].isupper() else PLAIN
