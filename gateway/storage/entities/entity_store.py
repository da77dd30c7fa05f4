"""`EntityStore`: the memory of things, as requests read it and its API reads and changes it."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons, ports
from gateway.core.types import audit_log, memory, report_lists
from gateway.storage import audit_events
from gateway.storage.cache.deleted_places import ListPlace
from gateway.storage.conversations.item_store import require_conversation
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.encryption.columns import vault_of
from gateway.storage.entities import entity_rows
from gateway.storage.entities.entity_rows import thing_of, write_things
from gateway.storage.lookup.path_cache import CachedRows, PathCache

# Finds things by the words of a question: each run of its words is looked up in an index, and yields the latest few
# things of that name. However many things there are, a question reads a bounded number of rows (ADR 24).

THINGS, ALIASES = schema.things, schema.thing_aliases
OF_EACH = memory.MAX_RECALLED + 1
"""The most things that one run of words names in each place: one more than are shown, so that a name of many things is
recognised."""
MAX_FOUND_ENTITIES = 4 * memory.MAX_RECALLED
"""Things that are read for one question: those that the longest of its runs of words name."""


def find_things(
    connection: sa.Connection,
    tenant: str,
    places: Sequence[str] | None,
    phrases: memory.SearchPhrases,
    now: datetime,
    of_each: int = OF_EACH,
    most: int = MAX_FOUND_ENTITIES,
    own: str | None = None,
) -> tuple[memory.MemoryEntity, ...]:
    """Finds the things that the phrases name: the latest `of_each` for each phrase, `most` in all. Things found by a
    whole alias come first, longer aliases before shorter; then those that the most words name.
    `places`: where to search; None: in all places of the tenant; with `own`, of users' places only in this."""
    owners = (tenant,) if places is None else places
    if not (owners and (phrases.whole or phrases.words)):
        return ()
    given = {"owners": owners, "phrases": phrases.whole, **({"words": phrases.words} if phrases.words else {})}
    if (vault := vault_of(connection.dialect)) is not None:
        sought = {name: each for name, each in given.items() if name != "owners"}
        given |= {name: [word for one in each for word in vault.words(one, tenant)] for name, each in sought.items()}
    values = {name: jsons.dumps_text(each) for name, each in given.items()}
    kind, by_words, by_place = connection.dialect.name, bool(phrases.words), places is not None
    query = lookup_query(kind, of_each, most, words=by_words, by_place=by_place, by_own=own is not None)
    given_own = {"own": own} if own is not None else {}
    return tuple(map(thing_of, connection.execute(query, {**values, **given_own, "now": now})))


@cache
def lookup_query(
    dialect: str, of_each: int, most: int, *, words: bool, by_place: bool, by_own: bool = False
) -> sa.Select[Any]:
    """Selects the `most` best of the things that `:phrases` of `:owners` name (JSON lists), the latest `of_each` for
    each phrase; with `words` also those that `:words` name; `by_own`: of users' places only in `:own`. Things that have
    expired at `:now` are left out.

    The limits are literals: for a parameter PostgreSQL expects a tenth of all rows, and would read whole tables."""
    column = ALIASES.c.place if by_place else ALIASES.c.tenant
    seen: list[Any] = []
    if by_own:
        of_users = ALIASES.c.place.startswith(entity_rows.USER_SCOPE_PREFIX, autoescape=True)
        seen.append(sa.or_(sa.not_(of_users), ALIASES.c.place == sa.bindparam("own", type_=sa.String)))
    found: Any = _hits(dialect, column, "phrases", of_each, seen, whole=True)
    if words:
        found = sa.union_all(found, _hits(dialect, column, "words", of_each, seen, whole=False))
    hits = found.subquery("hits")
    worth = (sa.func.max(hits.c.size).desc(), sa.func.sum(hits.c.single).desc(), hits.c.memory_id.desc())
    best = sa.select(hits.c.memory_id).group_by(hits.c.memory_id).order_by(*worth)
    chosen = best.limit(sa.literal_column(str(most))).subquery("best")
    now = sa.bindparam("now", type_=THINGS.c.expires_at.type)
    valid = sa.or_(THINGS.c.expires_at.is_(None), THINGS.c.expires_at > now)
    return sa.select(THINGS).join(chosen, chosen.c.memory_id == THINGS.c.id).where(valid)


