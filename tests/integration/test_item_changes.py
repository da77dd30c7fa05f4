"""`ports.ConversationRecords`: what is added at once, and what is left of what was deleted (guarantee §3); of items
of calls that the provider ran itself, which have their maker's ids, too."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.api.conversations.endpoint import parse_items
from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings, StorageSettings
from gateway.core.errors import ItemNotFound
from gateway.core.types.items import Item
from gateway.core.types.records import ItemQuery, NewConversation
from gateway.core.types.turn import TurnCommit, TurnStatus
from gateway.storage import rows
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.conversations import item_store
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions, open_transactions
from gateway.storage.lookup.locate import backfill_digests
from gateway.storage.store import ConversationStore
from tests.integration.commits import contents, message, quoted, rebuilt, turn
from tests.support.answers import assistant, system, there, tool_call, user

SECRET = "secret-8c1f"


def opened(transactions: DatabaseTransactions) -> ConversationRecords:
    clock = SystemClock()
    return ConversationRecords(transactions, clock, open_cache(CacheSettings(), clock))


@pytest.fixture
def records(transactions: DatabaseTransactions, store: ConversationStore) -> ConversationRecords:
    """The records beside `store`."""
    return opened(transactions)


@pytest.fixture
async def other_records(module_storage_url: str, store: ConversationStore) -> AsyncIterator[ConversationRecords]:
    """The same storage as a second process has it."""
    transactions = open_transactions(StorageSettings(url=module_storage_url))
    yield opened(transactions)
    await transactions.close()


async def listed(records: ConversationRecords, tenant: str, conversation_id: str, **query: Any) -> list[Item]:
    page = await records.items(tenant, conversation_id, ItemQuery(**{"limit": 100, "newest_first": False, **query}))
    return list(page.found)


async def everything(transactions: DatabaseTransactions) -> str:
    """All that the database holds, as text."""

    def dump(connection: sa.Connection) -> str:
        tables = schema.metadata.tables.values()
        return "\n".join(str(tuple(row)) for table in tables for row in connection.execute(sa.select(table)))

    return await transactions.run(dump)


async def test_s3_7_items_added_at_once_are_all_there(
    records: ConversationRecords, other_records: ConversationRecords, store: ConversationStore, tenant: str
) -> None:
    """§3.7: requests at once on one conversation lose nothing; what one of them adds stays together."""
    name = "conv_at-once" + tenant
    await records.create(tenant, NewConversation(name, {}, parse_items([user("first")])), "req_0")

    async def add(number: int) -> None:
        pair = [user(f"{number}"), assistant(f"to {number}")]
        await (records, other_records)[number % 2].add_items(tenant, name, parse_items(pair), f"req_{number}")

    await asyncio.gather(*map(add, range(12)))
    texts = [item["content"][0]["text"] for item in await listed(records, tenant, name)]
    assert texts[0] == "first"
    assert sorted(texts[1::2], key=int) == [str(n) for n in range(12)]
    assert texts[2::2] == [f"to {text}" for text in texts[1::2]]
    found = await rebuilt(store, tenant, name)
    assert contents(found) == texts


async def test_s3_words_of_deleted_items_are_nowhere(
    records: ConversationRecords, store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§3: not in messages, tool steps, blocks of later messages, completions or system messages."""
    name = "conv_forgets" + tenant
    call = tool_call("c1", "f", f'{{"q": "{SECRET}-0"}}')
    steps = (
        message("user", f"{SECRET}-1"),
        message("assistant", None, tool_calls=[call], reasoning_content=f"{SECRET}-2"),
        message("tool", f"{SECRET}-3", tool_call_id="c1"),
    )
    rules = (system(f"{SECRET}-4"), system("stays"))
    first = turn(tenant, name, created=True, new_messages=steps, instructions=rules)
    await store.commit(first)
    quoting = replace(message("user", "next"), rendered=user(f"<block>{SECRET}</block>next"))
    head = there(first.turn).answers[0].message.message_id
    second = turn(tenant, name, parent_id=head, new_messages=(quoting,), instructions=rules)
    await store.commit(second)
    assert SECRET in await everything(transactions)
    for item in await listed(records, tenant, name):
        if SECRET in str(item):
            await records.delete_item(tenant, name, item["id"])
    assert SECRET not in await everything(transactions)
    left = await listed(records, tenant, name)
    texts = [part["text"] for item in left for part in item["content"]]
    assert texts[:1] == ["stays"]
    assert texts[2] == "next"
    found = await rebuilt(store, tenant, name)
    assert found.instructions == rules[1:]
    assert contents(found) == texts[1:]
    assert [each.sequence_number for each in found.path] == [0, 1, 2]


