"""The rows of files: one for each upload, and one for each content of a tenant (guarantee §14.5); contents in the
database, in pieces of one mebibyte (adapter of `core.ports.ContentStore`). A content's name gives its key (§12.11).

Adding or deleting a file locks the tenant's files until the transaction ends. So no content is deleted for which a file
was just added, and no two uploads use the same remainder of a quota.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from gateway.core import errors, names
from gateway.core.types import artifacts, audit_log, report_lists
from gateway.core.types.files import (
    DOCUMENT_KINDS,
    SEALED_ENDING,
    UPLOAD,
    UPLOAD_PART,
    UPLOADED,
    ContentPlace,
    FileQuery,
    FileRecord,
    HeldFile,
    KeptBytes,
    document_digest,
)
from gateway.storage import audit_events, rows
from gateway.storage.cache.deleted_places import ListPlace
from gateway.storage.conversations.attachments import delete as delete_attachment
from gateway.storage.conversations.delete import forget_blocks, held_groups
from gateway.storage.conversations.delete_item import delete_plans
from gateway.storage.database import schema
from gateway.storage.database.schema import file_chunks, file_contents, files
from gateway.storage.database.transactions import DatabaseClient, DatabaseTransactions
from gateway.storage.encryption.columns import for_row
from gateway.storage.lookup.path_cache import CachedRows

CONTENT = file_contents.c
CONTENTS_LISTED = 100


class PlacedContent(NamedTuple):
    """A tenant's content, and where it is stored."""

    tenant: str
    digest: bytes
    place: ContentPlace


async def contents_elsewhere(
    transactions: DatabaseTransactions, current: str | None, after: PlacedContent | None
) -> list[PlacedContent]:
    """Lists the next contents that are not sealed under the key `current`, in order of tenant and digest."""
    query = sa.select(CONTENT.tenant, CONTENT.digest, CONTENT.place, CONTENT.object)
    query = query.where(_is_other(current)).order_by(CONTENT.tenant, CONTENT.digest).limit(CONTENTS_LISTED)
    if after is not None:
        query = query.where(sa.tuple_(CONTENT.tenant, CONTENT.digest) > (after.tenant, after.digest))
    found = await transactions.run(lambda connection: connection.execute(query).all())
    return [PlacedContent(row.tenant, bytes(row.digest), ContentPlace(row.place, row.object)) for row in found]


def kinds_elsewhere(connection: sa.Connection, current: str | None) -> Counter[str]:
    """Counts the contents that are not under the key `current`, by what they are under: `plain`, or a key's id."""
    objects = connection.execute(sa.select(CONTENT.object).where(_is_other(current))).scalars()
    return Counter(ContentPlace("", each).sealed_under or "plain" for each in objects)


async def move_content(transactions: DatabaseTransactions, content: PlacedContent, object_name: str) -> bool:
    """Records the new place of a content within its store. Returns False if it was deleted or moved meanwhile."""
    own = (CONTENT.tenant == content.tenant, CONTENT.digest == content.digest, CONTENT.object == content.place.object)

    def work(connection: sa.Connection) -> bool:
        alone_with_files(connection, content.tenant)
        return connection.execute(file_contents.update().where(*own).values(object=object_name)).rowcount == 1

    return await transactions.run(work, write=True)


def alone_with_files(connection: sa.Connection, tenant: str) -> None:
    """Locks a tenant's files against other changes until the transaction ends."""
    rows.lock_name(connection, f"files\0{tenant}")


def _is_other(current: str | None) -> sa.ColumnElement[bool]:
    return CONTENT.object.not_like(f"%.{current or ''}{SEALED_ENDING}")


FILE = files.c
MAX_UNREAD_FILES = 500
"""The most files that `FileRows.unread` lists."""
MAX_EXPIRED_FILES = 100
"""The most files that `FileRows.expired` lists."""


