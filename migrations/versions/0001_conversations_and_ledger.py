"""Conversations with their messages, and the ledger with its calls."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    """Creates all tables."""
    op.create_table(
        "conversations",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("head_id", sa.String(length=64), nullable=True),
        sa.Column("attachments", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_conversations")),
    )
    op.create_index(op.f("ix_conversations_tenant_updated_at"), "conversations", ["tenant", "updated_at"], unique=False)
    op.create_table(
        "ledger",
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=True),
        sa.Column("completion_id", sa.String(length=64), nullable=True),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stream", sa.Boolean(), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), nullable=False),
        sa.Column("total_cost_picousd", sa.BigInteger(), nullable=True),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("response_metadata", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_ledger")),
        sa.UniqueConstraint("completion_id", name=op.f("uq_ledger_completion_id")),
    )
    op.create_index(op.f("ix_ledger_created_at"), "ledger", ["created_at"], unique=False)
    op.create_index(
        op.f("ix_ledger_tenant_conversation_id_created_at"),
        "ledger",
        ["tenant", "conversation_id", "created_at"],
        unique=False,
    )
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secrets")),
    )
    op.create_table(
        "attachments",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("artifact_id", sa.String(length=64), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"], ["conversations.id"], name=op.f("fk_attachments_conversation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("conversation_id", "number", name=op.f("pk_attachments")),
    )
    op.create_table(
        "completions",
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation_id"], ["conversations.id"], name=op.f("fk_completions_conversation_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["request_id"], ["ledger.request_id"], name=op.f("fk_completions_request_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_completions")),
    )
    op.create_index(op.f("ix_completions_conversation_id"), "completions", ["conversation_id"], unique=False)
    op.create_table(
        "instructions",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"], ["conversations.id"], name=op.f("fk_instructions_conversation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("conversation_id", "digest", name=op.f("pk_instructions")),
    )
    op.create_table(
        "ledger_calls",
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(length=32), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("usage", sa.Text(), nullable=False),
        sa.Column("rates", sa.Text(), nullable=False),
        sa.Column("prompt_cost_picousd", sa.BigInteger(), nullable=True),
        sa.Column("completion_cost_picousd", sa.BigInteger(), nullable=True),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["request_id"], ["ledger.request_id"], name=op.f("fk_ledger_calls_request_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("request_id", "number", name=op.f("pk_ledger_calls")),
    )
    op.create_table(
        "messages",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("parent_id", sa.String(length=64), nullable=True),
        sa.Column("sequence_number", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("weight", sa.Integer(), nullable=False),
        sa.Column("rendered", sa.Text(), nullable=True),
        sa.Column("standing", sa.Text(), nullable=True),
        sa.Column("reasoning_events", sa.Text(), nullable=True),
        sa.Column("instructions_digest", sa.String(length=64), nullable=True),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("choice", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"], ["conversations.id"], name=op.f("fk_messages_conversation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
    )
    op.create_index(op.f("ix_messages_conversation_id"), "messages", ["conversation_id"], unique=False)
    op.create_index(op.f("ix_messages_parent_id"), "messages", ["parent_id"], unique=False)
    op.create_index(op.f("ix_messages_request_id"), "messages", ["request_id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"], ["conversations.id"], name=op.f("fk_sessions_conversation_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("tenant", "name", name=op.f("pk_sessions")),
    )
    op.create_index(op.f("ix_sessions_conversation_id"), "sessions", ["conversation_id"], unique=False)


def downgrade() -> None:
    """Drops all tables, and with them everything that was stored."""
    op.drop_index(op.f("ix_sessions_conversation_id"), table_name="sessions")
    op.drop_table("sessions")
    op.drop_index(op.f("ix_messages_request_id"), table_name="messages")
    op.drop_index(op.f("ix_messages_parent_id"), table_name="messages")
    op.drop_index(op.f("ix_messages_conversation_id"), table_name="messages")
    op.drop_table("messages")
    op.drop_table("ledger_calls")
    op.drop_table("instructions")
    op.drop_index(op.f("ix_completions_conversation_id"), table_name="completions")
    op.drop_table("completions")
    op.drop_table("attachments")
    op.drop_table("secrets")
    op.drop_index(op.f("ix_ledger_tenant_conversation_id_created_at"), table_name="ledger")
    op.drop_index(op.f("ix_ledger_created_at"), table_name="ledger")
    op.drop_table("ledger")
    op.drop_index(op.f("ix_conversations_tenant_updated_at"), table_name="conversations")
    op.drop_table("conversations")
