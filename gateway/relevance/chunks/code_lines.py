"""The lines of programs: where each begins and how far it is in, and which of them define something.

A text is looked at as a whole, not line by line: one search finds all lines of a kind.
"""

import re
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

LINE = re.compile(r"[^\n]+")
INDENT = r"^(?>[^\S\n]*+)"
NUMBERING = r"^(?>[ \t]*+\d{1,7}(?:\t|→|:[ ]|:(?!\d)|[|][ ]|[|]|[ ]{2}|$)[^\S\n]*+)"
"""What stands before the words of a line: white space, and its number where lines are numbered."""
NUMBERED_LINE = re.compile(r"^[ \t]*+\d{1,7}(?:\t|→|: |:(?!\d)|[|] |[|]|[ ]{2}|$)([^\S\n]*+)[^\n]*+", re.MULTILINE)
NUMBER = re.compile(r"[ \t]*(\d{1,7})(?:\t|→|:(?!\d)|[|]|[ ]{2}|\r?$)")
MODIFIERS = (
    "export|default|async|abstract|public|private|protected|internal|static|final|override|virtual|inline|constexpr"
    "|extern|sealed|open|unsafe|pub|partial|readonly|declare"
)
KINDS = (
    "def|class|function|interface|enum|trait|impl|struct|union|namespace|module|protocol|extension|object|fn|mod|func|fun"
    "|macro_rules!"
)
DEFINES = rf"""(?:(?:{MODIFIERS})(?:\([\w:]+\))?[ ]+)*(?:{KINDS})\b[ *(<]*[\w(]
    | export[ ]+(?:declare[ ]+)?(?:type|const|let)[ ] | type[ ]+\w+[ ]+(?:struct|interface|func)\b | typedef[ ]
    | (?:export[ ]+)?(?:const|let|var)[ ]+\w+[ ]*=[ ]*(?:async[ ]*)?
      (?:function\b|\w+[ ]*=>|\([^()\n]*\)[^=\n]{{0,80}}=>)
    | (?:public|private|protected|internal|static|override|final|abstract)[ ]+[\w<]
    | (?i:create[ ]+(?:or[ ]+replace[ ]+)?(?:table|view|function|procedure|trigger|index)\b)"""
SIGNATURE = r"""(?![}\])"'\#/.@\-+|&]) (?=[^\n]*+(?<=[){\r]))
    (?!(?:if|for|while|switch|catch|return|else|elif|with|do|try|throw|raise|new|await|yield|assert|print|in|not|and|or)\b)
    (?:(?:[A-Za-z_][\w:<>]*+[ ]+[*&]*)+[A-Za-z_~][\w:~]*+\([^;\n]*$
    |(?:get[ ]|set[ ]|\*)?[A-Za-z_$][\w$-]*+[ ]?\([^()\n;]*\)[^;\n]{0,80}\{$)"""
"""In the manner of C: a type, a name, arguments; of JavaScript and of shells: a name, arguments, a brace."""
ABOVE = r"@\w|\#\[|//|/\*|\*|\#(?!!)|--|\[\w+[\](]|template[^\S\n]*<"
"""Decorators and comments belong to what they stand above."""
CODE = r"""(?:import|from|use|using|include|require|package|return|if|for|while|else|elif|try|except
    |const|let|var|self\.|this\.)\b
    | @\w | \#include | .*[;{}(\[,:=)][^\S\n]*(?:\#.*|//.*)?$"""
INNERMOST = 10**6
TAB, FEED = 9, 10
WHITE_UP_TO = 0x3001
IS_WHITE = np.array([chr(code).isspace() for code in range(WHITE_UP_TO)] + [False])


def _searches(sought: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Finds lines whose words begin so: where they have no numbers before them, and where they have."""
    flags = re.MULTILINE | re.VERBOSE
    return re.compile(rf"{INDENT}(?=\S)(?:{sought})", flags), re.compile(rf"{NUMBERING}(?:{sought})", flags)


DEFINING = _searches(f"{DEFINES} | {SIGNATURE}")
TELLING = _searches(rf"(?:(?P<above>{ABOVE})|(?P<code>{CODE}))?")
DECORATION = re.compile(ABOVE, re.VERBOSE)
SAMPLE = re.compile(r"(?:\s*+\S[^\n]*+){0,200}")
"""As many lines as tell what a text is."""


class Lines(NamedTuple):
    """The lines that are not empty: where each begins and ends, the width of its white space, where its words begin."""

    starts: list[int]
    ends: list[int]
    indents: list[int]
    words: list[int]


def is_numbered(text: str, start: int, end: int) -> bool:
    """Whether the lines are numbered, one after the other."""
    found: list[int] = []
    for match in islice(LINE.finditer(text, start, end), 20):
        number = NUMBER.match(match.group())
        if number is None:
            return False
        found.append(int(number[1]))
    return len(found) > 2 and all(0 < b - a <= 5 for a, b in pairwise(found))


def lines_of(text: str, start: int, end: int, numbered: bool) -> Lines:
    """The lines of a text; a number at the beginning is no part of what they say."""
    first: list[int] = []
    if start and text[start - 1] != "\n":  # what stands behind something else on its line
        after = text.find("\n", start, end)
        first, start = [start], end if after < 0 else after
    found = _numbered(text, start, end) if numbered else _plain(text, start, end)
    if not first:
        return found
    return Lines([*first, *found.starts], [start, *found.ends], [0, *found.indents], [*first, *found.words])


def _plain(text: str, start: int, end: int) -> Lines:
    codes = _codes(text, start, end)
    feeds = np.flatnonzero(codes == FEED)
    starts, ends = np.concatenate(([0], feeds + 1)), np.concatenate((feeds, [len(codes)]))
    said = np.concatenate((np.flatnonzero(~IS_WHITE[codes]), [len(codes)]))
    words = said[np.searchsorted(said, starts)]
    filled = words < ends
    starts, ends, words = starts[filled], ends[filled], words[filled]
    indents = _indents(codes, starts, words)
    return Lines((starts + start).tolist(), (ends + start).tolist(), indents.tolist(), (words + start).tolist())


def _numbered(text: str, start: int, end: int) -> Lines:
    spans = np.array([match.regs for match in NUMBERED_LINE.finditer(text, start, end)]).reshape(-1, 4) - start
    starts, ends, after, words = spans.T
    indents = _indents(_codes(text, start, end), after, words)
    indents[words == ends] = INNERMOST  # empty but for its number: it is as far in as what it stands in
    return Lines((starts + start).tolist(), (ends + start).tolist(), indents.tolist(), (words + start).tolist())


def _codes(text: str, start: int, end: int) -> NDArray[np.unsignedinteger]:
    """The characters of a stretch as numbers; those beyond the last that is white count as one."""
    piece = text[start:end]
    if piece.isascii():
        return np.frombuffer(piece.encode(), np.uint8)
    codes = np.frombuffer(piece.encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.minimum(codes, np.uint32(WHITE_UP_TO))


def _indents(codes: NDArray[np.unsignedinteger], at: Places, words: Places) -> Places:
    """The width of what stands between two places of each line, a tab as four."""
    tabs = np.flatnonzero(codes == TAB)
    widths: Places = words - at
    if len(tabs):
        widths += 3 * (np.searchsorted(tabs, words) - np.searchsorted(tabs, at))
    return widths
