"""Programs: functions, methods and what stands between them; a class's line is the heading of its methods.

Languages are told apart by what their lines look like, not by parsing: Python, JavaScript and TypeScript, Go, Java, C#,
C and C++, Rust, Ruby, PHP, Kotlin, Swift, SQL and shell, also as listings with line numbers (`cat -n`).
"""

import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from gateway.relevance.chunks.bounds import bounded
from gateway.relevance.chunks.chunk import MAX_CHARS, TARGET_CHARS, Chunk

LINE = re.compile(r"[^\n]+")
INDENTED_LINE = re.compile(r"^([^\S\n]*+)\S[^\n]*+", re.MULTILINE)
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
DEFINES = re.compile(
    rf"""(?:(?:{MODIFIERS})(?:\([\w:]+\))?[ ]+)*(?:{KINDS})\b[ *(<]*[\w(]
    | export[ ]+(?:declare[ ]+)?(?:type|const|let)[ ] | type[ ]+\w+[ ]+(?:struct|interface|func)\b | typedef[ ]
    | (?:export[ ]+)?(?:const|let|var)[ ]+\w+[ ]*=[ ]*(?:async[ ]*)?
      (?:function\b|\w+[ ]*=>|\([^()\n]*\)[^=\n]{{0,80}}=>)
    | (?:public|private|protected|internal|static|override|final|abstract)[ ]+[\w<]
    | (?i:create[ ]+(?:or[ ]+replace[ ]+)?(?:table|view|function|procedure|trigger|index)\b)
    """,
    re.VERBOSE,
)
SIGNATURE = re.compile(
    r"(?:[A-Za-z_][\w:<>]*+[ ]+[*&]*)+[A-Za-z_~][\w:~]*+\([^;\n]*$"
    r"|(?:get |set |\*)?[A-Za-z_$][\w$-]*+ ?\([^()\n;]*\)[^;\n]{0,80}\{$"
)
"""In the manner of C: a type, a name, arguments; of JavaScript and of shells: a name, arguments, a brace."""
OTHER = re.compile(
    r"(?:if|for|while|switch|catch|return|else|elif|with|do|try|throw|raise|new|await|yield|assert|print|in|not|and|or)\b"
)
ABOVE = re.compile(r"@\w|#\[|//|/\*|\*|#(?!!)|--|\[\w+[\](]|template\s*<")
"""Decorators and comments belong to what they stand above."""
CLASS = re.compile(r"\b(?:class|interface|struct|trait|impl|namespace|module|object|enum|extension|protocol)\b")
STAYS = re.compile(
    r"[\])}>{]|#\s*(?:if|ifdef|ifndef|else|elif|endif|define)\b|(?:public|private|protected)\s*:"
    r"|end\b|else\b|elif\b|except\b|finally\b|catch\b|rescue\b|fi\b|done\b|esac\b|\*/|\"\"\"|'''"
)
"""Lines on the level of a definition that belong to it all the same."""
CODE = re.compile(
    r"(?:import|from|use|using|include|require|package|return|if|for|while|else|elif|try|except|const|let|var|self\.|this\.)\b"
    r"|@\w|#include|.*[;{}(\[,:=)]\s*(?:#.*|//.*)?$"
)
TAGGED = re.compile(r"\s*<(?:!doctype|[a-z!?])", re.IGNORECASE)
NO_NAME = frozenset("}])\"'#/.@-+|&")
SAMPLE_LINES = 200
LEAST_CODE = 0.45
LEAST_NUMBERED = 5
SHORT_LINES = 40
HEADING_CHARS = 200
INNERMOST = 10**6


class _Line(NamedTuple):
    """`indent` is the width of its white space; `word` where its words begin."""

    start: int
    end: int
    indent: int
    word: int


class _Cut(NamedTuple):
    """A piece begins at line `line`, inside of the definitions whose lines are `headings`; `name` is its own."""

    line: int
    headings: tuple[str, ...] = ()
    name: str = ""


def is_code(text: str, start: int, end: int) -> bool:
    """Whether a text looks like a program: definitions, and mostly lines that prose has not; or is numbered by line."""
    if TAGGED.match(text, start, end):
        return False
    numbered = _is_numbered(text, start, end)
    lines = list(islice(_lines(text, start, end, numbered), SAMPLE_LINES))
    defined = sum(_defines(text, line) for line in lines)
    if numbered and len(lines) > LEAST_NUMBERED:
        return True
    if any(text.startswith("```", line.start) for line in lines):
        return False
    lines = [line for line in lines if not _is_above(text, line)]
    if defined < 2 and not (defined == 1 and len(lines) < SHORT_LINES):
        return False
    return sum(CODE.match(text, line.word, line.end) is not None for line in lines) > LEAST_CODE * len(lines)


