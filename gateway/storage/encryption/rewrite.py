"""Seals what is stored already: plain rows, and those under previous keys (`gateway encrypt`), in small transactions
beside a running server. What is under the current key is skipped, so that it may be interrupted at any time.

Each key's id is noted in the storage before anything is sealed under it, and stays until nothing is (guarantee §12.11).
So a process that lacks a key learns this at its start, and serves nothing that it cannot read.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import sqlalchemy as sa

from gateway.core import errors
from gateway.core.frozen_records import record
from gateway.storage.database import schema
from gateway.storage.database.schema import file_contents
from gateway.storage.database.sqlite import insert_if_new
from gateway.storage.database.transactions import DatabaseTransactions
from gateway.storage.encryption.columns import HEAD, PREFIX, KeyVault, SealedText, WithheldText, vault_of

NOTED = "content-key:"
REWRITE_SECRETS = schema.secrets


async def require_keys(transactions: DatabaseTransactions) -> None:
    """Checks that the keys of all content are configured. Raises ContentUnreadable: content may be sealed under a key
    that is not; StorageUnavailable: the storage cannot be reached."""
    noted, here = await transactions.run(lambda connection: (noted_keys(connection), _keys(connection)))
    missing = sorted(noted.difference(here))
    if missing:
        names = ", ".join(missing)
        where = "storage.encryption_key or storage.encryption_keys_before has to name each key"
        raise errors.ContentUnreadable(
            f"The storage holds content under keys that are not configured ({names}): {where}."
        )


async def note_key(transactions: DatabaseTransactions) -> None:
    """Notes the current key in the storage, unless there is none or it is noted."""

    def is_new(connection: sa.Connection) -> bool:
        vault = vault_of(connection.dialect)
        return vault is not None and vault.current is not None and vault.current not in noted_keys(connection)

    if await transactions.run(is_new):
        await transactions.run(_note, write=True)


def noted_keys(connection: sa.Connection) -> set[str]:
    names = connection.execute(
        sa.select(REWRITE_SECRETS.c.name).where(REWRITE_SECRETS.c.name.startswith(NOTED))
    ).scalars()
    return {name.removeprefix(NOTED) for name in names}


def forget_keys(connection: sa.Connection) -> set[str]:
    """Deletes the noted ids of all keys but the current one. Returns them."""
    vault = vault_of(connection.dialect)
    gone = {each for each in noted_keys(connection) if vault is None or each != vault.current}
    connection.execute(REWRITE_SECRETS.delete().where(REWRITE_SECRETS.c.name.in_([f"{NOTED}{each}" for each in gone])))
    return gone


def _keys(connection: sa.Connection) -> tuple[str, ...]:
    vault = vault_of(connection.dialect)
    return () if vault is None else vault.key_ids


def _note(connection: sa.Connection) -> None:
    vault = vault_of(connection.dialect)
    if vault is not None:
        new = insert_if_new(connection, REWRITE_SECRETS).values(name=f"{NOTED}{vault.current}", value=b"")
        connection.execute(new)


LOOKED_AT = 500
"""Rows whose values' prefixes one transaction reads."""
REWRITTEN = 50
"""Rows that one transaction seals, and so the most that a writer waits for."""
PAUSE_SECONDS = 0.01
THINGS = schema.things
ALIASES = schema.thing_aliases
Key = tuple[Any, ...]


@record
class _ContentColumns:
    """A table with its columns of content, and those that are withheld where content is sealed."""

    table: sa.Table
    columns: tuple[sa.Column[Any], ...]
    withheld: tuple[sa.Column[Any], ...]

    @property
    def key(self) -> tuple[sa.Column[Any], ...]:
        return tuple(self.table.primary_key.columns)


@record
class StaleRows:
    """Counts of a table's rows that are not under the current key, by what they are under: `plain`, or a key's id."""

    table: str
    rows: Counter[str]


def in_words(rows: Counter[str]) -> str:
    """Renders the counts of `StaleRows`: `2 rows plain, 1 row under key 0a1b…`."""
    words = {"plain": "plain", "others": "with words to look them up that are not under the key"}
    return ", ".join(
        f"{count} {'row' if count == 1 else 'rows'} {words.get(kind, f'under key {kind}')}"
        for kind, count in sorted(rows.items())
        if count
    )


def contents() -> list[_ContentColumns]:
    found = []
    for table in schema.metadata.sorted_tables:
        columns = tuple(each for each in table.columns if isinstance(each.type, SealedText))
        withheld = tuple(each for each in table.columns if isinstance(each.type, WithheldText))
        if columns:
            found.append(_ContentColumns(table, columns, withheld))
    return found


async def find_others(transactions: DatabaseTransactions) -> AsyncIterator[StaleRows]:
    """Yields per table what is not under the current key."""
    for each in contents():
        rows: Counter[str] = Counter()
        async for others in _others(transactions, each):
            rows.update(kind for _, kind in others)
        yield StaleRows(each.table.name, rows)
    yield StaleRows(ALIASES.name, Counter({"others": await _aliases(transactions, write=False)}))
    yield StaleRows(file_contents.name, await transactions.run(_files))


