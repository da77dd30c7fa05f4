"""`reasoning_events`: the store of tool steps, one row each, on both databases (ADR 19)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.config.settings import StorageSettings
from gateway.core.types.conversation import ConversationMessage
from gateway.core.types.records import NewConversation
from gateway.core.types.turn import TurnCommit
from gateway.storage.cache.memory_cache import MemoryCache
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.conversations.transfers import ConversationTransfer
from gateway.storage.database import schema
from gateway.storage.database.finish import finish
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.store import ConversationStore
from gateway.storage.turns import steps
from tests.integration.commits import NOW, contents, message, rebuilt, turn
from tests.support.answers import there, tool_call, user
from tests.support.schemas import bring_up

STEPS, MESSAGES = schema.reasoning_events, schema.messages
CALL = tool_call("call_1", "search", '{"q": 1}')
OTHER = tool_call("call_2", "fetch", '{"q": 2}')


def asked() -> list[ConversationMessage]:
    return [message("user", "find it"), message("assistant", None, tool_calls=[CALL, OTHER])]


def answered() -> list[ConversationMessage]:
    """The results, in another order than their calls."""
    return [message("tool", "second", tool_call_id="call_2"), message("tool", "first", tool_call_id="call_1")]


async def rows(transactions: DatabaseTransactions, table: sa.Table) -> list[Any]:
    return await transactions.run(lambda connection: list(connection.execute(sa.select(table))))


async def of(transactions: DatabaseTransactions, conversation: str) -> list[Any]:
    """The steps of a conversation, in the order of their calls."""
    query = sa.select(STEPS).where(STEPS.c.conversation_id == conversation).order_by(STEPS.c.position)
    return await transactions.run(lambda connection: list(connection.execute(query)))


async def told(store: ConversationStore, tenant: str, conversation: str) -> list[str]:
    return contents(await rebuilt(store, tenant, conversation))


def brought(tenant: str, conversation: str, messages: Sequence[ConversationMessage], **more: Any) -> TurnCommit:
    return turn(tenant, conversation, new_messages=tuple(messages), **more)


async def execute(transactions: DatabaseTransactions, statement: Any) -> None:
    await transactions.run(lambda connection: connection.execute(statement).close(), write=True)


@pytest.fixture
def conversation(tenant: str) -> str:
    return "conv_steps" + tenant


@pytest.fixture
def still_beside_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database on which the version before may run."""
    monkeypatch.setattr("gateway.storage.turns.write_turn.results_apart", lambda _: False)
    monkeypatch.setattr("gateway.storage.conversations.transfers.results_apart", lambda _: False)


async def test_a_step_is_one_row_with_call_arguments_result_times_order_and_answer(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str, conversation: str
) -> None:
    """Also those that a client brought along; the body of a result stands nowhere else."""
    made = brought(tenant, conversation, [*asked(), *answered()], created=True)
    await store.commit(made)
    assert made.turn is not None
    ids = [each.message_id for each in made.turn.new_messages]
    first, second = await of(transactions, conversation)
    assert (first.tool, first.tool_call_id, first.arguments) == ("search", "call_1", '{"q": 1}')
    assert jsons.loads(first.result) == {"role": "tool", "content": "first", "tool_call_id": "call_1"}
    assert (first.call_message_id, first.message_id) == (ids[1], ids[3])
    assert (second.call_message_id, second.message_id, second.tool) == (ids[1], ids[2], "fetch")
    assert {first.answer_id, second.answer_id} == {made.turn.answers[0].message.message_id}
    assert first.called_at.replace(tzinfo=None) == first.answered_at.replace(tzinfo=None) == NOW.replace(tzinfo=None)
    bodies = [row.body for row in await rows(transactions, MESSAGES) if row.conversation_id == conversation]
    assert not [body for body in bodies if "first" in body or "second" in body]
    assert await told(store, tenant, conversation) == ["find it", None, "second", "first", "answer"]


async def test_a_later_result_finds_the_call_that_was_stored_before(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str, conversation: str
) -> None:
    opening = brought(tenant, conversation, asked()[:1], created=True, answers=())
    await store.commit(opening)
    called = replace(asked()[1], message_id="msg_called" + tenant[:20])
    calling = brought(
        tenant, conversation, [called], answers=(), parent_id=there(opening.turn).new_messages[0].message_id
    )
    await store.commit(calling)
    late = brought(tenant, conversation, answered()[:1], parent_id=called.message_id)
    await store.commit(TurnCommit(late.ledger, replace(there(late.turn), open_step=(called,))))
    (step,) = await of(transactions, conversation)
    assert (step.call_message_id, step.position, step.tool) == (called.message_id, 1, "fetch")


async def test_without_their_rows_the_steps_do_not_come_back(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str, conversation: str
) -> None:
    await store.commit(brought(tenant, conversation, [*asked(), *answered()], created=True))
    await execute(transactions, STEPS.delete().where(STEPS.c.conversation_id == conversation))
    assert await told(store, tenant, conversation) == ["find it", None, "", "", "answer"]


async def test_items_that_are_added_are_steps_too(transactions: DatabaseTransactions, tenant: str) -> None:
    from gateway.api.conversations.endpoint import parse_items

    records = ConversationRecords(transactions, SystemClock(), MemoryCache(1000, SystemClock()))
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    made = await records.create(tenant, NewConversation("conv_i" + tenant, {}, parse_items([user("q")])), "req_0")
    await records.add_items(tenant, made.conversation_id, parse_items([call]), "req_1")
    output = {"type": "function_call_output", "call_id": "c1", "output": "there"}
    await records.add_items(tenant, made.conversation_id, parse_items([output]), "req_2")
    (step,) = await of(transactions, made.conversation_id)
    assert (step.tool, step.arguments, jsons.loads(step.result)["content"]) == ("look", "{}", "there")
    assert step.call_message_id is not None


