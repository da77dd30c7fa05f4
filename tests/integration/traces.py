"""Looks for words that are to be nowhere any more."""

from typing import Any

import sqlalchemy as sa

from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions


async def traces(transactions: DatabaseTransactions, word: str) -> list[str]:
    """`table.column` of every value in the database that holds the word."""

    def work(connection: sa.Connection) -> list[str]:
        found = []
        for table in schema.metadata.sorted_tables:
            for row in connection.execute(sa.select(table)):
                found += [f"{table.name}.{name}" for name, value in row._mapping.items() if _holds(value, word)]
        return sorted(set(found))

    return await transactions.run(work)


def _holds(value: Any, word: str) -> bool:
    return word.encode() in value if isinstance(value, bytes) else word in str(value)
