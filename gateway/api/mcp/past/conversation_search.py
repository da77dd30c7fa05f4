"""`PastSearch`: a tenant's conversations, searched and read within bounds. No model is called."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gateway import retrieval
from gateway.context import collect
from gateway.context.assembly import render
from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.core.types import artifacts, memory, past_turns, report_lists, tool_steps
from gateway.core.types.artifacts import Artifact, ArtifactType, ProcessingStrategy
from gateway.core.types.relevance import RankedPassage, RelevanceQuery, SearchedSource
from gateway.core.types.window import ArtifactRendering
from gateway.pipeline import entity_memory
from gateway.retrieval import PassageFinder
from gateway.storage import EntityStore, LargeDocuments
from gateway.storage.conversations import PastReader, content_id_of

# Ranks what was read of conversations by a query: one corpus of messages, tool results and documents.

MAX_EXCERPTS = 3
"""Passages that are shown of one conversation."""
EXCERPT_CHARS = 700
"""Characters of one at most."""
EXCERPT_ELLIPSIS = "…"


@record
class PastExcerpt:
    """A passage that a search found.

    Attributes:
        speaker: the role of its author, an agent's name, or `tool` or `document`.
        artifact_id: of the tool result or document that contains it; None in a message.
        title: the tool's name or the document's title.
    """

    speaker: str
    text: str
    artifact_id: str | None = None
    title: str | None = None


@record
class FoundConversation:
    """A conversation with the passages that match the query, the best first."""

    line: report_lists.ConversationLine
    excerpts: tuple[PastExcerpt, ...]


@record
class FoundPast:
    """The conversations that match a query, the best first, and the entities that it names.

    Attributes:
        searched: how many conversations were read; `size`: their bytes.
        complete: there was no more to read.
    """

    conversations: Sequence[FoundConversation]
    things: Sequence[memory.MemoryEntity]
    searched: int
    size: int
    complete: bool


@record
class ArtifactExtract:
    """What is shown of an artifact: its characters `start` to `end`, or with `passages` those that answer a question;
    all of it where neither leaves anything out."""

    artifact: Artifact
    conversation_id: str
    text: str
    start: int
    end: int
    passages: bool

    @property
    def complete(self) -> bool:
        """Whether the whole artifact is shown, unchanged."""
        return not self.passages and self.start == 0 and self.end == self.of

    @property
    def of(self) -> int:
        """The artifact's length in characters."""
        return self.artifact.size_chars if self.artifact.is_excerpt else len(self.artifact.content)


@record
class _SearchedText:
    """A text that is searched, of conversation number `of`; `role` is that of its author."""

    of: int
    content: str
    role: str
    artifact: Artifact | None = None

    def as_source(self, number: int) -> SearchedSource:
        label = self.artifact.search_label if self.artifact is not None else ""
        of = self.artifact.excerpt_of if self.artifact is not None else ""
        return SearchedSource(self.content, "artifact", label, historical=True, number=number, excerpt_of=of)


def best_conversations(
    query: str,
    read: Sequence[tuple[report_lists.ConversationLine, past_turns.ConversationTexts]],
    about: Iterable[memory.MemoryEntity],
    limit: int,
) -> list[FoundConversation]:
    """Ranks the conversations that match the query, the best first, and returns at most `limit`; ties keep their order.
    `about`: entities that the query names: a conversation about one of them is found by its name, too."""

    named: dict[str, list[memory.MemoryEntity]] = {}
    for thing in about:
        named.setdefault(thing.conversation_id or "", []).append(thing)
    texts = [each for n, (line, own) in enumerate(read) for each in _texts_of(n, line, own, named.get(line.id, ()))]
    ranked = retrieval.relevance(RelevanceQuery(query), [text.as_source(number) for number, text in enumerate(texts)])
    hits = sorted(_hits(texts, ranked), key=lambda hit: hit[0])
    of_each: dict[int, list[tuple[_SearchedText, RankedPassage]]] = {}
    for _, text, passage in hits:
        of_each.setdefault(text.of, []).append((text, passage))
    order = list(of_each)[:limit]  # a conversation ranks as its best passage does
    return [FoundConversation(read[n][0], tuple(_excerpts(of_each[n]))) for n in order]


