"""What each request would have cost its client without a gateway, the saving, and which conversations are in the
holdout.

Adds columns only: previous versions keep running and leave them null. Their requests are not in the sums of savings.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
SAVINGS = ("direct_cost_picousd", "net_saving_picousd")
GROUPS = ("held_out_requests", "held_out_cost_picousd", "economised_requests", "economised_cost_picousd")


def upgrade() -> None:
    """Adds them, and says that whichever version could run before may run on."""
    for table, more in (("ledger", ()), ("conversations", ("metered",)), ("usage_days", ("metered", *GROUPS))):
        for name in (*SAVINGS, *more):
            op.add_column(table, sa.Column(name, sa.BigInteger(), nullable=True))
    op.add_column("ledger", sa.Column("held_out", sa.Boolean(), nullable=True))
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0015', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
