"""The rows of files: each upload one, each content one for its tenant (guarantee §14.5).

Who adds or deletes a file of a tenant is alone with that tenant's files until its transaction ends. So no content goes
that a file was just added for, and no two uploads fill the same rest of a quota.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from gateway.core.errors import FileNotFound
from gateway.core.ports import CacheBackend, Clock
from gateway.core.types.artifacts import cache_group
from gateway.core.types.audit_log import AuditActor
from gateway.core.types.document_kinds import KINDS, document_digest
from gateway.core.types.files import UPLOADED, ContentPlace, FilePage, FileQuery, FileRecord, KeptBytes
from gateway.storage import rows
from gateway.storage.audit_log.append import recorded
from gateway.storage.conversations.attachments import delete as delete_attachment
from gateway.storage.conversations.delete import forget_blocks
from gateway.storage.conversations.delete_item import delete_plans
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.database.file_tables import file_chunks, file_contents, files
from gateway.storage.encryption.columns import for_row
from gateway.storage.files.under_keys import alone_with_files
from gateway.storage.lookup.path_cache import PathCache
from gateway.storage.turns.completions import behind

FILE, CONTENT = files.c, file_contents.c
UNREAD = 500
"""Files that one look at what is unread finds at most."""
EXPIRED = 100
"""Files that one look at what has expired deletes at most."""


class FileRows:
    """Each method is one short transaction.

    Raises:
        StorageUnavailable: from any method: the storage cannot be reached.
    """

    def __init__(
        self, transactions: DatabaseTransactions, clock: Clock, cache: CacheBackend, paths: PathCache | None = None
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._cache = cache
        self._paths = paths

    async def kept(self, tenant: str, key_id: str | None) -> KeptBytes:
        """What a tenant keeps now."""
        now = self._clock.now()
        return await self._transactions.run(lambda connection: _kept(connection, tenant, key_id, now))

    async def add(
        self, tenant: str, record: FileRecord, place: ContentPlace, check: Callable[[KeptBytes], None]
    ) -> ContentPlace:
        """Adds a file whose content stands at `place`. Returns where its content is from now on: somewhere else if the
        tenant had it already, and then what stands at `place` is nobody's.

        Args:
            check: is told what the tenant keeps without it; what it raises undoes all.
        """
        now = self._clock.now()

        def work(connection: sa.Connection) -> ContentPlace:
            alone_with_files(connection, tenant)
            check(_kept(connection, tenant, record.key_id, now))
            values = {column.name: getattr(record, name) for name, column in _FIELDS.items()}
            connection.execute(files.insert().values(**for_row(files, {"tenant": tenant, **values})))
            own = (CONTENT.tenant == tenant, CONTENT.digest == record.digest)
            known = connection.execute(sa.select(CONTENT.place, CONTENT.object).where(*own)).first()
            if known is not None:
                return ContentPlace(known.place, known.object)
            of_it = {"tenant": tenant, "digest": record.digest, "bytes": record.size, "created_at": now}
            connection.execute(file_contents.insert().values(**of_it, place=place.store, object=place.object))
            return place

        return await self._transactions.run(work, write=True)

    async def page(self, tenant: str, query: FileQuery) -> FilePage:
        """A page of a tenant's files.

        Raises:
            FileNotFound: `query.after` is none of them.
        """
        now = self._clock.now()
        return await self._transactions.run(lambda connection: _page(connection, tenant, query, now))

    async def find(self, tenant: str, file_id: str) -> tuple[FileRecord, ContentPlace]:
        """
        Raises:
            FileNotFound: the tenant has none of that id.
        """
        now = self._clock.now()
        return await self._transactions.run(lambda connection: _find(connection, tenant, file_id, now))

    async def delete(self, tenant: str, file_id: str, by: AuditActor | None) -> ContentPlace | None:
        """Deletes a file, and what conversations hold of it; with the last file of its content what was read of that.
        Returns where the content stood that is nobody's now.

        Raises:
            FileNotFound: the tenant has none of that id.
        """
        now = self._clock.now()

        def work(connection: sa.Connection) -> tuple[ContentPlace | None, tuple[str, ...], list[str]]:
            alone_with_files(connection, tenant)
            connection.execute(sa.select(FILE.id).where(FILE.tenant == tenant, FILE.id == file_id).with_for_update())
            record, place = _find(connection, tenant, file_id, None)
            groups, held = _let_go(connection, tenant, record, now)
            groups = (*groups, cache_group(tenant, file_id))
            connection.execute(files.delete().where(FILE.id == file_id))
            others = sa.select(FILE.id).where(FILE.tenant == tenant, FILE.digest == record.digest).limit(1)
            is_last = connection.execute(others).first() is None
            if is_last:
                own = (CONTENT.tenant == tenant, CONTENT.digest == record.digest)
                connection.execute(file_contents.delete().where(*own))
                connection.execute(file_chunks.delete().where(file_chunks.c.object == place.object))
                groups = (*groups, *_read_of(tenant, record.digest))
            recorded(connection, by, now, "file.deleted", file_id, tenant, conversations=len(held))
            return place if is_last else None, groups, held

        place, groups, held = await self._transactions.run(work, write=True)
        if held and self._paths is not None:
            self._paths.forget()
        if groups:
            await self._cache.evict(*groups)
        await self._transactions.wipe()
        return place

    async def note_reading(
        self, tenant: str, file_id: str, status: str, details: str | None, progress: float | None
    ) -> bool:
        """Notes how far a file is read, unless somebody has read it already. Returns whether there is such a file."""
        own = (FILE.tenant == tenant, FILE.id == file_id)
        values = {"status": status, "status_details": details, "progress": progress}
        query = files.update().where(*own, FILE.status == UPLOADED).values(**values)

        def work(connection: sa.Connection) -> bool:
            if connection.execute(query).rowcount:
                return True
            return connection.execute(sa.select(FILE.id).where(*own)).first() is not None

        return await self._transactions.run(work, write=True)

    async def unread(self) -> list[tuple[str, str]]:
        """Tenants and ids of files that are still to be read, those that have waited longest, some at a time."""
        query = sa.select(FILE.tenant, FILE.id).where(FILE.status == UPLOADED, living(self._clock.now()))
        query = query.order_by(FILE.created_at, FILE.id).limit(UNREAD)
        found = await self._transactions.run(lambda connection: connection.execute(query).all())
        return [(row.tenant, row.id) for row in found]

    async def forget_read(self, *groups: str) -> None:
        """Takes out of the cache what was read of a file that is gone."""
        await self._cache.evict(*groups)

    async def expired(self) -> list[tuple[str, str]]:
        """Tenants and ids of files whose time is over, some at a time."""
        ended = sa.select(FILE.tenant, FILE.id).where(FILE.expires_at <= self._clock.now())
        query = ended.order_by(FILE.expires_at).limit(EXPIRED)
        found = await self._transactions.run(lambda connection: connection.execute(query).all())
        return [(row.tenant, row.id) for row in found]

    async def nobodys(self, objects: list[str]) -> list[str]:
        """Those of these contents that no file has."""
        query = sa.select(CONTENT.object).where(CONTENT.object.in_(objects))
        held = await self._transactions.run(lambda connection: set(connection.execute(query).scalars()))
        return [each for each in objects if each not in held]


def living(now: datetime) -> sa.ColumnElement[bool]:
    """Of a file whose time is not over."""
    return sa.or_(FILE.expires_at.is_(None), FILE.expires_at > now)


def _kept(connection: sa.Connection, tenant: str, key_id: str | None, now: datetime) -> KeptBytes:
    of_key = sa.case((FILE.key_id == key_id, FILE.bytes), else_=0) if key_id is not None else sa.literal(0)
    sums = (sa.func.coalesce(sa.func.sum(each), 0) for each in (FILE.bytes, of_key))
    row = connection.execute(sa.select(*sums).where(FILE.tenant == tenant, living(now))).one()
    return KeptBytes(int(row[0]), int(row[1]))


def _find(
    connection: sa.Connection, tenant: str, file_id: str, now: datetime | None
) -> tuple[FileRecord, ContentPlace]:
    """`now` None: one that has expired, too."""
    joined = sa.and_(CONTENT.tenant == FILE.tenant, CONTENT.digest == FILE.digest)
    query = sa.select(*COLUMNS, CONTENT.place, CONTENT.object).join_from(files, file_contents, joined)
    query = query.where(FILE.tenant == tenant, FILE.id == file_id)
    row = connection.execute(query if now is None else query.where(living(now))).first()
    if row is None:
        raise no_such_file(file_id)
    return as_record(row), ContentPlace(row.place, row.object)


def no_such_file(file_id: str, param: str = "file_id") -> FileNotFound:
    """In OpenAI's words."""
    return FileNotFound(f"No such File object: {file_id[:128]}", param=param)


