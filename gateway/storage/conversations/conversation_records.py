"""Creates, lists and reads conversations, and changes them item by item."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa

from gateway.core import errors, jsons
from gateway.core.types import audit_log, memory, past_turns, records, report_lists, turn
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.items import Item
from gateway.storage import audit_events, rows
from gateway.storage.cache.deleted_places import ItemPlace, ListPlace
from gateway.storage.conversations import attachments as attached
from gateway.storage.conversations import delete_item, item_store
from gateway.storage.conversations.delete import empty_conversation
from gateway.storage.conversations.reading import read_totals
from gateway.storage.database import schema
from gateway.storage.database.transactions import reads
from gateway.storage.encryption.columns import for_row
from gateway.storage.keyed_hashes import storable
from gateway.storage.lookup.find import turns_before
from gateway.storage.lookup.locate import MESSAGES, upwards
from gateway.storage.lookup.path_cache import CachedRows
from gateway.storage.lookup.segments import segments_before
from gateway.storage.turns.completions import having
from gateway.storage.turns.standing import whole_entries

T = TypeVar("T")

# What the latest answered request left of a conversation's window (guarantee §11.8).

LEDGER, CONVERSATIONS = schema.ledger, schema.conversations
ANSWERED = ("complete", "partial")


def read_window(
    connection: sa.Connection, tenant: str, conversation_id: str, model: str | None
) -> records.WindowRecord:
    """Reads what a conversation's latest answered request left of its window. Finds the bill by an index, and walks the
    path only where artifacts of old messages stand in the window.
    `model`: the requested model; None: any.
    Raises ConversationNotFound: the tenant has none of that id."""
    read_record(connection, tenant, conversation_id)
    where = [LEDGER.c.tenant == tenant, LEDGER.c.conversation_id == conversation_id, LEDGER.c.status.in_(ANSWERED)]
    if model is not None:
        where.append(LEDGER.c.model == model)
    latest = sa.select(LEDGER).where(*where).order_by(LEDGER.c.created_at.desc(), LEDGER.c.request_id.desc()).limit(1)
    row = connection.execute(latest).first()
    if row is None:
        return records.WindowRecord()
    (entry,) = whole_entries(connection, [rows.entry_of(row)])
    segments = _segments(connection, conversation_id, entry)
    return records.WindowRecord(
        entry, _turns_excluded(connection, entry), segments, _things(connection, conversation_id)
    )


def _segments(
    connection: sa.Connection, conversation_id: str, entry: turn.LedgerEntry
) -> tuple[memory.SummarySegment, ...]:
    """Returns the summaries of old turns on the path to the request's answer."""
    query = sa.select(CONVERSATIONS.c.summarized, CONVERSATIONS.c.head_id).where(CONVERSATIONS.c.id == conversation_id)
    found = connection.execute(query).one()
    if not found.summarized:
        return ()
    own = connection.execute(_OWN, {"request": entry.request_id}).scalar()
    return segments_before(connection, conversation_id, own or found.head_id)


def _things(connection: sa.Connection, conversation_id: str) -> int:
    """Counts the things that the conversation is about."""
    query = sa.select(sa.func.count()).where(schema.things.c.conversation_id == conversation_id)
    return int(connection.execute(query).scalar_one())


def _turns_excluded(connection: sa.Connection, entry: turn.LedgerEntry) -> int | None:
    """Counts the turns that began before the first forwarded message: a path's messages are numbered from 0."""
    utilization: Any = entry.metadata.get("context_utilization")
    excluded = utilization.get("messages_excluded") if isinstance(utilization, dict) else None
    if not isinstance(excluded, int) or not excluded:
        return 0
    first = _numbered(connection, entry, excluded)
    return None if first is None else turns_before(connection, first)


def _numbered(connection: sa.Connection, entry: turn.LedgerEntry, number: int) -> Any:
    """Finds the message of that number on a request's path; walks the path only if several branches have one."""
    bounds = {"conversation": entry.conversation_id, "number": number}
    found = connection.execute(_NUMBERED, bounds).all()
    if len(found) < 2:
        return found[0] if found else None
    own = connection.execute(_OWN, {"request": entry.request_id}).scalar()
    name = connection.execute(_ABOVE, {**bounds, "from": own}).scalar() if own is not None else None
    return next((row for row in found if row.id == name), None)