async def test_s3_7_a_turn_under_way_survives_the_deletion_of_what_it_hangs_on(
    records: ConversationRecords, store: ConversationStore, tenant: str
) -> None:
    """§3.7: the turn that branched from a message that is gone by the time it commits is appended at the head."""
    name = "conv_hook" + tenant
    first = turn(tenant, name, created=True)
    await store.commit(first)
    asked = there(first.turn).new_messages[0].message_id
    assert asked is not None
    second = turn(tenant, name, parent_id=asked, at_head=False)
    await records.delete_item(tenant, name, asked)
    await store.commit(second)
    assert len(await listed(records, tenant, name)) == 3


async def test_s3_a_deleted_item_leaves_all_branches(
    records: ConversationRecords, store: ConversationStore, tenant: str
) -> None:
    """What branched behind it goes on from the message before it, and is still found there."""
    name = "conv_branches" + tenant
    made = await records.create(
        tenant,
        NewConversation(name, {}, parse_items([user(text) for text in ("one", "two")])),
        "req_0",
    )
    one, two = await listed(records, tenant, made.conversation_id)
    for _ in range(2):
        await store.commit(turn(tenant, name, parent_id=two["id"], at_head=False))
    await records.delete_item(tenant, name, two["id"])
    left = await listed(records, tenant, name)
    assert left[0] == one
    assert len(left) == 3


@pytest.mark.parametrize("has_turn", [True, False])
@pytest.mark.parametrize("status", ["complete", "failed"])
async def test_s3_what_a_request_was_told_while_an_item_was_deleted_does_not_come_back(
    records: ConversationRecords,
    store: ConversationStore,
    transactions: DatabaseTransactions,
    tenant: str,
    status: TurnStatus,
    has_turn: bool,
) -> None:
    """An upstream that refuses a request may quote what it was sent: of such a one only its status and tries stay."""
    name, words = f"conv_told_{tenant}", f"{SECRET}-{status}-{has_turn}"
    await store.commit(turn(tenant, name, words, created=True))
    entry = {**quoted(words), "created_at": SystemClock().now()}
    late = turn(tenant, name, "next", status=status, entry=entry)
    for item in await listed(records, tenant, name):
        if SECRET in str(item):
            await records.delete_item(tenant, name, item["id"])
    await store.commit(late if has_turn else TurnCommit(late.ledger))
    assert words not in await everything(transactions)
    kept = there(await store.find_completion(tenant, late.ledger.request_id))
    assert kept.ledger.failure is not None
    assert (kept.ledger.failure.status, len(kept.ledger.failure.tries)) == (400, 2)


