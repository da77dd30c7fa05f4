"""`ports.ConversationStore`: which messages a conversation's path holds, however turns came about."""

import asyncio
from dataclasses import replace

import pytest
import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings
from gateway.core.ids import new_id
from gateway.core.types.conversation import (
    INSTRUCTION_ROLES,
    ConversationMessage,
    ConversationRef,
    StoredConversation,
    new_message,
)
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.lookup.segments import INSTRUCTIONS
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, contents, in_force, listed, message, rebuilt, turn
from tests.support.answers import assistant, system, there, tool_call, user


async def test_an_edited_message_branches_and_the_head_is_the_latest_committed_turn(
    store: ConversationStore, tenant: str
) -> None:
    ref = ConversationRef("conv_" + tenant)
    first = turn(tenant, "conv_" + tenant, "q1", ["a1"], created=True)
    await store.commit(first)
    await store.commit(turn(tenant, "conv_" + tenant, "q2", ["a2"]))
    shared = there(first.turn).answers[0].message.message_id
    await store.commit(turn(tenant, "conv_" + tenant, "q2 edited", ["b2"], at_head=False, parent_id=shared))
    found = await rebuilt(store, tenant, ref)
    assert contents(found) == ["q1", "a1", "q2 edited", "b2"]
    assert [m.sequence_number for m in found.path] == [0, 1, 2, 3]
    await store.commit(turn(tenant, "conv_" + tenant, "from the start", ["c1"], at_head=False, parent_id=None))
    assert contents(await rebuilt(store, tenant, ref)) == ["from the start", "c1"]
    assert len(await listed(store, tenant, "conv_" + tenant)) == 4


async def test_a_resend_sees_every_branch_and_a_delta_only_the_heads(store: ConversationStore, tenant: str) -> None:
    ref = ConversationRef("conv_" + tenant)
    old, new = (system("old"),), (system("new"),)
    first = turn(tenant, "conv_" + tenant, "q1", ["a1", "sibling"], created=True, instructions=old)
    await store.commit(first)
    shared = there(first.turn).answers[0].message.message_id
    await store.commit(turn(tenant, "conv_" + tenant, "q2", ["a2"], instructions=old))
    await store.commit(turn(tenant, "conv_" + tenant, "lost", [], status="failed"))
    edited = turn(tenant, "conv_" + tenant, "edited", ["b2"], at_head=False, parent_id=shared, instructions=new)
    await store.commit(edited)
    found = await rebuilt(store, tenant, ref)
    assert contents(found) == ["q1", "a1", "edited", "b2"]
    assert in_force(found) == new
    limited = await rebuilt(store, tenant, ref, 100_000)
    assert contents(limited) == contents(found)


async def test_s3_4_of_several_answers_the_first_is_continued(store: ConversationStore, tenant: str) -> None:
    ref = ConversationRef("conv_" + tenant)
    await store.commit(turn(tenant, "conv_" + tenant, "q1", ["first", "second", "third"], created=True))
    assert contents(await rebuilt(store, tenant, ref)) == ["q1", "first"]
    await store.commit(turn(tenant, "conv_" + tenant, "q2", ["a2"]))
    assert contents(await rebuilt(store, tenant, ref)) == ["q1", "first", "q2", "a2"]


async def test_a_failed_turn_is_kept_for_the_audit_and_in_no_path(store: ConversationStore, tenant: str) -> None:
    ref = ConversationRef("conv_" + tenant)
    await store.commit(turn(tenant, "conv_" + tenant, "lost first", [], created=True, status="failed"))
    assert contents(await rebuilt(store, tenant, ref)) == []
    await store.commit(turn(tenant, "conv_" + tenant, "q1", ["a1"]))
    await store.commit(turn(tenant, "conv_" + tenant, "lost", [], status="failed"))
    await store.commit(turn(tenant, "conv_" + tenant, "q2", ["a2"]))
    assert contents(await rebuilt(store, tenant, ref)) == ["q1", "a1", "q2", "a2"]
    found = await listed(store, tenant, "conv_" + tenant)
    assert sorted(each.ledger.status for each in found) == ["complete", "complete", "failed", "failed"]


