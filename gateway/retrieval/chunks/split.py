"""Cuts a text into chunks along its own structure: records, rows, lines, blocks of code, paragraphs. Prose is gathered
up to `TARGET_CHARS` with the headings above it. Programs, including listings with line numbers, are cut by indentation:
a line and the deeper lines below it are one block, whatever the language."""

import re
from collections.abc import Iterator
from html import unescape
from itertools import islice, pairwise
from typing import Any, NamedTuple

from gateway.core.types import places
from gateway.retrieval.chunks import structured
from gateway.retrieval.chunks.chunk import (
    CODE_ENDINGS,
    MARKED_ROWS,
    MAX_CHUNK_CHARS,
    MAX_CHUNKS,
    TARGET_CHARS,
    YAML_ENDINGS,
    MarkedSection,
    Span,
    TextChunk,
    bounded,
    gathered,
    is_wrapped,
    pieces_of,
    placed,
    sections,
    split_heading,
    trimmed,
)

FIRST_OF_TEXT = re.compile(r"[ \t]*[\[{]")
FIRST_OF_LINE = re.compile(r"\n[ \t]*[\[{]")
BEFORE_VALUE = re.compile(r"[\[{](?=[ \t\r\n]*[\"\[{])")
MIN_JSON = 800
"""Characters from which JSON between other text is cut as records."""
MAX_TRIES = 6
"""Places in one text where JSON is tried: each try may read the rest of the text."""


def passages(text: str) -> list[TextChunk]:
    """Cuts a text into chunks, in order, without overlap, none longer than `MAX_CHUNK_CHARS`; they omit only white
    space. The time is linear in the text, whatever it holds (guarantee §7). Very many tiny chunks are joined
    (`gathered`). No chunk crosses a place's marker (guarantee §14.2)."""
    if places.is_marked(text):
        return list(_of_sections(text))
    return gathered(list(_chunks(text, 0, len(text))))


def _chunks(text: str, start: int, end: int) -> Iterator[TextChunk]:
    for begin, until, cut in _stretches(text, start, end):
        yield from cut if cut is not None else _of_one_kind(text, begin, until)


