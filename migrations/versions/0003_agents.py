"""The agent of a message and of a bill, the task that a conversation's agents share, and the mode of its prompt
profile.

Adds nullable columns only: previous versions keep writing rows without them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds the columns, and says that whichever version could run before may run on."""
    op.add_column("messages", sa.Column("agent", sa.Text(), nullable=True))
    op.add_column("ledger", sa.Column("agent", sa.Text(), nullable=True))
    op.add_column("conversations", sa.Column("team_task", sa.Text(), nullable=True))
    op.add_column("conversations", sa.Column("profile", sa.String(length=32), nullable=True))
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0003', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
