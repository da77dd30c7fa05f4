"""Tool steps in a table of their own, one row each.

In a database that is in use, earlier results stay in the messages.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
USED = ("secrets", "conversations", "ledger", "processes")


def upgrade() -> None:
    """Creates the table, and says whether the version before may run beside this one."""
    op.create_table(
        "reasoning_events",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("message_id", sa.String(length=64), nullable=False),
        sa.Column("call_message_id", sa.String(length=64), nullable=True),
        sa.Column("position", sa.Integer(), nullable=True),
        sa.Column("tool", sa.Text(), nullable=True),
        sa.Column("tool_call_id", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("answer_id", sa.String(length=64), nullable=True),
        sa.Column("called_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_reasoning_events_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("conversation_id", "message_id", name=op.f("pk_reasoning_events")),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    used = any(connection.execute(sa.text(f"SELECT 1 FROM {table} LIMIT 1")).first() for table in USED)  # noqa: S608
    says = sa.text("INSERT INTO schema_revisions (revision, oldest) VALUES ('0002', :oldest)")
    connection.execute(says, {"oldest": down_revision if used else revision})
