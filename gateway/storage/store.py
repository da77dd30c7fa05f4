"""Conversations and bills (adapter of `ports.ConversationStore`)."""

import secrets as random
from collections.abc import Sequence

import sqlalchemy as sa

from gateway import jsons
from gateway.models.artifacts import Artifact
from gateway.models.conversation import ConversationMessage, ConversationRef, StoredConversation
from gateway.models.ledger import CompletionPage, CompletionQuery
from gateway.models.turn import StoredCompletion, TurnCommit
from gateway.ports import CacheBackend, Clock
from gateway.storage import rows, schema
from gateway.storage.completions import read_completion, read_page
from gateway.storage.deletion import delete_conversation
from gateway.storage.engine import Transactions, insert_if_new
from gateway.storage.group import CommitGroup
from gateway.storage.probe import revision_of
from gateway.storage.write import write_turns

SECRET = "keyed-hash"  # noqa: S105 - the name of the secret, not the secret


class SqlStore:
    """Each method is one short transaction; none is open while a model is being waited for (contract §3.7)."""

    def __init__(self, transactions: Transactions, clock: Clock, cache: CacheBackend | None = None) -> None:
        self._transactions = transactions
        self._clock = clock
        self._cache = cache
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
        self, tenant: str, ref: ConversationRef, *, max_bytes: int | None
    ) -> StoredConversation | None:
        """See `ports.ConversationStore`."""

        def work(connection: sa.Connection) -> StoredConversation | None:
            row = _conversation_row(connection, tenant, ref)
            return _load(connection, row, max_bytes) if row else None

        return await self._transactions.run(work)

    async def claim_session(self, tenant: str, session: str, conversation_id: str) -> str:
        """See `ports.ConversationStore`."""
        now = self._clock.now()

        def work(connection: sa.Connection) -> str:
            ref = ConversationRef(session=session)
            row = _conversation_row(connection, tenant, ref)
            if row is not None:
                return str(row.id)
            values = {"id": conversation_id, "tenant": tenant, "created_at": now, "updated_at": now}
            connection.execute(schema.conversations.insert().values(**values))
            claim = insert_if_new(connection, schema.sessions)
            named = {"tenant": tenant, "name": session, "conversation_id": conversation_id}
            if connection.execute(claim.values(**named)).rowcount == 1:
                return conversation_id
            connection.execute(schema.conversations.delete().where(schema.conversations.c.id == conversation_id))
            row = _conversation_row(connection, tenant, ref)
            return str(row.id) if row is not None else conversation_id

        return await self._transactions.run(work, write=True)

    async def commit(self, commit: TurnCommit) -> None:
        """See `ports.ConversationStore`."""
        if commit.turn is not None and self._transactions.remote:
            await self._write([commit])  # turns of different conversations need not wait for each other
        else:
            await self._group.add(commit)

    async def _write(self, commits: list[TurnCommit]) -> None:
        now = self._clock.now()
        gone = await self._transactions.run(lambda connection: write_turns(connection, commits, now), write=True)
        await self._forget(gone)

    async def _forget(self, groups: Sequence[str]) -> None:
        """Deletes what the cache keeps of contents that no conversation holds any more."""
        if groups and self._cache is not None:
            await self._cache.forget(*groups)

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
            return _conversation_row(connection, tenant, ConversationRef(conversation_id)) is not None

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
        await self._forget(gone)
        await self._transactions.wipe()
        return True

    async def reachable(self) -> None:
        """See `ports.ConversationStore`."""
        if self._transactions.remote:
            await self._transactions.run(lambda connection: connection.execute(sa.text("SELECT 1")).scalar())

    async def ready(self) -> bool:
        """Whether the storage answers and is on the current schema."""
        return await self._transactions.run(lambda connection: revision_of(connection) == schema.REVISION)


def _read_secret(connection: sa.Connection) -> bytes | None:
    value = connection.execute(_SECRET).scalar()
    return None if value is None else bytes(value)


def _make_secret(connection: sa.Connection) -> bytes:
    """Whoever makes it first, all use it."""
    new = insert_if_new(connection, schema.secrets).values(name=SECRET, value=random.token_bytes(32))
    connection.execute(new)
    return bytes(connection.execute(_SECRET).scalar_one())


_SECRET = sa.select(schema.secrets.c.value).where(schema.secrets.c.name == SECRET)


