"""Pinned messages: which messages stay in every window, and how many a conversation has.

Adds a table and a nullable column: previous versions keep writing rows without them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds both, and says that whichever version could run before may run on."""
    op.create_table(
        "pins",
        sa.Column(
            "conversation_id",
            sa.String(length=64),
            sa.ForeignKey("conversations.id", name=op.f("fk_pins_conversation_id_conversations"), ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("message_id", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("conversation_id", "message_id", name=op.f("pk_pins")),
        sqlite_with_rowid=False,
    )
    op.add_column("conversations", sa.Column("pins", sa.Integer(), nullable=True))
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0004', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
