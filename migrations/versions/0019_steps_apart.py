"""Results of tool steps stand in their own table alone.

Versions before schema 0016 may not run beside this one: they know no steps, no sums, or no failures.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Clears what the first version noted of steps with answers, where it may have run until now: the messages hold all
    of it."""
    is_open = sa.text("SELECT 1 FROM schema_revisions WHERE revision = '0018' AND oldest < '0002'")
    if op.get_bind().execute(is_open).first() is not None:
        op.execute("UPDATE messages SET reasoning_events = NULL WHERE reasoning_events IS NOT NULL")
    op.execute("INSERT INTO schema_revisions (revision, oldest) VALUES ('0019', '0016')")