def _conversation_row(
    connection: sa.Connection, tenant: str, ref: ConversationRef
) -> sa.Row[tuple[object, ...]] | None:
    if "\x00" in f"{ref.conversation_id}{ref.session}":
        return None
    table = schema.conversations
    query = sa.select(table).where(table.c.tenant == tenant)
    if ref.conversation_id is not None:
        query = query.where(table.c.id == ref.conversation_id)
    else:
        named = sa.and_(schema.sessions.c.tenant == tenant, schema.sessions.c.name == ref.session)
        query = query.join(schema.sessions, schema.sessions.c.conversation_id == table.c.id).where(named)
    return connection.execute(query).first()


def _load(connection: sa.Connection, row: sa.Row[tuple[object, ...]], max_bytes: int | None) -> StoredConversation:
    head: str | None = row._mapping["head_id"]
    conversation_id = str(row._mapping["id"])
    branches: tuple[tuple[ConversationMessage, ...], ...] = ()
    if max_bytes is None:
        path, branches = _tree(connection, conversation_id, head)
    else:
        path = _path(connection, head, max_bytes)
    table = schema.instructions
    query = sa.select(table.c.digest, table.c.body).where(table.c.conversation_id == conversation_id)
    if max_bytes is not None:  # only those in force at the head can be needed
        query = query.where(table.c.digest == (path[-1].instructions_digest if path else None))
    known = {row.digest: tuple(jsons.loads_stored(row.body)) for row in connection.execute(query)}
    attached: tuple[Artifact, ...] = ()
    if row._mapping["attachments"]:
        documents = schema.attachments
        query = sa.select(documents).where(documents.c.conversation_id == conversation_id)
        attached = tuple(rows.attachment_of(r) for r in connection.execute(query.order_by(documents.c.number)))
    return StoredConversation(conversation_id, head, path, known, attached, branches)


def _path(connection: sa.Connection, head: str | None, max_bytes: int) -> tuple[ConversationMessage, ...]:
    """The messages that end at `head`, oldest first."""
    if head is None:
        return ()
    found = connection.execute(_PATH_QUERY, {"head": head, "limit": max_bytes}).all()
    results: dict[str, object] = {}
    return tuple(rows.message_of(row, results) for row in reversed(found))


def _tree(
    connection: sa.Connection, conversation_id: str, head: str | None
) -> tuple[tuple[ConversationMessage, ...], tuple[tuple[ConversationMessage, ...], ...]]:
    """The path that ends at `head`, and those of all other branches, latest first; failed turns are in none."""
    table = schema.messages
    where = sa.and_(table.c.conversation_id == conversation_id, table.c.status != "failed")
    order = (table.c.sequence_number, table.c.created_at)
    results: dict[str, object] = {}
    parents: dict[str, str | None] = {}
    messages: dict[str, ConversationMessage] = {}
    for row in connection.execute(sa.select(table).where(where).order_by(*order)):
        parents[row.id] = row.parent_id
        messages[row.id] = rows.message_of(row, results)
    inner = set(parents.values())
    leaves = [leaf for leaf in reversed(messages) if leaf not in inner and leaf != head]

    def path_to(leaf: str | None) -> tuple[ConversationMessage, ...]:
        path = []
        while leaf is not None and leaf in messages:
            path.append(messages[leaf])
            leaf = parents[leaf]
        return tuple(reversed(path))

    return path_to(head), tuple(path_to(leaf) for leaf in leaves)


def _path_query() -> sa.Select[tuple[object, ...]]:
    """Walks up from `:head` over small columns while the weights add up to no more than `:limit`, and on to the user
    message that begins the turn it is in; only then reads the bodies."""
    table = schema.messages
    depth = sa.literal(1).label("depth")
    weight = sa.cast(table.c.weight, sa.BigInteger).label("total")
    walk = sa.select(table.c.id, table.c.parent_id, table.c.role, depth, weight)
    cte = walk.where(table.c.id == sa.bindparam("head", type_=sa.String)).cte("path", recursive=True)
    total = cte.c.total + table.c.weight
    within = sa.or_(total <= sa.bindparam("limit", type_=sa.BigInteger), cte.c.role != "user")
    step = sa.select(table.c.id, table.c.parent_id, table.c.role, cte.c.depth + 1, total)
    cte = cte.union_all(step.where(sa.and_(table.c.id == cte.c.parent_id, within)))
    return sa.select(table).join(cte, cte.c.id == table.c.id).order_by(cte.c.depth)


_PATH_QUERY = _path_query()
