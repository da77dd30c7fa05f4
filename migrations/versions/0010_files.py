"""Uploaded files; large documents.

Adds tables, indexes and nullable columns only: the previous version keeps running. It does not know the files, and sees
no text of a large document.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Adds them, and says that whichever version could run before may run on."""
    _create_files()
    op.add_column("attachments", sa.Column("file_id", sa.String(length=64), nullable=True))
    only = sa.text("file_id IS NOT NULL")
    op.create_index(
        op.f("ix_attachments_file_id"), "attachments", ["file_id"], sqlite_where=only, postgresql_where=only
    )
    _create_large_documents()
    op.add_column("attachments", sa.Column("document", sa.String(length=64), nullable=True))
    large = sa.text("document IS NOT NULL")
    op.create_index(
        op.f("ix_attachments_document"), "attachments", ["document"], sqlite_where=large, postgresql_where=large
    )
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0010', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")


def _create_files() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("purpose", sa.String(length=64), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("status_details", sa.Text(), nullable=True),
        sa.Column("progress", sa.Float(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    op.create_index(op.f("ix_files_tenant_created_at_id"), "files", ["tenant", "created_at", "id"])
    op.create_index(op.f("ix_files_tenant_digest"), "files", ["tenant", "digest"])
    op.create_index(op.f("ix_files_expires_at"), "files", ["expires_at"])
    unread = sa.text("status = 'uploaded'")
    op.create_index(op.f("ix_files_created_at"), "files", ["created_at"], sqlite_where=unread, postgresql_where=unread)
    op.create_table(
        "file_contents",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.String(length=16), nullable=False),
        sa.Column("object", sa.String(length=128), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "digest", name=op.f("pk_file_contents")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_file_contents_object"), "file_contents", ["object"])
    op.create_table(
        "file_chunks",
        sa.Column("object", sa.String(length=128), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("object", "number", name=op.f("pk_file_chunks")),
    )


def _create_large_documents() -> None:
    op.create_table(
        "large_documents",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("chars", sa.BigInteger(), nullable=False),
        sa.Column("regions", sa.Integer(), nullable=False),
        sa.Column("indexed", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(length=64), nullable=True),
        sa.Column("held_until", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "digest", name=op.f("pk_large_documents")),
    )
    op.create_index(op.f("ix_large_documents_status"), "large_documents", ["status"])
    op.create_table(
        "document_regions",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        _of_large_document("document_regions"),
        sa.PrimaryKeyConstraint("tenant", "digest", "number", name=op.f("pk_document_regions")),
    )
    op.create_table(
        "document_postings",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("segment", sa.Integer(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        _of_large_document("document_postings"),
        sa.PrimaryKeyConstraint("tenant", "digest", "bucket", "segment", name=op.f("pk_document_postings")),
    )


def _of_large_document(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["tenant", "digest"],
        ["large_documents.tenant", "large_documents.digest"],
        name=op.f(f"fk_{table}_tenant_digest"),
        ondelete="CASCADE",
    )
