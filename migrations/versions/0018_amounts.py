"""Requests of a user, a key, a tenant or a time are put in the order of an amount by an index alone.

Indexes only, each in the place of one that begins with the same columns: whichever version runs beside finds what it
did.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
BESIDE = ("status", "model", "known_cost_picousd", "net_saving_picousd", "total_ms")
INDEXES = (
    ("ix_ledger_amounts_of_time", "ledger", ("created_at", "request_id", "tenant", *BESIDE), None),
    ("ix_ledger_amounts_of_tenant", "ledger", ("tenant", "created_at", "request_id", *BESIDE), None),
    *(
        (
            f"ix_ledger_amounts_of_{kind}",
            "ledger",
            (column, "created_at", "request_id", "tenant", *BESIDE),
            f"{column} IS NOT NULL",
        )
        for kind, column in (("user", "end_user"), ("key", "key_id"))
    ),
)
"""Name, table, columns and which rows. They are built before the upgrade."""
REPLACED = ("created_at", "tenant_created_at", "end_user_created_at", "key_id_created_at")


def upgrade() -> None:
    """Makes them, drops those that they replace, and says that whichever version could run before may run on."""
    for name, table, columns, where in INDEXES:
        only = sa.text(where) if where else None
        op.create_index(op.f(name), table, list(columns), if_not_exists=True, sqlite_where=only, postgresql_where=only)
    for name in REPLACED:
        op.drop_index(op.f(f"ix_ledger_{name}"), "ledger", if_exists=True)
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0018', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
