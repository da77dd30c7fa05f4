"""Requests of a user, key, tenant or period are sorted by an amount with an index alone.

Replaces indexes by longer ones that begin with the same columns: any version that is running still finds its index.
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
