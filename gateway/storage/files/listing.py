"""Files of all tenants, for operators: a list, and who holds one (guarantee §14.5)."""

from datetime import datetime

import sqlalchemy as sa

from gateway.core.names import has_nul
from gateway.core.types.files import FileRecord, HeldFile
from gateway.storage.database import schema
from gateway.storage.database.file_tables import file_contents, files
from gateway.storage.files.file_rows import COLUMNS, as_record, digests_of, living, no_such_file

FILE, CONTENT = files.c, file_contents.c
MAX_HOLDERS = 1000


def list_files(
    connection: sa.Connection, tenant: str | None, limit: int, now: datetime, after: str | None = None
) -> list[HeldFile]:
    """The latest files first, without those whose time is over.

    Args:
        tenant: None: of all.
        after: the id of a file: those behind it.

    Raises:
        FileNotFound: there is no file `after`.
    """
    query = sa.select(FILE.tenant, *COLUMNS).where(living(now))
    if tenant is not None:
        query = query.where(FILE.tenant == tenant)
    if after is not None:
        at = connection.execute(sa.select(FILE.created_at).where(FILE.id == after)).scalar()
        if at is None:
            raise no_such_file(after)
        query = query.where(sa.or_(FILE.created_at < at, sa.and_(FILE.created_at == at, FILE.id < after)))
    found = connection.execute(query.order_by(FILE.created_at.desc(), FILE.id.desc()).limit(limit)).all()
    return [HeldFile(row.tenant, as_record(row)) for row in found]


def find_held(connection: sa.Connection, tenant: str | None, file_id: str, now: datetime | None) -> HeldFile:
    """One file, with the conversations that hold what was read of it.

    Args:
        tenant: None: whosever it is.
        now: None: also one whose time is over.

    Raises:
        FileNotFound: there is none, or it is another tenant's.
    """
    joined = sa.and_(CONTENT.tenant == FILE.tenant, CONTENT.digest == FILE.digest)
    query = sa.select(FILE.tenant, *COLUMNS, CONTENT.place).join_from(files, file_contents, joined)
    query = query.where(FILE.id == file_id)
    if tenant is not None:
        query = query.where(FILE.tenant == tenant)
    row = None if has_nul(file_id) else connection.execute(query if now is None else query.where(living(now))).first()
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
