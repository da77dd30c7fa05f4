"""Results that were read again soon after they had been cut.

Adds columns only: previous versions keep running and leave them null.
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Adds them, and says that whichever version could run before may run on."""
    for table in ("ledger", "usage_days"):
        for name in ("bounced_tokens", "bounced_cost_picousd"):
            op.add_column(table, sa.Column(name, sa.BigInteger(), nullable=True))
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0017', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
