"""Passages of a document whose places are marked: each says where it is from (guarantee §14.2)."""

from collections.abc import Iterator

from gateway.models.places import MARKER, Places, after_markers
from gateway.models.window import Rendering


def placed_pieces(rendering: Rendering, elision: str) -> Iterator[str]:
    """The passages in document order. A line says the place of what follows, wherever that changes: `[page 12]`,
    `[Sales!A5:F19]`, `[file a.py, lines 3-9]`. It stands where the markers stood, which are not repeated."""
    content = rendering.artifact.content
    places = Places(content, excerpt=rendering.artifact.is_excerpt)
    at, last, above = 0, "", ""
    tops: list[int] = []  # where stretches without a heading begin, since the last marker: they may begin with others'
    for number, (start, end) in enumerate(rendering.spans):
        if MARKER.search(content, at, start):
            tops, above = [], ""
        heading = _below_markers(rendering.headings[number]) if number < len(rendering.headings) else ""
        for begin, until in _pieces(content, places, start, end):
            if _has_words(content, at, begin):
                yield elision
            at = until
            body = after_markers(content, begin, until)
            if body > begin:
                tops, above = [], ""
            place = places.of(begin, until)
            if place and place != last:
                yield f"[{place}]"
            last = place
            own = heading if begin == start else ""
            if not own:
                tops.append(body)
            elif own != above and not any(content.startswith(own, top) for top in tops):
                yield own
            above = own
            if words := content[body:until].strip("\n"):
                yield words
    if _has_words(content, at, len(content)):
        yield elision


def _below_markers(heading: str) -> str:
    return heading[after_markers(heading, 0, len(heading)) :]


def _has_words(content: str, start: int, end: int) -> bool:
    """Whether more stands there than markers and white space."""
    at = start
    for found in MARKER.finditer(content, start, end):
        if content[at : found.start()].strip():
            return True
        at = found.end()
    return bool(content[at:end].strip())


def _pieces(content: str, places: Places, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A stretch cut before each marker, without the lines that stand for what an excerpt leaves out."""
    for low, high in places.without_gaps(start, end):
        yield from _between_markers(content, low, high)


def _between_markers(content: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A stretch cut before each marker, but for one that follows a file's at once."""
    at = start
    for found in MARKER.finditer(content, start, end):
        if found.start() > after_markers(content, at, end):
            yield at, found.start()
            at = found.start()
    yield at, end
