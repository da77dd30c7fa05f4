"""Conversations and bills, as requests read and commit them.

Writes turns and bills, each once, even if the outcome of a COMMIT is unknown; and, for a request that asks a model, the
bill it would have if its process died (guarantee §6.10, ADR 32).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from gateway.core import clock, errors, ids, jsons, names, ports
from gateway.core.instrumentation import logs
from gateway.core.tasks import BackgroundTasks
from gateway.core.types import artifacts, audit_log, memory, report_lists, turn
from gateway.core.types.artifacts import Artifact
from gateway.core.types.chat import USER_FIELDS
from gateway.core.types.conversation import ConversationRef, EarlierMessages, HistoryLookup, StoredConversation
from gateway.storage import audit_events, claims
from gateway.storage.cache.deleted_places import DeletedPlaces, ListPlace
from gateway.storage.conversations.delete import delete_conversation
from gateway.storage.database import schema
from gateway.storage.database.migrate import schema_state
from gateway.storage.database.sqlite import DatabaseTransactions, insert_if_new
from gateway.storage.database.transactions import CommitUnknown, reads, writes
from gateway.storage.encryption.columns import RowInsert, driver_of
from gateway.storage.keyed_hashes import Users, stored_secret, user_digest
from gateway.storage.large_documents import ArrivingTexts
from gateway.storage.lookup.find import conversation_row, find, read_earlier
from gateway.storage.lookup.path_cache import NO_CACHES, StorageCaches
from gateway.storage.lookup.segments import locked, read_messages, read_said, read_uncovered, write_segment
from gateway.storage.rows import utc
from gateway.storage.turns.bills import Amend, amend_bill
from gateway.storage.turns.completions import delete_completion, read_completion, read_input, read_page, write_metadata
from gateway.storage.turns.write_turn import left_behind, write_turns

MAX_SHARED = 200
"""Commits that share one transaction."""
MAX_STORE_ATTEMPTS = 3
"""Transactions after a lost COMMIT that ask whether it went through, before the storage counts as unavailable."""
Item = turn.TurnCommit | turn.OpenCallRow
Write = Callable[[list[Item]], Awaitable[None]]
INSERT_OPEN = RowInsert(schema.open_calls, "ON CONFLICT (request_id) DO UPDATE SET facts = excluded.facts")
open_calls = schema.open_calls.c
log = logs.get_logger("gateway.storage")


async def record(
    transactions: DatabaseTransactions,
    commits: Sequence[turn.TurnCommit],
    now: datetime,
    opened: Sequence[turn.OpenCallRow] = (),
) -> list[str]:
    """Writes turns and bills, and the requests about to ask a model, in one transaction. The bill of a turn shows
    whether both are stored: after a lost COMMIT, and for commits tried before, the ledger is read first.

    Returns the cache groups to evict (`write_turns`).
    Raises StorageUnavailable: nothing could be written, or it is not yet known whether it was."""
    if not commits:
        await transactions.run(lambda connection: write_open(connection, opened), write=True, synced=False)
        return []
    if not any(commit.again for commit in commits):
        try:
            return await transactions.run(lambda c: _write(c, commits, now, opened, is_first=True), write=True)
        except CommitUnknown:
            log.warning("commit_unknown", requests=len(commits))
        except IntegrityError:
            if len(commits) > 1 or opened or not await transactions.run(lambda c: _known(c, commits)):
                raise
            text = "This request was billed by another process, which had not heard of this one for too long."
            raise errors.StorageUnavailable(text) from None
    for _ in range(MAX_STORE_ATTEMPTS):
        try:
            return await transactions.run(lambda c: _write(c, commits, now, opened, is_first=False), write=True)
        except (CommitUnknown, IntegrityError) as error:  # the earlier COMMIT went through while this one was tried
            last = error
    raise errors.StorageUnavailable("The storage does not say what was committed.") from last


def _known(connection: sa.Connection, commits: Sequence[turn.TurnCommit]) -> set[str]:
    column = schema.ledger.c.request_id
    query = sa.select(column).where(column.in_([commit.ledger.request_id for commit in commits]))
    return set(connection.execute(query).scalars())


def _write(
    connection: sa.Connection,
    commits: Sequence[turn.TurnCommit],
    now: datetime,
    opened: Sequence[turn.OpenCallRow],
    *,
    is_first: bool,
) -> list[str]:
    """Writes commits; if it is not the first try, only what that did not. Returns the conversations that are gone."""
    write_open(connection, opened)
    known = set[str]() if is_first else _known(connection, commits)
    rest = [commit for commit in commits if commit.ledger.request_id not in known]
    _close_open(connection, [commit.ledger.request_id for commit in rest])
    gone = write_turns(connection, rest, now)
    for commit in commits:
        if commit.ledger.request_id in known and commit.turn is not None:
            gone += left_behind(connection, commit.turn, commit.ledger.tenant)
    return gone


def write_open(connection: sa.Connection, opened: Sequence[turn.OpenCallRow]) -> None:
    """Stores which requests are asking models; for one that asks a further model, what it has asked so far. The last
    row of each request counts; a row without facts has asked nobody, and its open call is deleted."""
    if not opened:
        return
    for process, until in {each.process: each.alive_until for each in opened if each.alive_until}.items():
        claims.write_heartbeat(connection, process, until)
    latest = {each.request_id: each for each in opened}
    rows = [
        {"request_id": each.request_id, "process": each.process, "facts": jsons.dumps_text(each.facts)}
        for each in latest.values()
        if each.facts is not None
    ]
    INSERT_OPEN(connection, rows)
    if len(rows) < len(latest):
        _close_open(connection, [each.request_id for each in latest.values() if each.facts is None])


def _close_open(connection: sa.Connection, request_ids: Sequence[str]) -> None:
    """Deletes open calls: in the transaction that writes their bills, or where there is nothing to bill."""
    if connection.dialect.name == "sqlite":
        driver = driver_of(connection)
        driver.executemany("DELETE FROM open_calls WHERE request_id = ?", [(each,) for each in request_ids]).close()
    else:
        text = "DELETE FROM open_calls WHERE request_id = ANY($1::varchar[])"
        connection.exec_driver_sql(text, (list(request_ids),))


def _holders(connection: sa.Connection) -> dict[str, datetime | None]:
    """Returns the processes that have open calls, each with the time until which it reported to be alive."""
    processes = schema.processes.c
    joined = schema.open_calls.outerjoin(schema.processes, processes.id == open_calls.process)
    query = sa.select(open_calls.process, processes.alive_until).select_from(joined).distinct()
    return {row.process: utc(row.alive_until) if row.alive_until else None for row in connection.execute(query)}


def _take_open(
    connection: sa.Connection, dead: Sequence[str], limit: int, bill: Callable[[str, dict[str, Any]], turn.LedgerEntry]
) -> list[turn.TurnCommit]:
    """Removes open calls of dead processes from the table, with the slots that these held among the requests at once,
    and returns their bills as far as none is written yet."""
    ids = sa.select(open_calls.request_id).where(open_calls.process.in_(dead)).limit(limit)
    taken = schema.open_calls.delete().where(open_calls.request_id.in_(ids))
    found = connection.execute(taken.returning(open_calls.request_id, open_calls.facts))
    rows = {row.request_id: row.facts for row in found}
    connection.execute(schema.rate_slots.delete().where(schema.rate_slots.c.request_id.in_(rows)))
    billed = sa.select(schema.ledger.c.request_id).where(schema.ledger.c.request_id.in_(rows))
    for request_id in connection.execute(billed).scalars():
        rows.pop(request_id)
    return [turn.TurnCommit(bill(request_id, jsons.loads_decimal(facts))) for request_id, facts in rows.items()]


class CommitGroup:
    """Groups commits: those that arrive during a write share the next transaction. A thread switch and a sync to disk
    cost the same however much is written."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: list[tuple[Item, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written and nothing waits."""
        return self._writer is None

    async def add(self, commit: Item) -> None:
        """Waits until `commit` is on disk. It is written even if the caller is cancelled meanwhile.
        Raises StorageUnavailable: the storage could not be written to."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((commit, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._drain())
        await done

    async def _drain(self) -> None:
        try:
            await asyncio.sleep(0)  # commits of this same event loop iteration join the batch
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_SHARED], self._waiting[MAX_SHARED:]
                await self._write_together(batch)
        finally:
            self._writer = None

    async def _write_together(self, batch: list[tuple[Item, asyncio.Future[None]]]) -> None:
        try:
            await self._write([commit for commit, _ in batch])
        except errors.StorageUnavailable as error:
            for _, done in batch:
                _fail(done, error)
        except Exception as error:  # noqa: BLE001 - one of them cannot be written: the others must not fail with it
            if len(batch) == 1:
                _fail(batch[0][1], error)
                return
            for each in batch:
                await self._write_together([each])
        else:
            for _, done in batch:
                if not done.done():
                    done.set_result(None)


def _fail(done: asyncio.Future[None], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # whether or not anyone still waits for it


PROBE_SECONDS = 1.0
"""Between two attempts to write to a storage that refused a write."""
PROBE_BYTES = 2**16
"""Size of that write: a disk with space for a bill alone would refuse the next turn again."""
MAX_ORPHANED_BILLS = 200
USED_FOR = timedelta(hours=1)
"""How long retention spares a conversation that a request is using: longer than any request takes."""


class ConversationStore:
    """Reads and commits conversations and bills, in short transactions; none is open during a model call (guarantee
    §3.7)."""

    def __init__(
        self,
        transactions: DatabaseTransactions,
        clock: ports.Clock,
        *,
        caches: StorageCaches = NO_CACHES,
        retention_days: float | None = None,
        users: Users = "plain",
        arriving: ArrivingTexts | None = None,
    ) -> None:
        """`users`: how a request's user appears in its bill. `arriving` stores large documents and knows from which
        size a document is large."""
        self._transactions = transactions
        self._clock = clock
        self._cache = caches.shared
        self._deleted = DeletedPlaces(caches.shared)
        self._retention_days = retention_days
        self._paths = caches.paths
        self._users = users
        self._secret: bytes | None = None
        self._group = CommitGroup(self._write)
        self._arriving = arriving or ArrivingTexts(transactions, clock)
        self._tasks = BackgroundTasks()

    async def secret(self) -> bytes:
        """Returns the secret of keyed hashes, made on first use in a new storage; replicas share it (guarantee §8)."""
        if self._secret is None:
            self._secret = await stored_secret(self._transactions)
        return self._secret

    async def find_conversation(
        self,
        tenant: str,
        ref: ConversationRef,
        *,
        max_bytes: int | None,
        lookup: HistoryLookup | None = None,
        model: str | None = None,
    ) -> StoredConversation | None:
        """Finds the conversation that `ref` names, or that `lookup.keys` recognise, with the path to where the request
        resumes it; None if there is none.
        `max_bytes`: how much of the path is read, in whole turns, newest first: always the latest, older ones while the
        sum stays within this many bytes. None: the whole path. `lookup`: the messages of a resend. The path leads to
        the message that they continue, else to the head. `model`: this model's frame comes with the conversation
        (guarantee §4 I7)."""
        while True:
            found = await self._transactions.run(lambda c: find(c, tenant, ref, lookup, max_bytes, model, self._paths))
            if found is None or await self._keeps(found):
                return found

    async def read_earlier(self, tenant: str, message_id: str, *, max_bytes: int) -> EarlierMessages:
        """Reads the messages before `message_id`, newest first up to `max_bytes`; none for an unknown message.
        Raises StorageUnavailable: as `find_conversation`."""
        return await self._transactions.run(lambda c: read_earlier(c, tenant, message_id, max_bytes, self._paths))

    async def _keeps(self, found: StoredConversation) -> bool:
        """Marks an expired conversation as in use, so that retention does not delete it. False: it was just deleted."""
        now = self._clock.now()
        until = now + USED_FOR
        if self._retention_days is None and found.retention_days is None:
            return True
        days = clock.fewest_days(self._retention_days, found.retention_days)
        if days is None or found.updated_at is None or found.updated_at > clock.days_before(until, days):
            return True
        update = schema.conversations.update().where(schema.conversations.c.id == found.conversation_id)
        marked = await self._transactions.run(
            lambda connection: connection.execute(update.values(used_until=until)).rowcount, write=True
        )
        return marked == 1

    async def claim_session(self, tenant: str, session: str, conversation_id: str) -> str:
        """Returns the id of the conversation of that session; creates it as `conversation_id` if there was none."""
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

    async def session_of(self, conversation_id: str) -> str | None:
        """Returns the name of a conversation's session, the first by name of several; None if it has none."""
        names = schema.sessions
        query = sa.select(sa.func.min(names.c.name)).where(names.c.conversation_id == conversation_id)
        return await self._transactions.run(lambda connection: connection.execute(query).scalar())

    async def commit(self, commit: turn.TurnCommit) -> None:
        """Stores a turn and its bill in one transaction (guarantee §3.6), even if the caller is cancelled."""
        if self._users != "plain" and commit.ledger.end_user:
            ledger = replace(commit.ledger, end_user=await self._stored_name(commit.ledger.end_user))
            commit = replace(commit, ledger=ledger, turn=_without_names(commit.turn))
        least = self._arriving.index_chars
        if least and commit.turn is not None and commit.turn.attachments:
            commit = await self._with_large(commit, commit.turn, least)
        written = self._commit_large(commit) if _has_large(commit) else self._commit(commit)
        if commit.claim is not None:
            await commit.claim.settle(written)
        else:
            await written

    async def _commit_large(self, commit: turn.TurnCommit) -> None:
        """Stores the texts of the turn's large documents first, in slices, so that other turns pass between them."""
        turn = commit.turn
        attachments = turn.attachments if turn is not None else ()
        texts = {each.metadata[artifacts.LARGE]: each.content for each in attachments if each.is_excerpt}

        async def work() -> None:
            await self._arriving.store(commit.ledger.tenant, texts)
            await self._commit(commit)

        await self._tasks.finished(work())

    async def _stored_name(self, user: str) -> str | None:
        """Returns what bills have in place of a user's name: the name, a keyed digest, or nothing (guarantee §13.6)."""
        if self._users == "plain":
            return user
        return user_digest(await self.secret(), user) if self._users == "hashed" else None

    async def _with_large(self, commit: turn.TurnCommit, turn: turn.StoredTurn, chars: int) -> turn.TurnCommit:
        """Marks the turn's large documents as such: their texts are stored in regions (guarantee §14.7)."""
        if all(each.size_chars < chars for each in turn.attachments):
            return commit
        marked = await asyncio.to_thread(lambda: tuple(_marked(each, chars) for each in turn.attachments))
        return replace(commit, turn=replace(turn, attachments=marked))

    async def _commit(self, commit: turn.TurnCommit) -> None:
        if commit.turn is not None and self._transactions.remote:
            await self._write([commit])  # turns of different conversations need not wait for each other
        else:
            await self._group.add(commit)

    async def _write(self, items: Sequence[turn.TurnCommit | turn.OpenCallRow]) -> None:
        now = self._clock.now()
        commits = [each for each in items if isinstance(each, turn.TurnCommit)]
        opened = [each for each in items if isinstance(each, turn.OpenCallRow)]
        await self._evict(await record(self._transactions, commits, now, opened))
        for commit in commits:
            if self._paths is not None and commit.turn is not None and commit.turn.counts:
                self._paths.recount(commit.turn.conversation_id)  # its messages are cached without these counts
            if self._arriving.stored is not None and _has_large(commit):
                self._arriving.stored()

    async def open_call(self, call: turn.OpenCallRow) -> None:
        """Stores that a request is about to ask a model, or that it asked none: on SQLite at once if no write is under
        way, else in one transaction with commits. The row survives the end of this process, and after the next synced
        commit also a crash of the machine (ADR 32)."""
        if call.facts and (name := call.facts.get("end_user")):
            call = replace(call, facts={**call.facts, "end_user": await self._stored_name(name)})
        if not (self._group.is_idle and self._transactions.at_once(lambda connection: write_open(connection, [call]))):
            await self._group.add(call)

    holders = reads(_holders)
    beat = writes(claims.write_heartbeat)

    async def bill_open(self, dead: Sequence[str], bill: Callable[[str, dict[str, Any]], turn.LedgerEntry]) -> int:
        """Writes bills of dead processes' requests, `MAX_ORPHANED_BILLS` at most per transaction. Returns how many."""
        now = self._clock.now()

        def work(connection: sa.Connection) -> int:
            taken = _take_open(connection, dead, MAX_ORPHANED_BILLS, bill)
            write_turns(connection, taken, now)
            return len(taken)

        return await self._transactions.run(work, write=True)

    async def _evict(self, groups: Sequence[str]) -> None:
        """Evicts what the cache holds of contents that no conversation holds any more."""
        if groups and self._cache is not None:
            await self._cache.evict(*groups)

    uncovered = reads(read_uncovered)
    messages = reads(read_messages)

    async def add_summary(
        self, tenant: str, conversation_id: str, request_id: str, new: memory.NewSegment | None, amend: Amend
    ) -> bool:
        """Amends a request's bill and stores the segment that it paid for, in one transaction. Returns whether the
        segment was stored: not if its turns are covered by now, or part of the conversation was deleted."""
        now = self._clock.now()

        def work(connection: sa.Connection) -> bool:
            row = locked(connection, tenant, conversation_id)
            stored = new is not None and row is not None and write_segment(connection, row, request_id, new, now)
            amend_bill(connection, request_id, amend)
            return stored

        stored = await self._transactions.run(work, write=True)
        if self._paths is not None:
            self._paths.recount(conversation_id)  # its answers are cached with the branch's earlier cost
        return stored

    find_completion = reads(read_completion)
    completion_input = reads(read_input)
    update_completion = writes(write_metadata)
    said_anywhere = reads(read_said)

    async def list_completions(
        self, tenant: str, query: turn.CompletionQuery
    ) -> report_lists.QueryPage[turn.StoredCompletion] | None:
        """Returns a page of a tenant's completions (guarantee §6); None if `query.after` is none of the tenant's."""
        if names.has_nul(query.conversation_id, query.model, query.agent, query.after):
            return report_lists.QueryPage(()) if query.after is None else None
        found = await self._transactions.run(lambda connection: read_page(connection, tenant, query))
        if found is None and query.after is not None:
            last = await self._deleted.find(tenant, ids.completion_of(query.after))
            if last is not None:
                found = await self._transactions.run(lambda connection: read_page(connection, tenant, query, last))
        return found

    async def delete_completion(self, tenant: str, completion_id: str, by: audit_log.AuditActor | None = None) -> bool:
        """Deletes a tenant's stored completion; its bill and the conversation stay. Returns False if there is none.
        `by`: the actor in the audit trail."""
        now = self._clock.now()

        def work(connection: sa.Connection) -> ListPlace | None:
            place = delete_completion(connection, tenant, completion_id)
            if place is not None:
                audit_events.recorded(connection, by, now, "completion.deleted", completion_id, tenant)
            return place

        place = await self._transactions.run(work, write=True)
        if place is None:
            return False
        await self._deleted.add(tenant, ids.completion_of(completion_id), place)
        await self._transactions.wipe()
        return True

    async def has_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Returns whether the tenant has the conversation."""

        def work(connection: sa.Connection) -> bool:
            return conversation_row(connection, tenant, ConversationRef(conversation_id)) is not None

        return await self._transactions.run(work)

    async def delete_conversation(
        self,
        tenant: str,
        conversation_id: str,
        by: audit_log.AuditActor | None = None,
        *,
        is_new: bool = False,
    ) -> bool:
        """Deletes a conversation with all its content; its anonymous bill stays (guarantee §5, §6). A turn that is
        under way is not stored. Returns False if the tenant has no such conversation. `by`: the actor in the audit
        trail; `is_new`: its first turn is under way, so that nothing of it is stored yet."""
        if names.has_nul(conversation_id):
            return False
        now = self._clock.now()

        def work(connection: sa.Connection) -> tuple[datetime, tuple[str, ...]] | None:
            row = conversation_row(connection, tenant, ConversationRef(conversation_id))
            groups = delete_conversation(connection, tenant, conversation_id)
            if is_new or groups is not None:
                audit_events.recorded(connection, by, now, "conversation.deleted", conversation_id, tenant)
            return (utc(row.created_at), groups) if row is not None and groups is not None else None

        gone = await self._transactions.run(work, write=True)
        if gone is None:
            return is_new
        at, groups = gone
        if self._paths is not None:
            self._paths.forget()
        await self._evict(groups)
        await self._deleted.add(tenant, conversation_id, (at, conversation_id))
        await self._transactions.wipe()
        return True

    def check_writable(self) -> None:
        """Checks that the storage takes writes, before anything is paid for that could not be billed (guarantee §3.6).
        Raises StorageReadOnly: the storage refused a write, and has taken none since."""
        if self._transactions.writes.are_refused:
            raise errors.StorageReadOnly

    async def probe(self) -> None:
        """Writes and deletes a row as large as a turn may be.
        Raises StorageUnavailable: the write failed; `StorageReadOnly`: the storage takes no writes."""
        await self._transactions.run(partial(write_probe, now=self._clock.now()), write=True)
        self._transactions.writes.taken()

    async def probe_if_refused(self) -> None:
        """Runs `probe` if the storage refused a write (guarantee §3.6); called every `PROBE_SECONDS`."""
        if self._transactions.writes.are_refused:
            await self.probe()

    async def reachable(self) -> None:
        """Checks that a turn could be stored now, before a model is called (guarantee §3.6); raises if not."""
        if self._transactions.remote:
            await self._transactions.run(lambda connection: connection.execute(sa.text("SELECT 1")).scalar())

    async def schema(self) -> str:
        """Renders the storage's schema revision as text."""
        return str(await self._transactions.run(schema_state))

    async def ready(self) -> bool:
        """Returns whether the storage answers, takes writes, and has a schema that this version may run on.
        Raises StorageUnavailable: it does not answer; `StorageReadOnly`: it takes no writes."""
        transactions = self._transactions

        def work(connection: sa.Connection) -> tuple[bool, bool]:
            return schema_state(connection).serves, transactions.seems_read_only(connection)

        serves, reads_only = await transactions.run(work)
        if serves and (reads_only or transactions.writes.are_refused):
            await self.probe()
        return serves


