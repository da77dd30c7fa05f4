"""Summaries of old turns, and which conversations have any.

Adds a table and a nullable column: previous versions keep running without them. If one of them deletes an item
meanwhile, the item stays in the summaries that cover it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Adds table and column, and says that whichever version could run before may run on."""
    op.add_column("conversations", sa.Column("summarized", sa.Boolean(), nullable=True))
    op.create_table(
        "summaries",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("last_message_id", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("after_message_id", sa.String(length=64), nullable=True),
        sa.Column("first_number", sa.Integer(), nullable=False),
        sa.Column("last_number", sa.Integer(), nullable=False),
        sa.Column("first_turn", sa.Integer(), nullable=False),
        sa.Column("last_turn", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("prompt_version", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_summaries_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation_id", "last_message_id", name=op.f("pk_summaries")),
    )
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0005', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
