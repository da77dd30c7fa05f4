"""Programs: functions, methods and what stands between them; a class's line is the heading of its methods.

Languages are told apart by what their lines look like, not by parsing: Python, JavaScript and TypeScript, Go, Java, C#,
C and C++, Rust, Ruby, PHP, Kotlin, Swift, SQL and shell, also as listings with line numbers (`cat -n`).
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from gateway.relevance.chunks.bounds import bounded
from gateway.relevance.chunks.chunk import MAX_CHARS, TARGET_CHARS, Chunk
from gateway.relevance.chunks.code_lines import (
    DECORATION,
    DEFINING,
    NUMBERED_LINE,
    SAMPLE,
    TELLING,
    Lines,
    is_numbered,
    lines_of,
)

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