@pytest.mark.usefixtures("still_beside_older")
async def test_beside_an_older_version_results_stay_where_that_one_reads_them(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str, conversation: str
) -> None:
    """ADR 10: what either version stores, the other continues."""
    await store.commit(brought(tenant, conversation, [*asked(), *answered()], created=True))
    assert [row.result for row in await of(transactions, conversation)] == [None, None]
    stored = [row.body for row in await rows(transactions, MESSAGES) if row.conversation_id == conversation]
    assert all(stored)
    assert await told(store, tenant, conversation) == ["find it", None, "second", "first", "answer"]


async def test_finishing_moves_what_older_versions_stored_and_can_be_run_again(
    store: ConversationStore,
    transactions: DatabaseTransactions,
    tenant: str,
    conversation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ADR 19: in batches, each of its own; nothing is read differently before, between and after."""
    monkeypatch.setattr("gateway.storage.turns.write_turn.results_apart", lambda _: False)
    made = brought(tenant, conversation, [*asked(), *answered()], created=True)
    await store.commit(made)
    older = sa.delete(STEPS).where(STEPS.c.conversation_id == conversation)  # the version before knew no such rows
    await execute(transactions, older)
    noted = MESSAGES.update().where(MESSAGES.c.conversation_id == conversation, MESSAGES.c.choice.is_not(None))
    await execute(transactions, noted.values(reasoning_events="[]"))
    monkeypatch.undo()
    before = await told(store, tenant, conversation)
    assert await finish(transactions) >= 2
    assert await told(store, tenant, conversation) == before
    first, second = await of(transactions, conversation)
    assert (first.tool, second.tool) == ("search", "fetch")
    assert jsons.loads(first.result)["content"] == "first"
    assert first.answer_id == there(made.turn).answers[0].message.message_id
    mine = [row for row in await rows(transactions, MESSAGES) if row.conversation_id == conversation]
    assert [row.body for row in mine if row.role == "tool"] == ["", ""]
    assert all(row.reasoning_events is None for row in mine)
    assert await finish(transactions) == 0


async def test_finishing_looks_at_each_message_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """ADR 19: a large database is finished in batches that stay as short as the first."""
    monkeypatch.setattr("gateway.storage.database.finish.BATCH", 4)
    few, many = await _steps_to_finish(100), await _steps_to_finish(400)
    assert many < 5 * few


async def _steps_to_finish(count: int) -> int:
    """What SQLite's machine does, in hundreds of its steps, for so many messages that the version before noted."""
    transactions = open_transactions(StorageSettings(url="sqlite:///:memory:"))
    await bring_up(transactions)
    said = [message("user", f"question {number}") for number in range(count - 1)]
    made = brought("t", "conv_noted", said, created=True)
    await ConversationStore(transactions, SystemClock()).commit(made)
    await execute(transactions, MESSAGES.update().values(reasoning_events="[]"))
    done: list[None] = []

    def watched(connection: sa.Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: done.append(None), 100)

    await transactions.run(watched)
    await finish(transactions)
    assert not [row for row in await rows(transactions, MESSAGES) if row.reasoning_events is not None]
    await transactions.close()
    return len(done)


async def test_a_new_database_has_no_older_version_beside_it(transactions: DatabaseTransactions) -> None:
    assert await transactions.run(steps.results_apart)


async def test_an_import_makes_the_steps_anew(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str, conversation: str
) -> None:
    from gateway.api.conversations.import_check import parse_export

    await store.commit(brought(tenant, conversation, [*asked(), *answered()], created=True))
    transfer = ConversationTransfer(transactions, SystemClock())
    document = there(await transfer.export_conversation(tenant, conversation))
    text = b"".join(document)
    exported = [each["reasoning_events"] for each in jsons.loads(text)["messages"] if each["reasoning_events"]]
    assert [events[0]["tool"] for events in exported] == ["fetch", "search"]
    made = await transfer.import_conversation(tenant, parse_export(text))
    for one, other in zip(
        await of(transactions, conversation), await of(transactions, made.conversation_id), strict=True
    ):
        for name in ("position", "tool", "tool_call_id", "arguments", "result"):
            assert getattr(one, name) == getattr(other, name)
        assert other.answer_id is not None
    assert await told(store, tenant, made.conversation_id) == await told(store, tenant, conversation)


async def test_very_many_steps_cost_less_than_twice_their_messages(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str, conversation: str
) -> None:
    """A step is stored once, however many follow it: each is committed by a request of its own."""
    parent: str | None = None
    size = 0
    for number in range(120):
        call = tool_call(f"c{number}", "look", f'{{"n": {number}}}')
        called = message("assistant", None, tool_calls=[call])
        result = message("tool", f"row {number} of the table: " + "value " * 20, tool_call_id=f"c{number}")
        size += sum(len(jsons.dumps_text(each.body)) for each in (called, result))
        made = brought(tenant, conversation, [called, result], created=not number, parent_id=parent,
                       answers=())  # fmt: skip
        await store.commit(made)
        parent = there(made.turn).new_messages[-1].message_id
    found = await of(transactions, conversation)
    assert len(found) == 120
    stored = sum(sum(len(str(value)) for value in row if value is not None) for row in found)
    assert stored < 2 * size