class FileRows(CachedRows):
    """Stores the rows of files; each method is one short transaction."""

    async def kept(self, tenant: str, key_id: str | None) -> KeptBytes:
        """Sums the bytes of a tenant's files, and those of one key."""
        now = self.clock.now()
        return await self._transactions.run(lambda connection: _kept(connection, tenant, key_id, now))

    async def add(
        self, tenant: str, record: FileRecord, place: ContentPlace, check: Callable[[KeptBytes], None]
    ) -> ContentPlace:
        """Adds a file whose content is at `place`. Returns where its content is from now on: elsewhere if the tenant
        had it already, and then no file refers to `place`.
        `check`: called with what the tenant holds without this file; if it raises, nothing is stored."""
        now = self.clock.now()

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

    async def page(self, tenant: str, query: FileQuery) -> report_lists.QueryPage[FileRecord]:
        """Returns a page of a tenant's files. Raises FileNotFound: `query.after` is none of them, nor was lately."""
        now = self.clock.now()
        return await self._page_behind(
            lambda connection, last: _page(connection, tenant, query, now, last),
            partial(self._deleted.find, tenant, query.after),
        )

    async def find(self, tenant: str, file_id: str) -> tuple[FileRecord, ContentPlace]:
        """Returns a file and the place of its content. Raises FileNotFound: the tenant has no file of that id."""
        now = self.clock.now()
        return await self._transactions.run(lambda connection: _find(connection, tenant, file_id, now))

    async def ids_of(self, tenant: str, purpose: str) -> list[str]:
        """Lists the ids of a tenant's files of a purpose."""
        query = sa.select(FILE.id).where(FILE.tenant == tenant, FILE.purpose == purpose).order_by(FILE.created_at)
        return await self._transactions.run(lambda connection: list(connection.execute(query).scalars()))

    async def sum_of(self, tenant: str, purpose: str) -> int:
        """Sums the bytes of a tenant's files of a purpose."""
        query = sa.select(sa.func.coalesce(sa.func.sum(FILE.bytes), 0))
        query = query.where(FILE.tenant == tenant, FILE.purpose == purpose, living(self.clock.now()))
        return await self._transactions.run(lambda connection: int(connection.execute(query).scalar_one()))

    async def delete(self, tenant: str, file_id: str, by: audit_log.AuditActor | None) -> ContentPlace | None:
        """Deletes a file and what conversations hold of it; with the last file of a content, also what was read of
        that. Returns the place of a content that no file has any more, else None.
        Raises FileNotFound: the tenant has no file of that id."""
        now = self.clock.now()

        def work(connection: sa.Connection) -> tuple[FileRecord, ContentPlace | None, tuple[str, ...], list[str]]:
            alone_with_files(connection, tenant)
            connection.execute(sa.select(FILE.id).where(FILE.tenant == tenant, FILE.id == file_id).with_for_update())
            record, place = _find(connection, tenant, file_id, None)
            groups, held = ((), []) if is_unfinished(file_id) else _let_go(connection, tenant, record, now)
            groups = (*groups, artifacts.cache_group(tenant, file_id))
            connection.execute(files.delete().where(FILE.id == file_id))
            others = sa.select(FILE.id).where(FILE.tenant == tenant, FILE.digest == record.digest).limit(1)
            is_last = connection.execute(others).first() is None
            if is_last:
                own = (CONTENT.tenant == tenant, CONTENT.digest == record.digest)
                connection.execute(file_contents.delete().where(*own))
                connection.execute(file_chunks.delete().where(file_chunks.c.object == place.object))
                read = (record.digest.hex(), *digests_of(record.digest))
                groups = (*groups, *(artifacts.cache_group(tenant, each) for each in read))
            audit_events.recorded(connection, by, now, "file.deleted", file_id, tenant, conversations=len(held))
            return record, place if is_last else None, groups, held

        record, place, groups, held = await self._transactions.run(work, write=True)
        if held and self._paths is not None:
            self._paths.forget()
        if groups:
            await self._cache.evict(*groups)
        await self._deleted.add(tenant, file_id, (record.created_at, file_id))
        await self._transactions.wipe()
        return place

    async def complete_upload(self, tenant: str, upload_id: str, details: str) -> bool:
        """Stores of an upload in parts that it is completed, and counts in quotas no more. Returns False if it was, or
        was deleted, before."""
        own = (FILE.tenant == tenant, FILE.id == upload_id, FILE.status_details.is_(None))
        query = files.update().where(*own).values(status_details=details, bytes=0)
        return await self._transactions.run(lambda connection: connection.execute(query).rowcount == 1, write=True)

    async def note_reading(
        self, tenant: str, file_id: str, status: str, details: str | None, progress: float | None
    ) -> bool:
        """Stores how far a file is read, unless it is read already. Returns whether the file exists."""
        own = (FILE.tenant == tenant, FILE.id == file_id)
        values = {"status": status, "status_details": details, "progress": progress}
        query = files.update().where(*own, FILE.status == UPLOADED).values(**values)

        def work(connection: sa.Connection) -> bool:
            if connection.execute(query).rowcount:
                return True
            return connection.execute(sa.select(FILE.id).where(*own)).first() is not None

        return await self._transactions.run(work, write=True)

    async def unread(self) -> list[tuple[str, str]]:
        """Lists tenants and ids of files still to be read, longest waiting first, `MAX_UNREAD_FILES` at most."""
        query = sa.select(FILE.tenant, FILE.id).where(FILE.status == UPLOADED, living(self.clock.now()))
        query = query.order_by(FILE.created_at, FILE.id).limit(MAX_UNREAD_FILES)
        found = await self._transactions.run(lambda connection: connection.execute(query).all())
        return [(row.tenant, row.id) for row in found]

    async def forget_read(self, *groups: str) -> None:
        """Evicts from the cache what was read of a deleted file."""
        await self._cache.evict(*groups)

    async def expired(self) -> list[tuple[str, str]]:
        """Lists tenants and ids of expired files, `MAX_EXPIRED_FILES` at most."""
        ended = sa.select(FILE.tenant, FILE.id).where(FILE.expires_at <= self.clock.now())
        query = ended.order_by(FILE.expires_at).limit(MAX_EXPIRED_FILES)
        found = await self._transactions.run(lambda connection: connection.execute(query).all())
        return [(row.tenant, row.id) for row in found]

    async def nobodys(self, objects: list[str]) -> list[str]:
        """Returns those of the given contents that no file has."""
        query = sa.select(CONTENT.object).where(CONTENT.object.in_(objects))
        held = await self._transactions.run(lambda connection: set(connection.execute(query).scalars()))
        return [each for each in objects if each not in held]


