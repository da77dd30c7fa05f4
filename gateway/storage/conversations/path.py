"""Reads a branch of a conversation with the requests that made it, and what is stored of these."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.errors import ConversationNotFound
from gateway.core.types.frames import PromptFrame
from gateway.core.types.past_turns import ConversationPath, PastBill, PastRequest, PastTurn, PathMessage, TurnDetails
from gateway.storage import rows
from gateway.storage.conversations.totals import read_spending
from gateway.storage.database import schema
from gateway.storage.database.engine import DatabaseTransactions
from gateway.storage.lookup.frame_rows import read_frame_then
from gateway.storage.lookup.walk import messages_of, upwards
from gateway.storage.turns.completions import read_requests

CONVERSATIONS, INSTRUCTIONS = schema.conversations, schema.instructions


class PastTurns:
    """Branches and bills of conversations, to be looked at. Each method is one short transaction.

    Raises:
        StorageUnavailable: from any method: the storage cannot be reached, or not within its timeout.
    """

    def __init__(self, transactions: DatabaseTransactions) -> None:
        self._transactions = transactions

    async def path(self, tenant: str, conversation_id: str, last: str | None = None) -> ConversationPath:
        """The branch that ends with the message `last`; None: with the conversation's latest.

        Raises:
            ConversationNotFound: the tenant has none of that id.
        """
        return await self._transactions.run(lambda connection: read_path(connection, tenant, conversation_id, last))

    async def bills(self, tenant: str, path: ConversationPath, turns: Sequence[PastTurn]) -> dict[str, PastBill]:
        """The bills of all requests of these turns of a branch, by the requests' ids."""
        ids = [request.request_id for turn in turns for request in turn.answered]
        return await self._transactions.run(
            lambda connection: read_bills(connection, tenant, path.conversation_id, ids)
        )

    async def details(self, tenant: str, path: ConversationPath, turn: PastTurn) -> TurnDetails:
        """What is stored of one turn beside its messages."""
        return await self._transactions.run(lambda connection: read_details(connection, tenant, path, turn.answered))


def read_path(
    connection: sa.Connection, tenant: str, conversation_id: str, last: str | None = None
) -> ConversationPath:
    """The branch that ends with the message `last`; None: with the conversation's latest.

    Raises:
        ConversationNotFound: the tenant has none of that id.
    """
    table = CONVERSATIONS
    where = (table.c.tenant == tenant, table.c.id == conversation_id)
    row = connection.execute(sa.select(table.c.id, table.c.head_id, table.c.forgotten_at).where(*where)).first()
    if row is None:
        raise ConversationNotFound("No such conversation.", param="conversation_id")
    end = last if last is not None else row.head_id
    found = connection.execute(_PATH, {"from": end}).all()[::-1] if end is not None else []
    known = sa.select(INSTRUCTIONS.c.digest, INSTRUCTIONS.c.body)
    bodies = connection.execute(known.where(INSTRUCTIONS.c.conversation_id == conversation_id))
    return ConversationPath(
        conversation_id,
        tuple(map(_message, found)),
        {each.digest: tuple(jsons.loads_stored(each.body)) for each in bodies},
        rows.utc(row.forgotten_at) if row.forgotten_at is not None else None,
    )


def read_details(
    connection: sa.Connection, tenant: str, path: ConversationPath, requests: Sequence[PastRequest]
) -> TurnDetails:
    """The bills of these requests, and the frames that they were sent with."""
    bills = read_bills(connection, tenant, path.conversation_id, [request.request_id for request in requests])
    frames: dict[str, PromptFrame | None] = {}
    for request in requests:
        bill, answer = bills.get(request.request_id), request.answer
        if bill is None or answer is None or answer.committed_at is None:
            continue
        way = {each.message.message_id for each in path.messages if each is not answer}
        model = bill.completion.ledger.window_model
        frames[request.request_id] = read_frame_then(connection, path.conversation_id, model, way, answer.committed_at)
    return TurnDetails(bills, frames)


def read_bills(
    connection: sa.Connection, tenant: str, conversation_id: str, request_ids: Sequence[str]
) -> dict[str, PastBill]:
    """The stored bills of these requests of a conversation, by their ids; those that were paid elsewhere have none."""
    spending = read_spending(connection, tenant, conversation_id)
    wanted = [each for each in request_ids if each in spending]
    found = read_requests(connection, tenant, wanted) if wanted else []
    return {each.ledger.request_id: PastBill(each, spending[each.ledger.request_id]) for each in found}


def _message(row: Any) -> PathMessage:
    return PathMessage(rows.message_of(row), row.request_id, row.choice, row.instructions_digest)


_PATH = messages_of(upwards())
