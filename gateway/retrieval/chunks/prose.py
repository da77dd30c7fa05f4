"""Cuts prose: paragraphs of Markdown and reStructuredText, and blocks of HTML, gathered up to `TARGET_CHARS` with the
headings above them."""

import re
from collections.abc import Iterator
from html import unescape

from gateway.retrieval.chunks.chunk import TARGET_CHARS, Span, TextChunk, bounded

HYPERTEXT_BLOCK = re.compile(
    r"<(?:(h[1-6])|p|div|li|tr|section|article|table|ul|ol|dl|dt|pre|blockquote|header|footer|nav|main|body)\b",
    re.IGNORECASE,
)
TAG = re.compile(r"<[^<>]{0,2000}>")
START = re.compile(r"\s*<(?:!doctype|html|head|body|div|p|h[1-6]|table|ul|ol|section|article|main)\b", re.IGNORECASE)
MIN_BLOCKS = 4
TITLE_CHARS = 200


def is_hypertext(text: str, start: int, end: int) -> bool:
    """Whether a text begins like HTML and goes on so."""
    return (
        START.match(text, start, end) is not None
        and len(HYPERTEXT_BLOCK.findall(text, start, min(end, start + 20_000))) >= MIN_BLOCKS
    )


def blocks(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """Blocks; a heading begins a chunk and stands above those of its section."""
    titles: list[tuple[int, str]] = []
    begin = last = start
    above = ""
    for match in HYPERTEXT_BLOCK.finditer(text, start + 1, end):
        at, level = match.start(), match[1]
        for cut, is_due in ((last, last > begin and at - begin > TARGET_CHARS), (at, level is not None)):
            if is_due:
                yield from _hypertext_pieces(text, begin, cut, above)
                begin, above = cut, "\n".join(title for _, title in titles)
        if level:
            titles = [title for title in titles if title[0] < int(level[1])]
            above = "\n".join(title for _, title in titles)
            titles.append((int(level[1]), _hypertext_title(text, at, level)))
        last = at
    yield from _hypertext_pieces(text, begin, end, above)


def _hypertext_pieces(text: str, begin: int, end: int, heading: str) -> Iterator[TextChunk]:
    for piece in bounded(text, begin, end):
        yield TextChunk(*piece, heading)


def _hypertext_title(text: str, at: int, level: str) -> str:
    """A heading as it is read."""
    end = text.find("</", at, at + 2 * TITLE_CHARS)
    inner = text[at : end if end > at else at + TITLE_CHARS]
    return "#" * int(level[1]) + " " + " ".join(unescape(TAG.sub(" ", inner)).split())[:TITLE_CHARS]


BLOCK = re.compile(r"\S[^\n]*+(?:\n[^\S\n]*+\S[^\n]*+)*+")
"""Lines up to an empty one."""
HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
UNDERLINED = re.compile(
    r"(?:([=~^*\"#+-])\1{2,}+[ \t]*+\r?\n)?([^\n]{1,200}?)[ \t]{0,200}+\r?\n([=~^*\"#+-])\3{2,}+[ \t]*+\r?(?:\n|\Z)"
)
FENCE = re.compile(r"^ {0,3}(?:`{3}|~{3})", re.MULTILINE)
FENCED_CHARS = 4 * TARGET_CHARS
PATH_CHARS = 200
BARE_CHARS = 200
"""Characters of a heading with its first lines up to which it stays with the next paragraph."""
Title = tuple[str, str]
"""A heading's level (`#`, `##`, or the sign that underlines it), and its line."""


def prose(text: str, start: int, end: int) -> Iterator[TextChunk]:
    """Paragraphs of a stretch of text with the headings above them; a heading begins a chunk."""
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
    """A long piece's later parts need its own heading, too."""
    heading = _path(above)
    for start, end in bounded(text, *piece):
        yield TextChunk(start, end, heading)
        heading = _path(titles)


def _path(titles: list[Title]) -> str:
    return "\n".join(line[:PATH_CHARS] for _, line in titles)


def _outer(titles: list[Title], level: str) -> list[Title]:
    """The headings that a heading of that level stands under. A sign that underlines ranks as it first came up."""
    if level[0] == "#":
        return [title for title in titles if title[0][0] == "#" and len(title[0]) < len(level)]
    known = [title[0] for title in titles]
    return titles[: known.index(level)] if level in known else titles


def _blocks(text: str, start: int, end: int) -> Iterator[tuple[int, int, Title | None]]:
    """Paragraphs, each with its heading if it begins with one; what stands between fences is one block."""
    opened: int | None = None
    title: Title | None = None
    for match in BLOCK.finditer(text, start, end):
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
    """Whether a fence opens there that does not close, or closes that did not open."""
    if text.find("```", begin, until) < 0 and text.find("~~~", begin, until) < 0:
        return False
    return len(FENCE.findall(text[begin:until])) % 2 == 1


def _titled(text: str, begin: int, until: int) -> Iterator[tuple[int, int, Title | None]]:
    """A paragraph in which headings follow each other without an empty line, cut before each."""
    at = begin
    title = _title(text, begin, until)
    if text.find("\n#", begin, until) >= 0 and FENCE.search(text[begin:until]) is None:
        for match in re.finditer(r"\n(?=#{1,6}[ \t])", text[begin:until]):
            yield at, begin + match.end(), title
            at = begin + match.end()
            title = _title(text, at, until)
    yield at, until, title


def _title(text: str, begin: int, until: int) -> Title | None:
    marked = HEADING.match(text, begin, until)
    if marked:
        line_end = text.find("\n", begin, until)
        return marked.group(1), text[begin : line_end if line_end >= 0 else until].strip()
    underlined = UNDERLINED.match(text, begin, until)
    if underlined and underlined[2].strip(" \t=-~^*#+|"):
        return underlined[3] + (underlined[1] or ""), underlined[2].strip()
    return None
