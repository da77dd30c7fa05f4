"""The schema of the first release: conversations and their content, the ledger, claims, what was learned of models."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    """Creates all tables."""
    _create_conversations()
    _create_content()
    _create_recognition()
    _create_ledger()
    _create_claims()
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secrets")),
    )
    op.create_table(
        "calibrations",
        sa.Column("model", sa.String(length=255), nullable=False),
        sa.Column("margin", sa.Float(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("saved_per_call", sa.Integer(), nullable=False),
        sa.Column("calls_seen", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", name=op.f("pk_calibrations")),
    )
    revisions = op.create_table(
        "schema_revisions",
        sa.Column("revision", sa.String(length=32), nullable=False),
        sa.Column("oldest", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("revision", name=op.f("pk_schema_revisions")),
    )
    op.bulk_insert(revisions, [{"revision": "0001", "oldest": "0001"}])


def _create_conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("head_id", sa.String(length=64), nullable=True),
        sa.Column("attachments", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=True),
        sa.Column("instructions_digest", sa.String(length=64), nullable=True),
        sa.Column("forgotten_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("framed", sa.Boolean(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_conversations")),
    )
    _index("conversations", "tenant", "updated_at")
    _index("conversations", "tenant", "created_at")
    _index("conversations", "updated_at")
    op.create_table(
        "sessions",
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=256), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        _of_conversation("sessions"),
        sa.PrimaryKeyConstraint("tenant", "name", name=op.f("pk_sessions")),
    )
    _index("sessions", "conversation_id")


def _create_content() -> None:
    """What people and models said, and what was forwarded of it."""
    op.create_table(
        "instructions",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        _of_conversation("instructions"),
        sa.PrimaryKeyConstraint("conversation_id", "digest", name=op.f("pk_instructions")),
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
        sa.Column("origin", sa.Text(), nullable=True),
        sa.Column("path_digest", sa.LargeBinary(), nullable=True),
        sa.Column("said_digest", sa.LargeBinary(), nullable=True),
        sa.Column("plain", sa.Boolean(), nullable=True),
        sa.Column("restored", sa.Boolean(), nullable=True),
        sa.Column("tokens", sa.Text(), nullable=True),
        _of_conversation("messages"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
    )
    _index("messages", "conversation_id", "sequence_number")
    _index("messages", "request_id")
    op.create_table(
        "attachments",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("artifact_id", sa.String(length=64), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("said_digest", sa.LargeBinary(), nullable=True),
        _of_conversation("attachments"),
        sa.PrimaryKeyConstraint("conversation_id", "number", name=op.f("pk_attachments")),
    )
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
        _of_conversation("frames"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_frames")),
    )
    _index("frames", "conversation_id", "sequence_number")
    op.create_table(
        "cached_contents",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=128), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        _of_conversation("cached_contents"),
        sa.PrimaryKeyConstraint("conversation_id", "digest", name=op.f("pk_cached_contents")),
    )
    _index("cached_contents", "tenant", "digest")
    op.create_table(
        "imported_requests",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        _of_conversation("imported_requests"),
        sa.PrimaryKeyConstraint("conversation_id", "request_id", name=op.f("pk_imported_requests")),
    )


def _create_recognition() -> None:
    """Digests by which conversations, and messages in them, are found (ADR 8)."""
    op.create_table(
        "message_links",
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("message_id", sa.String(length=64), nullable=False),
        _of_conversation("message_links"),
        sa.PrimaryKeyConstraint("conversation_id", "digest", name=op.f("pk_message_links")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "chains",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("calls", sa.LargeBinary(), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("whole", sa.LargeBinary(), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", "calls", "conversation_id", "whole", name=op.f("pk_chains")),
        sqlite_with_rowid=False,
    )


def _create_ledger() -> None:
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
        sa.Column("end_user", sa.String(length=256), nullable=True),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_ledger")),
        sa.UniqueConstraint("completion_id", name=op.f("uq_ledger_completion_id")),
    )
    _index("ledger", "created_at")
    _index("ledger", "tenant", "conversation_id", "created_at")
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
        _of_request("ledger_calls"),
        sa.PrimaryKeyConstraint("request_id", "number", name=op.f("pk_ledger_calls")),
    )
    op.create_table(
        "completions",
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=True),
        sa.Column("plan", sa.Text(), nullable=True),
        _of_conversation("completions"),
        _of_request("completions"),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_completions")),
    )
    _index("completions", "conversation_id")


def _create_claims() -> None:
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
    _index("claims", "expires_at")
    op.create_table(
        "processes",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("alive_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_processes")),
    )


def _index(table: str, *columns: str) -> None:
    op.create_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table, list(columns), unique=False)


def _of_conversation(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_conversation_id")
    return sa.ForeignKeyConstraint(["conversation_id"], ["conversations.id"], name=name, ondelete="CASCADE")


def _of_request(table: str) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_{table}_request_id")
    return sa.ForeignKeyConstraint(["request_id"], ["ledger.request_id"], name=name, ondelete="CASCADE")
