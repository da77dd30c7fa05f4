"""Brings the schema up to date. Alembic is imported here only, when there is something to do."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa

import gateway
from gateway.storage import schema
from gateway.storage.engine import Transactions
from gateway.storage.probe import revision_of

LOCK = 0x636F6E7465787467  # "contextg": any number that no other application on the database uses


def migrations_folder() -> Path:
    """`migrations/` of a checkout, or the copy inside an installed wheel."""
    package = Path(gateway.__file__).parent
    bundled = package / "_migrations"
    return bundled if bundled.is_dir() else package.parent / "migrations"


async def migrate(transactions: Transactions) -> None:
    """Upgrades to this version's revision, in one transaction under an advisory lock, so that any number of
    processes may try at once. A schema that is newer than this version is left alone."""
    if await transactions.run(revision_of) != schema.REVISION:
        await transactions.run(_upgrade, write=True)


def _upgrade(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    current = revision_of(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current == schema.REVISION or (current is not None and current not in known):
        return
    attributes: dict[str, Any] = config.attributes
    attributes["connection"] = connection
    command.upgrade(config, schema.REVISION)
