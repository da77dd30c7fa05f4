"""Finds the places that a question names, in English or German: `page 12`, `Zeile 300`, `Sheet2!B17`, `a.py:120`, `the
third slide` (guarantee §14.2). Loads nothing heavy: the server uses it for each request that has pages of a PDF."""

import re
from collections.abc import Iterator

from gateway.core.frozen_records import record
from gateway.core.types import places

_KINDS = {
    "page": "page|pages|p.|pp.|seite|seiten|s.",
    "slide": "slide|slides|folie|folien",
    "chapter": "chapter|chapters|kapitel|kap.",
    "cell": "cell|cells|zelle|zellen",
    "line": "line|lines|row|rows|zeile|zeilen|reihe|reihen",
}
KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words.split("|")}
"""The kinds of places by the words for them. Lines and rows are one kind: `Zeile` is both."""
_WORDS = "|".join(re.escape(word) for word in sorted(KIND_OF, key=len, reverse=True))
_NUMBER = r"\d{1,3}(?:[.,']\d{3})+|\d{1,7}"
_SPACE = r"[\s]{0,3}"
_FOLLOWS = rf"{_SPACE}(?:,|and|und|&|or|oder|-|–|to|bis){_SPACE}"
NAMED_PLACE = re.compile(
    rf"(?<![\w.])(?P<kind>{_WORDS}){_SPACE}(?:(?:number|no\.?|nummer|nr\.?){_SPACE})?#?{_SPACE}"
    rf"(?P<numbers>(?:{_NUMBER})(?:{_FOLLOWS}(?:{_NUMBER})){{0,19}})(?!\w)",
    re.IGNORECASE,
)
EACH = re.compile(rf"(?P<sign>-|–|to|bis)?{_SPACE}(?P<number>{_NUMBER})", re.IGNORECASE)
ENGLISH = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
GERMAN = ("erste", "zweite", "dritte", "vierte", "fünfte", "sechste", "siebte", "achte", "neunte", "zehnte")
ORDINALS = {word: number for words in (ENGLISH, GERMAN) for number, word in enumerate(words, 1)}
PLACE_ORDINAL = re.compile(
    rf"(?<!\w)(?P<ordinal>(?:{'|'.join(ORDINALS)})[rsnm]?|\d{{1,7}}(?:st|nd|rd|th|\.))\s(?P<kind>{_WORDS})(?!\w)",
    re.IGNORECASE,
)
CELL_RANGE = re.compile(
    r"(?:!|(?<!\w)(?:cells?|zellen?|fields?|feld(?:er)?)\s)\$?[A-Z]{1,3}\$?(\d{1,7})(?::\$?[A-Z]{1,3}\$?(\d{1,7}))?(?!\w)"
    r"|(?<![\w$])\$?[A-Z]{1,3}\$?(\d{1,7}):\$?[A-Z]{1,3}\$?(\d{1,7})(?!\w)",
    re.IGNORECASE,
)
IN_FILE = re.compile(r"(?<=\.)(?:\w{1,8})(?::|#L)(\d{1,7})\b")
"""A line in a file as tools name it: `src/a.py:120`."""
NAMING_WORDS = re.compile(r"\w\.[a-z]\w{0,7}\b|(?<!\w)(?:sheet|tab|table|file|blatt|tabelle|datei)", re.IGNORECASE)
"""Whether a question may name a file, sheet or table."""
QUESTION_CHARS = 4000
"""Characters at the beginning of a question, and at its end, that are searched for numbers of places."""
MAX_NUMBERS = 20
"""Numbers of places found in one question at most."""
MIN_NAME = 3
"""Shorter names may occur in a question by chance."""


@record
class NamedPlaces:
    """`asked` is the question in lower case; `numbered` are the kinds and numbers of its pages, slides, chapters and
    notebook cells, `lines` the first and last number of each range of lines or rows."""

    asked: str
    numbered: frozenset[tuple[str, int]]
    lines: tuple[tuple[int, int], ...]
    may_name: bool

    def __bool__(self) -> bool:
        return bool(self.numbered or self.lines or self.may_name)

    def names(self, name: str) -> bool:
        """Returns whether the question has this name as a word."""
        return len(name) >= MIN_NAME and _holds_word(self.asked, name.lower())

    def names_place(self, kind: str, name: str) -> bool:
        """Returns whether the question names a sheet, table or file; a short name counts only after its kind."""
        return self.names(name) or (len(name) < MIN_NAME and f"{kind} {name.lower()}" in self.asked)


def places_named(question: str) -> NamedPlaces:
    """Finds the places that a question names. The time is linear in its length."""
    searched = question
    if len(question) > 2 * QUESTION_CHARS:
        searched = f"{question[:QUESTION_CHARS]}\n{question[-QUESTION_CHARS:]}"
    ranges = list(_ranges(searched))
    numbered = {
        (kind, number)
        for kind, first, last in ranges
        if kind in places.NUMBERED
        for number in range(first, min(last, first + MAX_NUMBERS) + 1)
    }
    lines = tuple(dict.fromkeys((first, last) for kind, first, last in ranges if kind == "line"))
    may_name = bool(lines or NAMING_WORDS.search(searched))
    return NamedPlaces(question.lower(), frozenset(numbered), lines[:MAX_NUMBERS], may_name)


def _ranges(question: str) -> Iterator[tuple[str, int, int]]:
    """Yields kind, first and last number of each place."""
    left = MAX_NUMBERS
    for match in NAMED_PLACE.finditer(question):
        kind, before = KIND_OF[match["kind"].lower()], 0
        for each in EACH.finditer(match["numbers"]):
            if (left := left - 1) < 0:
                return
            number = _value(each["number"])
            yield (kind, before, number) if each["sign"] and before < number else (kind, number, number)
            before = number
    for match in PLACE_ORDINAL.finditer(question):
        ordinal = match["ordinal"].lower()
        number = _value(ordinal) if ordinal[0].isdigit() else ORDINALS[_stem(ordinal)]
        yield KIND_OF[match["kind"].lower()], number, number
    for match in CELL_RANGE.finditer(question):
        first = int(match[1] or match[3])
        yield "line", first, max(first, int(match[2] or match[4] or first))
    for match in IN_FILE.finditer(question):
        yield "line", int(match[1]), int(match[1])


def _value(number: str) -> int:
    return int(re.sub(r"\D", "", number))


def _stem(ordinal: str) -> str:
    return ordinal if ordinal in ORDINALS else ordinal[:-1]


def _holds_word(text: str, word: str) -> bool:
    """Returns whether the text contains the word by itself. Avoids a pattern for each of ten thousand names."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            return True
        at = text.find(word, end)
    return False
