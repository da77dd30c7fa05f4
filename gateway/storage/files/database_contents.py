"""Contents of files in the database, in pieces of one mebibyte (adapter of `core.ports.documents.ContentStore`)."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import sqlalchemy as sa

from gateway.core.errors import StorageUnavailable
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.database.file_tables import file_chunks

PIECE = 2**20
LISTED = 1000
TABLE = file_chunks.c


class DatabaseContents:
    """Each piece is a transaction of its own: no upload holds a writer up for longer."""

    def __init__(self, transactions: DatabaseTransactions) -> None:
        self._transactions = transactions

    async def put(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        """Keeps them (`core.ports.documents.ContentStore`)."""
        buffer, number = bytearray(), 0
        try:
            async for piece in pieces:
                buffer += piece
                while len(buffer) >= PIECE:
                    await self._add(name, number, bytes(buffer[:PIECE]))
                    del buffer[:PIECE]
                    number += 1
            if buffer or not number:
                await self._add(name, number, bytes(buffer))
        except BaseException:
            await self.delete(name)
            raise

    async def open(self, name: str, start: int = 0) -> AsyncIterator[bytes]:
        """The content (`core.ports.documents.ContentStore`)."""
        first, skipped = divmod(start, PIECE)
        number = first
        while (found := await self._transactions.run(partial(_chunk, name, number))) is not None:
            yield found[skipped if number == first else 0 :]
            number += 1
        if number == first:
            raise StorageUnavailable("The content of the file is not in the storage.")

    async def delete(self, *names: str) -> None:
        """Deletes them (`core.ports.documents.ContentStore`)."""
        statement = file_chunks.delete().where(TABLE.object.in_(names))
        await self._transactions.run(lambda connection: connection.execute(statement).rowcount, write=True)
        await self._transactions.wipe()

    async def names(self) -> AsyncIterator[list[str]]:
        """What is kept, in batches (`core.ports.documents.ContentStore`)."""
        after = ""
        while True:
            query = sa.select(TABLE.object).where(TABLE.number == 0, TABLE.object > after)
            query = query.order_by(TABLE.object).limit(LISTED)
            found = await self._transactions.run(partial(_names, query))
            if not found:
                return
            yield found
            after = found[-1]

    async def _add(self, name: str, number: int, data: bytes) -> None:
        statement = file_chunks.insert().values(object=name, number=number, data=data)
        await self._transactions.run(lambda connection: connection.execute(statement).rowcount, write=True)


def _chunk(name: str, number: int, connection: sa.Connection) -> bytes | None:
    query = sa.select(TABLE.data).where(TABLE.object == name, TABLE.number == number)
    found = connection.execute(query).scalar()
    return bytes(found) if found is not None else None


def _names(query: sa.Select[Any], connection: sa.Connection) -> list[str]:
    return list(connection.execute(query).scalars())
