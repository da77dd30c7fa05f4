"""One artifact of a conversation, found by its id, and what of it is shown."""

from collections.abc import Sequence

from gateway.artifacts.collect import documents_in_messages, extract_artifacts_from_messages
from gateway.assembly.block import extract_text
from gateway.models.artifacts import Artifact, ProcessingStrategy
from gateway.models.past_texts import ConversationTexts, Extract
from gateway.models.relevance import Passage, Query, Source
from gateway.models.window import Rendering
from gateway.relevance.index_cache import PassageFinder

MOST_CHARS = 40_000
"""Characters of an artifact that one answer shows: some 10,000 tokens, which clients take."""
EXTRACT_CHARS = 12_000
"""Characters of the passages that a question calls for."""


def artifact_in(read: ConversationTexts, artifact_id: str, min_chars: int) -> Artifact | None:
    """The artifact of that id: a document of the conversation, a tool result, or a document inside a user's message.

    Args:
        artifact_id: its content id.
        min_chars: longer texts in user messages may hold documents (`context.document_min_chars`).
    """
    messages = read.messages
    found = [*read.documents, *extract_artifacts_from_messages(messages, len(messages))]
    for artifact in found:
        if artifact.content_id == artifact_id:
            return artifact
    inside = documents_in_messages(messages, len(messages), min_chars, {})
    return next((each for each in inside if each.content_id == artifact_id), None)


def shown_of(artifact: Artifact, conversation_id: str, question: str | None, offset: int, tenant: str) -> Extract:
    """The passages that the question calls for, where it is too long for them to be all of it; without a question the
    text from `offset` on."""
    content = artifact.content
    if question is not None and len(content) > EXTRACT_CHARS:
        source = Source(content, "artifact", artifact.search_label, historical=True, excerpt_of=artifact.excerpt_of)
        passages = PassageFinder(None, tenant)(Query(question), [source])[0]
        if chosen := _chosen(passages):
            spans = tuple((each.start, each.end) for each in chosen)
            headings = tuple(each.heading for each in chosen)
            rendering = Rendering(artifact, ProcessingStrategy.RAG_EXTRACT, spans=spans, headings=headings)
            return Extract(artifact, conversation_id, extract_text(rendering), 0, len(content), passages=True)
    end = min(len(content), offset + MOST_CHARS)
    return Extract(artifact, conversation_id, content[offset:end], offset, end, passages=False)


def _chosen(passages: Sequence[Passage]) -> list[Passage]:
    """The best passages that there is room for, in the order of the document; empty if none bears on the question."""
    room, chosen = EXTRACT_CHARS, []
    for passage in sorted(passages, key=lambda each: (not each.called, -each.score)):
        size = passage.end - passage.start
        if passage.score <= 0 or size > room:
            continue
        room -= size
        chosen.append(passage)
    return sorted(chosen, key=lambda each: each.start)