def is_unfinished(file_id: str) -> bool:
    """Returns whether an id is that of no file yet: of an upload in parts, or of a part."""
    return file_id.startswith((UPLOAD, UPLOAD_PART))


def living(now: datetime) -> sa.ColumnElement[bool]:
    """Returns the condition that a file has not expired."""
    return sa.or_(FILE.expires_at.is_(None), FILE.expires_at > now)


def _kept(connection: sa.Connection, tenant: str, key_id: str | None, now: datetime) -> KeptBytes:
    of_key = sa.case((FILE.key_id == key_id, FILE.bytes), else_=0) if key_id is not None else sa.literal(0)
    sums = (sa.func.coalesce(sa.func.sum(each), 0) for each in (FILE.bytes, of_key))
    row = connection.execute(sa.select(*sums).where(FILE.tenant == tenant, living(now))).one()
    return KeptBytes(int(row[0]), int(row[1]))


def _find(
    connection: sa.Connection, tenant: str, file_id: str, now: datetime | None
) -> tuple[FileRecord, ContentPlace]:
    """`now` None: finds expired files, too."""
    joined = sa.and_(CONTENT.tenant == FILE.tenant, CONTENT.digest == FILE.digest)
    query = sa.select(*COLUMNS, CONTENT.place, CONTENT.object).join_from(files, file_contents, joined)
    query = query.where(FILE.tenant == tenant, FILE.id == file_id)
    row = connection.execute(query if now is None else query.where(living(now))).first()
    if row is None:
        raise no_such_file(file_id)
    return as_record(row), ContentPlace(row.place, row.object)


