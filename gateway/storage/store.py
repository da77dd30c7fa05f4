"""Conversations and bills (adapter of `ports.ConversationStore`)."""

import secrets as random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from gateway.base.clock import days_before
from gateway.models.conversation import ConversationRef, Earlier, Lookup, StoredConversation
from gateway.models.turn import CompletionPage, CompletionQuery, StoredCompletion, TurnCommit
from gateway.ports import CacheBackend, Clock
from gateway.storage import rows
from gateway.storage.conversations.delete import delete_conversation
from gateway.storage.database import schema
from gateway.storage.database.engine import Transactions, insert_if_new
from gateway.storage.database.migrate import schema_state
from gateway.storage.lookup.find import conversation_row, find
from gateway.storage.turns.commit import CommitGroup, record
from gateway.storage.turns.completions import read_completion, read_page

# Reads what is older than the end of a path that was read for the window: something in it may have to be recalled.


MESSAGES = schema.messages


def read_earlier(connection: sa.Connection, tenant: str, message_id: str, max_bytes: int) -> Earlier:
    """See `ports.ConversationStore`."""
    of_tenant = schema.conversations.c.tenant == tenant
    joined = MESSAGES.join(schema.conversations, schema.conversations.c.id == MESSAGES.c.conversation_id)
    columns = (MESSAGES.c.parent_id, MESSAGES.c.conversation_id, MESSAGES.c.sequence_number)
    query = sa.select(*columns).select_from(joined).where(MESSAGES.c.id == message_id, of_tenant)
    behind = connection.execute(query).first()
    if behind is None or behind.parent_id is None:
        return Earlier()
    found = connection.execute(_EARLIER, {"last": behind.parent_id, "limit": max_bytes}).all()
    results: dict[str, object] = {}
    messages = tuple(rows.message_of(row, results) for row in reversed(found))
    return Earlier(messages, _turns_before(connection, found[-1] if found else behind))


def _turns_before(connection: sa.Connection, row: Any) -> int:
    """How many turns began before a message: counted along its path if there are branches, or gaps where something was
    deleted."""
    if row.parent_id is None:
        return 0
    number = MESSAGES.c.sequence_number
    before = (MESSAGES.c.conversation_id == row.conversation_id, number < row.sequence_number)
    counts = sa.select(sa.func.count(), sa.func.count(number.distinct())).where(*before)
    if tuple(connection.execute(counts).one()) == (row.sequence_number, row.sequence_number):
        users = sa.select(sa.func.count()).where(*before, MESSAGES.c.role == "user")
        return int(connection.execute(users).scalar_one())
    return int(connection.execute(_USERS, {"last": row.parent_id}).scalar_one())


def _earlier() -> sa.Select[tuple[object, ...]]:
    """Walks up from `:last` over small columns while the weights add up to no more than `:limit`; only then reads the
    bodies."""
    table, limit = MESSAGES, sa.bindparam("limit", type_=sa.BigInteger)
    weight = sa.cast(table.c.weight, sa.BigInteger).label("total")
    walk = sa.select(table.c.id, table.c.parent_id, sa.literal(1).label("depth"), weight)
    begin = sa.and_(table.c.id == sa.bindparam("last", type_=sa.String), table.c.weight <= limit)
    cte = walk.where(begin).cte("earlier", recursive=True)
    total = cte.c.total + table.c.weight
    step = sa.select(table.c.id, table.c.parent_id, cte.c.depth + 1, total)
    cte = cte.union_all(step.where(sa.and_(table.c.id == cte.c.parent_id, total <= limit)))
    return sa.select(table).join(cte, cte.c.id == table.c.id).order_by(cte.c.depth)


def _users() -> sa.Select[int]:
    """Counts the user messages of the path that ends with `:last`."""
    table = MESSAGES
    walk = sa.select(table.c.id, table.c.parent_id, table.c.role)
    cte = walk.where(table.c.id == sa.bindparam("last", type_=sa.String)).cte("path", recursive=True)
    cte = cte.union_all(sa.select(table.c.id, table.c.parent_id, table.c.role).where(table.c.id == cte.c.parent_id))
    return sa.select(sa.func.count()).select_from(cte).where(cte.c.role == "user")


_EARLIER, _USERS = _earlier(), _users()


USED_FOR = timedelta(hours=1)
"""How long a request may be at work on a conversation that has had its time."""
SECRET = "keyed-hash"  # noqa: S105 - the name of the secret, not the secret