async def seal_all(
    transactions: DatabaseTransactions, told: Callable[[int], None] | None = None
) -> AsyncIterator[StaleRows]:
    """Seals all content of tables under the current key, one table after the other; yields what of each was not. File
    contents are left to `gateway.operations.encrypting`.
    `told`: called with the number of rows of each batch.
    Raises ContentUnreadable: no key is current, or content is under a key that is not configured; StorageUnavailable:
    the storage cannot be reached; earlier batches stay sealed."""
    for each in contents():
        rows: Counter[str] = Counter()
        async for others in _others(transactions, each):
            rows.update(kind for _, kind in others)
            for start in range(0, len(others), REWRITTEN):
                keys = [key for key, _ in others[start : start + REWRITTEN]]
                await transactions.run(partial(_seal, each, keys), write=True)
                if told is not None:
                    told(len(keys))
                await asyncio.sleep(PAUSE_SECONDS)
        yield StaleRows(each.table.name, rows)
    yield StaleRows(ALIASES.name, Counter({"others": await _aliases(transactions, write=True)}))


async def forget_before(transactions: DatabaseTransactions) -> set[str]:
    """Deletes the noted ids of previous keys, if nothing is under them any more. Returns them."""
    async for found in find_others(transactions):
        if found.rows.total() > found.rows["plain"]:
            return set()
    return await transactions.run(forget_keys, write=True)


def _files(connection: sa.Connection) -> Counter[str]:
    from gateway.storage.stored_files import kinds_elsewhere  # a command that only checks does not need it

    return kinds_elsewhere(connection, current_vault(connection).current)


def current_vault(connection: sa.Connection) -> KeyVault:
    """Returns the vault of the database. Raises ContentUnreadable: it has no current key."""
    vault = vault_of(connection.dialect)
    if vault is None or vault.current is None:
        raise errors.ContentUnreadable("No storage.encryption_key is set.")
    return vault


async def _others(transactions: DatabaseTransactions, each: _ContentColumns) -> AsyncIterator[list[tuple[Key, str]]]:
    """Yields in batches the rows of a table that are not under the current key, and what each is under."""
    after: Key | None = ()
    while after is not None:
        others, after = await transactions.run(partial(_look, each, after))
        yield others


def _look(each: _ContentColumns, after: Key, connection: sa.Connection) -> tuple[list[tuple[Key, str]], Key | None]:
    """Returns the rows behind the key `after` that are not under the current key, and what they are under; and the last
    row that was checked, None at the end."""
    head = current_vault(connection).head
    begins = [sa.func.substr(sa.type_coerce(column, sa.Text), 1, HEAD) for column in each.columns]
    kept = [column.is_not(None) for column in each.withheld]
    query = sa.select(*each.key, *begins, *kept).order_by(*each.key).limit(LOOKED_AT)
    if after:
        query = query.where(sa.tuple_(*each.key) > after)
    rows = connection.execute(query).all()
    width = len(each.key)
    found: list[tuple[Key, str]] = []
    for row in rows:
        values = row[width : width + len(begins)]
        others = {_kind(value) for value in values if value and value != head}
        others |= {"plain" for value in row[width + len(begins) :] if value}
        if others:
            found.append((tuple(row[:width]), min(others)))
    return found, tuple(rows[-1][:width]) if len(rows) == LOOKED_AT else None


def _kind(begin: str) -> str:
    return begin.removeprefix(PREFIX) if begin.startswith(PREFIX) else "plain"


def _seal(each: _ContentColumns, keys: list[Key], connection: sa.Connection) -> None:
    vault = current_vault(connection)
    raw = [sa.type_coerce(column, sa.Text).label(f"raw_{column.name}") for column in each.columns]
    rows_of = sorted({column.type.row for column in each.columns if isinstance(column.type, SealedText)})
    named = [each.table.c[name].label(f"row_{name}") for name in rows_of]
    for key in keys:
        own = [column == value for column, value in zip(each.key, key, strict=True)]
        row = connection.execute(sa.select(*named, *raw).where(*own).with_for_update()).first()
        if row is None:
            continue
        values: dict[Any, Any] = dict.fromkeys(each.withheld)
        for column in each.columns:
            kind, text = column.type, row._mapping[f"raw_{column.name}"]
            if not isinstance(kind, SealedText) or not text or text.startswith(vault.head):
                continue
            name = row._mapping[f"row_{kind.row}"]
            fresh = vault.seal(vault.open(text, kind.column, name), kind.column, name)
            values[column] = sa.bindparam(f"new_{column.name}", fresh, type_=sa.Text())
        if values:
            connection.execute(each.table.update().where(*own).values(values))


async def _aliases(transactions: DatabaseTransactions, *, write: bool) -> int:
    """Checks the words by which things are found. Returns how many things have words that are not under the current
    key; with `write` it stores these words again."""
    found, after = 0, ""
    while True:
        count, last = await transactions.run(partial(_words, after, write), write=write)
        found += count
        if last is None:
            return found
        after = last


def _words(after: str, write: bool, connection: sa.Connection) -> tuple[int, str | None]:
    from gateway.storage.entities.entity_rows import INSERT_ALIASES, alias_rows

    vault = current_vault(connection)
    query = sa.select(THINGS.c.id).where(THINGS.c.id > after).order_by(THINGS.c.id).limit(REWRITTEN)
    ids = connection.execute(query).scalars().all()
    is_other = sa.func.substr(ALIASES.c.alias, 1, HEAD) != vault.head
    others = sa.select(ALIASES.c.memory_id).where(ALIASES.c.memory_id.in_(ids), is_other).distinct()
    found = connection.execute(others).scalars().all()
    if write and found:
        things = connection.execute(sa.select(THINGS).where(THINGS.c.id.in_(found)).with_for_update()).all()
        connection.execute(ALIASES.delete().where(ALIASES.c.memory_id.in_(found)))
        INSERT_ALIASES(connection, [word for thing in things for word in alias_rows(vault, dict(thing._mapping))])
    return len(found), ids[-1] if len(ids) == REWRITTEN else None
