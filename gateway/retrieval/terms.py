"""From words to search terms: stems, identifiers whole and in pieces, pairs of CJK characters."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

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
SEGMENT = re.compile(r"[/@\\]")
RUN = re.compile(r"[^\W_]+")
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
        from Stemmer import Stemmer

        # Without its cache: to make room in it, once it is full, takes longer than to stem everything anew.
        self._english: Stem = Stemmer("english", 0).stemWords
        self._russian: Stem = Stemmer("russian", 0).stemWords
        self._arabic: Stem = Stemmer("arabic", 0).stemWords

    def question(self, text: str) -> Terms:
        """The terms of a text, in order."""
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
        """The stems of terms, by which they are searched."""
        return self._english(terms)

    def _not_ascii(self, word: str) -> Terms:
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
    return [segment for segment in SEGMENT.split(word) if COMPOUND.search(segment)] if SEGMENT.search(word) else []


def words(text: str) -> list[str]:
    """The words of a text, in order."""
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
