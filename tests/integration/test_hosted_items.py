"""Items of calls that the provider ran itself, which have their maker's ids: listed, read, pinned and deleted (§3)."""

from typing import Any

import pytest

from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings
from gateway.core.errors import ItemNotFound
from gateway.core.types.conversation import ConversationRef
from gateway.core.types.records import ItemQuery
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.conversations import item_store
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.store import ConversationStore
from tests.integration.commits import message, turn

SECRET = "secret-4e7a"
HOSTED = (
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": SECRET}},
    {"type": "image_generation_call", "id": "ig_68f0", "status": "completed", "result": "AAAA"},
    {"type": "mcp_list_tools", "server_label": "s", "tools": []},
    {"type": "mcp_list_tools", "server_label": "s", "tools": []},
)


@pytest.fixture
def records(transactions: DatabaseTransactions, store: ConversationStore) -> ConversationRecords:
    """The records beside `store`."""
    clock = SystemClock()
    return ConversationRecords(transactions, clock, open_cache(CacheSettings(), clock))


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
    found = await store.find_conversation(tenant, ConversationRef(name), max_bytes=None)
    assert found is not None
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
