"""Entities of conversations, and the words by which they are found.

Adds tables only: previous versions keep running, and their deletions also delete a conversation's rows there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Creates the tables, and says that whichever version could run before may run on."""
    op.create_table(
        "things",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("place", sa.String(length=64), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=True),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("thing_id", sa.String(length=256), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("aliases", sa.Text(), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("mentioned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation_id"], ["conversations.id"], name=op.f("fk_things_conversation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_things")),
        sa.UniqueConstraint("place", "type", "thing_id", name=op.f("uq_things_place_type_thing_id")),
    )
    _index("things", "place", "id")
    _index("things", "tenant", "id")
    _index("things", "tenant", "type", "thing_id")
    _index("things", "conversation_id")
    _index("things", "expires_at")
    op.create_table(
        "thing_aliases",
        sa.Column("memory_id", sa.String(length=64), nullable=False),
        sa.Column("whole", sa.Boolean(), nullable=False),
        sa.Column("alias", sa.String(length=256), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("place", sa.String(length=64), nullable=False),
        sa.Column("mentioned_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["memory_id"], ["things.id"], name=op.f("fk_thing_aliases_memory_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("memory_id", "whole", "alias", name=op.f("pk_thing_aliases")),
        sqlite_with_rowid=False,
    )
    for owner in ("place", "tenant"):
        _index("thing_aliases", owner, "whole", "alias", "mentioned_at", "memory_id")
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0006', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")


def _index(table: str, *columns: str) -> None:
    op.create_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table, list(columns))