class ConversationStore:
    """Each method is one short transaction; none is open while a model is being waited for (guarantee §3.7)."""

    def __init__(
        self,
        transactions: Transactions,
        clock: Clock,
        cache: CacheBackend | None = None,
        retention_days: float | None = None,
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._cache = cache
        self._retention_days = retention_days
        self._secret: bytes | None = None
        self._group = CommitGroup(self._write)

    async def secret(self) -> bytes:
        """The key of keyed hashes, made at the first question to a new storage."""
        if self._secret is None:
            known = await self._transactions.run(_read_secret)
            if known is None:
                known = await self._transactions.run(_make_secret, write=True)
            self._secret = known
        return self._secret

    async def find_conversation(
        self,
        tenant: str,
        ref: ConversationRef,
        *,
        max_bytes: int | None,
        sought: Lookup | None = None,
        model: str | None = None,
    ) -> StoredConversation | None:
        """See `ports.ConversationStore`."""
        while True:
            found = await self._transactions.run(lambda c: find(c, tenant, ref, sought, max_bytes, model))
            if found is None or await self._keeps(found):
                return found

    async def read_earlier(self, tenant: str, message_id: str, *, max_bytes: int) -> Earlier:
        """See `ports.ConversationStore`."""
        return await self._transactions.run(lambda c: read_earlier(c, tenant, message_id, max_bytes))

    async def _keeps(self, found: StoredConversation) -> bool:
        """Sees to it that retention does not delete a conversation that a request is at work on. False: it just has."""
        now = self._clock.now()
        until = now + USED_FOR
        if self._retention_days is None or found.updated_at is None:
            return True
        if found.updated_at > days_before(until, self._retention_days):
            return True
        mark = schema.conversations.update().where(schema.conversations.c.id == found.conversation_id)
        marked = await self._transactions.run(
            lambda connection: connection.execute(mark.values(used_until=until)).rowcount, write=True
        )
        return marked == 1

    async def claim_session(self, tenant: str, session: str, conversation_id: str) -> str:
        """See `ports.ConversationStore`."""
        now = self._clock.now()

        def work(connection: sa.Connection) -> str:
            ref = ConversationRef(session=session)
            row = conversation_row(connection, tenant, ref)
            if row is not None:
                return str(row.id)
            values = {"id": conversation_id, "tenant": tenant, "created_at": now, "updated_at": now}
            values["used_until"] = now + USED_FOR
            connection.execute(schema.conversations.insert().values(**values))
            claim = insert_if_new(connection, schema.sessions)
            named = {"tenant": tenant, "name": session, "conversation_id": conversation_id}
            if connection.execute(claim.values(**named)).rowcount == 1:
                return conversation_id
            connection.execute(schema.conversations.delete().where(schema.conversations.c.id == conversation_id))
            row = conversation_row(connection, tenant, ref)
            return str(row.id) if row is not None else conversation_id

        return await self._transactions.run(work, write=True)

    async def commit(self, commit: TurnCommit) -> None:
        """See `ports.ConversationStore`."""
        if commit.claim is not None:
            await commit.claim.settle(self._commit(commit))
        else:
            await self._commit(commit)

    async def _commit(self, commit: TurnCommit) -> None:
        if commit.turn is not None and self._transactions.remote:
            await self._write([commit])  # turns of different conversations need not wait for each other
        else:
            await self._group.add(commit)

    async def _write(self, commits: list[TurnCommit]) -> None:
        now = self._clock.now()
        await self._evict(await record(self._transactions, commits, now))

    async def _evict(self, groups: Sequence[str]) -> None:
        """Deletes what the cache keeps of contents that no conversation holds any more."""
        if groups and self._cache is not None:
            await self._cache.evict(*groups)

    async def find_completion(self, tenant: str, completion_id: str) -> StoredCompletion | None:
        """See `ports.ConversationStore`."""
        if "\x00" in completion_id:  # PostgreSQL takes no NUL, and nothing has such an id
            return None
        return await self._transactions.run(lambda connection: read_completion(connection, tenant, completion_id))

    async def list_completions(self, tenant: str, query: CompletionQuery) -> CompletionPage | None:
        """See `ports.ConversationStore`."""
        if "\x00" in f"{query.conversation_id}{query.model}{query.after}":
            return CompletionPage((), has_more=False) if query.after is None else None
        return await self._transactions.run(lambda connection: read_page(connection, tenant, query))

    async def has_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Whether this tenant has that conversation."""

        def work(connection: sa.Connection) -> bool:
            return conversation_row(connection, tenant, ConversationRef(conversation_id)) is not None

        return await self._transactions.run(work)

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """See `ports.ConversationStore`."""
        if "\x00" in conversation_id:
            return False
        gone = await self._transactions.run(
            lambda connection: delete_conversation(connection, tenant, conversation_id), write=True
        )
        if gone is None:
            return False
        await self._evict(gone)
        await self._transactions.wipe()
        return True

    async def reachable(self) -> None:
        """See `ports.ConversationStore`."""
        if self._transactions.remote:
            await self._transactions.run(lambda connection: connection.execute(sa.text("SELECT 1")).scalar())

    async def ready(self) -> bool:
        """Whether the storage answers, and this version may run on its schema."""
        return (await self._transactions.run(schema_state)).serves


def _read_secret(connection: sa.Connection) -> bytes | None:
    value = connection.execute(_SECRET).scalar()
    return None if value is None else bytes(value)


def _make_secret(connection: sa.Connection) -> bytes:
    """Whoever makes it first, all use it."""
    new = insert_if_new(connection, schema.secrets).values(name=SECRET, value=random.token_bytes(32))
    connection.execute(new)
    return bytes(connection.execute(_SECRET).scalar_one())


_SECRET = sa.select(schema.secrets.c.value).where(schema.secrets.c.name == SECRET)
