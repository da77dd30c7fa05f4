"""Programs: functions, methods and what stands between them; a class's line is the heading of its methods.

Languages are told apart by what their lines look like, not by parsing: Python, JavaScript and TypeScript, Go, Java, C#,
C and C++, Rust, Ruby, PHP, Kotlin, Swift, SQL and shell, also as listings with line numbers (`cat -n`).
"""

import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.relevance.chunks.chunk import MAX_CHARS, TARGET_CHARS, Chunk, bounded

# The lines of programs: where each begins and how far it is in, and which of them define something.
#
# A text is looked at as a whole, not line by line: one search finds all lines of a kind.


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


CLASS = re.compile(r"\b(?:class|interface|struct|trait|impl|namespace|module|object|enum|extension|protocol)\b")
STAYS = re.compile(
    r"[\])}>{]|#[^\S\n]*(?:if|ifdef|ifndef|else|elif|endif|define)\b|(?:public|private|protected)[^\S\n]*:"
    r"|end\b|else\b|elif\b|except\b|finally\b|catch\b|rescue\b|fi\b|done\b|esac\b|\*/|\"\"\"|'''"
)
"""Lines on the level of a definition that belong to it all the same."""
TAGGED = re.compile(r"\s*<(?:!doctype|[a-z!?])", re.IGNORECASE)
LEAST_CODE = 0.45
LEAST_NUMBERED = 5
SHORT_LINES = 40
HEADING_CHARS = 200


class _Cut(NamedTuple):
    """A piece begins at line `line`, inside of the definitions whose lines are `headings`; `name` is its own."""

    line: int
    headings: tuple[str, ...] = ()
    name: str = ""


def is_code(text: str, start: int, end: int) -> bool:
    """Whether a text looks like a program: definitions, and mostly lines that prose has not; or is numbered by line."""
    if TAGGED.match(text, start, end):
        return False
    numbered = is_numbered(text, start, end)
    if numbered and len(list(islice(NUMBERED_LINE.finditer(text, start, end), LEAST_NUMBERED + 1))) > LEAST_NUMBERED:
        return True
    sample = SAMPLE.match(text, start, end)
    end = sample.end() if sample else end
    if text.startswith("```", start) or text.find("\n```", start, end) >= 0:
        return False
    defined = len(list(islice(DEFINING[numbered].finditer(text, start, end), 2)))
    if not defined:
        return False
    telling = TELLING[numbered].findall(text, start, end)
    lines = sum(not above for above, _ in telling)
    if defined == 1 and lines >= SHORT_LINES:
        return False
    return sum(bool(code) for _, code in telling) > LEAST_CODE * lines


def blocks(text: str, start: int, end: int) -> Iterator[Chunk]:
    """A chunk for each definition and for what stands between them; the headings of a nested one are the lines of those
    it stands in, and of a later piece of a long one its own line, too."""
    numbered = is_numbered(text, start, end)
    lines = lines_of(text, start, end, numbered)
    defining = {match.start() for match in DEFINING[numbered].finditer(text, start, end)}
    cuts = _whole(_cuts(text, lines, defining), lines)
    for number, cut in enumerate(cuts):
        after = cuts[number + 1].line if number + 1 < len(cuts) else len(lines.starts)
        heading = "\n".join(cut.headings)
        if lines.ends[after - 1] - lines.starts[cut.line] <= MAX_CHARS:
            yield Chunk(lines.starts[cut.line], lines.ends[after - 1], heading, "code")
        else:
            yield from _pieces(text, lines, (cut.line, after), heading, cut.name)


def _cuts(text: str, lines: Lines, defining: set[int]) -> list[_Cut]:
    """Definitions with what stands above them, and what follows them on their own level.

    Args:
        defining: where the lines begin that define something.
    """
    cuts = [_Cut(0)] if lines.starts else []
    inside: list[tuple[int, str]] = []
    level = -1  # of the innermost definition that a line stands in
    for number, (start, indent) in enumerate(zip(lines.starts, lines.indents, strict=True)):
        if indent > level and start not in defining:
            continue
        word, end = lines.words[number], lines.ends[number]
        defines = start in defining
        if not defines and STAYS.match(text, word, end):
            continue
        while inside and indent <= inside[-1][0]:
            inside.pop()
        headings = tuple(name for _, name in inside)
        if defines:
            first = number
            while first > cuts[-1].line and lines.indents[first - 1] == indent and _is_above(text, lines, first - 1):
                first -= 1
            name = text[word:end].strip()[:HEADING_CHARS]
            if cuts[-1].line >= first:
                cuts.pop()
            cuts.append(_Cut(first, headings, name))
            inside.append((indent, name))
        else:
            cuts.append(_Cut(number, headings))
        level = inside[-1][0] if inside else -1
    return cuts


def _whole(cuts: list[_Cut], lines: Lines) -> list[_Cut]:
    """Without the cuts inside of functions that are short enough to stay whole, and of short classes."""
    kept: list[_Cut] = []
    number = 0
    while number < len(cuts):
        cut = cuts[number]
        kept.append(cut)
        most = TARGET_CHARS if CLASS.search(cut.name) else MAX_CHARS
        inner = number + 1
        while inner < len(cuts) and len(cuts[inner].headings) > len(cut.headings):
            inner += 1
            after = cuts[inner].line if inner < len(cuts) else len(lines.starts)
            if lines.ends[after - 1] - lines.starts[cut.line] > most:
                inner = number + 1
                break
        number = inner if cut.name else number + 1
    return kept


def _pieces(text: str, lines: Lines, span: tuple[int, int], heading: str, name: str) -> Iterator[Chunk]:
    """Lines gathered up to the target."""
    later = f"{heading}\n{name}".strip("\n")
    begin, after = span
    for number in range(begin + 1, after + 1):
        start = lines.starts[begin]
        if number < after and lines.ends[number] - start <= TARGET_CHARS:
            continue
        end = lines.ends[number - 1]
        for piece in bounded(text, start, end) if end - start > MAX_CHARS else [(start, end)]:
            yield Chunk(*piece, heading, "code")
            heading = later
        begin = number


def _is_above(text: str, lines: Lines, number: int) -> bool:
    return DECORATION.match(text, lines.words[number], lines.ends[number]) is not None
