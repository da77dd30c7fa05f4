"""Tool steps in a table of their own, one row each.

In a database that is in use, results also stay in the messages until `gateway migrate --finish`, so that the previous
version can keep running (ADR 19).
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
USED = ("secrets", "conversations", "ledger", "processes")


def upgrade() -> None:
    """Creates the table, and says whether the version before may run beside this one."""
    was_preview = _complete_a_preview()
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
    may_run = used and not was_preview
    says = sa.text("INSERT INTO schema_revisions (revision, oldest) VALUES ('0002', :oldest)")
    connection.execute(says, {"oldest": down_revision if may_run else revision})


def _complete_a_preview() -> bool:
    """Adds what previews of the first release did not store; they cannot run afterwards. Returns whether one made this
    database."""
    connection = op.get_bind()
    if any(column["name"] == "end_user" for column in sa.inspect(connection).get_columns("ledger")):
        return False
    op.add_column("ledger", sa.Column("end_user", sa.String(length=256), nullable=True))
    op.add_column("completions", sa.Column("plan", sa.Text(), nullable=True))
    for name in ("saved_per_call", "calls_seen"):
        op.add_column("calibrations", sa.Column(name, sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("chains", sa.Column("whole", sa.LargeBinary(), nullable=True))
    op.add_column("chains", sa.Column("request_id", sa.String(length=64), nullable=False, server_default=""))
    # Each is its conversation's own: if two were equal in everything, either could be continued for the other.
    is_sqlite = connection.dialect.name == "sqlite"
    own = "CAST(conversation_id AS BLOB)" if is_sqlite else "convert_to(conversation_id, 'UTF8')"
    connection.execute(sa.text(f"UPDATE chains SET whole = {own}"))  # noqa: S608
    with op.batch_alter_table("chains", table_kwargs={"sqlite_with_rowid": False}) as chains:
        chains.alter_column("whole", nullable=False)
        chains.drop_constraint("pk_chains", type_="primary")
        chains.create_primary_key("pk_chains", ["digest", "calls", "conversation_id", "whole"])
    return True
