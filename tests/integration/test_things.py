"""The store of things on both databases: notes, look-ups by indexes, deletions, expiry (guarantee §11, ADR 24)."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.errors import ConversationNotFound, MemoryNotFound
from gateway.core.types.memory import MemoryEntity, NotedThings, ThingNote, ThingQuery, user_place
from gateway.pipeline.features.entity_memory import named_by, noted, phrases_of, search_of
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.entities.entity_rows import insert_things, thing_row
from gateway.storage.entities.entity_store import OF_EACH, EntityStore, lookup_query
from gateway.storage.retention import Retention
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, quoted, turn
from tests.integration.deleting import Keeping
from tests.integration.traces import traces

TASKS = noted("workflow", "wf_12", "Task Management", "created")
ORDER = noted("order", "A-1", "Lamp for Ann", "discussed")


@pytest.fixture
def memory(transactions: DatabaseTransactions, store: ConversationStore) -> EntityStore:
    return EntityStore(transactions, SystemClock(), store.secret, Keeping())


async def begun(store: ConversationStore, tenant: str, *notes: ThingNote, name: str = "1") -> str:
    """A conversation with a turn that notes these things."""
    conversation_id = f"conv_{tenant}_{name}"
    things = NotedThings(notes, (conversation_id,)) if notes else None
    await store.commit(turn(tenant, conversation_id, created=True, things=things))
    return conversation_id


async def recalled(memory: EntityStore, tenant: str, question: str, *places: str) -> list[str]:
    found = await memory.recall(tenant, list(places), phrases_of(question))
    return [thing.thing_id for thing in named_by(question, found)]


async def test_what_a_turn_notes_is_found_by_a_question(
    memory: EntityStore, store: ConversationStore, tenant: str
) -> None:
    place = await begun(store, tenant, TASKS, ORDER)
    assert await recalled(memory, tenant, "Update my task workflow", place) == ["wf_12"]
    assert await recalled(memory, tenant, "The lamp for Ann and task management", place) == ["A-1", "wf_12"]
    assert await recalled(memory, tenant, "Something else", place) == []
    other = await begun(store, tenant, name="2")
    assert await recalled(memory, tenant, "Update my task workflow", other) == []


async def test_a_failed_turn_notes_nothing(memory: EntityStore, store: ConversationStore, tenant: str) -> None:
    place = await begun(store, tenant)
    await store.commit(turn(tenant, place, status="failed", answers=(), things=NotedThings((TASKS,), (place,))))
    assert (await memory.page(tenant, ThingQuery(place=place))).found == ()


async def test_one_row_for_each_place_and_thing(memory: EntityStore, store: ConversationStore, tenant: str) -> None:
    """The same again is the same memory; several notes of one commit count together."""
    place = await begun(store, tenant, TASKS)
    first = (await memory.page(tenant, ThingQuery(place=place))).found[0]
    renamed = noted("workflow", "wf_12", "Order Desk", "modified")
    unnamed = noted("workflow", "wf_12", None, "deleted")
    (again,) = await memory.note(tenant, place, (renamed, unnamed), None, None)
    assert (again.memory_id, again.name, again.action, again.times) == (first.memory_id, "Order Desk", "deleted", 3)
    assert {"order desk", "task management"} <= set(again.aliases)
    assert again.mentioned_at > first.mentioned_at
    assert await recalled(memory, tenant, "my order workflow", place) == ["wf_12"]


async def test_two_that_note_the_same_at_once(memory: EntityStore, store: ConversationStore, tenant: str) -> None:
    """Neither waits for the other for ever, and the user has one memory of each."""
    places = [await begun(store, tenant, name=str(number)) for number in range(4)]
    both = (TASKS, ORDER)
    orders = [both if number % 2 else both[::-1] for number in range(4)]
    await asyncio.gather(*(memory.note(tenant, p, o, "ann", None) for p, o in zip(places, orders, strict=True)))
    of_ann = await memory.page(tenant, ThingQuery(place=await memory.place_of(tenant, "ann")))
    assert sorted((thing.thing_id, thing.times) for thing in of_ann.found) == [("A-1", 4), ("wf_12", 4)]
    assert len((await memory.conversations(tenant, "order", "A-1", ThingQuery())).found) == 4


async def test_a_user_is_kept_as_a_keyed_digest(
    memory: EntityStore, store: ConversationStore, tenant: str, transactions: DatabaseTransactions
) -> None:
    place = await begun(store, tenant)
    await memory.note(tenant, place, (TASKS,), "ann@example.org", None)
    query = sa.select(schema.things.c.place).where(schema.things.c.tenant == tenant)
    places = set(await transactions.run(lambda c: list(c.execute(query).scalars())))
    assert places == {place, user_place(await store.secret(), tenant, "ann@example.org")}
    assert "ann" not in "".join(places - {place})
    assert await memory.place_of(tenant + "x", "ann@example.org") not in places


async def test_pages_go_on_behind_the_last_one_seen(memory: EntityStore, store: ConversationStore, tenant: str) -> None:
    place = await begun(store, tenant, *(noted("order", f"A-{number}", None, "created") for number in range(7)))
    seen: list[str] = []
    after = None
    while True:
        page = await memory.page(tenant, ThingQuery(3, after, newest_first=False, place=place))
        seen += [thing.thing_id for thing in page.found]
        if not page.has_more:
            break
        after = page.found[-1].memory_id
    assert seen == [f"A-{number}" for number in range(7)]
    with pytest.raises(MemoryNotFound):
        await memory.page(tenant + "x", ThingQuery(3, after))


async def test_conversations_of_a_thing_are_paged(memory: EntityStore, store: ConversationStore, tenant: str) -> None:
    places = [await begun(store, tenant, TASKS, name=str(number)) for number in range(3)]
    page = await memory.conversations(tenant, "workflow", "wf_12", ThingQuery(2, newest_first=False))
    assert ([thing.conversation_id for thing in page.found], page.has_more) == (places[:2], True)
    rest = await memory.conversations(tenant, "workflow", "wf_12", ThingQuery(2, places[1], newest_first=False))
    assert [thing.conversation_id for thing in rest.found] == places[2:]
    assert not (await memory.conversations(tenant + "x", "workflow", "wf_12", ThingQuery())).found
    with pytest.raises(ConversationNotFound):
        await memory.conversations(tenant, "workflow", "wf_12", ThingQuery(2, "conv_other"))


async def test_a_deletion_takes_the_words_with_it(
    memory: EntityStore, store: ConversationStore, tenant: str, transactions: DatabaseTransactions
) -> None:
    place = await begun(store, tenant, TASKS, ORDER)
    tasks = next(t for t in (await memory.page(tenant, ThingQuery(place=place))).found if t.thing_id == "wf_12")
    await store.commit(turn(tenant, place, answers=(), status="failed", entry=quoted("Task Management")))
    with pytest.raises(MemoryNotFound):
        await memory.delete(tenant + "x", tasks.memory_id)
    await memory.delete(tenant, tasks.memory_id, place)
    query = sa.select(schema.thing_aliases.c.alias).where(schema.thing_aliases.c.tenant == tenant)
    left = await transactions.run(lambda c: list(c.execute(query).scalars()))
    assert left
    assert not any("task" in alias for alias in left)
    assert "ledger.failure" not in await traces(transactions, "Task Management")
    assert await store.delete_conversation(tenant, place)
    assert await transactions.run(lambda c: list(c.execute(query).scalars())) == []


async def test_what_has_expired_is_gone_at_once_and_swept_later(
    memory: EntityStore, store: ConversationStore, tenant: str, transactions: DatabaseTransactions
) -> None:
    place = await begun(store, tenant)
    await memory.note(tenant, place, (TASKS,), None, 1.0)
    await memory.note(tenant, place, (ORDER,), None, 1e-9)
    await asyncio.sleep(0.01)
    assert await recalled(memory, tenant, "the lamp for ann, task management", place) == ["wf_12"]
    assert [thing.thing_id for thing in (await memory.page(tenant, ThingQuery(place=place))).found] == ["wf_12"]
    await Retention(transactions, SystemClock(), Keeping()).expire_things()
    query = sa.select(schema.things.c.thing_id).where(schema.things.c.tenant == tenant)
    assert await transactions.run(lambda c: list(c.execute(query).scalars())) == ["wf_12"]


async def test_a_deletion_finds_blocks_of_a_users_thing_where_it_was_shown_long_ago(
    memory: EntityStore, store: ConversationStore, tenant: str, transactions: DatabaseTransactions
) -> None:
    """A conversation's own row of it has expired meanwhile, and the user's was mentioned again."""
    (of_ann,) = await memory.note(tenant, None, (TASKS,), "ann", 1.0)
    place = f"conv_{tenant}_shown"
    things = NotedThings((), (place,), 1e-9, (of_ann,))
    await store.commit(turn(tenant, place, created=True, things=things))
    retention = Retention(transactions, SystemClock(), Keeping())
    await asyncio.sleep(0.01)
    await retention.expire_things()
    assert (await memory.page(tenant, ThingQuery(place=place))).found == ()
    await store.commit(turn(tenant, place, things=replace(things, days=1.0)))
    assert [each.times for each in (await memory.page(tenant, ThingQuery(place=place))).found] == [0]
    await store.commit(turn(tenant, f"{place}_2", created=True, things=replace(things, places=(f"{place}_2",))))
    await asyncio.sleep(0.01)
    await retention.expire_things()
    place = f"{place}_2"
    await memory.delete(tenant, of_ann.memory_id)
    table = schema.conversations
    query = sa.select(table.c.forgotten_at).where(table.c.id == place)
    assert await transactions.run(lambda c: c.execute(query).scalar()) is not None
    rest = sa.select(sa.func.count()).select_from(schema.things).where(schema.things.c.tenant == tenant)
    assert await transactions.run(lambda c: c.execute(rest).scalar()) == 0


def many(tenant: str, place: str, count: int) -> list[dict[str, object]]:
    """Rows of things that share all of their short aliases."""
    rows = []
    for number in range(count):
        note, at = noted("workflow", f"wf_{number}", f"Workflow {number}", "created"), NOW + timedelta(seconds=number)
        rows.append(thing_row(tenant, place, made(f"mem_{tenant}_{number:06}", place, note, at)))
    return rows


def made(memory_id: str, place: str, note: ThingNote, at: datetime) -> MemoryEntity:
    name = note.name or note.thing_id
    return MemoryEntity(
        memory_id, "conversation", place, note.type, note.thing_id, name, note.aliases, note.action, 1, at, at
    )


async def test_a_phrase_leads_to_the_latest_few_and_a_longer_one_to_its_own(
    memory: EntityStore, store: ConversationStore, tenant: str, transactions: DatabaseTransactions
) -> None:
    """However many things share an alias, few of them are read (ADR 24)."""
    place = await begun(store, tenant)
    await transactions.run(lambda c: insert_things(c, many(tenant, place, 60)), write=True)
    assert await recalled(memory, tenant, "update my workflow", place) == [f"wf_{n}" for n in range(59, 54, -1)]
    assert await recalled(memory, tenant, "update my workflow 3", place) == ["wf_3"]
    found = await memory.recall(tenant, [place], phrases_of("update my workflow"))
    assert len(found) == OF_EACH
    searched = await memory.search(tenant, None, search_of("workflow 3"), 20)
    assert "wf_3" in {thing.thing_id for thing in searched}


async def plan(transactions: DatabaseTransactions, *, words: bool, by_place: bool, owner: str) -> str:
    """How the database answers a look-up."""

    def work(connection: sa.Connection) -> str:
        dialect = connection.dialect.name
        lists = {"owners": [owner], "phrases": ["my workflow"], "words": ["workflow"]}
        given = {name: jsons.dumps_text(each) for name, each in lists.items()}
        query = lookup_query(dialect, 5, 20, words=words, by_place=by_place)
        text = str(
            query.params(**given, now=NOW).compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        )
        explain = "EXPLAIN QUERY PLAN " if dialect == "sqlite" else "EXPLAIN "
        return "\n".join(str(row) for row in connection.exec_driver_sql(explain + text))

    return await transactions.run(work)


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("by_place", [True, False])
async def test_look_ups_read_an_index_alone(
    store: ConversationStore, tenant: str, transactions: DatabaseTransactions, words: bool, by_place: bool
) -> None:
    """The index has the order, too: rows are not sorted by time, and no table is scanned."""
    place = await begun(store, tenant)
    await transactions.run(lambda c: insert_things(c, many(tenant, place, 300)), write=True)
    if transactions.remote:
        await transactions.run(lambda c: c.exec_driver_sql("ANALYZE thing_aliases"), write=True)
    told = await plan(transactions, words=words, by_place=by_place, owner=place if by_place else tenant)
    name = "place" if by_place else "tenant"
    assert told.count(f"ix_thing_aliases_{name}_whole_alias_mentioned_at_memory_id") == 1 + words
    assert "Seq Scan on thing_aliases" not in told
    assert "SCAN thing" not in told
    assert "Sort Key: thing_aliases.mentioned_at" not in told
