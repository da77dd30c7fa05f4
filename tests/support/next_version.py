"""A version after this one: the same code, which needs a schema with a column, an index and a table more (ADR 10)."""

import shutil
from pathlib import Path

import pytest

from gateway.storage.database import migrate, schema
from tests.support.gateway_process import REPOSITORY

NEXT, BREAKING = "9998", "9999"
"""Revisions of the version after this one, and of one that this version may not run beside."""
INDEX = "ix_conversations_of_the_next"
MIGRATIONS = {
    NEXT: f'''"""The next: a column and a table more, and an index of a table that may be large."""
import sqlalchemy as sa
from alembic import op
revision, down_revision = "{NEXT}", "{schema.REVISION}"
INDEXES = [("{INDEX}", "conversations", ["tenant", "head_id"], "")]
def upgrade():
    for name, table, columns, _ in INDEXES:
        op.create_index(name, table, columns, if_not_exists=True)
    op.add_column("messages", sa.Column("of_the_next", sa.Text(), nullable=True))
    op.create_table("of_the_next", sa.Column("id", sa.Integer(), primary_key=True))
    op.execute("INSERT INTO schema_revisions (revision, oldest) VALUES ('{NEXT}', '{schema.REVISION}')")
''',
    BREAKING: f'''"""The one after, which breaks with this one."""
from alembic import op
revision, down_revision = "{BREAKING}", "{NEXT}"
def upgrade():
    op.execute("INSERT INTO schema_revisions (revision, oldest) VALUES ('{BREAKING}', '{NEXT}')")
''',
}


def next_migrations(folder: Path) -> Path:
    """The migrations of this version and the two after it, in a new folder."""
    shutil.copytree(REPOSITORY / "migrations", folder)
    for revision, text in MIGRATIONS.items():
        (folder / "versions" / f"{revision}_next.py").write_text(text)
    return folder


def next_sources(folder: Path) -> Path:
    """The sources of the next version in a new folder, for the `PYTHONPATH` of a process of its own, with what is
    compiled of them: to compile them anew takes as long as all that the process does."""
    shutil.copytree(REPOSITORY / "gateway", folder / "gateway")
    next_migrations(folder / "migrations")
    file = folder / "gateway" / "storage" / "database" / "schema.py"
    here, there = f'REVISION = "{schema.REVISION}"', f'REVISION = "{NEXT}"'
    text = file.read_text()
    assert here in text
    file.write_text(text.replace(here, there))
    return folder


def become_next(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Makes this process the next version, with the migrations of `folder`; `monkeypatch.undo` takes it back."""
    monkeypatch.setattr(schema, "REVISION", NEXT)
    monkeypatch.setattr(migrate, "migrations_folder", lambda: folder)