def _of_sections(text: str) -> Iterator[TextChunk]:
    """Yields the chunks between markers, each section cut by its kind."""
    for section in sections(text):
        begin, until = trimmed(text, section.body, section.end)
        begin = max(section.body, text.rfind("\n", section.body, begin) + 1)
        most = max(1, MAX_CHUNKS * (section.end - section.start) // len(text))
        cut = list(_of_section(text, begin, until, section)) if begin < until else []
        yield from placed(section, gathered(cut, most) if most < len(cut) else cut)


def _of_section(text: str, start: int, end: int, section: MarkedSection) -> Iterator[TextChunk]:
    if section.kind in MARKED_ROWS:
        return structured.rows_below(text, start, end)
    if section.kind == "file" and section.ending in CODE_ENDINGS:
        return code_blocks(text, start, end)
    if section.kind == "file" and section.ending in YAML_ENDINGS:
        return structured.yaml_blocks(text, start, end)
    if section.kind == "page" and is_wrapped(text, start, end):
        return prose(text, start, end)
    return _chunks(text, start, end)


def fields_of(content: str, chunk: TextChunk) -> list[tuple[str, Any]]:
    """Returns the values of a record or row by field name (nested ones: `items price`); empty for other chunks."""
    if chunk.kind == "row":
        return list(structured.cells(split_heading(chunk.heading)[1], content[chunk.start : chunk.end]))
    return structured.fields(content, chunk.origin) if chunk.kind == "record" and chunk.origin >= 0 else []


def _stretches(text: str, start: int, end: int) -> Iterator[tuple[int, int, list[TextChunk] | None]]:
    """Yields JSON with the chunks that it was cut into, and the text before and after it."""
    first, end = trimmed(text, start, end)
    if first < end and text[first] in "{[":
        cut, after = structured.records(text, first, end)
        if cut:
            yield first, after, cut
            start = after
    at = start
    for _ in range(MAX_TRIES):
        opening = _opening(text, at, end)
        if opening is None or end - opening <= MIN_JSON:
            break
        at = opening + 1
        cut, after = structured.records(text, opening, end)
        if cut and after - opening > MIN_JSON:
            yield *trimmed(text, start, opening), None
            yield opening, after, cut
            start = at = after
    begin, until = trimmed(text, start, end)
    if begin < until:
        yield max(start, text.rfind("\n", 0, begin) + 1), until, None  # its first line is indented as others are


def _opening(text: str, start: int, end: int) -> int | None:
    """Returns where JSON may begin: at a bracket that begins a line or precedes a value. Two separate searches are far
    faster here than one combined search."""
    if text.find("{", start, end) < 0 and text.find("[", start, end) < 0:
        return None  # most logs and prose
    before = BEFORE_VALUE.search(text, start, end)
    until = before.start() if before else end
    if start == 0 and (first := FIRST_OF_TEXT.match(text, 0, until)):
        return first.end() - 1
    first = FIRST_OF_LINE.search(text, max(0, start - 1), until)
    return first.end() - 1 if first else before.start() if before else None


def _of_one_kind(text: str, start: int, end: int) -> Iterator[TextChunk]:
    if start >= end:
        return iter(())
    if is_hypertext(text, start, end):
        return hypertext_blocks(text, start, end)
    separator = structured.separator_of(text, start, end)
    if separator is not None:
        return structured.rows(text, start, end, separator)
    if (text.find("- ", start, end) >= 0 or text.startswith("---", start)) and structured.is_yaml(text, start, end):
        return structured.yaml_blocks(text, start, end)
    if is_code(text, start, end):
        return code_blocks(text, start, end)
    if structured.is_lines(text, start, end):
        return structured.line_blocks(text, start, end)
    return prose(text, start, end)


HYPERTEXT_BLOCK = re.compile(
    r"<(?:(h[1-6])|p|div|li|tr|section|article|table|ul|ol|dl|dt|pre|blockquote|header|footer|nav|main|body)\b",
    re.IGNORECASE,
)
HTML_TAG = re.compile(r"<[^<>]{0,2000}>")
HTML_START = re.compile(
    r"\s*<(?:!doctype|html|head|body|div|p|h[1-6]|table|ul|ol|section|article|main)\b", re.IGNORECASE
)
MIN_BLOCKS = 4
HTML_TITLE_CHARS = 200


def is_hypertext(text: str, start: int, end: int) -> bool:
    """Returns whether a text begins like HTML and continues as HTML."""
    return (
        HTML_START.match(text, start, end) is not None
        and len(HYPERTEXT_BLOCK.findall(text, start, min(end, start + 20_000))) >= MIN_BLOCKS
    )


def hypertext_blocks(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """Yields blocks of HTML; a heading begins a chunk and is the heading of the chunks in its section."""
    titles: list[tuple[int, str]] = []
    begin = last = start
    above = ""
    for match in HYPERTEXT_BLOCK.finditer(text, start + 1, end):
        at, level = match.start(), match[1]
        for cut, is_due in ((last, last > begin and at - begin > TARGET_CHARS), (at, level is not None)):
            if is_due:
                yield from pieces_of(text, begin, cut, above)
                begin, above = cut, "\n".join(title for _, title in titles)
        if level:
            titles = [title for title in titles if title[0] < int(level[1])]
            above = "\n".join(title for _, title in titles)
            titles.append((int(level[1]), _hypertext_title(text, at, level)))
        last = at
    yield from pieces_of(text, begin, end, above)


def _hypertext_title(text: str, at: int, level: str) -> str:
    """Returns the text of a heading as Markdown."""
    end = text.find("</", at, at + 2 * HTML_TITLE_CHARS)
    inner = text[at : end if end > at else at + HTML_TITLE_CHARS]
    return "#" * int(level[1]) + " " + " ".join(unescape(HTML_TAG.sub(" ", inner)).split())[:HTML_TITLE_CHARS]


PARAGRAPH_BLOCK = re.compile(r"\S[^\n]*+(?:\n[^\S\n]*+\S[^\n]*+)*+")
"""Lines up to an empty one."""
MARKDOWN_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
UNDERLINED = re.compile(
    r"(?:([=~^*\"#+-])\1{2,}+[ \t]*+\r?\n)?([^\n]{1,200}?)[ \t]{0,200}+\r?\n([=~^*\"#+-])\3{2,}+[ \t]*+\r?(?:\n|\Z)"
)
FENCE_LINE = re.compile(r"^ {0,3}(?:`{3}|~{3})", re.MULTILINE)
FENCED_CHARS = 4 * TARGET_CHARS
PATH_CHARS = 200
BARE_CHARS = 200
"""Characters of a heading with its first lines up to which it stays with the next paragraph."""
Title = tuple[str, str]
"""A heading's level (`#`, `##`, or the sign that underlines it), and its line."""


def prose(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """Yields paragraphs of a stretch of text with the headings above them; a heading begins a chunk."""
    titles: list[Title] = []
    above: list[Title] = []
    piece: Span | None = None
    is_bare = False
    for begin, until, title in _blocks(text, start, end):
        if piece and (title or (until - piece[0] > TARGET_CHARS and not is_bare)):
            yield from _pieces(text, piece, above, titles)
            piece = None
        if title:
            above = titles = [*_outer(titles, title[0]), title]
            above = above[:-1]
        elif piece is None:
            above = titles
        is_bare = title is not None and until - begin <= BARE_CHARS
        piece = (piece[0] if piece else begin, until)
    if piece:
        yield from _pieces(text, piece, above, titles)


def _pieces(text: str, piece: Span, above: list[Title], titles: list[Title]) -> Iterator[TextChunk]:
    """Yields a block in pieces; later pieces of a long block also get its own heading."""
    heading = _path(above)
    for start, end in bounded(text, *piece):
        yield TextChunk(start, end, heading)
        heading = _path(titles)


def _path(titles: list[Title]) -> str:
    return "\n".join(line[:PATH_CHARS] for _, line in titles)


def _outer(titles: list[Title], level: str) -> list[Title]:
    """Returns the headings above a heading of that level. An underlining sign ranks by its first occurrence."""
    if level[0] == "#":
        return [title for title in titles if title[0][0] == "#" and len(title[0]) < len(level)]
    known = [title[0] for title in titles]
    return titles[: known.index(level)] if level in known else titles


def _blocks(text: str, start: int, end: int) -> Iterator[tuple[int, int, Title | None]]:
    """Yields paragraphs, each with its heading if it begins with one; text between fences is one block."""
    opened: int | None = None
    title: Title | None = None
    for match in PARAGRAPH_BLOCK.finditer(text, start, end):
        begin, until = match.span()
        odd = _holds_odd_fence(text, begin, until)
        if opened is not None:
            if odd or until - opened > FENCED_CHARS:
                yield opened, until, title
                opened = None
        elif odd:
            opened, title = begin, _title(text, begin, until)
        else:
            yield from _titled(text, begin, until)
    if opened is not None:
        yield opened, end, title


def _holds_odd_fence(text: str, begin: int, until: int) -> bool:
    """Returns whether an unmatched fence opens or closes there."""
    if text.find("```", begin, until) < 0 and text.find("~~~", begin, until) < 0:
        return False
    return len(FENCE_LINE.findall(text[begin:until])) % 2 == 1


def _titled(text: str, begin: int, until: int) -> Iterator[tuple[int, int, Title | None]]:
    """Yields a paragraph in which headings follow each other without an empty line, cut before each heading."""
    at = begin
    title = _title(text, begin, until)
    if text.find("\n#", begin, until) >= 0 and FENCE_LINE.search(text[begin:until]) is None:
        for match in re.finditer(r"\n(?=#{1,6}[ \t])", text[begin:until]):
            yield at, begin + match.end(), title
            at = begin + match.end()
            title = _title(text, at, until)
    yield at, until, title


def _title(text: str, begin: int, until: int) -> Title | None:
    marked = MARKDOWN_HEADING.match(text, begin, until)
    if marked:
        line_end = text.find("\n", begin, until)
        return marked.group(1), text[begin : line_end if line_end >= 0 else until].strip()
    underlined = UNDERLINED.match(text, begin, until)
    if underlined and underlined[2].strip(" \t=-~^*#+|"):
        return underlined[3] + (underlined[1] or ""), underlined[2].strip()
    return None


CODE_LINE = re.compile(r"^([^\S\n]*+)(\S[^\n]*+)", re.MULTILINE)
NUMBERED_LINE = re.compile(r"^[ \t]*+\d{1,7}(?:\t|→|: |:(?!\d)|[|] |[|]|[ ]{2}|$)([^\S\n]*+)([^\n]*+)", re.MULTILINE)
LISTING_NUMBER = re.compile(r"[ \t]*(\d{1,7})(?:\t|→|:(?!\d)|[|]|[ ]{2}|\r?$)")
MIN_NUMBERED, SAMPLE_NUMBERED = 3, 20
"""Numbered lines that make a listing, and how many lines at its beginning are examined."""
MAX_STEP = 5
"""Largest difference of consecutive line numbers: empty lines may be left out."""
MIN_LISTED = 6
"""Lines of a numbered listing that is surely code; a shorter one has to look like code."""

DEFINES = re.compile(
    r"(?:[a-z]+(?:\([\w:]+\))? ){0,3}(?:def|class|function|interface|enum|trait|impl|struct|union|namespace|module"
    r"|protocol|extension|object|fn|mod|func|fun|type|macro_rules!)\b"
    r"|create (?:or replace )?(?:table|view|function|procedure|trigger|index)\b",
    re.IGNORECASE,
)
CLASS = re.compile(r"\b(?:class|interface|struct|trait|impl|namespace|module|object|enum|extension|protocol)\b")
"""Blocks that hold definitions: each definition is a chunk. Statements of a function are gathered instead."""
STATEMENT = re.compile(
    r"(?:import|from|use|using|include|require|package|return|if|for|while|else|elif|try|except|const|let|var)\b"
    r"|(?:self|this)\.|@\w|#include"
)
ABOVE = re.compile(r"@\w|#\[|//|/\*|\*|#(?!!)|--|\[\w+[\](]|template\s*<")
"""Decorators and comments belong to the block below them."""
CLOSES = re.compile(
    r"[\])}>{]|#\s*(?:if|ifdef|ifndef|else|elif|endif|define)\b|(?:public|private|protected)\s*:"
    r"|(?:end|else|elif|except|finally|catch|rescue|fi|done|esac)\b|\*/|\"\"\"|'''"
)
"""Lines that belong to the block above them although they are no deeper."""
COMMENT = re.compile(r"(?:#|//).*")
CODE_LINE_ENDS = tuple(";{}([,:=)")
"""Typical ends of lines of code."""
TAGGED = re.compile(r"\s*<(?:!doctype|[a-z!?])", re.IGNORECASE)
SAMPLE_LINES = 200
MIN_CODE = 0.45
"""Fraction of the lines that must look like code; comments do not count."""
SHORT_LINES = 40
"""Lines up to which one definition makes a program; a longer text needs two."""
HEADING_CHARS = 200
MAX_HEADINGS = 8
"""Blocks around a chunk that its heading names; deeper nesting is cut without regard to blocks."""
TAB_COLUMNS = 4


class CodeLine(NamedTuple):
    """Characters `start` to `end` of a text, its indentation in columns, its text, and whether it belongs to the block
    above it."""

    start: int
    end: int
    indent: int
    words: str
    closes: bool


def is_code(text: str, start: int, end: int) -> bool:
    """Returns whether a text looks like a program (it has definitions, and most lines look like code) or a listing."""
    if TAGGED.match(text, start, end):
        return False
    numbered = _is_numbered(text, start, end)
    sample = list(islice(_words_of_lines(text, start, end, numbered), SAMPLE_LINES))
    if numbered and len(sample) >= MIN_LISTED:
        return True
    lines = [words for words in sample if not ABOVE.match(words)]
    opened = sum(words.endswith("{") or DEFINES.match(words) is not None for words in lines)
    if text.startswith("```", start) or text.find("\n```", start, end) >= 0 or not opened:
        return False
    if opened == 1 and len(lines) >= SHORT_LINES:
        return False
    code = sum(STATEMENT.match(words) is not None or _ends_like_code(words) for words in lines)
    return code > MIN_CODE * len(lines)


def _words_of_lines(text: str, start: int, end: int, numbered: bool) -> Iterator[str]:
    """Returns the texts of the lines that `_lines` yields; without numbers by a faster way."""
    if numbered:
        return (line.words for line in _lines(text, start, end, numbered))
    return filter(None, map(str.strip, text[start:end].split("\n")))


def code_blocks(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """Yields a chunk for each block and for the lines between blocks. The heading of a nested block, and of a later
    piece of a long one, consists of the first lines of the blocks around it."""
    lines = list(_lines(text, start, end, _is_numbered(text, start, end)))
    return _code_chunks(text, lines, ())


def _is_numbered(text: str, start: int, end: int) -> bool:
    sample = [m.group() for m in islice(re.compile(r"[^\n]+").finditer(text, start, end), SAMPLE_NUMBERED)]
    numbers = [int(found[1]) for line in sample if (found := LISTING_NUMBER.match(line))]
    if len(numbers) < max(MIN_NUMBERED, len(sample)):
        return False
    return all(0 < b - a <= MAX_STEP for a, b in pairwise(numbers))


def _lines(text: str, start: int, end: int, numbered: bool) -> Iterator[CodeLine]:
    """Yields the lines that are not empty; a number at the beginning is not part of a line's text."""
    if start and text[start - 1] != "\n":  # it begins behind something else on its line
        after = text.find("\n", start, end)
        until = end if after < 0 else after
        yield CodeLine(start, until, 0, text[start:until].strip(), False)
        start = until
    last: CodeLine | None = None
    for match in (NUMBERED_LINE if numbered else CODE_LINE).finditer(text, start, end):
        white, words = match[1], match[2].rstrip()
        if last and not words:  # empty but for its number
            last = last._replace(end=match.end())
            continue
        if last:
            yield last
        indent = len(white) + (TAB_COLUMNS - 1) * white.count("\t")
        last = CodeLine(match.start(), match.end(), indent, words, CLOSES.match(words) is not None)
    if last:
        yield last


def _ends_like_code(words: str) -> bool:
    return words.endswith(CODE_LINE_ENDS) or COMMENT.sub("", words, count=1).rstrip().endswith(CODE_LINE_ENDS)


def _code_chunks(text: str, lines: list[CodeLine], headings: tuple[str, ...]) -> Iterator[TextChunk]:
    gathers = bool(headings) and not CLASS.search(headings[-1])
    run: list[CodeLine] = []
    for block in _code_blocks(lines):
        name = next((line.words for line in block if not ABOVE.match(line.words)), "")
        holds_blocks = CLASS.search(name) and len({line.indent for line in block if not line.closes}) > 2
        is_long = block[-1].end - block[0].start > (TARGET_CHARS if holds_blocks else MAX_CHUNK_CHARS)
        is_alone = is_long or (len(block) > 1 and not gathers)
        while is_alone and run and ABOVE.match(run[-1].words):
            block.insert(0, run.pop())
        if run and (is_alone or block[-1].end - run[0].start > TARGET_CHARS):
            yield from _code_pieces(text, run, headings)
            run = []
        if is_long and len(block) > 1 and len(headings) < MAX_HEADINGS:
            yield from _long(text, block, headings)
        elif is_alone:
            yield from _code_pieces(text, block, headings)
        else:
            run += block
    if run:
        yield from _code_pieces(text, run, headings)


def _code_blocks(lines: list[CodeLine]) -> Iterator[list[CodeLine]]:
    """Yields each of the outermost lines with the deeper lines below it."""
    level = min((line.indent for line in lines if not line.closes), default=0)
    block: list[CodeLine] = []
    for line in lines:
        if block and line.indent <= level and not line.closes:
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _long(text: str, block: list[CodeLine], headings: tuple[str, ...]) -> Iterator[TextChunk]:
    """Yields the blocks within a block; its first lines go with the first of them."""
    head = next((n for n, line in enumerate(block) if not ABOVE.match(line.words)), 0)
    name = block[head].words[:HEADING_CHARS]
    inner = _code_chunks(text, block[head + 1 :], (*headings, name))
    first = next(inner, None)
    if first is not None and first.end - block[0].start <= MAX_CHUNK_CHARS:
        yield TextChunk(block[0].start, first.end, "\n".join(headings), "code")
    else:
        yield from _code_pieces(text, block[: head + 1], headings)
        if first is not None:
            yield first
    yield from inner


def _code_pieces(text: str, lines: list[CodeLine], headings: tuple[str, ...]) -> Iterator[TextChunk]:
    return pieces_of(text, lines[0].start, lines[-1].end, "\n".join(headings), "code")
