"""Requests that are waiting for a model, so that they are billed even if their process dies.

Adds a table only: the previous version keeps running. Its own requests are not in the table and are billed as before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Adds it, and says that whichever version could run before may run on."""
    op.create_table(
        "open_calls",
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("process", sa.String(length=64), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_open_calls")),
    )
    op.create_index(op.f("ix_open_calls_process"), "open_calls", ["process"])
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0011', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