def _above_query() -> sa.Select[Any]:
    """Selects, from `:from` upwards, the message with the number `:number`."""
    inside = MESSAGES.c.sequence_number >= sa.bindparam("number", type_=sa.Integer)
    here = MESSAGES.c.conversation_id == sa.bindparam("conversation", type_=sa.String)
    chain = upwards(MESSAGES.c.sequence_number, first=sa.and_(here, inside), onwards=lambda _: inside)
    return sa.select(chain.c.id).where(chain.c.sequence_number == sa.bindparam("number", type_=sa.Integer))


_NUMBERED = sa.select(
    MESSAGES.c.id, MESSAGES.c.parent_id, MESSAGES.c.conversation_id, MESSAGES.c.sequence_number
).where(
    MESSAGES.c.conversation_id == sa.bindparam("conversation", type_=sa.String),
    MESSAGES.c.sequence_number == sa.bindparam("number", type_=sa.Integer),
)
_OWN = sa.select(sa.func.max(MESSAGES.c.id)).where(MESSAGES.c.request_id == sa.bindparam("request", type_=sa.String))
_ABOVE = _above_query()


TABLE = schema.conversations


def _read_totals(
    connection: sa.Connection, tenant: str, conversation_id: str
) -> tuple[records.ConversationRecord, past_turns.ConversationTotals]:
    """Returns a conversation of the tenant, and its totals so far."""
    return read_record(connection, tenant, conversation_id), read_totals(connection, tenant, conversation_id)


def _keep_no_longer(connection: sa.Connection, conversation_id: str, days: float) -> None:
    longer = sa.or_(TABLE.c.retention_days.is_(None), TABLE.c.retention_days > days)
    connection.execute(TABLE.update().where(TABLE.c.id == conversation_id, longer).values(retention_days=days))


def read_record(connection: sa.Connection, tenant: str, conversation_id: str) -> records.ConversationRecord:
    """Returns a conversation. Raises ConversationNotFound: the tenant has none of that id."""
    where = (TABLE.c.tenant == tenant, TABLE.c.id == conversation_id)
    row = connection.execute(_RECORDS.where(*where)).first()
    if row is None:
        raise errors.ConversationNotFound("No such conversation.", param="conversation_id")
    return _record(row)


def _read_page(
    connection: sa.Connection, tenant: str, query: records.RecordQuery, last: ListPlace | None = None
) -> report_lists.QueryPage[records.ConversationRecord]:
    """Returns a page of the tenant's conversations. `last`: where `after` stood, if it is deleted.
    Raises ConversationNotFound: `after` is none of them."""
    where = [TABLE.c.tenant == tenant, *_during(query)]
    if query.session is not None:
        named = schema.sessions
        of_name = sa.select(named.c.conversation_id).where(named.c.tenant == tenant, named.c.name == query.session)
        where.append(TABLE.c.id.in_(of_name))
    columns = (TABLE.c.created_at, TABLE.c.id)
    if query.after is not None:
        own = (TABLE.c.tenant == tenant, TABLE.c.id == query.after)
        place = last or connection.execute(sa.select(*columns).where(*own)).first()
        if place is None:
            raise errors.ConversationNotFound("No such conversation.", param="after")
        where.append(rows.behind(columns, place, is_down=query.newest_first))
    order = [column.desc() if query.newest_first else column.asc() for column in columns]
    if query.metadata:
        own = (TABLE.c.id, TABLE.c.metadata)
        chosen = sa.select(*own).where(*where).order_by(*order)
        where += having(connection, chosen, own, query.metadata, query.limit + 1)
    found = connection.execute(_RECORDS.where(*where).order_by(*order).limit(query.limit + 1)).all()
    return report_lists.QueryPage.of(map(_record, found), query.limit)


def _during(query: records.RecordQuery) -> list[sa.ColumnElement[bool]]:
    """Returns conditions for the requested times."""
    columns: list[tuple[sa.Column[Any], datetime | None, datetime | None]] = [
        (TABLE.c.created_at, query.created_from, query.created_until),
        (TABLE.c.updated_at, query.updated_from, query.updated_until),
    ]
    found: list[sa.ColumnElement[bool]] = []
    for column, since, until in columns:
        found += [column >= since] if since is not None else []
        found += [column < until] if until is not None else []
    return found


def _record(row: Any) -> records.ConversationRecord:
    values = row._mapping
    metadata = jsons.loads(values["metadata"]) if values["metadata"] else {}
    times = (rows.utc(values["created_at"]), rows.utc(values["updated_at"]))
    return records.ConversationRecord(values["id"], *times, metadata, values["session"], values["team_task"])


