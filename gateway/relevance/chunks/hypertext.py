"""HTML as it is written: blocks gathered up to the target, with the headings above them."""

import re
from collections.abc import Iterator
from html import unescape

from gateway.relevance.chunks.bounds import bounded
from gateway.relevance.chunks.chunk import TARGET_CHARS, Chunk

BLOCK = re.compile(
    r"<(?:(h[1-6])|p|div|li|tr|section|article|table|ul|ol|dl|dt|pre|blockquote|header|footer|nav|main|body)\b",
    re.IGNORECASE,
)
TAG = re.compile(r"<[^<>]{0,2000}>")
START = re.compile(r"\s*<(?:!doctype|html|head|body|div|p|h[1-6]|table|ul|ol|section|article|main)\b", re.IGNORECASE)
LEAST_BLOCKS = 4
TITLE_CHARS = 200


def is_hypertext(text: str, start: int, end: int) -> bool:
    """Whether a text begins like HTML and goes on so."""
    return (
        START.match(text, start, end) is not None
        and len(BLOCK.findall(text, start, min(end, start + 20_000))) >= LEAST_BLOCKS
    )


def blocks(text: str, start: int, end: int) -> Iterator[Chunk]:
    """Blocks; a heading begins a chunk and stands above those of its section."""
    titles: list[tuple[int, str]] = []
    begin = last = start
    above = ""
    for match in BLOCK.finditer(text, start + 1, end):
        at, level = match.start(), match[1]
        for cut, is_due in ((last, last > begin and at - begin > TARGET_CHARS), (at, level is not None)):
            if is_due:
                yield from _pieces(text, begin, cut, above)
                begin, above = cut, "\n".join(title for _, title in titles)
        if level:
            titles = [title for title in titles if title[0] < int(level[1])]
            above = "\n".join(title for _, title in titles)
            titles.append((int(level[1]), _title(text, at, level)))
        last = at
    yield from _pieces(text, begin, end, above)


def _pieces(text: str, begin: int, end: int, heading: str) -> Iterator[Chunk]:
    for piece in bounded(text, begin, end):
        yield Chunk(*piece, heading)


def _title(text: str, at: int, level: str) -> str:
    """A heading as it is read."""
    end = text.find("</", at, at + 2 * TITLE_CHARS)
    inner = text[at : end if end > at else at + TITLE_CHARS]
    return "#" * int(level[1]) + " " + " ".join(unescape(TAG.sub(" ", inner)).split())[:TITLE_CHARS]
