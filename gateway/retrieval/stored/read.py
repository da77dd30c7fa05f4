"""Reads what a question needs of large documents: for the context, for the tool `recall`, for views of past requests.
That includes regions with the places that a question names (guarantees §14.2, §14.7)."""

import asyncio
import contextlib
import json
import math
import zlib
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gateway.core import ports
from gateway.core.frozen_records import record
from gateway.core.types import artifacts, places, tool_steps
from gateway.core.types.artifacts import Artifact
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.places import LargeIndex, RegionPlace, TextRegion
from gateway.retrieval.corpus import TermLexicon
from gateway.retrieval.named_places import NamedPlaces, places_named
from gateway.retrieval.question import borrowed_terms, is_named
from gateway.retrieval.stored.postings import PLACES, SEGMENT_REGIONS, PostingBucket, bucket_of

LINE_KIND = "line"
"""The kind of lines and of rows (`retrieval.question`)."""
MAX_PLACED_REGIONS = 12
"""Regions of one document that are read because the question names their places."""
MAX_OF_NAME = 2
"""First regions that are read of a sheet or file that is named without a line or page."""


@record
class _RegionStart:
    """The beginning of a region: its file, and the part of that (the kind of place, a sheet's name); the number of its
    page or row, and the last row of its sheet."""

    file: str
    kind: str
    sheet: str
    number: int | None
    last: float = math.inf

    def is_in(self, other: "_RegionStart | None") -> bool:
        """Returns whether both regions begin in the same part of one file."""
        return other is not None and (self.file, self.kind, self.sheet) == (other.file, other.kind, other.sheet)

    def count(self, kind: str, line: int | None) -> int | None:
        """Returns its number among such places, or None; for lines of a text without parts `line`."""
        if not self.kind:
            return line if kind == LINE_KIND else None
        return self.number if self.kind == ("sheet" if kind == LINE_KIND else kind) else None


