"""How requests failed, how long they took, and the columns by which lists of requests are filtered and sorted.

Adds columns and indexes only: previous versions keep running and leave the columns null.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
INDEXES = (
    ("ix_ledger_key_id_created_at", "ledger", ("key_id", "created_at"), "key_id IS NOT NULL"),
    *(
        (f"ix_ledger_{name}_request_id", "ledger", (name, "request_id"), f"{name} IS NOT NULL")
        for name in ("known_cost_picousd", "net_saving_picousd")
    ),
)
"""Name, table, columns and which rows. They are built before the upgrade, where the columns are there."""
OF_NEW = ("ix_ledger_total_ms_request_id", "ledger", ("total_ms", "request_id"), "total_ms IS NOT NULL")
"""Of a new column, which is empty: no row is in it."""
COLUMNS: tuple[tuple[str, sa.types.TypeEngine[Any]], ...] = (
    ("http_status", sa.Integer()),
    ("total_ms", sa.BigInteger()),
    ("failure", sa.Text()),
)


def upgrade() -> None:
    """Adds them, and says that whichever version could run before may run on."""
    for name, kind in COLUMNS:
        op.add_column("ledger", sa.Column(name, kind, nullable=True))
    for index, table, columns, where in (*INDEXES, OF_NEW):
        only = sa.text(where)
        op.create_index(op.f(index), table, list(columns), if_not_exists=True, sqlite_where=only, postgresql_where=only)
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0016', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