async def test_a_conversation_deleted_while_the_model_answered_stays_deleted_and_the_bill_stays(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    await store.commit(turn(tenant, "conv_" + tenant, created=True))
    where = schema.conversations.c.id == "conv_" + tenant
    await transactions.run(lambda c: c.execute(schema.conversations.delete().where(where)).rowcount, write=True)
    late = turn(tenant, "conv_" + tenant, "late", ["too late"])
    await store.commit(late)
    assert not await store.has_conversation(tenant, "conv_" + tenant)
    assert await store.find_conversation(tenant, ConversationRef("conv_" + tenant), max_bytes=None) is None
    found = there(await store.find_completion(tenant, late.ledger.request_id))
    assert found.completion is None
    assert found.ledger.calls == late.ledger.calls

    def leftovers(connection: sa.Connection) -> int:
        tables = (schema.messages, schema.completions, schema.instructions, schema.attachments)
        counts = (sa.select(sa.func.count()).where(t.c.conversation_id == "conv_" + tenant) for t in tables)
        return sum(connection.execute(count).scalar_one() for count in counts)

    assert await transactions.run(leftovers) == 0


@pytest.mark.parametrize("number", [31, 32, 33, 544, 545, 701])
async def test_long_paths_come_whole_and_in_order_across_pages(
    store: ConversationStore, tenant: str, number: int
) -> None:
    asked = tuple(message("user", f"q{n}") for n in range(number - 1))
    await store.commit(turn(tenant, "conv_" + tenant, created=True, new_messages=asked))
    found = await rebuilt(store, tenant, "conv_" + tenant)
    assert contents(found) == [*(f"q{n}" for n in range(number - 1)), "answer"]
    assert found.unread == 0


@pytest.mark.parametrize("max_bytes", [0, 1000, 60_000])
async def test_whole_turns_are_read_the_latest_always_and_older_ones_up_to_max_bytes(
    store: ConversationStore, tenant: str, max_bytes: int
) -> None:
    talk = [message(("user", "assistant")[n % 2], f"{n:05}" * 40) for n in range(619)]
    await store.commit(turn(tenant, "conv_" + tenant, created=True, new_messages=tuple(talk)))
    ref = ConversationRef("conv_" + tenant)
    whole = await rebuilt(store, tenant, ref)
    part = await rebuilt(store, tenant, ref, max_bytes)
    assert part.unread == len(whole.path) - len(part.path) > 0
    assert part.path == whole.path[-len(part.path) :]
    assert part.path[0].role == "user"
    sizes = [len(jsons.dumps(m.body)) for m in part.path]
    assert len(sizes) == 2 or sum(sizes[2:]) <= max_bytes
    assert sum(sizes) > max_bytes - 2 * max(sizes), "as much as may be read is read"


async def test_big_tool_results_count_as_little_as_they_can_be_reduced_to(
    store: ConversationStore, tenant: str
) -> None:
    call = tool_call("c", "f")
    step = [message("assistant", None, tool_calls=[call]), message("tool", "x" * 50_000, tool_call_id="c")]
    talk = [each for n in range(10) for each in (message("user", f"q{n}"), *step, message("assistant", f"a{n}"))]
    talk = [replace(each, message_id=new_id("msg_")) for each in talk]
    await store.commit(turn(tenant, "conv_" + tenant, created=True, new_messages=tuple(talk)))
    found = await rebuilt(store, tenant, "conv_" + tenant, 50_000)
    assert found.unread == 0
    assert [m.body for m in found.path[:-1]] == [m.body for m in talk]


async def test_a_path_that_fits_max_bytes_is_read_whole(store: ConversationStore, tenant: str) -> None:
    await store.commit(turn(tenant, "conv_" + tenant, created=True))
    found = await rebuilt(store, tenant, "conv_" + tenant, 10_000)
    assert contents(found) == ["question", "answer"]
    assert found.unread == 0


async def test_parallel_commits_lose_nothing_and_append_whole_turns_one_after_the_other(
    store: ConversationStore, other_store: ConversationStore, tenant: str
) -> None:
    ref = ConversationRef("conv_" + tenant)
    await store.commit(turn(tenant, "conv_" + tenant, "q", ["a"], created=True))
    order: list[int] = []

    async def commit(number: int) -> None:
        chosen = (store, other_store)[number % 2]
        await chosen.commit(turn(tenant, "conv_" + tenant, f"q{number}", [f"a{number}", "sibling"]))
        order.append(number)

    await asyncio.gather(*(commit(number) for number in range(16)))
    found = await rebuilt(store, tenant, ref)
    path = contents(found)
    assert path[:2] == ["q", "a"]
    turns = list(zip(path[2::2], path[3::2], strict=True))
    assert sorted(turns) == sorted((f"q{n}", f"a{n}") for n in range(16))
    assert [m.sequence_number for m in found.path] == list(range(34))
    assert len(order) == 16


async def test_a_turn_that_began_at_the_head_is_hung_on_what_the_head_is_at_its_commit(
    store: ConversationStore, tenant: str
) -> None:
    first = turn(tenant, "conv_" + tenant, "q1", ["a1"], created=True)
    await store.commit(first)
    seen = there(first.turn).answers[0].message.message_id
    await store.commit(turn(tenant, "conv_" + tenant, "fast", ["quick"], parent_id=seen))
    await store.commit(turn(tenant, "conv_" + tenant, "slow", ["late"], parent_id=seen))
    found = await rebuilt(store, tenant, "conv_" + tenant)
    assert contents(found) == ["q1", "a1", "fast", "quick", "slow", "late"]


async def test_a_turn_whose_head_moved_to_another_branch_stays_with_what_it_has_seen(
    store: ConversationStore, tenant: str
) -> None:
    """§3.7: each sees what was committed when it began; appended behind the head only if that leads back to it."""
    conversation = "conv_" + tenant
    ref = ConversationRef(conversation)
    first = turn(tenant, conversation, "q1", ["a1"], created=True)
    second = turn(tenant, conversation, "q2", ["a2"])
    for each in (first, second):
        await store.commit(each)
    seen = there(second.turn).answers[0].message.message_id
    edited = turn(tenant, conversation, "edit", ["b2"], at_head=False,
                  parent_id=there(first.turn).answers[0].message.message_id)  # fmt: skip
    await store.commit(edited)
    await store.commit(turn(tenant, conversation, "q3", ["a3"], parent_id=seen))
    assert contents(await rebuilt(store, tenant, ref)) == ["q1", "a1", "q2", "a2", "q3", "a3"]
    await store.commit(turn(tenant, conversation, "q4", ["a4"], parent_id=seen))
    assert contents(await rebuilt(store, tenant, ref))[-4:] == ["q3", "a3", "q4", "a4"]


async def test_the_same_edit_by_two_at_once_is_stored_once(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§3.4: each message is stored once however often it is resent; the answers are siblings."""
    conversation = "conv_" + tenant
    first = turn(tenant, conversation, "q1", ["a1"], created=True)
    await store.commit(first)
    await store.commit(turn(tenant, conversation, "q2", ["a2"]))
    shared = there(first.turn).answers[0]
    edit = [user("edit"), assistant("mine")]
    for question, answer in (("q7", "a7"), ("q8", "a8"), ("q8", "a8 again")):
        new = tuple(new_message(body).stored_as(new_id("msg_"), NOW) for body in [*edit, user(question)])
        place = {"at_head": False, "parent_id": shared.message.message_id, "base": shared.digest}
        await store.commit(turn(tenant, conversation, answers=[answer], new_messages=new, **place))
    found = await rebuilt(store, tenant, conversation)
    assert contents(found) == ["q1", "a1", "edit", "mine", "q8", "a8 again"]
    table = schema.messages

    def work(connection: sa.Connection) -> list[str]:
        query = sa.select(table.c.body).where(table.c.conversation_id == conversation)
        return sorted(str(jsons.loads_stored(body)["content"]) for body in connection.execute(query).scalars())

    stored = await transactions.run(work)
    assert stored == sorted(["q1", "a1", "q2", "a2", "edit", "mine", "q7", "a7", "q8", "a8", "a8 again"])


async def test_an_edit_by_two_at_once_in_other_white_space_stays_as_each_was_sent(
    store: ConversationStore, tenant: str
) -> None:
    """§4 I7: what was forwarded of each stands at the beginning of the request that goes on from it."""
    conversation = "conv_" + tenant
    first = turn(tenant, conversation, "q1", ["a1"], created=True)
    await store.commit(first)
    shared = there(first.turn).answers[0]
    for question in ("edit", " edit\n"):
        new = (new_message(user(question)).stored_as(new_id("msg_"), NOW),)
        place = {"at_head": False, "parent_id": shared.message.message_id, "base": shared.digest}
        await store.commit(turn(tenant, conversation, answers=["ok"], new_messages=new, **place))
    found = await rebuilt(store, tenant, conversation)
    assert contents(found) == ["q1", "a1", " edit\n", "ok"]


def told(found: StoredConversation | None) -> list[str]:
    """The system messages of a path, also those before what was read of it."""
    assert found is not None
    return [str(m.content) for m in (*found.older_kept, *found.path) if m.role in INSTRUCTION_ROLES]


async def test_s11_12_system_messages_before_what_is_read_are_those_of_the_path(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§11.12: not those of other branches, of failed turns, or that were deleted, wherever numbers are missing then."""
    name = "conv_" + tenant
    clock = SystemClock()
    records = ConversationRecords(transactions, clock, open_cache(CacheSettings(), clock))
    ends: dict[str, str] = {}

    async def told_in(branch: str) -> list[str]:
        ref = ConversationRef(at=ends[branch])
        part, whole = [await store.find_conversation(tenant, ref, max_bytes=each) for each in (8, None)]
        assert part is not None
        assert part.unread
        assert told(part) == told(whole)
        return told(part)

    first = turn(tenant, name, new_messages=(message("user", "q"), message("system", "all")), created=True)
    await store.commit(first)
    shared = there(first.turn).answers[0].message.message_id
    rule: dict[str, ConversationMessage] = {}
    for branch in "ab":
        behind, rule[branch] = shared, message("developer", branch)
        for number in range(4):
            new = (message("user", f"{branch}{number}"), *((rule[branch],) if number == 1 else ()))
            await store.commit(turn(tenant, name, new_messages=(message("system", "lost"),), status="failed"))
            made = turn(tenant, name, new_messages=new, at_head=False, parent_id=behind)
            await store.commit(made)
            behind = ends[branch] = str(there(made.turn).answers[0].message.message_id)
    assert [await told_in(branch) for branch in "ab"] == [["all", "a"], ["all", "b"]]
    await records.delete_item(tenant, name, str(rule["a"].message_id))
    assert [await told_in(branch) for branch in "ab"] == [["all"], ["all", "b"]]


async def test_s11_12_system_messages_are_found_by_an_index_of_them_alone(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§11.12: however long the conversation, in the query that looks for them no message of another role is read."""
    many = tuple(message("user", f"q{number}") for number in range(300))
    await store.commit(turn(tenant, "conv_" + tenant, new_messages=(message("system", "s"), *many), created=True))

    def plan(connection: sa.Connection) -> str:
        where = {"conversation": "conv_" + tenant, "below": 200}
        query = INSTRUCTIONS.params(**where)
        text = query.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        explain = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
        return "\n".join(map(str, connection.exec_driver_sql(f"{explain} {text}")))

    if transactions.remote:
        await transactions.run(lambda c: c.exec_driver_sql("ANALYZE messages"), write=True)
    assert "ix_messages_instructions" in await transactions.run(plan)
