"""`ThingMemory`: the memory of things, as requests read it and its API reads and changes it."""

from collections.abc import Awaitable, Callable

import sqlalchemy as sa

from gateway.models.things import NotedThings, Phrases, Thing, ThingNote, ThingPage, ThingQuery, user_place
from gateway.models.trail import Actor
from gateway.ports import Clock
from gateway.storage.conversations.items import require_conversation
from gateway.storage.database.engine import Transactions
from gateway.storage.lookup.path_cache import PathCache
from gateway.storage.things import records
from gateway.storage.things.search import find_things
from gateway.storage.things.write import write_things
from gateway.storage.trail.append import recorded


class ThingMemory:
    """Each method is one short transaction.

    Raises:
        StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout.
        ConversationNotFound: from those that name a conversation: the tenant has no such one.
        MemoryNotFound: from those that name a memory, or one to go on `after`: the tenant has no such one.
    """

    def __init__(
        self,
        transactions: Transactions,
        clock: Clock,
        secret: Callable[[], Awaitable[bytes]],
        paths: PathCache | None = None,
    ) -> None:
        """`secret` gives the key of keyed digests; `paths`: where this process keeps what it read lately."""
        self._transactions = transactions
        self._clock = clock
        self._secret = secret
        self._paths = paths

    async def place_of(self, tenant: str, user: str) -> str:
        """Where the things of a tenant's user belong (`user_place`)."""
        return user_place(await self._secret(), tenant, user)

    async def recall(self, tenant: str, places: list[str], phrases: Phrases) -> tuple[Thing, ...]:
        """Things of these places that a question may name, in no particular order."""
        now = self._clock.now()
        return await self._transactions.run(lambda connection: find_things(connection, tenant, places, phrases, now))

    async def search(self, tenant: str, place: str | None, phrases: Phrases, most: int) -> tuple[Thing, ...]:
        """The same by hand, of a place or of all of a tenant's; `most` of them."""
        now, places = self._clock.now(), None if place is None else [place]
        return await self._transactions.run(
            lambda connection: find_things(connection, tenant, places, phrases, now, most, most)
        )

    async def require(self, tenant: str, conversation_id: str) -> None:
        """Returns if the tenant has that conversation."""
        await self._transactions.run(lambda connection: require_conversation(connection, tenant, conversation_id))

    async def page(self, tenant: str, query: ThingQuery, conversation_id: str | None = None) -> ThingPage:
        """A page of a tenant's things, or with `query.place` of those of a place, which may be a conversation's."""
        now = self._clock.now()

        def work(connection: sa.Connection) -> ThingPage:
            if conversation_id is not None:
                require_conversation(connection, tenant, conversation_id)
            return records.read_page(connection, tenant, query, now)

        return await self._transactions.run(work)

    async def one(self, tenant: str, memory_id: str, conversation_id: str | None = None) -> Thing:
        """One memory, of a conversation or of any place of the tenant's."""
        now = self._clock.now()

        def work(connection: sa.Connection) -> Thing:
            if conversation_id is not None:
                require_conversation(connection, tenant, conversation_id)
            return records.read_one(connection, tenant, memory_id, now, conversation_id, param="memory_id")

        return await self._transactions.run(work)

    async def conversations(self, tenant: str, kind: str, thing_id: str, query: ThingQuery) -> ThingPage:
        """A thing as the conversations have it that are about it: a row for each; `query.after` is one of them."""
        now = self._clock.now()
        return await self._transactions.run(
            lambda connection: records.read_conversations(connection, tenant, kind, thing_id, query, now)
        )

    async def note(
        self,
        tenant: str,
        conversation_id: str | None,
        notes: tuple[ThingNote, ...],
        user: str | None,
        days: float | None,
    ) -> tuple[Thing, ...]:
        """Notes things for a conversation, for a user of the tenant's, or for both: those that are named."""
        now = self._clock.now()
        own = [conversation_id] if conversation_id is not None else []
        places = (*own, *([await self.place_of(tenant, user)] if user is not None else []))

        def work(connection: sa.Connection) -> tuple[Thing, ...]:
            if conversation_id is not None:
                require_conversation(connection, tenant, conversation_id, lock=True)
            ids = write_things(connection, tenant, NotedThings(notes, places, days), now)
            return tuple(records.read_one(connection, tenant, each, now, param="memory_id") for each in ids)

        return await self._transactions.run(work, write=True)

    async def delete(
        self, tenant: str, memory_id: str, conversation_id: str | None = None, by: Actor | None = None
    ) -> None:
        """Deletes a memory for good, with what was forwarded of it beside questions. `by` is who does it, as the trail
        tells it."""
        now = self._clock.now()

        def work(connection: sa.Connection) -> None:
            if conversation_id is not None:
                require_conversation(connection, tenant, conversation_id)
            records.delete_one(connection, tenant, memory_id, now, conversation_id)
            recorded(connection, by, now, "memory.deleted", memory_id, tenant, conversation=conversation_id)

        await self._transactions.run(work, write=True)
        if self._paths is not None:
            self._paths.forget()
        await self._transactions.wipe()
