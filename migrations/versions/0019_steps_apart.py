"""Results of tool steps stand in their own table alone.

Versions of schema 0001, which do not know that table, may not run beside this one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Closes a database that those versions may use until now, and clears what they noted of steps with answers: the
    messages hold all of it."""
    is_open = sa.text("SELECT 1 FROM schema_revisions WHERE revision = '0018' AND oldest < '0002'")
    if op.get_bind().execute(is_open).first() is not None:
        op.execute("UPDATE schema_revisions SET oldest = '0002' WHERE revision > '0001'")
        op.execute("UPDATE messages SET reasoning_events = NULL WHERE reasoning_events IS NOT NULL")
    op.execute("INSERT INTO schema_revisions (revision, oldest) VALUES ('0019', '0002')")
