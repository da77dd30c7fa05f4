"""Shows a large document part by part: any of it can be looked at, and none of it is read whole (guarantee §14.7).
What was shown of an artifact is found again in its original text. All work is bounded, however long either is."""

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from gateway import retrieval
from gateway.context.assembly import ELISION
from gateway.core.frozen_records import record
from gateway.core.types import places, tool_steps
from gateway.core.types.places import TextPlaces, TextRegion
from gateway.storage import LargeDocuments

MAX_FOUND = 20
"""Parts that a search names."""
REGIONS_AT_ONCE = 100
"""Regions that are read at once where all are."""


@record
class DocumentPart:
    """A region of a document as a page shows it.

    Attributes:
        number: of the part, from 1; `parts` is how many there are.
        start: its first character in the document, of `chars`.
        place: what it is of: pages, lines, cells; "" if that is not known.
        found: the parts that a search names, with their places, the best first; None where nothing was looked for.
        indexed: whether a search has seen all of the document.
    """

    number: int
    parts: int
    chars: int
    start: int
    text: str
    place: str
    found: tuple[tuple[int, str], ...] | None = None
    indexed: bool = True


async def document_part(
    texts: LargeDocuments, tenant: str, digest: str, number: int = 1, wanted: str = ""
) -> DocumentPart | None:
    """A part of a document; None if there is no such document any more.
    `number`: which part, from 1; one beyond the last is the last; `wanted`: words, or a place such as `page 12`, by
    which parts are looked for; the best is shown.
    Raises StorageUnavailable: the storage cannot be reached."""
    indexes = await texts.indexes(tenant, [digest])
    if not indexes or not indexes[0].regions:
        return None
    index = indexes[0]
    found: list[int] | None = None
    if wanted:
        found = await retrieval.regions_found(texts, tenant, digest, wanted, MAX_FOUND)
        number = found[0] + 1 if found else number
    at = min(max(1, number), index.regions) - 1
    regions = (await texts.regions(tenant, {digest: sorted({at, *(found or ())})}))[digest]
    by_number = {each.number: each for each in regions}
    if at not in by_number:
        return None
    named = tuple((n + 1, place_of(by_number[n])) for n in found if n in by_number) if found is not None else None
    here = by_number[at]
    indexed = index.indexed >= index.regions
    return DocumentPart(
        at + 1, index.regions, index.chars, here.start, here.text, place_of(here), named, indexed or not wanted
    )


async def whole_document(texts: LargeDocuments, tenant: str, digest: str) -> AsyncIterator[bytes]:
    """All of a document's text, some regions at a time."""
    number = 0
    while True:
        regions = (await texts.regions(tenant, {digest: range(number, number + REGIONS_AT_ONCE)}))[digest]
        if not regions:
            return
        yield "".join(each.text for each in regions).encode("utf-8", "surrogatepass")
        number += REGIONS_AT_ONCE


def place_of(region: TextRegion) -> str:
    """What a region is of, as labels of extracts word it."""
    text = places.joined([region])
    start = len(text) - len(region.text)
    return TextPlaces(text, excerpt=True).of(start + len(region.text) - len(region.text.lstrip()), len(text))


MAX_PIECES = 2000
"""Passages and lines that are sought."""
MAX_MISSED_PIECES = 50
"""Pieces that are not found before no more are sought: each miss reads all of the original."""
ITEM = re.compile(r'<artifact id="(art_[^"\s]{1,64})"[^<>\n]*(?<!/)>\n(.*?)\n</artifact>', re.DOTALL)
"""An artifact with its text. Pages that go up as they look are told by an empty element, which has no end."""
IN_PLACE = re.compile(
    r"\[(?:Extract|Summary|Left out)\b[^\n]{0,1000}?, id (art_[0-9a-f]{16}(?:-\d{1,6})?), from [^\n]*"
)
"""The label of an artifact that was reduced in its place."""
ESCAPED = re.compile(r"&lt;(?=\s*/?\s*(?:context_data|artifact)\b)", re.IGNORECASE)
Span = tuple[int, int]


@record
class ShownArtifact:
    """What a forwarded message shows of an artifact, below its label. `in_block`: in a block, not in its place."""

    text: str
    in_block: bool
    label: str = ""


@record
class ShownPassages:
    """Where what was shown stands in the original, in its order. `missing` are characters that stand nowhere in it: a
    summary's, or those that were looked for no more."""

    spans: tuple[Span, ...]
    missing: int = 0

    @property
    def chars(self) -> int:
        return sum(end - start for start, end in self.spans)


def shown_artifacts(messages: Sequence[Mapping[str, Any]]) -> dict[str, ShownArtifact]:
    """What forwarded messages show of artifacts that were reduced or put in a block, by the artifacts' ids. Of an id
    that stands in several places the last counts."""
    found: dict[str, ShownArtifact] = {}
    for message in messages:
        text = tool_steps.text_of(message.get("content"))
        for each in IN_PLACE.finditer(text):
            found[each[1]] = ShownArtifact(text[each.end() :].removeprefix("\n"), False, each[0])
        if message.get("role") == "user":
            for item in ITEM.finditer(text):
                label = item[0].partition("\n")[0]
                found[item[1]] = ShownArtifact(ESCAPED.sub("<", item[2]), True, label)
    return found


def found_again(original: str, shown: str) -> ShownPassages:
    """The passages of `shown` in the original: each as a whole where it stands there, else line by line."""
    spans: list[Span] = []
    missing = misses = at = 0
    for number, piece in enumerate(_pieces(original, shown)):
        if number >= MAX_PIECES or misses >= MAX_MISSED_PIECES:
            missing += len(piece)
            continue
        start = original.find(piece, at)
        if start < 0:
            start = original.find(piece, 0, at)
        if start < 0:
            misses, missing = misses + 1, missing + len(piece)
            continue
        spans.append((start, start + len(piece)))
        at = max(at, start + len(piece))
    return ShownPassages(tuple(_merged(original, spans)), missing)


def _pieces(original: str, shown: str) -> Iterator[str]:
    """Passages between marks of what was left out; those that do not stand in the original as a whole, by lines."""
    for piece in re.split(rf"(?:^|\n){re.escape(ELISION)}(?:\n|$)", shown)[: MAX_PIECES + 1]:
        text = piece.strip("\n")
        if not text.strip():
            continue
        if "\n" not in text or text in original:
            yield text
        else:
            yield from (line for line in text.split("\n") if line.strip())


def _merged(original: str, spans: Sequence[Span]) -> Iterator[Span]:
    """The spans in order, those together that overlap or have nothing but white space between them."""
    current: Span | None = None
    for start, end in sorted(spans):
        if current is not None and (start <= current[1] or not original[current[1] : start].strip()):
            current = current[0], max(current[1], end)
            continue
        if current is not None:
            yield current
        current = start, end
    if current is not None:
        yield current
