"""Digests that are missing are made up for as writing would have made them (ADR 8)."""

from typing import Any

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.ids import new_id
from gateway.core.types.chain import CHAIN_START, ChainDigest
from gateway.core.types.conversation import new_message
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.lookup.locate import backfill_digests
from gateway.storage.store import ConversationStore
from tests.integration.commits import turn
from tests.unit.making import assistant, tool, user

FEW = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
texts = st.sampled_from(["yes", "no", " spaced ", "long " * 20])
Found = dict[str, Any]


async def everything(transactions: DatabaseTransactions, conversation_id: str) -> Found:
    """Digests and numbers of all messages, and the links."""
    messages, links = schema.messages, schema.message_links

    def work(connection: sa.Connection) -> Found:
        columns = (messages.c.id, messages.c.sequence_number, messages.c.path_digest, messages.c.said_digest)
        query = sa.select(*columns, messages.c.plain).where(messages.c.conversation_id == conversation_id)
        rows = {row.id: (row.sequence_number, row.path_digest, row.said_digest, row.plain)
                for row in connection.execute(query)}  # fmt: skip
        found = sa.select(links.c.digest, links.c.message_id).where(links.c.conversation_id == conversation_id)
        return {"rows": rows, "links": {row.digest: row.message_id for row in connection.execute(found)}}

    return await transactions.run(work)


async def forget(transactions: DatabaseTransactions, conversation_id: str, *, all_of_it: bool) -> None:
    """As another version of the gateway, or an import, leaves it."""

    def work(connection: sa.Connection) -> None:
        table = schema.messages
        rows = connection.execute(sa.select(table.c.id).where(table.c.conversation_id == conversation_id)).scalars()
        ids = sorted(rows) if all_of_it else sorted(rows)[::2]
        head = connection.execute(
            sa.select(schema.conversations.c.head_id).where(schema.conversations.c.id == conversation_id)
        ).scalar()
        empty = {"path_digest": None, "said_digest": None, "plain": None}
        numbered = {**empty, "sequence_number": 7} if all_of_it else empty
        connection.execute(table.update().where(table.c.id.in_([*ids, head])).values(numbered))
        links = schema.message_links
        connection.execute(links.delete().where(links.c.conversation_id == conversation_id,
                                                links.c.message_id.in_([*ids, head])))  # fmt: skip

    await transactions.run(work, write=True)


@FEW
@given(data=st.data(), all_of_it=st.booleans())
async def test_what_is_missing_is_made_up_for(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str, data: st.DataObject, all_of_it: bool
) -> None:
    """A random tree of turns, failed and partial ones too, with tool steps and siblings."""
    conversation = new_id("conv_")
    places: list[tuple[str | None, ChainDigest]] = [(None, CHAIN_START)]
    said: set[tuple[str | None, str]] = set()
    for number in range(data.draw(st.integers(1, 6))):
        parent, base = data.draw(st.sampled_from(places))
        question = f"{number} {data.draw(texts)}"
        steps = data.draw(st.booleans())
        asked = [user(question), *([assistant("It is"), assistant(" so"), user("on")] if parent and steps else [])]
        asked += [assistant(None, "c"), tool("c", "r")] if steps else []
        messages = tuple(
            new_message(body).stored_as(new_id("msg_"), turn("t", "c").ledger.created_at) for body in asked
        )
        failed = data.draw(st.integers(0, 4)) == 0
        answers = () if failed else data.draw(st.lists(texts, min_size=1, max_size=2, unique_by=str.strip))
        commit = turn(
            tenant, conversation, answers=answers, status="failed" if failed else "complete", new_messages=messages,
            created=number == 0, at_head=False, parent_id=parent, base=base,
        )  # fmt: skip
        await store.commit(commit)
        assert commit.turn is not None
        said.add((parent, question))
        places += [(answer.message.message_id, answer.digest) for answer in commit.turn.answers]
    before = await everything(transactions, conversation)
    await forget(transactions, conversation, all_of_it=all_of_it)
    await transactions.run(lambda connection: backfill_digests(connection, conversation), write=True)
    after = await everything(transactions, conversation)
    healed = {each: row for each, row in after["rows"].items() if before["rows"][each][1] is not None}
    assert healed == {each: row for each, row in before["rows"].items() if row[1] is not None}
    assert after["links"] == before["links"]
