"""Reads of large documents what a question needs: the regions that share most words with it (guarantee §14.7)."""

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gateway.models.artifacts import LARGE, UNINDEXED, Artifact
from gateway.models.conversation import ConversationMessage, History
from gateway.models.large import LargeIndex
from gateway.models.regions import REGION_CHARS, joined
from gateway.models.tool_steps import text_of
from gateway.ports.documents import LargeTexts

QUESTION_CHARS = 4000
"""Characters of a question that are searched for, half of them from its end."""
RECENT = 6
"""Messages before the question that explain its pronouns."""


async def with_excerpts(history: History, texts: LargeTexts, tenant: str) -> History:
    """The conversation, of whose large documents each has as its content what the current question needs of it. What
    another turn was sent of them is not changed by that.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    if not any(each.is_excerpt for each in history.attachments):
        return history
    question, recent = _question(history.messages)
    return replace(history, attachments=await read_for(history.attachments, texts, tenant, question, recent))


async def read_for(
    artifacts: Sequence[Artifact], texts: LargeTexts, tenant: str, question: str, recent: Sequence[str] = ()
) -> tuple[Artifact, ...]:
    """The artifacts, of which large documents have as their content what a question needs of them.

    Args:
        recent: the texts before the question, which explain its pronouns.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """
    from gateway.relevance.stored.scoring import buckets_of, wanted_terms

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
    from gateway.relevance.stored.postings import Bucket
    from gateway.relevance.stored.scoring import READ_CHARS, Indexed, best_regions

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


def _question(messages: Sequence[ConversationMessage]) -> tuple[str, list[str]]:
    """The current user message's text, shortened, and those of the messages before it."""
    last = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "user"), None)
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