def _hits(
    dialect: str, column: sa.Column[Any], name: str, of_each: int, seen: Sequence[Any], *, whole: bool
) -> sa.Select[Any]:
    """Selects the ids that each phrase names; how many words it has, or that it is a single word."""
    owner, phrase = _members(dialect, "owners"), _members(dialect, name)
    latest = (
        sa.select(ALIASES.c.memory_id)
        .where(column == owner.c.value, ALIASES.c.whole.is_(whole), ALIASES.c.alias == phrase.c.value, *seen)
        .order_by(ALIASES.c.mentioned_at.desc(), ALIASES.c.memory_id.desc())
        .limit(sa.literal_column(str(of_each)))
        .correlate(owner, phrase)
    )
    memory_id, rows = _for_each(dialect, latest)
    blanks = sa.func.length(phrase.c.value) - sa.func.length(sa.func.replace(phrase.c.value, " ", ""))
    none, one = sa.literal_column("0", sa.Integer), sa.literal_column("1", sa.Integer)
    size: Any = blanks + 1 if whole else none
    single: Any = none if whole else one
    every = sa.join(sa.join(owner, phrase, sa.true()), rows, sa.true())
    return sa.select(memory_id.label("memory_id"), size.label("size"), single.label("single")).select_from(every)


def _for_each(dialect: str, latest: sa.Select[Any]) -> tuple[Any, Any]:
    """Returns column and rows of a query that runs for each row before it: a lateral join, which SQLite has for
    functions alone."""
    if dialect != "sqlite":
        rows: Any = latest.lateral("latest")
        return rows.c.memory_id, rows
    own = latest.subquery("latest")
    ids = sa.select(sa.func.json_group_array(own.c.memory_id)).scalar_subquery()
    rows = sa.func.json_each(ids).table_valued("value").alias("each_latest")
    return rows.c.value, rows


def _members(dialect: str, name: str) -> Any:
    """Selects the members of a JSON list as rows."""
    given: Any = sa.bindparam(name, type_=sa.Text)
    if dialect == "sqlite":
        return sa.func.json_each(given).table_valued("value").alias(f"each_of_{name}")
    return sa.func.json_array_elements_text(sa.cast(given, sa.JSON)).table_valued("value").alias(f"each_of_{name}")