def no_such_file(file_id: str, param: str = "file_id") -> errors.FileNotFound:
    """Builds the error for an unknown file, in OpenAI's wording."""
    return errors.FileNotFound(f"No such File object: {file_id[:128]}", param=param)


def _page(
    connection: sa.Connection, tenant: str, query: FileQuery, now: datetime, last: ListPlace | None = None
) -> report_lists.QueryPage[FileRecord]:
    """`last`: where `query.after` stood, if it is deleted."""
    where = [FILE.tenant == tenant, living(now)]
    where += [~FILE.id.startswith(each, autoescape=True) for each in (UPLOAD, UPLOAD_PART)]
    if query.purpose is not None:
        where.append(FILE.purpose == query.purpose)
    columns = (FILE.created_at, FILE.id)
    if query.after is not None:
        own = (FILE.tenant == tenant, FILE.id == query.after)
        place = last or connection.execute(sa.select(*columns).where(*own)).first()
        if place is None:
            raise no_such_file(query.after, "after")
        where.append(rows.behind(columns, place, is_down=query.newest_first))
    order = [column.desc() if query.newest_first else column.asc() for column in columns]
    found = connection.execute(sa.select(*COLUMNS).where(*where).order_by(*order).limit(query.limit + 1)).all()
    return report_lists.QueryPage.of(map(as_record, found), query.limit)


def _let_go(
    connection: sa.Connection, tenant: str, record: FileRecord, now: datetime
) -> tuple[tuple[str, ...], list[str]]:
    """Removes from conversations what they hold of a file: documents attached by its id, and what was forwarded of it
    where messages name it. Returns the cache groups to evict, and the ids of those conversations."""
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
    readers = set(connection.execute(read).scalars())
    groups |= dict.fromkeys(held_groups(connection, tenant, readers))
    for conversation_id in sorted(readers - holders):
        forget_blocks(connection, tenant, conversation_id, now)
        delete_plans(connection, conversation_id)
        holders.add(conversation_id)
    return tuple(groups), sorted(holders)


def digests_of(content: bytes) -> list[str]:
    """Lists the document digests under which a content may have been read: one for each kind."""
    return [document_digest(kind, content.hex()) for kind in DOCUMENT_KINDS]


def as_record(row: Any) -> FileRecord:
    values = {name: getattr(row, column.name) for name, column in _FIELDS.items()}
    values["digest"] = bytes(values["digest"])
    values["created_at"] = rows.utc(values["created_at"])
    ends = values["expires_at"]
    values["expires_at"] = rows.utc(ends) if ends is not None else None
    return FileRecord(**values)


_FIELDS = {name: files.c["bytes" if name == "size" else name] for name in FileRecord.__annotations__}
COLUMNS = tuple(_FIELDS.values())
"""The columns of a file's record."""


MAX_HOLDERS = 1000


def list_files(
    connection: sa.Connection, tenant: str | None, limit: int, now: datetime, after: str | None = None
) -> list[HeldFile]:
    """Lists files, latest first, without expired ones.
    `tenant` None: of all tenants; `after`: the id of a file: only those behind it.
    Raises FileNotFound: there is no file `after`."""
    query = sa.select(FILE.tenant, *COLUMNS).where(living(now))
    if tenant is not None:
        query = query.where(FILE.tenant == tenant)
    if after is not None:
        at = connection.execute(sa.select(FILE.created_at).where(FILE.id == after)).scalar()
        if at is None:
            raise no_such_file(after)
        query = query.where(rows.behind((FILE.created_at, FILE.id), (at, after), is_down=True))
    found = connection.execute(query.order_by(FILE.created_at.desc(), FILE.id.desc()).limit(limit)).all()
    return [HeldFile(row.tenant, as_record(row)) for row in found]


