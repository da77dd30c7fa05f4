"""System messages within conversations, found without reading all messages.

Adds an index only: the previous version keeps running and writes to it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
WHERE = "role IN ('system', 'developer')"
INDEXES = (("ix_messages_instructions", "messages", ("conversation_id", "sequence_number"), WHERE),)
"""Name, table, columns and which rows: built before the upgrade, as messages are many."""


def upgrade() -> None:
    """Adds it where it is not there yet, and says that whichever version could run before may run on."""
    for name, table, columns, where in INDEXES:
        only = sa.text(where)
        op.create_index(op.f(name), table, list(columns), if_not_exists=True, sqlite_where=only, postgresql_where=only)
    says = "INSERT INTO schema_revisions (revision, oldest) SELECT '0013', oldest FROM schema_revisions"
    op.execute(f"{says} WHERE revision = '{down_revision}'")
