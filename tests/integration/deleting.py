"""Turns that hold a word wherever a turn can hold one, and what is left of them."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from gateway.core.types.turn import TurnCommit
from gateway.storage.database.sqlite import DatabaseTransactions
from tests.integration.commits import USAGE, bill, document, message, turn
from tests.support.answers import system, tool_call, user
from tests.unit.making import NoCache

WORD = "xylophone"


def figures(conversation_id: str, tenant: str, **more: Any) -> dict[str, Any]:
    """What a ledger row says of a request that used an attachment and a tool's result, both named by people."""
    records = [
        {"artifact_id": "art_1", "source": f"attachment:0:{WORD} notes", "original_size_chars": 5},
        {"artifact_id": "art_2", "source": f"history:msg_3:{WORD}_lookup", "original_size_chars": 7},
    ]
    entry = bill(tenant, conversation_id)
    call = replace(entry.calls[0], prompt_cost=Decimal("1234.000000000001"), rates={})
    cost = {"total_cost": call.total, "prompt_cost": call.prompt_cost, "priced": True}
    metadata = {
        "usage": USAGE,
        "cost": cost,
        "context_utilization": {"artifacts_processed": records, "goal": "synthesis"},
    }
    return {"metadata": metadata, "calls": (call,), **more}


def full_turn(tenant: str, conversation_id: str, **more: Any) -> TurnCommit:
    """A turn that holds the word wherever a turn can hold one."""
    call = tool_call(f"call_{WORD}", WORD, WORD)
    asked = replace(message("user", f"about the {WORD}"), rendered=user(WORD), shown_in_full=(WORD,))
    steps = (asked, message("assistant", None, tool_calls=[call]), message("tool", WORD, tool_call_id=f"call_{WORD}"))
    return turn(tenant, conversation_id, answers=(f"the {WORD} is", WORD), new_messages=steps,
                instructions=(system(WORD),), attachments=(document(WORD, WORD),),
                completion_metadata={WORD: WORD}, entry=figures(conversation_id, tenant), **more)  # fmt: skip


async def rows(transactions: DatabaseTransactions, table: sa.Table, **equal: Any) -> list[Any]:
    """The rows of a table with these values."""
    where = [table.c[name] == value for name, value in equal.items()]
    return await transactions.run(lambda connection: list(connection.execute(sa.select(table).where(*where))))


class Keeping(NoCache):
    """Remembers which groups it was told to forget."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    async def evict(self, *groups: str) -> None:
        self.forgotten += groups
