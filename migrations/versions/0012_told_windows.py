"""Windows that upstreams reported, and how many tokens they count for each message beyond the gateway's count.

Adds columns with defaults only: the previous version keeps running and leaves the defaults.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Adds them, and says that whichever version could run before may run on."""
    op.add_column("calibrations", sa.Column("added_per_message", sa.Integer(), server_default="0", nullable=False))
    op.add_column("calibrations", sa.Column("told_window", sa.Integer(), nullable=True))
    op.add_column("calibrations", sa.Column("told_until", sa.DateTime(timezone=True), nullable=True))
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0012', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
