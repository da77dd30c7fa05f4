"""What was forwarded is frozen in frames; what upstreams report calibrates estimates."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision: str | None = "0003"

INDEXES: list[tuple[str, str, list[str]]] = []
"""Of tables that may be large: none; the new ones are empty."""


def upgrade() -> None:
    """Adds tables, and a column that may be empty: the version before goes on writing, and freezes nothing."""
    op.add_column("conversations", sa.Column("framed", sa.Boolean(), nullable=True))
    op.create_table(
        "frames",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("message_id", sa.String(length=64), nullable=False),
        sa.Column("sequence_number", sa.Integer(), nullable=False),
        sa.Column("full", sa.Boolean(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_frames_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_frames")),
    )
    op.create_index(
        op.f("ix_frames_conversation_id_sequence_number"),
        "frames",
        ["conversation_id", "sequence_number"],
        unique=False,
    )
    op.create_table(
        "calibrations",
        sa.Column("model", sa.String(length=255), nullable=False),
        sa.Column("margin", sa.Float(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("model", name=op.f("pk_calibrations")),
    )
    revisions = sa.table("schema_revisions", sa.column("revision", sa.String), sa.column("oldest", sa.String))
    op.bulk_insert(revisions, [{"revision": "0004", "oldest": "0003"}])
