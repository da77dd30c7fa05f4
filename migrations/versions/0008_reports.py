"""Reports: what each bill adds to sums, daily totals, sums and a first question for each conversation, and sessions of
the web UI.

Adds tables and nullable columns: previous versions keep writing rows without them. A process of this version adds those
rows, and the rows of before, to the totals.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
INDEXES = (
    ("ix_ledger_tenant_created_at", "ledger", ("tenant", "created_at"), ""),
    ("ix_ledger_model_created_at", "ledger", ("model", "created_at"), ""),
    ("ix_ledger_end_user_created_at", "ledger", ("end_user", "created_at"), "end_user IS NOT NULL"),
    ("ix_ledger_not_complete", "ledger", ("status", "created_at"), "status <> 'complete'"),
)
"""Name, table, columns and which rows: of columns that the first release has. They are built before the upgrade."""
LEDGER = (
    "cached_tokens",
    "cache_write_tokens",
    "known_cost_picousd",
    "planning_cost_picousd",
    "planning_unpriced",
    "saved_picousd",
)
CONVERSATIONS = (
    "requests",
    "prompt_tokens",
    "completion_tokens",
    "cost_picousd",
    "planning_cost_picousd",
    "unpriced",
    "estimated",
)
DAYS = (
    "requests",
    "partial",
    "failed",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cost_picousd",
    "priced",
    "unpriced",
    "planning_cost_picousd",
    "planning_unpriced",
    "estimated",
    "saved_picousd",
)
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Adds them, and says that whichever version could run before may run on."""
    named = (("endpoint", sa.String(32)), ("key_id", sa.String(64)), ("project", sa.String(128)))
    _add("ledger", *named, *_sums(LEDGER), ("rolled_up", sa.Boolean()))
    texts = (("question", sa.String(200)), ("question_folded", sa.String(200)), ("end_user", sa.String(256)))
    _add("conversations", *texts, ("model", sa.Text()), *_sums(CONVERSATIONS))
    _create_days()
    op.create_table(
        "ui_sessions",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_ui_sessions")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_ui_sessions_expires_at"), "ui_sessions", ["expires_at"])
    for index in INDEXES:
        _create_index(*index)
    _create_index("ix_ledger_agent_created_at", "ledger", ("agent", "created_at"), "agent IS NOT NULL")
    _create_index("ix_ledger_endpoint_created_at", "ledger", ("endpoint", "created_at"), "endpoint IS NOT NULL")
    _create_index("ix_ledger_not_rolled_up", "ledger", ("request_id",), "rolled_up IS NULL")
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0008', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")


def _add(table: str, *columns: tuple[str, sa.types.TypeEngine[Any]]) -> None:
    for name, kind in columns:
        op.add_column(table, sa.Column(name, kind, nullable=True))


def _create_index(name: str, table: str, columns: tuple[str, ...], where: str) -> None:
    only = sa.text(where) if where else None
    op.create_index(op.f(name), table, list(columns), if_not_exists=True, sqlite_where=only, postgresql_where=only)


def _sums(names: tuple[str, ...]) -> list[tuple[str, sa.types.TypeEngine[Any]]]:
    return [(name, sa.BigInteger()) for name in names]


def _create_days() -> None:
    op.create_table(
        "usage_days",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("tenant", sa.String(length=128), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=True),
        sa.Column("project", sa.String(length=128), nullable=True),
        sa.Column("end_user", sa.String(length=256), nullable=True),
        sa.Column("agent", sa.Text(), nullable=True),
        sa.Column("endpoint", sa.String(length=32), nullable=True),
        *(sa.Column(name, sa.BigInteger(), nullable=True) for name in DAYS),
        sa.PrimaryKeyConstraint("day", "digest", name=op.f("pk_usage_days")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_usage_days_tenant_day"), "usage_days", ["tenant", "day"])
