"""Rows as the version before wrote them: without the columns that it did not know (ADR 10)."""

import asyncio
import sqlite3

import asyncpg

STATEMENTS = (
    "UPDATE messages SET path_digest = NULL, said_digest = NULL, plain = NULL, restored = NULL, tokens = NULL",
    "UPDATE attachments SET said_digest = NULL",
    "DELETE FROM message_links",
    "DELETE FROM chains",
)


def make_old(storage_url: str) -> None:
    """Everything that is stored becomes what the version of revision 0002 would have stored."""
    if storage_url.startswith("sqlite"):
        with sqlite3.connect(storage_url.removeprefix("sqlite:///"), timeout=10) as connection:
            for sql in STATEMENTS:
                connection.execute(sql)
        connection.close()
        return

    async def run() -> None:
        connection = await asyncpg.connect(storage_url.replace("+asyncpg", "", 1))
        for sql in STATEMENTS:
            await connection.execute(sql)
        await connection.close()

    asyncio.run(run())