@pytest.mark.parametrize("newest_first", [True, False])
async def test_s3_a_page_reads_its_own_bodies(
    records: ConversationRecords, tenant: str, newest_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of a long conversation reads as many messages as one of a short."""
    name = f"conv_long{newest_first}" + tenant
    await records.create(tenant, NewConversation(name, {}, parse_items([user("0")])), "req_0")
    for number in range(10):
        items = [user(f"{number}.{n}") for n in range(20)]
        await records.add_items(tenant, name, parse_items(items), "req_1")
    read: list[str] = []
    message_of = rows.message_of

    def counted(row: Any) -> Any:
        read.append(row.id)
        return message_of(row)

    monkeypatch.setattr(rows, "message_of", counted)
    page = await listed(records, tenant, name, limit=10, newest_first=newest_first)
    await listed(records, tenant, name, limit=10, newest_first=newest_first, after=page[-1]["id"])
    assert len(read) <= 2 * 12


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("limit", [1, 4])
@pytest.mark.in_turn("newest_first")
async def test_s3_a_client_deletes_what_it_lists(
    records: ConversationRecords, tenant: str, limit: int, newest_first: bool
) -> None:
    """The next page begins behind an item that is deleted by then: the last of its message, or one of several."""
    name = f"conv_gone_{limit}_{newest_first}" + tenant
    calls = [{"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"} for n in range(3)]
    outputs = [{"type": "function_call_output", "call_id": f"c{n}", "output": "x"} for n in range(3)]
    words: list[Any] = [
        system("rules"),
        {"role": "developer", "content": "more rules"},
        user("one"),
        assistant("two"),
        *calls,
        *outputs,
        assistant("three"),
        user("four"),
    ]
    await records.create(tenant, NewConversation(name, {}, parse_items(words)), "req_0")
    expected = [item["id"] for item in await listed(records, tenant, name, limit=100, newest_first=newest_first)]
    assert len(expected) == 12
    gone: list[str] = []
    while page := await listed(
        records, tenant, name, limit=limit, newest_first=newest_first, after=gone[-1] if gone else None
    ):
        for item in page:
            await records.delete_item(tenant, name, item["id"])
            gone.append(item["id"])
    assert gone == expected
    assert await listed(records, tenant, name) == []


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.in_turn("newest_first")
async def test_s3_a_page_begins_behind_the_one_item_that_was_deleted(
    records: ConversationRecords, tenant: str, newest_first: bool
) -> None:
    name = f"conv_one_{newest_first}" + tenant
    calls = [{"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"} for n in range(3)]
    words: list[Any] = [system("rules"), user("one"), *calls]
    await records.create(tenant, NewConversation(name, {}, parse_items(words)), "req_0")
    before = [item["id"] for item in await listed(records, tenant, name, limit=100, newest_first=newest_first)]
    for number, item_id in enumerate(before):
        await records.delete_item(tenant, name, item_id)
        rest = await listed(records, tenant, name, limit=100, newest_first=newest_first, after=item_id)
        assert [item["id"] for item in rest] == before[number + 1 :]


async def test_s8_items_of_another_conversation_are_not_found(records: ConversationRecords, tenant: str) -> None:
    for name in ("conv_mine", "conv_yours"):
        await records.create(tenant, NewConversation(name + tenant, {}, parse_items([user(name)])), "req_0")
    (item,) = await listed(records, tenant, "conv_mine" + tenant)
    for attempt in (records.item, records.delete_item):
        with pytest.raises(ItemNotFound):
            await attempt(tenant, "conv_yours" + tenant, item["id"])
    with pytest.raises(ItemNotFound):
        await listed(records, tenant, "conv_yours" + tenant, after=item["id"])


async def test_s3_added_items_have_the_digests_that_healing_would_give(
    records: ConversationRecords, transactions: DatabaseTransactions, tenant: str
) -> None:
    """ADR 8: where items are added makes no difference to how their conversation is recognised."""
    name = "conv_marks" + tenant
    words: list[Any] = [
        user("one"),
        assistant(" two "),
        assistant("three"),
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ]
    await records.create(tenant, NewConversation(name, {}, parse_items(words[:2])), "req_0")
    await records.add_items(tenant, name, parse_items(words[2:4]), "req_1")  # an answer behind an answer
    await records.add_items(tenant, name, parse_items([words[4], *words]), "req_2")

    def marks(connection: sa.Connection) -> list[Any]:
        table, links = schema.messages, schema.message_links
        columns = (table.c.id, table.c.path_digest, table.c.said_digest, table.c.plain, table.c.sequence_number)
        rows_of = connection.execute(sa.select(*columns).where(table.c.conversation_id == name).order_by(table.c.id))
        linked = sa.select(links.c.digest, links.c.message_id).where(links.c.conversation_id == name)
        return [
            [tuple(row) for row in found] for found in (rows_of, connection.execute(linked.order_by(links.c.digest)))
        ]

    def forget(connection: sa.Connection) -> None:
        unmarked = {"path_digest": None, "said_digest": None, "plain": None}
        connection.execute(schema.messages.update().where(schema.messages.c.conversation_id == name).values(unmarked))
        links = schema.message_links
        connection.execute(links.delete().where(links.c.conversation_id == name))
        backfill_digests(connection, name)

    before = await transactions.run(marks)
    assert all(row[1] is not None for row in before[0])
    await transactions.run(forget, write=True)
    assert await transactions.run(marks) == before


SEARCHED = "secret-4e7a"
HOSTED = (
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": SEARCHED}},
    {"type": "image_generation_call", "id": "ig_68f0", "status": "completed", "result": "AAAA"},
    {"type": "mcp_list_tools", "server_label": "s", "tools": []},
    {"type": "mcp_list_tools", "server_label": "s", "tools": []},
)


async def asked(store: ConversationStore, tenant: str) -> str:
    """A conversation whose answer was preceded by hosted calls; returns its id."""
    name = f"conv_hosted-{tenant}"
    said = (message("user", "find it"), message("assistant", "found", output_items=list(HOSTED)))
    await store.commit(turn(tenant, name, created=True, new_messages=(*said, message("user", "thanks"))))
    return name


@pytest.mark.parametrize("newest_first", [False, True])
async def test_s3_each_item_is_read_and_a_page_may_end_with_it(
    records: ConversationRecords, store: ConversationStore, tenant: str, newest_first: bool
) -> None:
    """§3, §1: the ids that a list hands out are taken back, whoever made them; a call without one gets its own."""
    name = await asked(store, tenant)
    whole = (await records.items(tenant, name, ItemQuery(100, None, newest_first))).found
    assert len({each["id"] for each in whole}) == len(whole) == 8
    found: list[Any] = []
    while True:
        after = found[-1]["id"] if found else None
        page = await records.items(tenant, name, ItemQuery(1, after, newest_first))
        found += page.found
        if not page.has_more:
            break
    assert found == list(whole)
    for each in whole:
        assert await records.item(tenant, name, each["id"]) == each


async def test_s3_an_item_of_a_hosted_call_is_pinned_and_deleted(
    records: ConversationRecords, store: ConversationStore, tenant: str
) -> None:
    """§3, §11: the pin is its message's; what is deleted is the one call, and the rest of the answer stays."""
    name = await asked(store, tenant)
    pinned = await records.set_pin(tenant, name, "ws_1", pinned=True)
    assert (pinned["id"], pinned["pinned"]) == ("ws_1", True)
    before = [each["id"] for each in (await records.items(tenant, name, ItemQuery(100, None, False))).found]
    left = list(before)
    for item_id in before[4:0:-1]:
        await records.delete_item(tenant, name, item_id)
        left.remove(item_id)
        now = (await records.items(tenant, name, ItemQuery(100, None, False))).found
        assert [each["id"] for each in now] == left
    found = await rebuilt(store, tenant, name)
    assert [each.body.get("content") for each in found.path] == ["find it", "found", "thanks", "answer"]
    assert "output_items" not in found.path[1].body
    for odd in ("ws_1", "ws_2", "\x00", ""):
        with pytest.raises(ItemNotFound):
            await records.item(tenant, name, odd)


async def test_s3_an_unknown_id_of_the_gateways_own_kinds_reads_no_conversation(
    records: ConversationRecords, store: ConversationStore, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await asked(store, tenant)
    monkeypatch.setattr(item_store, "_with_hosted_call", lambda *_: pytest.fail("the conversation was read"))
    for prefix in ("msg", "rs", "fc", "fco", "ctc", "ctco"):
        with pytest.raises(ItemNotFound):
            await records.item(tenant, name, f"{prefix}_{'0' * 24}")