def packed_places(regions: Sequence[TextRegion]) -> bytes:
    """Encodes the places of these regions, as an index stores them beside its terms."""
    told = [[each.number, each.place, each.line] for each in regions]
    return zlib.compress(json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def unpacked_places(data: bytes) -> list[RegionPlace]:
    """Decodes what `packed_places` encoded. Raises ValueError, TypeError, zlib.error: it is something else."""
    told = json.loads(zlib.decompress(data).decode("utf-8", "surrogatepass"))
    return [RegionPlace(number, place, line) for number, place, line in told]


def regions_named(named: NamedPlaces, places: Sequence[RegionPlace]) -> list[int]:
    """Returns the numbers of regions with named places, `MAX_PLACED_REGIONS` at most. `places`: of all, in order."""
    known = {place: _at(place) for place in {each.place for each in places}}
    files = {name for name in {each.file for each in known.values()} if name and is_named("file", name, named)}
    sheets = {name for name in {each.sheet for each in known.values()} if name and is_named("sheet", name, named)}
    wanted = [*named.numbered, *((LINE_KIND, first) for first, _ in named.lines)]
    found: list[int] = []
    first_ones: Counter[tuple[str, str]] = Counter()
    if not wanted and not files and not sheets:
        return found
    for region, following in zip(places, [*places[1:], None], strict=True):
        here, after = known[region.place], known[following.place] if following is not None else None
        if (files or sheets) and not any(_is_of(each, files, sheets) for each in (here, after) if each is not None):
            continue
        last = after if after is not None else here
        lines = (region.line, following.line if following is not None else None)
        if any(_between(*each, here, after, lines) for each in wanted) or (
            not wanted and first_ones[last.file, last.sheet] < MAX_OF_NAME
        ):
            first_ones[last.file, last.sheet] += 1
            found.append(region.number)
            if len(found) == MAX_PLACED_REGIONS:
                break
    return found


def _is_of(at: _RegionStart, files: Container[str], sheets: Container[str]) -> bool:
    """Returns whether the region is in a named file and sheet, if any are named."""
    return (not files or at.file in files) and (not sheets or at.sheet in sheets)


def _at(place: str) -> _RegionStart:
    file, found = "", _RegionStart("", "", "", None)
    for marker in places.PLACE_MARKER.finditer(place):
        sheet = places.SHEET.match(marker[2]) if marker[1] == "sheet" else None
        if marker[1] == "file":
            file = marker[2]
        elif sheet is not None:
            found = _RegionStart("", "sheet", sheet[1], int(sheet[3]), int(sheet[5]))
        else:
            found = _RegionStart("", marker[1], "", int(marker[2]) if marker[2].isdigit() else None)
    return replace(found, file=file)


def _between(
    kind: str, number: int, here: _RegionStart, after: _RegionStart | None, lines: tuple[int | None, int | None]
) -> bool:
    """Returns whether a place begins in a region from `here` to `after`, or contains its beginning. If another part
    begins in between, the end of the first is unknown."""
    begins = here.count(kind, lines[0])
    ends = after.count(kind, lines[1]) if after is not None else None
    until = number < ends if ends is not None and kind == LINE_KIND else ends is not None and number <= ends
    from_here = begins is not None and begins <= number <= here.last
    return from_here and until if here.is_in(after) else from_here or until


# Selects the regions of large documents that a question needs, by the rows of their indexes that have its terms.

MAX_LOOKED_UP_TERMS = 24
"""Terms that are looked up: those of most weight. Each reads a row for every eight million characters."""
READ_CHARS = 400_000
"""Characters read from all large documents of a conversation: twice as many as a large window holds."""
HEAD_REGIONS = 4
"""First regions that are read of a document whose index is not finished."""

NONE_NAMED: Mapping[int, Sequence[int]] = MappingProxyType({})
Scores = NDArray[np.float64]
Found = Mapping[tuple[int, int], PostingBucket]
"""The buckets of one document's index, by segment and bucket."""


@record
class IndexedDocument:
    """One document: the number of its regions, how many of them are indexed, and what was read of its index."""

    regions: int
    indexed: int
    found: Found


def wanted_terms(question: str, recent: Sequence[str]) -> dict[str, float]:
    """Returns the terms to look up, with their weights, by the same rules as `retrieval.question`."""
    lexicon = TermLexicon()
    terms: dict[str, float] = dict(borrowed_terms(question, recent, lexicon))
    terms |= {term: 1.0 for term, _ in lexicon.question(question)}
    return dict(sorted(terms.items(), key=lambda each: -each[1])[:MAX_LOOKED_UP_TERMS])


def best_regions(
    terms: Mapping[str, float],
    documents: Sequence[IndexedDocument],
    most: int,
    named: Mapping[int, Sequence[int]] = NONE_NAMED,
) -> list[list[int]]:
    """Returns for each document the numbers of the regions to read, in order: of all documents together those that
    share most words with the question, `most` at most. The first and the last region of each document, regions with
    named places, and more of the beginning of a document whose index is not finished are always included.
    `named`: regions that are named, by the document's number."""
    chosen = [
        {0, max(0, each.regions - 1), *named.get(number, ())} if each.regions else set()
        for number, each in enumerate(documents)
    ]
    for own, each in zip(chosen, documents, strict=True):
        if each.indexed < each.regions:
            own.update(range(min(HEAD_REGIONS, each.regions)))
    begins = np.cumsum([0, *(each.regions for each in documents)])
    scores = _scores(terms, documents)
    left = most - sum(map(len, chosen))
    for place in np.argsort(-scores, kind="stable")[: most + len(documents) * HEAD_REGIONS].tolist():
        if left <= 0 or scores[place] <= 0:
            break
        document = int(np.searchsorted(begins, place, side="right")) - 1
        number = place - int(begins[document])
        if number not in chosen[document]:
            chosen[document].add(number)
            left -= 1
    return [sorted(own) for own in chosen]


def matching(terms: Mapping[str, float], document: IndexedDocument, most: int) -> list[int]:
    """Returns the regions of one document that share words with a question, those that share most first."""
    scores = _scores(terms, [document])
    return [number for number in np.argsort(-scores, kind="stable")[:most].tolist() if scores[number] > 0]


def _scores(terms: Mapping[str, float], documents: Sequence[IndexedDocument]) -> Scores:
    """Scores all regions, one document after the other: rarer terms count more, and repeats of a term less and less."""
    total = sum(each.regions for each in documents)
    scores = np.zeros(total)
    indexed = sum(each.indexed for each in documents)
    for term, weight in terms.items():
        places, counts = _where(term, documents)
        if len(places):
            rarity = np.log1p((indexed - len(places) + 0.5) / (len(places) + 0.5))
            scores[places] += weight * rarity * counts / (counts + 1.0)
    return scores


def _where(term: str, documents: Sequence[IndexedDocument]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    places, counts, begin, bucket = [], [], 0, bucket_of(term)
    for each in documents:
        for (segment, number), data in each.found.items():
            if number == bucket:
                posting = data.of(term)
                places.append(posting.regions + begin + segment * SEGMENT_REGIONS)
                counts.append(posting.counts)
        begin += each.regions
    if not places:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(places), np.concatenate(counts)


QUESTION_CHARS = 4000
"""Characters of a question that are used, half of them from its end."""
RECENT = 6
"""Messages before the question that explain its pronouns."""


async def read_for(
    attached: Sequence[Artifact], texts: ports.LargeTexts, tenant: str, question: str, recent: Sequence[str] = ()
) -> tuple[Artifact, ...]:
    """Returns the artifacts; the content of large documents is what a question needs of them.
    `recent`: the texts before the question, which explain its pronouns.
    Raises StorageUnavailable: the storage cannot be reached."""
    large = list(dict.fromkeys(each.metadata[artifacts.LARGE] for each in attached if each.is_excerpt))
    terms, named = await asyncio.to_thread(wanted_terms, question, recent), places_named(question)
    found = await texts.indexes(tenant, large, _buckets(terms, named))
    region_places = await _places(texts, tenant, found) if named else {}
    chosen = await asyncio.to_thread(_chosen, terms, found, named, region_places)
    read = await texts.regions(tenant, {each.digest: numbers for each, numbers in zip(found, chosen, strict=True)})
    contents = {digest: places.joined(regions) for digest, regions in read.items()}
    unfinished = {each.digest for each in found if each.indexed < each.regions}

    def filled(artifact: Artifact) -> Artifact:
        digest = artifact.metadata[artifacts.LARGE]
        metadata = {**artifact.metadata, artifacts.UNINDEXED: digest in unfinished}
        return replace(artifact, content=contents.get(digest, ""), metadata=metadata)

    return tuple(filled(each) if each.is_excerpt else each for each in attached)


async def regions_found(texts: ports.LargeTexts, tenant: str, digest: str, wanted: str, most: int) -> list[int]:
    """Returns the numbers of a document's regions that match a search: those of a named place first, then those that
    share most words with it.
    Raises StorageUnavailable: the storage cannot be reached."""
    terms, named = await asyncio.to_thread(wanted_terms, wanted, ()), places_named(wanted)
    indexes = await texts.indexes(tenant, [digest], _buckets(terms, named))
    places = await _places(texts, tenant, indexes) if named else {}
    of_places = await asyncio.to_thread(regions_named, named, places.get(digest, ()))
    of_words = [await asyncio.to_thread(lambda index: matching(terms, _indexed(index), most), each) for each in indexes]
    return list(dict.fromkeys([*of_places, *(number for numbers in of_words for number in numbers)]))[:most]


def _buckets(terms: dict[str, float], named: NamedPlaces) -> list[int]:
    return [*sorted(set(map(bucket_of, terms))), *([PLACES] if named else [])]


async def _places(texts: ports.LargeTexts, tenant: str, found: Sequence[LargeIndex]) -> dict[str, list[RegionPlace]]:
    """Returns the places of regions by the documents' digests, from their indexes, else from the regions."""
    places = await asyncio.to_thread(lambda: {each.digest: _indexed_places(each) for each in found})
    missing = [each.digest for each in found if len(places[each.digest]) < each.regions]
    return places | (await texts.places(tenant, missing) if missing else {})


def _indexed_places(index: LargeIndex) -> list[RegionPlace]:
    places: list[RegionPlace] = []
    for (_, bucket), data in sorted(index.data.items()):
        if bucket == PLACES:
            with contextlib.suppress(ValueError, TypeError, zlib.error):
                places += unpacked_places(data)
    return places


def _chosen(
    terms: dict[str, float],
    found: Sequence[LargeIndex],
    named: NamedPlaces,
    region_places: Mapping[str, Sequence[RegionPlace]],
) -> list[list[int]]:
    documents = [_indexed(each) for each in found]
    of_places = {n: regions_named(named, region_places.get(each.digest, ())) for n, each in enumerate(found)}
    return best_regions(terms, documents, READ_CHARS // places.REGION_CHARS, of_places)


def _indexed(index: LargeIndex) -> IndexedDocument:
    buckets: dict[tuple[int, int], PostingBucket] = {}
    for place, data in index.data.items():
        if place[1] == PLACES:
            continue
        try:
            buckets[place] = PostingBucket(data)
        except (ValueError, zlib.error):
            continue  # a corrupt bucket: the others are still of use
    return IndexedDocument(index.regions, index.indexed, buckets)


def question_in(messages: Sequence[ConversationMessage]) -> tuple[str, list[str]]:
    """Returns the text of the message that begins the current turn, shortened, and the texts of those before it."""
    last = max(tool_steps.turn_starts(message.role for message in messages), default=None)
    if last is None:
        return "", []
    before = [each for each in messages[max(0, last - RECENT) : last] if each.role != "tool"]
    said = [tool_steps.text_of(each.content)[:QUESTION_CHARS] for each in before]
    text = tool_steps.text_of(messages[last].content)
    if len(text) > QUESTION_CHARS:
        text = f"{text[: QUESTION_CHARS // 2]}\n{text[-QUESTION_CHARS // 2 :]}"
    return text, said
