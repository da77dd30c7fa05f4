"""What a branch of a conversation has cost up to an answer, and would have cost without a gateway.

Adds a column only: the previous version keeps running and leaves it null.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Adds it, and says that whichever version could run before may run on."""
    op.add_column("messages", sa.Column("costs", sa.Text(), nullable=True))
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0014', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