def _written(metadata: dict[str, str]) -> str | None:
    return jsons.dumps_text(metadata) if metadata else None


def _records_query() -> sa.Select[tuple[Any, ...]]:
    """Selects conversations with their sessions' names."""
    names = schema.sessions
    session = sa.select(sa.func.min(names.c.name)).where(names.c.conversation_id == TABLE.c.id).scalar_subquery()
    columns = (TABLE.c.id, TABLE.c.created_at, TABLE.c.updated_at, TABLE.c.metadata, TABLE.c.team_task)
    return sa.select(*columns, session.label("session"))


_RECORDS = _records_query()


class ConversationRecords(CachedRows):
    """Creates, reads and changes conversations; each method is one short transaction.
    Raises StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout;
    ConversationNotFound: from all but `create`: the tenant has no such conversation; ItemNotFound: the conversation has
    no such item; NotFound: it has no such attachment."""

    async def create(self, tenant: str, new: records.NewConversation, request_id: str) -> records.ConversationRecord:
        now, conversation_id = self.clock.now(), new.conversation_id

        def work(connection: sa.Connection) -> records.ConversationRecord:
            values = {"id": conversation_id, "tenant": tenant, "created_at": now, "updated_at": now, "attachments": 0}
            said = {"metadata": _written(new.metadata), "team_task": storable(new.team_task or "") or None}
            values["retention_days"] = new.retention_days
            connection.execute(TABLE.insert().values(**for_row(TABLE, {**values, **said})))
            if new.messages:
                item_store.add(connection, tenant, conversation_id, new.messages, request_id, now)
            return read_record(connection, tenant, conversation_id)

        return await self._transactions.run(work, write=True)

    find = reads(read_record)
    totals = reads(_read_totals)
    window = reads(read_window)

    async def update(self, tenant: str, conversation_id: str, changes: Mapping[str, Any]) -> records.ConversationRecord:
        """Replaces a conversation's `metadata`, `team_task` or both; returns the conversation."""
        now = self.clock.now()
        values: dict[str, Any] = {"updated_at": now}
        if "metadata" in changes:
            values["metadata"] = _written(changes["metadata"])
        if "team_task" in changes:
            values["team_task"] = storable(changes["team_task"] or "") or None

        def work(connection: sa.Connection) -> records.ConversationRecord:
            where = (TABLE.c.tenant == tenant, TABLE.c.id == conversation_id)
            connection.execute(TABLE.update().where(*where).values(**for_row(TABLE, values, conversation_id)))
            return read_record(connection, tenant, conversation_id)

        return await self._transactions.run(work, write=True)

    async def list_page(
        self, tenant: str, query: records.RecordQuery
    ) -> report_lists.QueryPage[records.ConversationRecord]:
        """Returns a page of the tenant's conversations. Raises ConversationNotFound: `query.after` is none of them, nor
        was lately."""
        return await self._page_behind(
            lambda connection, last: _read_page(connection, tenant, query, last),
            partial(self._deleted.find, tenant, query.after),
        )

    async def session_names(self, tenant: str, conversation_ids: Sequence[str]) -> dict[str, str]:
        """Returns the session's name of each of these conversations of the tenant's that has one."""
        named = schema.sessions.c
        where = (named.tenant == tenant, named.conversation_id.in_(conversation_ids))
        query = sa.select(named.conversation_id, sa.func.min(named.name)).where(*where).group_by(named.conversation_id)
        return await self._transactions.run(lambda connection: {row[0]: row[1] for row in connection.execute(query)})

    async def items(self, tenant: str, conversation_id: str, query: records.ItemQuery) -> report_lists.QueryPage[Item]:
        """Returns a page of the current branch's items. Raises ConversationNotFound: the tenant has none of that id;
        ItemNotFound: nothing of the branch has the id `query.after`, nor had lately."""
        return await self._page(item_store.read_items, tenant, conversation_id, query)

    item = reads(item_store.read_item)

    async def add_items(
        self,
        tenant: str,
        conversation_id: str,
        messages: Sequence[ConversationMessage],
        request_id: str,
        retention_days: float | None = None,
        answers: Mapping[str, str] | None = None,
    ) -> list[Item]:
        """Appends messages at the head; returns them as items. `retention_days`: that of the key; `answers`: paths of
        outputs, by the id of a call that must stand in the branch.
        Raises InvalidRequest: it does not."""
        now = self.clock.now()

        def work(connection: sa.Connection) -> list[Item]:
            made = item_store.add(connection, tenant, conversation_id, messages, request_id, now, answers)
            if retention_days is not None:
                _keep_no_longer(connection, conversation_id, retention_days)
            return made

        return await self._transactions.run(work, write=True)

    async def set_pin(self, tenant: str, conversation_id: str, item_id: str, *, pinned: bool) -> Item:
        """Pins or unpins the message of an item; returns the item."""
        now = self.clock.now()
        return await self._transactions.run(
            lambda connection: item_store.set_pin(connection, tenant, conversation_id, item_id, pinned=pinned, now=now),
            write=True,
        )

    async def delete_item(
        self, tenant: str, conversation_id: str, item_id: str, by: audit_log.AuditActor | None = None
    ) -> records.ConversationRecord:
        """Deletes an item and everything that repeats its text; returns the conversation. `by`: the actor in the audit
        trail."""
        now = self.clock.now()

        def work(connection: sa.Connection) -> tuple[records.ConversationRecord, ItemPlace, tuple[str, ...]]:
            row = item_store.require_conversation(connection, tenant, conversation_id, lock=True)
            place = item_store.place_of(connection, row, item_id)
            groups = delete_item.delete(connection, tenant, conversation_id, item_id, now)
            record = read_record(connection, tenant, conversation_id)
            audit_events.recorded(connection, by, now, "item.deleted", item_id, tenant, conversation=conversation_id)
            return record, place, groups

        record, place, groups = await self._transactions.run(work, write=True)
        await self._forget(groups)
        await self._deleted.add_item(tenant, conversation_id, item_id, place)
        return record

    async def empty(
        self, tenant: str, conversation_id: str, by: audit_log.AuditActor | None = None
    ) -> records.ConversationRecord:
        """Deletes a conversation's whole content, all that was derived from it, and its team task; returns the
        conversation, which keeps its id and its session. `by`: the actor in the audit trail."""
        now = self.clock.now()

        def work(connection: sa.Connection) -> tuple[records.ConversationRecord, tuple[str, ...]]:
            item_store.require_conversation(connection, tenant, conversation_id, lock=True)
            groups = empty_conversation(connection, tenant, conversation_id, now)
            record = read_record(connection, tenant, conversation_id)
            audit_events.recorded(connection, by, now, "conversation.emptied", conversation_id, tenant)
            return record, groups

        record, groups = await self._transactions.run(work, write=True)
        await self._forget(groups)
        return record

    async def attachments(
        self, tenant: str, conversation_id: str, query: records.ItemQuery
    ) -> report_lists.QueryPage[records.AttachmentRecord]:
        """Returns a page of the conversation's documents. Raises ConversationNotFound: the tenant has none of that id;
        NotFound: `query.after` is none of its documents, nor was lately."""
        return await self._page(attached.read_page, tenant, conversation_id, query)

    attachment = reads(attached.read_one)

    async def delete_attachment(
        self, tenant: str, conversation_id: str, name: str, by: audit_log.AuditActor | None = None
    ) -> None:
        """Deletes a document and everything that repeats its text, except answers. `by`: for the audit trail."""
        now = self.clock.now()

        def work(connection: sa.Connection) -> tuple[int, tuple[str, ...]]:
            item_store.require_conversation(connection, tenant, conversation_id, lock=True)
            number = attached.first_number(connection, conversation_id, name, "attachment_id")
            groups = attached.delete(connection, tenant, conversation_id, name, now)
            audit_events.recorded(connection, by, now, "attachment.deleted", name, tenant, conversation=conversation_id)
            return number, groups

        number, groups = await self._transactions.run(work, write=True)
        await self._forget(groups)
        await self._deleted.add_item(tenant, conversation_id, name, (number, 0))

    async def _page(
        self,
        read: Callable[..., report_lists.QueryPage[T]],
        tenant: str,
        conversation_id: str,
        query: records.ItemQuery,
    ) -> report_lists.QueryPage[T]:
        """Reads a page of a conversation's list, also behind a member that was deleted lately."""
        return await self._page_behind(
            lambda connection, place: read(connection, tenant, conversation_id, query, place),
            partial(self._deleted.find_item, tenant, conversation_id, query.after),
        )
