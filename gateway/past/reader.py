"""`Past`: what a tenant's conversations say, searched and read within bounds. No model is asked."""

import asyncio
from dataclasses import replace

from gateway.errors import NotFound
from gateway.features.entity_memory import ranked, search_of
from gateway.models.artifacts import LARGE, UNINDEXED, Artifact
from gateway.models.past_texts import ConversationTexts, Extract, FoundPast
from gateway.models.report_lists import ConversationLine
from gateway.models.things import Thing
from gateway.past.artifact import MOST_CHARS, artifact_in, shown_of
from gateway.past.search import best_conversations
from gateway.ports.documents import LargeTexts
from gateway.storage.conversations.attachments import content_id_of
from gateway.storage.conversations.texts import PastTexts
from gateway.storage.things.memory import ThingMemory

MOST_CONVERSATIONS = 50
"""The latest conversations that a search reads."""
MOST_NAMED = 20
"""Conversations that it reads beside these, since their first question has the query, and as many of those that are
about a thing that it names."""
MOST_THINGS = 10
SEARCHED_BYTES = 2 * 2**20
"""Of all that a search reads; an index of so much takes a few tenths of a second."""
OF_ONE = 256 * 2**10
"""Of one conversation, its latest."""
READ_BYTES = 32 * 2**20
"""Of the conversations in which an artifact is looked for, together."""
LOOKED_THROUGH = 10
"""The latest conversations that are read for an artifact that nothing else leads to."""
MOST_LARGE = 20
"""Large documents that a search looks through, those of the latest conversations: of each it reads some rows of its
index."""
AT_ONCE = 2
"""Searches and readings of one process; further ones wait."""


class Past:
    """What tools read of the past of one tenant.

    Raises:
        StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout.
    """

    def __init__(self, texts: PastTexts, things: ThingMemory, min_chars: int, large: LargeTexts) -> None:
        """`min_chars`: longer texts in user messages may hold documents."""
        self._large = large
        self._texts = texts
        self._things = things
        self._min_chars = min_chars
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def search(self, tenant: str, query: str, limit: int) -> FoundPast:
        """Conversations and things that bear on a query: those whose first question has it, those that are about a
        thing that it names, and the latest, read until `SEARCHED_BYTES` are."""
        async with self._at_once:
            phrases = search_of(query)
            things = ranked(query, await self._things.search(tenant, None, phrases, 2 * MOST_NAMED))
            lines, more = await self._lines(tenant, query, things)
            read: list[tuple[ConversationLine, ConversationTexts]] = []
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
            return FoundPast(found, things[:MOST_THINGS], len(read), SEARCHED_BYTES - room, complete)

    async def _with_large(
        self, tenant: str, query: str, read: list[tuple[ConversationLine, ConversationTexts]]
    ) -> tuple[list[tuple[ConversationLine, ConversationTexts]], bool]:
        """What was read, in which large documents have what the query needs of them; whether that is of all of them."""
        large = {each.excerpt_of: each for _, own in read for each in own.documents if each.is_excerpt}
        if not large:
            return read, True
        from gateway.relevance.stored.read import read_for

        chosen = list(large.values())[:MOST_LARGE]
        found = {each.excerpt_of: each for each in await read_for(chosen, self._large, tenant, query)}

        def filled(own: ConversationTexts) -> ConversationTexts:
            kept = [each for each in own.documents if not each.is_excerpt or each.excerpt_of in found]
            texts = [
                replace(each, content=found[each.excerpt_of].content) if each.is_excerpt else each for each in kept
            ]
            return replace(own, documents=tuple(texts))

        is_whole = len(chosen) == len(large) and not any(each.metadata[UNINDEXED] for each in found.values())
        return [(line, filled(own)) for line, own in read], is_whole

    async def _lines(self, tenant: str, query: str, things: tuple[Thing, ...]) -> tuple[list[ConversationLine], bool]:
        """The conversations to read, each once, and whether there are more."""
        found = await self._texts.recent(tenant, MOST_CONVERSATIONS + 1)
        latest, more = found[:MOST_CONVERSATIONS], len(found) > MOST_CONVERSATIONS
        asked = await self._texts.recent(tenant, MOST_NAMED, query)
        known = {line.id for line in (*asked, *latest)}
        about = dict.fromkeys(each.conversation_id for each in things if each.conversation_id not in (None, *known))
        named = await self._texts.lines(tenant, [str(each) for each in about][:MOST_NAMED]) if about else ()
        by_id = {line.id: line for line in (*asked, *named, *latest)}
        return list(by_id.values()), more

    async def artifact(
        self, tenant: str, artifact_id: str, conversation_id: str | None, question: str | None, offset: int = 0
    ) -> Extract:
        """An artifact in full, up to a bound, or the passages that the question calls for.

        Raises:
            NotFound: none of that id was found; the message says where it was looked for.
        """
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
        raise NotFound(f"No artifact {artifact_id} {where}.", param="artifact_id")

    async def _part(
        self, tenant: str, conversation_id: str, artifact: Artifact, question: str | None, offset: int
    ) -> Extract:
        """The same of a large document, whose text `artifact` has not."""
        if question is not None:
            from gateway.relevance.stored.read import read_for

            (read,) = await read_for([artifact], self._large, tenant, question)
            shown = await asyncio.to_thread(shown_of, read, conversation_id, question, 0, tenant)
            if shown.passages:
                return shown
        text = await self._texts.part(tenant, artifact.metadata[LARGE], offset, MOST_CHARS)
        return Extract(artifact, conversation_id, text, offset, offset + len(text), passages=False)

    async def _places(self, tenant: str, name: str) -> list[str]:
        """Conversations that may hold an artifact, the likeliest first."""
        held = await self._texts.holders(tenant, name, LOOKED_THROUGH)
        latest = await self._texts.recent(tenant, LOOKED_THROUGH)
        return list(dict.fromkeys([*held, *(line.id for line in latest)]))
