"""Messages are found by digests of their chains; conversations have metadata; requests can be answered once."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"

INDEXES = [
    ("ix_conversations_updated_at", "conversations", ["updated_at"]),
    ("ix_conversations_tenant_created_at", "conversations", ["tenant", "created_at"]),
    ("ix_messages_conversation_id_sequence_number", "messages", ["conversation_id", "sequence_number"]),
]
"""Of tables that may be large: on PostgreSQL they are there already, built while the version before was writing."""


def upgrade() -> None:
    """Adds columns that may be empty, so that the version before can go on writing, and tables.

    Digests of what is stored already are made up for when a conversation is next asked for.
    """
    op.add_column("conversations", sa.Column("metadata", sa.Text(), nullable=True))
    op.add_column("conversations", sa.Column("instructions_digest", sa.String(length=64), nullable=True))
    op.add_column("conversations", sa.Column("forgotten_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("conversations", sa.Column("used_until", sa.DateTime(timezone=True), nullable=True))
    for name, table, columns in INDEXES:
        op.create_index(op.f(name), table, columns, unique=False, if_not_exists=True)
    op.add_column("messages", sa.Column("path_digest", sa.LargeBinary(), nullable=True))
    op.add_column("messages", sa.Column("said_digest", sa.LargeBinary(), nullable=True))
    op.add_column("messages", sa.Column("plain", sa.Boolean(), nullable=True))
    op.add_column("messages", sa.Column("restored", sa.Boolean(), nullable=True))
    op.add_column("messages", sa.Column("tokens", sa.Text(), nullable=True))
    op.drop_index(op.f("ix_messages_conversation_id"), table_name="messages")
    op.drop_index(op.f("ix_messages_parent_id"), table_name="messages")
    op.add_column("attachments", sa.Column("said_digest", sa.LargeBinary(), nullable=True))
    op.create_table(
        "message_links",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("message_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_message_links_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation_id", "digest", name=op.f("pk_message_links")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "chains",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("calls", sa.LargeBinary(), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", "calls", "conversation_id", name=op.f("pk_chains")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "claims",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("process", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "key", name=op.f("pk_claims")),
    )
    op.create_index(op.f("ix_claims_expires_at"), "claims", ["expires_at"], unique=False)
    op.create_table(
        "processes",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("alive_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_processes")),
    )
    op.create_table(
        "cached_contents",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=128), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_cached_contents_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation_id", "digest", name=op.f("pk_cached_contents")),
    )
    op.create_index(op.f("ix_cached_contents_tenant_digest"), "cached_contents", ["tenant", "digest"], unique=False)
    op.create_table(
        "imported_requests",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_imported_requests_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation_id", "request_id", name=op.f("pk_imported_requests")),
    )
    revisions = op.create_table(
        "schema_revisions",
        sa.Column("revision", sa.String(length=32), nullable=False),
        sa.Column("oldest", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_schema_revisions")),
    )
    op.bulk_insert(revisions, [{"revision": "0003", "oldest": "0002"}])
