"""Reads of large documents what a question needs: for the context, for the tool `recall`, for readers of the past."""

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gateway.models.artifacts import LARGE, UNINDEXED, Artifact
from gateway.models.large import LargeIndex
from gateway.models.regions import REGION_CHARS, RegionPlace, joined
from gateway.ports.documents import LargeTexts
from gateway.relevance.named_places import NamedPlaces, named_places
from gateway.relevance.stored.placed import regions_named
from gateway.relevance.stored.postings import Bucket
from gateway.relevance.stored.scoring import READ_CHARS, Indexed, best_regions, buckets_of, wanted_terms


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
    found = await texts.indexes(tenant, large, buckets_of(terms))
    places = await texts.places(tenant, [each.digest for each in found]) if named else {}
    chosen = await asyncio.to_thread(_chosen, terms, found, named, places)
    read = await texts.regions(tenant, {each.digest: numbers for each, numbers in zip(found, chosen, strict=True)})
    contents = {digest: joined(regions) for digest, regions in read.items()}
    unfinished = {each.digest for each in found if each.indexed < each.regions}
    return tuple(_filled(each, contents, unfinished) if each.is_excerpt else each for each in artifacts)


def _filled(artifact: Artifact, contents: dict[str, str], unfinished: set[str]) -> Artifact:
    digest = artifact.metadata[LARGE]
    metadata = {**artifact.metadata, UNINDEXED: digest in unfinished}
    return replace(artifact, content=contents.get(digest, ""), metadata=metadata)


def _asked(question: str, recent: Sequence[str]) -> tuple[dict[str, float], NamedPlaces]:
    return wanted_terms(question, recent), named_places(question)


def _chosen(
    terms: dict[str, float],
    found: Sequence[LargeIndex],
    named: NamedPlaces,
    places: Mapping[str, Sequence[RegionPlace]],
) -> list[list[int]]:
    documents = []
    for each in found:
        buckets: dict[tuple[int, int], Bucket] = {}
        for place, data in each.data.items():
            try:
                buckets[place] = Bucket(data)
            except (ValueError, zlib.error):
                continue  # somebody has spoilt it: the others say what they say
        documents.append(Indexed(each.regions, each.indexed, buckets))
    of_places = {n: regions_named(named, places.get(each.digest, ())) for n, each in enumerate(found)}
    return best_regions(terms, documents, READ_CHARS // REGION_CHARS, of_places)
