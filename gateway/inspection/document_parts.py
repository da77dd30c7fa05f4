"""A large document part by part: any of it can be looked at, and none of it is read whole (guarantee §14.7)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from gateway.core.ports import LargeTexts
from gateway.core.types.places import TextPlaces, TextRegion, joined

MAX_FOUND = 20
"""Parts that a search names."""
AT_ONCE = 100
"""Regions that are read at once where all are."""


@dataclass(frozen=True, slots=True)
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
    texts: LargeTexts, tenant: str, digest: str, number: int = 1, wanted: str = ""
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
        from gateway.retrieval.stored.read import regions_found  # it loads numpy, which few pages need

        found = await regions_found(texts, tenant, digest, wanted, MAX_FOUND)
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


async def whole_document(texts: LargeTexts, tenant: str, digest: str) -> AsyncIterator[bytes]:
    """All of a document's text, some regions at a time."""
    number = 0
    while True:
        regions = (await texts.regions(tenant, {digest: range(number, number + AT_ONCE)}))[digest]
        if not regions:
            return
        yield "".join(each.text for each in regions).encode("utf-8", "surrogatepass")
        number += AT_ONCE


def place_of(region: TextRegion) -> str:
    """What a region is of, as labels of extracts word it."""
    text = joined([region])
    start = len(text) - len(region.text)
    return TextPlaces(text, excerpt=True).of(start + len(region.text) - len(region.text.lstrip()), len(text))