def _texts_of(
    number: int,
    line: report_lists.ConversationLine,
    own: past_turns.ConversationTexts,
    things: Sequence[memory.MemoryEntity],
) -> Iterator[_SearchedText]:
    messages = own.messages
    said = {tool_steps.text_of(each.content) for each in messages if each.role == "user"}
    if line.question and not any(text.startswith(line.question) for text in said):
        yield _SearchedText(number, line.question, "user")  # its message is too old, or too large, to have been read
    for thing in things:
        yield _SearchedText(number, f"{thing.type} {thing.name} ({thing.thing_id}): {thing.action}", "memory")
    results = collect.extract_artifacts_from_messages(messages, len(messages))
    for artifact in collect.without_repeats([*own.documents, *results]):
        yield _SearchedText(number, artifact.content, _kind(artifact), artifact)
    for message in messages:
        if message.role in tool_steps.RESULT_ROLES:
            continue
        if text := tool_steps.text_of(message.content):
            yield _SearchedText(number, text, message.agent or message.role)


def _kind(artifact: Artifact) -> str:
    return "tool" if artifact.artifact_type is ArtifactType.TOOL_RESULT else "document"


def _hits(
    texts: Sequence[_SearchedText], ranked: Sequence[Sequence[RankedPassage]]
) -> Iterator[tuple[tuple[bool, float, int], _SearchedText, RankedPassage]]:
    """Returns the passages that match the query, each with its place in the order."""
    for number, (text, passages) in enumerate(zip(texts, ranked, strict=True)):
        for passage in passages:
            if passage.score > 0:
                yield (not passage.called, -passage.score, number), text, passage


def _excerpts(hits: Sequence[tuple[_SearchedText, RankedPassage]]) -> Iterator[PastExcerpt]:
    """Returns the best passages of one conversation, without duplicates."""
    shown: set[str] = set()
    for text, passage in hits:
        piece = text.content[passage.start : passage.end].strip()
        if passage.heading and not piece.startswith(passage.heading):
            piece = f"{passage.heading}\n{piece}"
        piece = piece if len(piece) <= EXCERPT_CHARS else piece[:EXCERPT_CHARS] + EXCERPT_ELLIPSIS
        if piece in shown:
            continue
        shown.add(piece)
        artifact = text.artifact
        named = (artifact.artifact_id, artifact.title) if artifact is not None else (None, None)
        yield PastExcerpt(text.role, piece, *named)
        if len(shown) == MAX_EXCERPTS:
            return


# One artifact of a conversation, found by its id, and what of it is shown.

MAX_CHARS = 40_000
"""Characters of an artifact that one answer shows: some 10,000 tokens, which clients take."""
EXTRACT_CHARS = 12_000
"""Characters of the passages that a question calls for."""


def artifact_in(read: past_turns.ConversationTexts, artifact_id: str, min_chars: int) -> Artifact | None:
    """Finds an artifact in a document of the conversation, a tool result, or a document inside a user's message; else
    None.
    `artifact_id`: its content id; `min_chars`: longer texts in user messages may hold documents
    (`context.document_min_chars`)."""
    messages = read.messages
    found = [*read.documents, *collect.extract_artifacts_from_messages(messages, len(messages))]
    for artifact in found:
        if artifact.content_id == artifact_id:
            return artifact
    inside = collect.documents_in_messages(messages, len(messages), min_chars, {})
    return next((each for each in inside if each.content_id == artifact_id), None)