class EntityStore(CachedRows):
    """Stores the memory of things; each method is one short transaction.
    Raises StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout;
    ConversationNotFound: from methods that name a conversation: the tenant does not have it; MemoryNotFound: from
    methods that name a memory, also as `after`: the tenant does not have it, nor, as `after`, had it lately."""

    def __init__(
        self,
        transactions: DatabaseTransactions,
        clock: ports.Clock,
        secret: Callable[[], Awaitable[bytes]],
        cache: ports.CacheBackend,
        paths: PathCache | None = None,
    ) -> None:
        """`secret` returns the secret of keyed digests; `paths`: this process's cache of conversations."""
        super().__init__(transactions, clock, cache, paths)
        self._secret = secret

    async def place_of(self, tenant: str, user: str) -> str:
        """Computes the place of a user's things within the tenant (`user_place`)."""
        return memory.user_place(await self._secret(), tenant, user)

    async def recall(
        self, tenant: str, places: list[str], phrases: memory.SearchPhrases
    ) -> tuple[memory.MemoryEntity, ...]:
        """Finds things of these places that a question may name, in no particular order."""
        now = self.clock.now()
        return await self._transactions.run(lambda connection: find_things(connection, tenant, places, phrases, now))

    async def search(
        self, tenant: str, place: str | None, phrases: memory.SearchPhrases, most: int, own: str | None = None
    ) -> tuple[memory.MemoryEntity, ...]:
        """Finds `most` things by phrases, in one place or in all of a tenant's; with `own`, of users' only in this."""
        now, places = self.clock.now(), None if place is None else [place]
        return await self._transactions.run(
            lambda connection: find_things(connection, tenant, places, phrases, now, most, most, own)
        )

    async def require(self, tenant: str, conversation_id: str) -> None:
        """Checks that the tenant has the conversation; raises ConversationNotFound if not."""
        await self._transactions.run(lambda connection: require_conversation(connection, tenant, conversation_id))

    async def page(
        self, tenant: str, query: memory.ThingQuery, conversation_id: str | None = None
    ) -> report_lists.QueryPage[memory.MemoryEntity]:
        """Returns a page of a tenant's things; with `query.place` only of that place, which may be a conversation's."""
        now = self.clock.now()

        def work(connection: sa.Connection, last: ListPlace | None) -> report_lists.QueryPage[memory.MemoryEntity]:
            if conversation_id is not None:
                require_conversation(connection, tenant, conversation_id)
            return entity_rows.read_page(connection, tenant, query, now, last)

        return await self._page_behind(work, partial(self._deleted.find, tenant, query.after))

    async def one(
        self, tenant: str, memory_id: str, conversation_id: str | None = None, own: str | None = None
    ) -> memory.MemoryEntity:
        """Returns one memory, of a conversation or of any place of the tenant's; with `own`, of users' only of this."""
        now = self.clock.now()

        def work(connection: sa.Connection) -> memory.MemoryEntity:
            if conversation_id is not None:
                require_conversation(connection, tenant, conversation_id)
            return entity_rows.read_one(connection, tenant, memory_id, now, conversation_id, own, param="memory_id")

        return await self._transactions.run(work)

    async def conversations(
        self, tenant: str, kind: str, thing_id: str, query: memory.ThingQuery
    ) -> report_lists.QueryPage[memory.MemoryEntity]:
        """Returns a thing's rows in the conversations about it, one for each; `query.after` is a conversation's id.
        The place of a page's last row is stored: the row may go with its conversation before the next page is read."""
        now, about = self.clock.now(), f"{kind}\n{thing_id}\n"
        page = await self._page_behind(
            lambda connection, last: entity_rows.read_conversations(
                connection, tenant, kind, thing_id, query, now, last
            ),
            partial(self._deleted.find, tenant, query.after and about + query.after),
        )
        if page.found:
            last = page.found[-1]
            await self._deleted.add(tenant, f"{about}{last.conversation_id}", (last.created_at, last.memory_id))
        return page

    async def note(
        self,
        tenant: str,
        conversation_id: str | None,
        notes: tuple[memory.ThingNote, ...],
        user: str | None,
        days: float | None,
    ) -> tuple[memory.MemoryEntity, ...]:
        """Stores things for a conversation, a user of the tenant's, or both, as given; returns them as stored."""
        now = self.clock.now()
        own = [conversation_id] if conversation_id is not None else []
        places = (*own, *([await self.place_of(tenant, user)] if user is not None else []))

        def work(connection: sa.Connection) -> tuple[memory.MemoryEntity, ...]:
            if conversation_id is not None:
                require_conversation(connection, tenant, conversation_id, lock=True)
            ids = write_things(connection, tenant, memory.NotedThings(notes, places, days), now)
            return tuple(entity_rows.read_one(connection, tenant, each, now, param="memory_id") for each in ids)

        return await self._transactions.run(work, write=True)

    async def delete(
        self,
        tenant: str,
        memory_id: str,
        conversation_id: str | None = None,
        by: audit_log.AuditActor | None = None,
        own: str | None = None,
    ) -> None:
        """Deletes a memory for good, with what was forwarded of it beside questions. `by`: the actor in the audit
        trail; `own`: as with `one`."""
        now = self.clock.now()

        def work(connection: sa.Connection) -> None:
            if conversation_id is not None:
                require_conversation(connection, tenant, conversation_id)
            entity_rows.delete_one(connection, tenant, memory_id, now, conversation_id, own)
            audit_events.recorded(
                connection, by, now, "memory.deleted", memory_id, tenant, conversation=conversation_id
            )

        await self._transactions.run(work, write=True)
        await self._deleted.add(tenant, memory_id, (now, memory_id))
        await self._forget()