def write_probe(connection: sa.Connection, now: datetime) -> None:
    """Writes a row that conflicts with no other, and deletes it in the same transaction."""
    key = os.urandom(16)
    row = {"tenant": "", "key": key, "body": os.urandom(PROBE_BYTES), "request_id": "", "state": "probe"}
    at = {"process": "", "created_at": now, "expires_at": now}
    connection.execute(schema.claims.insert().values(**row, **at))
    connection.execute(schema.claims.delete().where(schema.claims.c.tenant == "", schema.claims.c.key == key))


def _has_large(commit: turn.TurnCommit) -> bool:
    """Returns whether the commit stores large documents; a failed turn does not."""
    turn = commit.turn
    return turn is not None and commit.ledger.status != "failed" and any(each.is_excerpt for each in turn.attachments)


def _marked(artifact: Artifact, chars: int) -> Artifact:
    if artifact.size_chars < chars or artifact.is_excerpt:
        return artifact
    return replace(artifact, metadata={**artifact.metadata, artifacts.LARGE: ids.content_digest(artifact.content)})


def _without_names(stored: turn.StoredTurn | None) -> turn.StoredTurn | None:
    """Removes the user's name from what is stored of a request beside its answer."""
    asked = (stored.completion or {}).get(turn.ASKED) if stored is not None else None
    if stored is None or not isinstance(asked, dict) or asked.keys().isdisjoint(USER_FIELDS):
        return stored
    kept = {name: value for name, value in asked.items() if name not in USER_FIELDS}
    return replace(stored, completion={**(stored.completion or {}), turn.ASKED: kept})