def shown_of(
    artifact: Artifact, conversation_id: str, question: str | None, offset: int, tenant: str
) -> ArtifactExtract:
    """Extracts the passages of a long artifact that answer the question; without a question, or from a short one, the
    text from `offset` on."""
    content = artifact.content
    if question is not None and len(content) > EXTRACT_CHARS:
        source = SearchedSource(
            content, "artifact", artifact.search_label, historical=True, excerpt_of=artifact.excerpt_of
        )
        passages = PassageFinder(None, tenant)(RelevanceQuery(question), [source])[0]
        if chosen := _chosen(passages):
            spans = tuple((each.start, each.end) for each in chosen)
            headings = tuple(each.heading for each in chosen)
            rendering = ArtifactRendering(artifact, ProcessingStrategy.RAG_EXTRACT, spans=spans, headings=headings)
            return ArtifactExtract(
                artifact, conversation_id, render.extract_text(rendering), 0, len(content), passages=True
            )
    end = min(len(content), offset + MAX_CHARS)
    return ArtifactExtract(artifact, conversation_id, content[offset:end], offset, end, passages=False)


def _chosen(passages: Sequence[RankedPassage]) -> list[RankedPassage]:
    """Chooses the best passages that fit, in the order of the document; empty if none matches the question."""
    room, chosen = EXTRACT_CHARS, []
    for passage in sorted(passages, key=lambda each: (not each.called, -each.score)):
        size = passage.end - passage.start
        if passage.score <= 0 or size > room:
            continue
        room -= size
        chosen.append(passage)
    return sorted(chosen, key=lambda each: each.start)


MAX_CONVERSATIONS = 50
"""The latest conversations that a search reads."""
MAX_NAMED = 20
"""Conversations that it reads beside these, since their first question has the query, and as many of those that are
about a thing that it names."""
MAX_THINGS = 10
SEARCHED_BYTES = 2 * 2**20
"""Of all that a search reads; an index of so much takes a few tenths of a second."""
OF_ONE = 256 * 2**10
"""Of one conversation, its latest."""
READ_BYTES = 32 * 2**20
"""Of the conversations in which an artifact is looked for, together."""
LOOKED_THROUGH = 10
"""The latest conversations that are read for an artifact that nothing else leads to."""
MAX_LARGE = 20
"""Large documents that a search looks through, those of the latest conversations: of each it reads some rows of its
index."""
AT_ONCE = 2
"""Searches and readings of one process; further ones wait."""


