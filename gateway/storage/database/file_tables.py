"""The tables of files that clients upload (part of `schema`, guarantee §14.5)."""

from sqlalchemy import BigInteger, Column, DateTime, Float, Index, Integer, LargeBinary, String, Table, Text

from gateway.storage.database.accounts import index_where, metadata
from gateway.storage.encryption.columns import SealedText

files = Table(
    "files",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("key_id", String(64)),
    Column("name", SealedText("files.name"), nullable=False),
    Column("purpose", String(64), nullable=False),
    Column("media_type", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("status", String(16), nullable=False),
    Column("status_details", Text),
    Column("progress", Float),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True)),
    Index(None, "tenant", "created_at", "id"),
    Index(None, "tenant", "digest"),
    Index(None, "expires_at"),
    index_where("ix_files_created_at", "created_at", where="status = 'uploaded'"),
)
"""`digest`: SHA-256 of its content. `status`: `uploaded`, `processed` once it was read, or `error`, of which
`status_details` says why. `progress`: how much of it is read, as a fraction of 1."""

file_contents = Table(
    "file_contents",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("digest", LargeBinary, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("place", String(16), nullable=False),
    Column("object", String(128), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Index(None, "object"),
    sqlite_with_rowid=False,
)
"""Contents, once a tenant however many files have it. `place`: `database`, `disk` or `s3`. `object`: what
it is called there; no name is given twice, so that what is deleted is never what somebody else just stored."""

file_chunks = Table(
    "file_chunks",
    metadata,
    Column("object", String(128), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
"""Contents in the database, in pieces; sealed where `storage.encryption_key` is set."""