def find_held(connection: sa.Connection, tenant: str | None, file_id: str, now: datetime | None) -> HeldFile:
    """Finds one file, with the conversations that hold what was read of it.
    `tenant` None: of any tenant; `now` None: expired ones, too.
    Raises FileNotFound: there is no such file, or it is another tenant's."""
    joined = sa.and_(CONTENT.tenant == FILE.tenant, CONTENT.digest == FILE.digest)
    query = sa.select(FILE.tenant, *COLUMNS, CONTENT.place).join_from(files, file_contents, joined)
    query = query.where(FILE.id == file_id)
    if tenant is not None:
        query = query.where(FILE.tenant == tenant)
    query = query if now is None else query.where(living(now))
    row = None if names.has_nul(file_id) else connection.execute(query).first()
    if row is None:
        raise no_such_file(file_id)
    record = as_record(row)
    same = sa.select(FILE.id).where(FILE.tenant == row.tenant, FILE.digest == record.digest, FILE.id != file_id)
    copies = connection.execute(same.order_by(FILE.id).limit(MAX_HOLDERS)).scalars()
    return HeldFile(row.tenant, record, row.place, tuple(copies), _holders(connection, row.tenant, record))


def _holders(connection: sa.Connection, tenant: str, record: FileRecord) -> tuple[str, ...]:
    attached, cached = schema.attachments.c, schema.cached_contents.c
    conversations = schema.conversations.c
    own = sa.select(attached.conversation_id).join_from(
        schema.attachments, schema.conversations, conversations.id == attached.conversation_id
    )
    own = own.where(attached.file_id == record.id, conversations.tenant == tenant)
    read = sa.select(cached.conversation_id).where(
        cached.tenant == tenant, cached.digest.in_([record.id, *digests_of(record.digest)])
    )
    both = sa.union(own, read).limit(MAX_HOLDERS)
    return tuple(sorted(connection.execute(both).scalars()))


PIECE = 2**20
CHUNKS_LISTED = 1000
FILE_CHUNK_COLUMNS = file_chunks.c


class DatabaseContents(DatabaseClient):
    """Stores contents in pieces, each in a transaction of its own: no upload holds a writer up for longer."""

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        buffer, number = bytearray(), 0
        try:
            async for piece in pieces:
                buffer += piece
                while len(buffer) >= PIECE:
                    await self._add(name, number, bytes(buffer[:PIECE]))
                    del buffer[:PIECE]
                    number += 1
            if buffer or not number:
                await self._add(name, number, bytes(buffer))
        except BaseException:
            await self.delete(name)
            raise

    async def open(self, name: str, start: int = 0) -> AsyncIterator[bytes]:
        first, skipped = divmod(start, PIECE)
        number = first
        while (found := await self._transactions.run(partial(_chunk, name, number))) is not None:
            yield found[skipped if number == first else 0 :]
            number += 1
        if number == first:
            raise errors.StorageUnavailable("The content of the file is not in the storage.")

    async def delete(self, *names: str) -> None:
        statement = file_chunks.delete().where(FILE_CHUNK_COLUMNS.object.in_(names))
        await self._transactions.run(lambda connection: connection.execute(statement).rowcount, write=True)
        await self._transactions.wipe()

    async def names(self) -> AsyncIterator[list[str]]:
        after = ""
        while True:
            query = sa.select(FILE_CHUNK_COLUMNS.object).where(
                FILE_CHUNK_COLUMNS.number == 0, FILE_CHUNK_COLUMNS.object > after
            )
            query = query.order_by(FILE_CHUNK_COLUMNS.object).limit(CHUNKS_LISTED)
            found = await self._transactions.run(partial(_names, query))
            if not found:
                return
            yield found
            after = found[-1]

    async def _add(self, name: str, number: int, data: bytes) -> None:
        statement = file_chunks.insert().values(object=name, number=number, data=data)
        await self._transactions.run(lambda connection: connection.execute(statement).rowcount, write=True)


def _chunk(name: str, number: int, connection: sa.Connection) -> bytes | None:
    query = sa.select(FILE_CHUNK_COLUMNS.data).where(
        FILE_CHUNK_COLUMNS.object == name, FILE_CHUNK_COLUMNS.number == number
    )
    found = connection.execute(query).scalar()
    return bytes(found) if found is not None else None


def _names(query: sa.Select[Any], connection: sa.Connection) -> list[str]:
    return list(connection.execute(query).scalars())
