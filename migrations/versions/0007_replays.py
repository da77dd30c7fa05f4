"""Replays: turns of a conversation that are run again on a branch, and their progress.

Adds a table only: previous versions keep writing turns that belong to no replay.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Creates the table, and says that whichever version could run before may run on."""
    op.create_table(
        "replays",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("source_id", sa.String(length=64), nullable=False),
        sa.Column("from_turn", sa.Integer(), nullable=False),
        sa.Column("to_turn", sa.Integer(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("at_id", sa.String(length=64), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.Column("request", sa.Integer(), nullable=True),
        sa.Column("used_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"], ["conversations.id"], name=op.f("fk_replays_conversation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replays")),
    )
    op.create_index(op.f("ix_replays_conversation_id"), "replays", ["conversation_id"])
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0007', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