def _page(connection: sa.Connection, tenant: str, query: FileQuery, now: datetime) -> FilePage:
    where = [FILE.tenant == tenant, living(now)]
    if query.purpose is not None:
        where.append(FILE.purpose == query.purpose)
    columns = (FILE.created_at, FILE.id)
    if query.after is not None:
        own = (FILE.tenant == tenant, FILE.id == query.after)
        last = connection.execute(sa.select(*columns).where(*own)).first()
        if last is None:
            raise no_such_file(query.after, "after")
        where.append(behind(columns, last, newest_first=query.newest_first))
    order = [column.desc() if query.newest_first else column.asc() for column in columns]
    found = connection.execute(sa.select(*COLUMNS).where(*where).order_by(*order).limit(query.limit + 1)).all()
    return FilePage(tuple(as_record(row) for row in found[: query.limit]), len(found) > query.limit)


def _let_go(
    connection: sa.Connection, tenant: str, record: FileRecord, now: datetime
) -> tuple[tuple[str, ...], list[str]]:
    """Takes out of conversations what they hold of a file: documents that were attached by its id, and what was
    forwarded of it where messages name it. Returns cache groups to evict, and whose it was."""
    table = schema.attachments.c
    own = (
        sa.select(table.conversation_id, table.artifact_id)
        .distinct()
        .join_from(schema.attachments, schema.conversations, schema.conversations.c.id == table.conversation_id)
    )
    own = own.where(table.file_id == record.id, schema.conversations.c.tenant == tenant)
    held = connection.execute(own.order_by(table.conversation_id, table.artifact_id)).all()
    groups: dict[str, None] = {}
    for row in held:
        gone = delete_attachment(connection, tenant, row.conversation_id, row.artifact_id, now)
        groups |= dict.fromkeys(gone)
    holders = {row.conversation_id for row in held}
    cached = schema.cached_contents.c
    read = (
        sa.select(cached.conversation_id)
        .distinct()
        .where(cached.tenant == tenant, cached.digest.in_(digests_of(record.digest)))
    )
    for conversation_id in set(connection.execute(read).scalars()) - holders:
        forget_blocks(connection, conversation_id, now)
        delete_plans(connection, conversation_id)
        holders.add(conversation_id)
    return tuple(groups), sorted(holders)


def digests_of(content: bytes) -> list[str]:
    """What may have been read of a content: as any kind."""
    return [document_digest(kind, content.hex()) for kind in KINDS]


def _read_of(tenant: str, content: bytes) -> tuple[str, ...]:
    """The cache groups of what was read of a content."""
    return tuple(cache_group(tenant, each) for each in (content.hex(), *digests_of(content)))


def as_record(row: Any) -> FileRecord:
    """A row of `COLUMNS`."""
    values = {name: getattr(row, column.name) for name, column in _FIELDS.items()}
    values["digest"] = bytes(values["digest"])
    values["created_at"] = rows.utc(values["created_at"])
    ends = values["expires_at"]
    values["expires_at"] = rows.utc(ends) if ends is not None else None
    return FileRecord(**values)


_FIELDS = {name: files.c["bytes" if name == "size" else name] for name in FileRecord.__slots__}
COLUMNS = tuple(_FIELDS.values())
"""What a file's record is made of."""
