"""Who speaks: the agent of a message and of a bill, the task that agents of a conversation share, and
the mode of its prompt profile.

Columns that may be empty: the version before goes on writing rows without them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds the columns, and says that the version before may run beside this one."""
    op.add_column("messages", sa.Column("agent", sa.Text(), nullable=True))
    op.add_column("ledger", sa.Column("agent", sa.Text(), nullable=True))
    op.add_column("conversations", sa.Column("team_task", sa.Text(), nullable=True))
    op.add_column("conversations", sa.Column("profile", sa.String(length=32), nullable=True))
    op.execute("INSERT INTO schema_revisions (revision, oldest) VALUES ('0003', '0002')")
