"""Keys made at runtime, budgets and limits, the audit log, and retention by key.

Adds tables, indexes and a nullable column only: the previous version keeps running, and does not know these keys.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
INDEXES = (
    ("ix_usage_days_key_id_day", "usage_days", ("key_id", "day"), "key_id IS NOT NULL"),
    ("ix_usage_days_project_day", "usage_days", ("project", "day"), "project IS NOT NULL"),
    ("ix_usage_days_end_user_day", "usage_days", ("tenant", "end_user", "day"), "end_user IS NOT NULL"),
    ("ix_usage_days_model_day", "usage_days", ("model", "day"), ""),
)
"""Name, table, columns and which rows. Where the table is there, they are built before the upgrade."""
TIME = sa.DateTime(timezone=True)
REFUSED = "admin_events: rows are only added"
ONLY_ADDED = {
    "postgresql": (
        "CREATE FUNCTION admin_events_only_added() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{REFUSED}'; END $$",
        "CREATE TRIGGER admin_events_kept BEFORE UPDATE OR DELETE ON admin_events "
        "FOR EACH ROW EXECUTE FUNCTION admin_events_only_added()",
        "CREATE TRIGGER admin_events_not_emptied BEFORE TRUNCATE ON admin_events "
        "FOR EACH STATEMENT EXECUTE FUNCTION admin_events_only_added()",
    ),
    "sqlite": tuple(
        f"CREATE TRIGGER admin_events_no_{verb.lower()} BEFORE {verb} ON admin_events "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
        for verb in ("UPDATE", "DELETE")
    ),
}
"""What administrators did is not changed or deleted: the database refuses it."""


def upgrade() -> None:
    """Adds them, and says that whichever version could run before may run on."""
    _create_keys()
    _create_limits()
    _create_events()
    op.add_column("conversations", sa.Column("retention_days", sa.Float(), nullable=True))
    if op.get_bind().dialect.name == "postgresql":  # sealed they are longer; SQLite does not mind
        for name in ("question", "question_folded"):
            op.alter_column("conversations", name, type_=sa.Text())
    _index_where(
        "ix_conversations_retention", "conversations", ["retention_days", "updated_at"], "retention_days IS NOT NULL"
    )
    for index in INDEXES:
        _index_where(*index)
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0009', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")


def _index_where(name: str, table: str, columns: Sequence[str], where: str) -> None:
    only = sa.text(where) if where else None
    op.create_index(op.f(name), table, list(columns), if_not_exists=True, sqlite_where=only, postgresql_where=only)


def _create_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("previous_digest", sa.LargeBinary(), nullable=True),
        sa.Column("previous_until", TIME, nullable=True),
        sa.Column("hint", sa.String(length=16), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=True),
        sa.Column("owner", sa.String(length=256), nullable=True),
        sa.Column("project", sa.String(length=128), nullable=True),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("rotated_at", TIME, nullable=True),
        sa.Column("expires_at", TIME, nullable=True),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
        sa.UniqueConstraint("previous_digest", name=op.f("uq_api_keys_previous_digest")),
    )
    op.create_index(op.f("ix_api_keys_tenant_created_at"), "api_keys", ["tenant", "created_at"])
    op.create_index(op.f("ix_api_keys_created_at"), "api_keys", ["created_at"])


def _create_limits() -> None:
    op.create_table(
        "budget_leases",
        sa.Column("holder", sa.LargeBinary(), nullable=False),
        sa.Column("period_start", sa.Date(), nullable=False),
        sa.Column("process", sa.String(length=64), nullable=False),
        sa.Column("amount_picousd", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("holder", "period_start", "process", name=op.f("pk_budget_leases")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_budget_leases_expires_at"), "budget_leases", ["expires_at"])
    op.create_table(
        "rate_counters",
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_rate_counters")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_rate_counters_expires_at"), "rate_counters", ["expires_at"])
    op.create_table(
        "rate_slots",
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key", "request_id", name=op.f("pk_rate_slots")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_rate_slots_expires_at"), "rate_slots", ["expires_at"])


def _create_events() -> None:
    op.create_table(
        "admin_events",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.String(length=64), nullable=True),
        sa.Column("actor_name", sa.String(length=256), nullable=True),
        sa.Column("tenant", sa.String(length=128), nullable=True),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("object", sa.Text(), nullable=True),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("previous_digest", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_admin_events")),
    )
    op.create_index(op.f("ix_admin_events_at"), "admin_events", ["at"])
    for statement in ONLY_ADDED[op.get_context().dialect.name]:
        op.execute(statement)