def blocks(text: str, start: int, end: int) -> Iterator[Chunk]:
    """A chunk for each definition and for what stands between them; the headings of a nested one are the lines of those
    it stands in, and of a later piece of a long one its own line, too."""
    lines = list(_lines(text, start, end, _is_numbered(text, start, end)))
    cuts = _whole(_cuts(text, lines), lines)
    for number, cut in enumerate(cuts):
        after = cuts[number + 1].line if number + 1 < len(cuts) else len(lines)
        heading = "\n".join(cut.headings)
        if lines[after - 1].end - lines[cut.line].start <= MAX_CHARS:
            yield Chunk(lines[cut.line].start, lines[after - 1].end, heading, "code")
        else:
            yield from _pieces(text, lines[cut.line : after], heading, cut.name)


def _cuts(text: str, lines: list[_Line]) -> list[_Cut]:
    """Definitions with what stands above them, and what follows them on their own level."""
    cuts = [_Cut(0)] if lines else []
    inside: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        defines = _defines(text, line)
        if not defines and not (inside and line.indent <= inside[-1][0]):
            continue
        if not defines and STAYS.match(text, line.word, line.end):
            continue
        while inside and line.indent <= inside[-1][0]:
            inside.pop()
        headings = tuple(name for _, name in inside)
        if not defines:
            cuts.append(_Cut(number, headings))
            continue
        first = number
        while first > cuts[-1].line and lines[first - 1].indent == line.indent and _is_above(text, lines[first - 1]):
            first -= 1
        name = text[line.word : line.end].strip()[:HEADING_CHARS]
        if cuts[-1].line >= first:
            cuts.pop()
        cuts.append(_Cut(first, headings, name))
        inside.append((line.indent, name))
    return cuts


def _whole(cuts: list[_Cut], lines: list[_Line]) -> list[_Cut]:
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
            after = cuts[inner].line if inner < len(cuts) else len(lines)
            if lines[after - 1].end - lines[cut.line].start > most:
                inner = number + 1
                break
        number = inner if cut.name else number + 1
    return kept


def _pieces(text: str, lines: list[_Line], heading: str, name: str) -> Iterator[Chunk]:
    """Lines gathered up to the target."""
    later = f"{heading}\n{name}".strip("\n")
    begin = 0
    for number in range(1, len(lines) + 1):
        start = lines[begin].start
        if number < len(lines) and lines[number].end - start <= TARGET_CHARS:
            continue
        end = lines[number - 1].end
        for piece in bounded(text, start, end) if end - start > MAX_CHARS else [(start, end)]:
            yield Chunk(*piece, heading, "code")
            heading = later
        begin = number


def _lines(text: str, start: int, end: int, numbered: bool) -> Iterator[_Line]:
    """The lines that are not empty; a number at the beginning is no part of what they say."""
    pattern = NUMBERED_LINE if numbered else INDENTED_LINE
    if start and text[start - 1] != "\n":  # what stands behind something else on its line
        line_end = text.find("\n", start, end)
        line_end = end if line_end < 0 else line_end
        yield _Line(start, line_end, 0, start)
        start = line_end
    tabs = text.find("\t", start, end) >= 0
    for match in pattern.finditer(text, start, end):
        (begin, until), (at, word) = match.span(), match.span(1)
        if word == until:  # empty but for its number: it is as far in as what it stands in
            yield _Line(begin, until, INNERMOST, word)
        else:
            yield _Line(begin, until, word - at + (3 * text.count("\t", at, word) if tabs else 0), word)


def _is_numbered(text: str, start: int, end: int) -> bool:
    """Whether the lines are numbered, one after the other."""
    numbers = [NUMBER.match(m.group()) for m in islice(LINE.finditer(text, start, end), 20)]
    found = [int(m[1]) for m in numbers if m]
    return len(found) == len(numbers) > 2 and all(0 < b - a <= 5 for a, b in pairwise(found))


def _defines(text: str, line: _Line) -> bool:
    if DEFINES.match(text, line.word, line.end):
        return True
    if text[line.end - 1] not in "){\r" or text[line.word] in NO_NAME:
        return False
    return OTHER.match(text, line.word) is None and SIGNATURE.match(text, line.word, line.end) is not None


def _is_above(text: str, line: _Line) -> bool:
    return ABOVE.match(text, line.word, line.end) is not None
