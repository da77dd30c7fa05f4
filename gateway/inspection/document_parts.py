"""Shows a large document part by part: every part can be seen, and the document is never read whole (guarantee §14.7).
Finds what was shown of an artifact in its original text. All work is bounded, however long either is."""

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
"""Parts that a search returns."""
REGIONS_AT_ONCE = 100
"""Regions read at a time where all are read."""


@record
class DocumentPart:
    """A region of a document as the web UI shows it.

    Attributes:
        number: of the part, from 1; `parts` is how many there are.
        start: its first character in the document, of `chars`.
        place: its place: pages, lines, cells; "" if that is not known.
        found: the parts that a search returned, with their places, best first; None where nothing was searched.
        indexed: whether the search covered the whole document.
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
    """Reads a part of a document; None if the document no longer exists.
    `number`: which part, from 1; a number beyond the last selects the last; `wanted`: search words, or a place such as
    `page 12`; the best match is shown.
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
    """Yields a document's whole text in UTF-8, `REGIONS_AT_ONCE` regions at a time."""
    number = 0
    while True:
        regions = (await texts.regions(tenant, {digest: range(number, number + REGIONS_AT_ONCE)}))[digest]
        if not regions:
            return
        yield "".join(each.text for each in regions).encode("utf-8", "surrogatepass")
        number += REGIONS_AT_ONCE


def place_of(region: TextRegion) -> str:
    """Returns the place of a region in its document, worded as in labels of extracts."""
    text = places.joined([region])
    start = len(text) - len(region.text)
    return TextPlaces(text, excerpt=True).of(start + len(region.text) - len(region.text.lstrip()), len(text))


MAX_PIECES = 2000
"""Passages and lines that are searched for."""
MAX_MISSED_PIECES = 50
"""Misses after which the search ends: each miss reads all of the original."""
ITEM = re.compile(r'<artifact id="(art_[^"\s]{1,64})"[^<>\n]*(?<!/)>\n(.*?)\n</artifact>', re.DOTALL)
"""An artifact with its text. Pages sent upstream as images have an empty element, which has no end tag."""
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
    """The spans of what was shown in the original, in its order. `missing` counts characters that are not in it: a
    summary's, or those no longer searched for."""

    spans: tuple[Span, ...]
    missing: int = 0

    @property
    def chars(self) -> int:
        return sum(end - start for start, end in self.spans)


def shown_artifacts(messages: Sequence[Mapping[str, Any]]) -> dict[str, ShownArtifact]:
    """Extracts what forwarded messages show of artifacts that were reduced or put in a block, by the artifacts' ids. If
    an id occurs several times, the last one counts."""
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
    """Locates the passages of `shown` in the original: each as a whole if it is there, else line by line."""
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
    """Yields the passages between elision marks; those that the original does not contain as a whole, line by line."""
    for piece in re.split(rf"(?:^|\n){re.escape(ELISION)}(?:\n|$)", shown)[: MAX_PIECES + 1]:
        text = piece.strip("\n")
        if not text.strip():
            continue
        if "\n" not in text or text in original:
            yield text
        else:
            yield from (line for line in text.split("\n") if line.strip())


def _merged(original: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Yields the spans in order, merging those that overlap or have only white space between them."""
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
