"""Reads of large documents what a question needs: for the context, for the tool `recall`, for readers of the past."""

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gateway.models.artifacts import LARGE, UNINDEXED, Artifact
from gateway.models.large import LargeIndex
from gateway.models.regions import REGION_CHARS, joined
from gateway.ports.documents import LargeTexts
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
    terms = await asyncio.to_thread(wanted_terms, question, recent)
    found = await texts.indexes(tenant, large, buckets_of(terms))
    chosen = await asyncio.to_thread(partial(_chosen, terms), found)
    read = await texts.regions(tenant, {each.digest: numbers for each, numbers in zip(found, chosen, strict=True)})
    contents = {digest: joined(regions) for digest, regions in read.items()}
    unfinished = {each.digest for each in found if each.indexed < each.regions}
    return tuple(_filled(each, contents, unfinished) if each.is_excerpt else each for each in artifacts)


def _filled(artifact: Artifact, contents: dict[str, str], unfinished: set[str]) -> Artifact:
    digest = artifact.metadata[LARGE]
    metadata = {**artifact.metadata, UNINDEXED: digest in unfinished}
    return replace(artifact, content=contents.get(digest, ""), metadata=metadata)


def _chosen(terms: dict[str, float], found: Sequence[LargeIndex]) -> list[list[int]]:
    documents = []
    for each in found:
        buckets: dict[tuple[int, int], Bucket] = {}
        for place, data in each.data.items():
            try:
                buckets[place] = Bucket(data)
            except (ValueError, zlib.error):
                continue  # somebody has spoilt it: the others say what they say
        documents.append(Indexed(each.regions, each.indexed, buckets))
    return best_regions(terms, documents, READ_CHARS // REGION_CHARS)
