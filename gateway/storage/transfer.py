"""Conversations out of the storage and into it (adapter of `ports.ConversationTransfer`)."""

import asyncio
from collections.abc import Iterator

from gateway.models.transfer import Imported, ImportedConversation
from gateway.ports import Clock
from gateway.storage.engine import Transactions
from gateway.storage.export import document, read_rows
from gateway.storage.imports import rows_of, write_import


class Transfer:
    """Each way is one transaction; JSON is written and taken apart on threads, a piece at a time."""

    def __init__(self, transactions: Transactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    async def export_conversation(self, tenant: str | None, conversation_id: str) -> Iterator[bytes] | None:
        """See `ports.ConversationTransfer`."""
        found = await read_rows(self._transactions, tenant, conversation_id)
        return None if found is None else document(found)

    async def import_conversation(self, tenant: str, made: ImportedConversation) -> Imported:
        """See `ports.ConversationTransfer`."""
        rows = await asyncio.to_thread(rows_of, tenant, made, self._clock.now())
        return await self._transactions.run(lambda connection: write_import(connection, rows), write=True)
