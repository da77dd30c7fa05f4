"""Keeps content from passing for the gateway's own words: delimiters, instructions, labels (guarantee §4 I6).

What a model could take for one of them counts, not only the exact letters: any case, odd and invisible space,
characters that look alike.
"""

import re
from collections.abc import Iterable

INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
)
"""Of a character class: what is not seen."""
ANGLES = "<\u02c2\u2039\u2329\u276e\u2770\u27e8\u3008\ufe64\uff1c\u1438\u226a\u00ab"
SLASHES = "/\u2044\u2215\u29f8\uff0f\\\\"
BRACKETS = r"\[\uff3b\u3010\u27e6\u301a\u2772\u3014"
LIKE = {
    "a": "\u0430\u03b1\u0251",
    "c": "\u0441\u03f2",
    "d": "\u0501",
    "e": "\u0435\u0451",
    "f": "\u03dd",
    "g": "\u0261",
    "i": "\u0456\u03b9\u0131l1|",
    "m": "\u043c",
    "n": "\u0578",
    "o": "\u043e\u03bf0",
    "p": "\u0440\u03c1",
    "r": "\u0433",
    "s": "\u0455",
    "t": "\u0442\u03c4",
    "u": "\u057d\u03c5",
    "v": "\u03bd\u0475",
    "x": "\u0445\u03c7",
    "y": "\u0443",
    "l": "\u04cfi1|",
    "_": "\u2017\uff3f",
    " ": "\u00a0\t",
}
"""Small letters that others look like."""
WIDE = 0xFEE0
"""From a character of ASCII to its full-width form."""


def like(word: str) -> str:
    """A pattern of what looks like a word, in any case, with invisible characters anywhere in it."""
    return rf"[{INVISIBLE}]*".join(map(_letter, word))


def _letter(letter: str) -> str:
    if letter == " ":
        return r"[^\S\r\n]+"
    wide = chr(ord(letter) + WIDE)
    return f"[{re.escape(letter)}{wide}{wide.upper()}{re.escape(LIKE.get(letter, ''))}]"


def delimiters(tags: Iterable[str]) -> re.Pattern[str]:
    """Of what looks like the beginning of one of these elements, or of its end: its first character."""
    space = rf"[\s{INVISIBLE}]*+"
    return re.compile(rf"[{ANGLES}](?={space}[{SLASHES}]?{space}(?:{'|'.join(map(like, tags))})\b)", re.IGNORECASE)


LABELS = ("left out", "summary of", "extract of", "extracts")
LABEL = re.compile(
    rf"(?:^|(?<=[\n\r\v\f\x85\u2028\u2029]))(?P<space>(?:[^\S\n\r\v\f\x85\u2028\u2029]|[{INVISIBLE}])*+)[{BRACKETS}]"
    rf"(?=[\s{INVISIBLE}]*+(?:{'|'.join(map(like, LABELS))})\b)",
    re.IGNORECASE,
)
"""The bracket of a line that looks like a label of a reduced result."""


def without_labels(text: str) -> str:
    """A text of which no line looks like a label of the gateway's."""
    return LABEL.sub(r"\g<space>\\[", text)
