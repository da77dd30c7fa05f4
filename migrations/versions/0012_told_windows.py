"""Windows that upstreams told, and what they count for each message beyond what the gateway knows.

Only new columns with defaults: the version before runs on beside it, and leaves them as they are.
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
