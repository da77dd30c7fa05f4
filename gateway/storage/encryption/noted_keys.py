"""Which keys the storage's content has been sealed under, as the storage itself notes it (guarantee §12.11).

Each id is noted before anything is sealed under its key, and stays until nothing is under it any more. So a process
that lacks a key is told at its start, and serves nothing that it cannot read.
"""

import sqlalchemy as sa

from gateway.core.errors import ContentUnreadable
from gateway.storage.database import schema
from gateway.storage.database.engine import insert_if_new
from gateway.storage.database.transactions import DatabaseTransactions
from gateway.storage.encryption.columns import vault_of

NOTED = "content-key:"
SECRETS = schema.secrets


async def require_keys(transactions: DatabaseTransactions) -> None:
    """
    Raises:
        ContentUnreadable: content may be under a key that is not configured.
        StorageUnavailable: the storage cannot be reached.
    """
    noted, here = await transactions.run(lambda connection: (noted_keys(connection), _keys(connection)))
    missing = sorted(noted.difference(here))
    if missing:
        names = ", ".join(missing)
        where = "storage.encryption_key or storage.encryption_keys_before has to name each key"
        raise ContentUnreadable(f"The storage holds content under keys that are not configured ({names}): {where}.")


async def note_key(transactions: DatabaseTransactions) -> None:
    """Notes the current key, where there is one that is not noted yet.

    Raises:
        StorageUnavailable: the storage cannot be reached.
    """

    def is_new(connection: sa.Connection) -> bool:
        vault = vault_of(connection.dialect)
        return vault is not None and vault.current is not None and vault.current not in noted_keys(connection)

    if await transactions.run(is_new):
        await transactions.run(_note, write=True)


def noted_keys(connection: sa.Connection) -> set[str]:
    """The ids that are noted."""
    names = connection.execute(sa.select(SECRETS.c.name).where(SECRETS.c.name.startswith(NOTED))).scalars()
    return {name.removeprefix(NOTED) for name in names}


def forget_keys(connection: sa.Connection) -> set[str]:
    """Takes out the ids of all keys but the current one. Returns them."""
    vault = vault_of(connection.dialect)
    gone = {each for each in noted_keys(connection) if vault is None or each != vault.current}
    connection.execute(SECRETS.delete().where(SECRETS.c.name.in_([f"{NOTED}{each}" for each in gone])))
    return gone


def _keys(connection: sa.Connection) -> tuple[str, ...]:
    vault = vault_of(connection.dialect)
    return () if vault is None else vault.key_ids


def _note(connection: sa.Connection) -> None:
    vault = vault_of(connection.dialect)
    if vault is not None:
        new = insert_if_new(connection, SECRETS).values(name=f"{NOTED}{vault.current}", value=b"")
        connection.execute(new)