class PastSearch:
    """What tools read of the past of one tenant.
    Raises StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout."""

    def __init__(self, texts: PastReader, things: EntityStore, min_chars: int, large: LargeDocuments) -> None:
        """`min_chars`: longer texts in user messages may hold documents."""
        self._large = large
        self._texts = texts
        self._things = things
        self._min_chars = min_chars
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def search(self, tenant: str, query: str, limit: int, user: str | None = None) -> FoundPast:
        """Finds conversations and entities that match a query. Reads the conversations whose first question has it,
        those about an entity that it names, and the latest, up to `SEARCHED_BYTES`.
        `user`: whose token asks, to whom no other user's entities are shown."""
        async with self._at_once:
            phrases = entity_memory.search_of(query)
            place = await self._things.place_of(tenant, user) if user is not None else None
            noted = await self._things.search(tenant, None, phrases, 2 * MAX_NAMED, place)
            things = entity_memory.ranked(query, noted)
            lines, more = await self._lines(tenant, query, things)
            read: list[tuple[report_lists.ConversationLine, past_turns.ConversationTexts]] = []
            room, complete = SEARCHED_BYTES, not more
            for line in lines:
                if room <= 0:
                    complete = False
                    break
                own = await self._texts.texts(tenant, line.id, min(OF_ONE, room))
                if own is not None:  # else it was deleted just now
                    room -= own.size
                    complete = complete and own.complete
                    read.append((line, own))
            read, whole = await self._with_large(tenant, query, read)
            complete = complete and whole
            found = await asyncio.to_thread(best_conversations, query, read, things, limit)
            return FoundPast(found, things[:MAX_THINGS], len(read), SEARCHED_BYTES - room, complete)

    async def _with_large(
        self, tenant: str, query: str, read: list[tuple[report_lists.ConversationLine, past_turns.ConversationTexts]]
    ) -> tuple[list[tuple[report_lists.ConversationLine, past_turns.ConversationTexts]], bool]:
        """Returns what was read, with the passages of large documents that the query needs; and whether they cover all
        of them."""
        large = {each.excerpt_of: each for _, own in read for each in own.documents if each.is_excerpt}
        if not large:
            return read, True

        chosen = list(large.values())[:MAX_LARGE]
        found = {each.excerpt_of: each for each in await retrieval.read_for(chosen, self._large, tenant, query)}

        def filled(own: past_turns.ConversationTexts) -> past_turns.ConversationTexts:
            kept = [each for each in own.documents if not each.is_excerpt or each.excerpt_of in found]
            texts = [
                replace(each, content=found[each.excerpt_of].content) if each.is_excerpt else each for each in kept
            ]
            return replace(own, documents=tuple(texts))

        is_whole = len(chosen) == len(large) and not any(each.metadata[artifacts.UNINDEXED] for each in found.values())
        return [(line, filled(own)) for line, own in read], is_whole

    async def _lines(
        self, tenant: str, query: str, things: tuple[memory.MemoryEntity, ...]
    ) -> tuple[list[report_lists.ConversationLine], bool]:
        """Returns the conversations to read, without duplicates, and whether there are more."""
        found = await self._texts.recent(tenant, MAX_CONVERSATIONS + 1)
        latest, more = found[:MAX_CONVERSATIONS], len(found) > MAX_CONVERSATIONS
        asked = await self._texts.recent(tenant, MAX_NAMED, query)
        known = {line.id for line in (*asked, *latest)}
        about = dict.fromkeys(each.conversation_id for each in things if each.conversation_id not in (None, *known))
        named = await self._texts.lines(tenant, [str(each) for each in about][:MAX_NAMED]) if about else ()
        by_id = {line.id: line for line in (*asked, *named, *latest)}
        return list(by_id.values()), more

    async def artifact(
        self, tenant: str, artifact_id: str, conversation_id: str | None, question: str | None, offset: int = 0
    ) -> ArtifactExtract:
        """Returns an artifact in full, up to a bound, or the passages that answer the question.
        Raises NotFound: no artifact has that id; the message names where it was searched."""
        name = content_id_of(artifact_id)
        async with self._at_once:
            if conversation_id is not None:
                places, where = [conversation_id], f"in {conversation_id}"
            else:
                places = await self._places(tenant, name)
                where = f"in your latest conversations (at most {LOOKED_THROUGH} are read: name its conversation_id)"
            room = READ_BYTES
            for place in places:
                own = await self._texts.texts(tenant, place, room)
                if own is None:
                    continue
                artifact = await asyncio.to_thread(artifact_in, own, name, self._min_chars)
                if artifact is not None and artifact.is_excerpt:
                    return await self._part(tenant, place, artifact, question, offset)
                if artifact is not None:
                    return await asyncio.to_thread(shown_of, artifact, place, question, offset, tenant)
                room -= own.size
                if room <= 0:
                    break
        raise errors.NotFound(f"No artifact {artifact_id} {where}.", param="artifact_id")

    async def _part(
        self, tenant: str, conversation_id: str, artifact: Artifact, question: str | None, offset: int
    ) -> ArtifactExtract:
        """Returns the shown part of a large document, whose text is not in `artifact`."""
        if question is not None:
            (read,) = await retrieval.read_for([artifact], self._large, tenant, question)
            shown = await asyncio.to_thread(shown_of, read, conversation_id, question, 0, tenant)
            if shown.passages:
                return shown
        text = await self._texts.part(tenant, artifact.metadata[artifacts.LARGE], offset, MAX_CHARS)
        return ArtifactExtract(artifact, conversation_id, text, offset, offset + len(text), passages=False)

    async def _places(self, tenant: str, name: str) -> list[str]:
        """Returns the conversations that may hold an artifact, the likeliest first."""
        held = await self._texts.holders(tenant, name, LOOKED_THROUGH)
        latest = await self._texts.recent(tenant, LOOKED_THROUGH)
        return list(dict.fromkeys([*held, *(line.id for line in latest)]))
