"""Reads of large documents what a question needs: for the context, for the tool `recall`, for readers of the past."""

import asyncio
import contextlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gateway.models.artifacts import LARGE, UNINDEXED, Artifact
from gateway.models.conversation import ConversationMessage
from gateway.models.large import LargeIndex
from gateway.models.regions import REGION_CHARS, RegionPlace, joined
from gateway.models.tool_steps import text_of, turn_starts
from gateway.ports.documents import LargeTexts
from gateway.relevance.named_places import NamedPlaces, named_places
from gateway.relevance.stored.placed import regions_named, unpacked_places
from gateway.relevance.stored.postings import PLACES, Bucket
from gateway.relevance.stored.scoring import READ_CHARS, Indexed, best_regions, buckets_of, matching, wanted_terms

QUESTION_CHARS = 4000
"""Characters of a question that are searched for, half of them from its end."""
RECENT = 6
"""Messages before the question that explain its pronouns."""


async def read_for(
    artifacts: Sequence[Artifact], texts: LargeTexts, tenant: str, question: str, recent: Sequence[str] = ()
) -> tuple[Artifact, ...]:
    """The artifacts, of which large documents have as their content what a question needs of them.

    Args:
        recent: the texts before the question, which explain its pronouns.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    large = list(dict.fromkeys(each.metadata[LARGE] for each in artifacts if each.is_excerpt))
    terms, named = await asyncio.to_thread(_asked, question, recent)
    found = await texts.indexes(tenant, large, _buckets(terms, named))
    places = await _places(texts, tenant, found) if named else {}
    chosen = await asyncio.to_thread(_chosen, terms, found, named, places)
    read = await texts.regions(tenant, {each.digest: numbers for each, numbers in zip(found, chosen, strict=True)})
    contents = {digest: joined(regions) for digest, regions in read.items()}
    unfinished = {each.digest for each in found if each.indexed < each.regions}
    return tuple(_filled(each, contents, unfinished) if each.is_excerpt else each for each in artifacts)


async def regions_found(texts: LargeTexts, tenant: str, digest: str, wanted: str, most: int) -> list[int]:
    """The numbers of a document's regions that somebody looks for: those of a place that is named first, then those
    that share most words with it.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    terms, named = await asyncio.to_thread(_asked, wanted, ())
    indexes = await texts.indexes(tenant, [digest], _buckets(terms, named))
    places = await _places(texts, tenant, indexes) if named else {}
    of_places = await asyncio.to_thread(regions_named, named, places.get(digest, ()))
    of_words = [await asyncio.to_thread(lambda index: matching(terms, _indexed(index), most), each) for each in indexes]
    return list(dict.fromkeys([*of_places, *(number for numbers in of_words for number in numbers)]))[:most]


def _filled(artifact: Artifact, contents: dict[str, str], unfinished: set[str]) -> Artifact:
    digest = artifact.metadata[LARGE]
    metadata = {**artifact.metadata, UNINDEXED: digest in unfinished}
    return replace(artifact, content=contents.get(digest, ""), metadata=metadata)


def _buckets(terms: dict[str, float], named: NamedPlaces) -> list[int]:
    return [*buckets_of(terms), *([PLACES] if named else [])]


async def _places(texts: LargeTexts, tenant: str, found: Sequence[LargeIndex]) -> dict[str, list[RegionPlace]]:
    """Where the regions stand, by the documents' digests: as their indexes say it, else as the regions do."""
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


def _asked(question: str, recent: Sequence[str]) -> tuple[dict[str, float], NamedPlaces]:
    return wanted_terms(question, recent), named_places(question)


def _chosen(
    terms: dict[str, float],
    found: Sequence[LargeIndex],
    named: NamedPlaces,
    places: Mapping[str, Sequence[RegionPlace]],
) -> list[list[int]]:
    documents = [_indexed(each) for each in found]
    of_places = {n: regions_named(named, places.get(each.digest, ())) for n, each in enumerate(found)}
    return best_regions(terms, documents, READ_CHARS // REGION_CHARS, of_places)


def _indexed(index: LargeIndex) -> Indexed:
    buckets: dict[tuple[int, int], Bucket] = {}
    for place, data in index.data.items():
        if place[1] == PLACES:
            continue
        try:
            buckets[place] = Bucket(data)
        except (ValueError, zlib.error):
            continue  # somebody has spoilt it: the others say what they say
    return Indexed(index.regions, index.indexed, buckets)


def question_in(messages: Sequence[ConversationMessage]) -> tuple[str, list[str]]:
    """The text of the message that begins the current turn, shortened, and those of the messages before it."""
    last = max(turn_starts(message.role for message in messages), default=None)
    if last is None:
        return "", []
    said = [_text(each)[:QUESTION_CHARS] for each in messages[max(0, last - RECENT) : last] if each.role != "tool"]
    text = _text(messages[last])
    if len(text) > QUESTION_CHARS:
        text = f"{text[: QUESTION_CHARS // 2]}\n{text[-QUESTION_CHARS // 2 :]}"
    return text, said


def _text(message: ConversationMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return text_of([part for part in content or () if isinstance(part, dict)])
