"""Who made an answer: what is bound to one provider is not sent to another."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    """Adds a column; answers from before are nobody's."""
    op.add_column("messages", sa.Column("origin", sa.Text(), nullable=True))
