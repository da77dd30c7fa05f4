"""`ports.ConversationStore`, one suite for every implementation: turns, bills, sessions, tenants."""

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest

from gateway.core.clock import SystemClock
from gateway.core.ids import new_id
from gateway.core.types.conversation import ConversationRef, EarlierMessages, TokenCounts
from gateway.core.types.turn import TurnCommit
from gateway.storage.cache.memory_cache import MemoryCache
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, bill, contents, document, in_force, listed, message, rebuilt, turn
from tests.support.answers import there


async def test_a_committed_turn_is_found_as_it_was(store: ConversationStore, tenant: str) -> None:
    system = ({"role": "system", "content": "Be brief."}, {"role": "developer", "content": [{"type": "text"}]})
    first = turn(tenant, "conv_whole" + tenant, created=True, instructions=system)
    await store.commit(first)
    found = await rebuilt(store, tenant, "conv_whole" + tenant)
    assert first.turn is not None
    asked, answered = first.turn.new_messages[0], first.turn.answers[0].message
    assert found.head_id == answered.message_id
    assert in_force(found) == system
    assert found.unread == 0
    assert [(m.role, m.body, m.message_id, m.digest, m.status, m.sequence_number) for m in found.path] == [
        ("user", asked.body, asked.message_id, asked.digest, "complete", 0),
        ("assistant", answered.body, answered.message_id, answered.digest, "complete", 1),
    ]
    assert found.path[0].created_at == NOW


async def test_what_was_forwarded_in_a_messages_place_is_kept_with_it(store: ConversationStore, tenant: str) -> None:
    rendered = {"role": "user", "content": "<block/>question"}
    asked = replace(message("user", "question"), rendered=rendered, shown_in_full=("art_1", "art_2"))
    await store.commit(turn(tenant, "conv_r" + tenant, created=True, new_messages=(asked,)))
    found = await rebuilt(store, tenant, "conv_r" + tenant)
    assert (found.path[0].rendered, found.path[0].shown_in_full) == (rendered, ("art_1", "art_2"))
    assert (found.path[1].rendered, found.path[1].shown_in_full) == (None, ())


async def test_token_counts_are_kept_with_messages_and_filled_in_once(store: ConversationStore, tenant: str) -> None:
    """Of the form that is forwarded again; a message stored without one gets it later, and keeps it."""
    rendered = {"role": "user", "content": "<block/>question"}
    asked = replace(message("user", "question"), rendered=rendered, tokens=TokenCounts(rendered, {"o200k_base/1": 7}))
    conversation = "conv_n" + tenant
    await store.commit(turn(tenant, conversation, created=True, new_messages=(asked,)))
    found = await rebuilt(store, tenant, conversation)
    first, second = found.path
    assert first.tokens is not None
    assert first.tokens.of is first.rendered
    assert (first.tokens.by, second.tokens) == ({"o200k_base/1": 7}, TokenCounts(second.body, {}))
    for number in (3, 4):
        lacking = tuple((m.message_id or "", {"o200k_base/1": number}) for m in found.path)
        await store.commit(turn(tenant, conversation, created=False, counts=lacking))
    found = await rebuilt(store, tenant, conversation)
    assert [m.tokens.by for m in found.path if m.tokens] == [{"o200k_base/1": 7}, {"o200k_base/1": 3}, {}, {}, {}, {}]


async def test_a_count_leaves_with_the_form_that_it_is_of(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """Where an item is deleted, what follows is forwarded without its blocks: it is counted anew."""
    conversation = "conv_d" + tenant
    await store.commit(turn(tenant, conversation, created=True))
    rendered = {"role": "user", "content": "<block/>second"}
    asked = replace(message("user", "second"), rendered=rendered, tokens=TokenCounts(rendered, {"o200k_base/1": 7}))
    await store.commit(turn(tenant, conversation, new_messages=(asked,)))
    found = await rebuilt(store, tenant, conversation)
    records = ConversationRecords(transactions, SystemClock(), MemoryCache(1000, SystemClock()))
    await records.delete_item(tenant, conversation, found.path[0].message_id or "")
    found = await rebuilt(store, tenant, conversation)
    assert [(m.rendered, m.tokens) for m in found.path[1:]] == [(None, TokenCounts(m.body, {})) for m in found.path[1:]]


async def test_turns_are_appended_and_instructions_in_force_are_the_latest(
    store: ConversationStore, tenant: str
) -> None:
    ref = ConversationRef("conv_a" + tenant)
    old, new = ({"role": "system", "content": "old"},), ({"role": "system", "content": "new"},)
    await store.commit(turn(tenant, "conv_a" + tenant, "q1", ["a1"], created=True, instructions=old))
    await store.commit(turn(tenant, "conv_a" + tenant, "q2", ["a2"], instructions=new))
    found = await rebuilt(store, tenant, ref)
    assert contents(found) == ["q1", "a1", "q2", "a2"]
    assert in_force(found) == new
    assert in_force(await rebuilt(store, tenant, ref, 0)) == new
    assert [m.sequence_number for m in found.path] == [0, 1, 2, 3]


async def test_attachments_belong_to_the_conversation_from_then_on_in_their_order(
    store: ConversationStore, tenant: str
) -> None:
    ref = ConversationRef("conv_d" + tenant)
    await store.commit(
        turn(tenant, "conv_d" + tenant, created=True, attachments=(document("one"), document("two", "b")))
    )
    await store.commit(turn(tenant, "conv_d" + tenant, attachments=(document("three"),)))
    found = await rebuilt(store, tenant, ref, 0)
    assert [(a.content, a.size_chars, a.title) for a in found.attachments] == [
        ("one", 3, "paper"), ("two", 3, "b"), ("three", 5, "paper"),
    ]  # fmt: skip
    first = found.attachments[0]
    assert first.metadata.pop("said_digest")
    assert replace(first, timestamp=NOW) == document("one")


async def test_a_completion_is_found_by_both_ids_with_its_exact_bill(store: ConversationStore, tenant: str) -> None:
    first = turn(tenant, "conv_b" + tenant, "q", ["one", "two"], created=True, completion_metadata={"team": "a"})
    await store.commit(first)
    by_completion = await store.find_completion(tenant, str(first.ledger.completion_id))
    assert by_completion == await store.find_completion(tenant, first.ledger.request_id)
    assert by_completion is not None
    assert by_completion.completion_metadata == {"team": "a"}
    assert [c["message"]["content"] for c in there(by_completion.completion)["choices"]] == ["one", "two"]
    entry = by_completion.ledger
    assert entry.calls == first.ledger.calls
    assert entry.calls[0].total == Decimal("0.000047500001")
    assert (entry.status, entry.model, entry.stream, entry.created_at) == ("complete", "gpt-4o", False, NOW)
    assert entry.metadata["usage"] == first.ledger.metadata["usage"]
    assert Decimal(str(entry.metadata["cost"]["total_cost"])) == Decimal("0.000047500001")


async def test_a_bill_without_a_turn_is_kept_and_unpriced_stays_unpriced(store: ConversationStore, tenant: str) -> None:
    entry = bill(tenant, None, "failed", error_code="upstream_timeout")
    unpriced = replace(entry.calls[0], prompt_cost=None, completion_cost=None)
    await store.commit(TurnCommit(replace(entry, calls=(unpriced,), metadata={"cost": {"total_cost": None}})))
    found = there(await store.find_completion(tenant, entry.request_id))
    assert found.completion is None
    assert (found.ledger.status, found.ledger.error_code) == ("failed", "upstream_timeout")
    assert found.ledger.calls == (unpriced,)


async def test_a_conversations_completions_are_listed_oldest_first(store: ConversationStore, tenant: str) -> None:
    kept = []
    for second in (3, 1, 2):
        created = NOW.replace(second=second)
        commit = turn(tenant, "conv_l" + tenant, created=second == 3, entry={"created_at": created})
        await store.commit(commit)
        kept.append((created, commit.ledger.request_id))
    await store.commit(turn(tenant, "conv_m" + tenant, created=True))
    found = await listed(store, tenant, "conv_l" + tenant)
    assert [each.ledger.request_id for each in found] == [request for _, request in sorted(kept)]


async def test_another_tenants_things_behave_as_if_they_did_not_exist(store: ConversationStore, tenant: str) -> None:
    first = turn(tenant, "conv_x" + tenant, created=True)
    await store.commit(first)
    claimed = await store.claim_session(tenant, "work", "conv_s" + tenant)
    stranger = tenant + "-stranger"
    assert await store.find_conversation(stranger, ConversationRef("conv_x" + tenant), max_bytes=None) is None
    assert await store.find_conversation(stranger, ConversationRef(session="work"), max_bytes=None) is None
    assert not await store.has_conversation(stranger, "conv_x" + tenant)
    assert await store.find_completion(stranger, first.ledger.request_id) is None
    assert await store.find_completion(stranger, str(first.ledger.completion_id)) is None
    assert await listed(store, stranger, "conv_x" + tenant) == []
    assert await store.claim_session(stranger, "work", "conv_s" + stranger) == "conv_s" + stranger != claimed
    assert await store.has_conversation(tenant, "conv_x" + tenant)
    assert not await store.has_conversation(tenant, "conv_none")


async def test_a_session_is_claimed_once_however_many_ask_at_once(
    store: ConversationStore, other_store: ConversationStore, tenant: str
) -> None:
    ids = [new_id("conv_") for _ in range(12)]
    stores = [store, other_store] * 6
    claims = [one.claim_session(tenant, "chat", each) for one, each in zip(stores, ids, strict=True)]
    winners = set(await asyncio.gather(*claims))
    assert len(winners) == 1
    assert [each for each in ids if await store.has_conversation(tenant, each)] == list(winners)
    found = await rebuilt(store, tenant, ConversationRef(session="chat"))
    assert ({found.conversation_id}, found.path, found.head_id) == (winners, (), None)
    await store.commit(turn(tenant, winners.pop(), created=True))
    assert contents(await rebuilt(other_store, tenant, ConversationRef(session="chat"))) == [
        "question",
        "answer",
    ]


async def test_two_stores_share_one_secret(store: ConversationStore, other_store: ConversationStore) -> None:
    one, other = await asyncio.gather(store.secret(), other_store.secret())
    assert one == other == await store.secret()
    assert len(one) >= 32


async def test_a_current_storage_is_reachable_and_ready(store: ConversationStore) -> None:
    await store.reachable()
    assert await store.ready()


@pytest.mark.parametrize(
    "text", ["a\x00b", "\u2028\ufeff\ufffe", "😀\u200d", "e\u0301", "\U0010ffff", "\\u0000", "'\";--"]
)
async def test_any_character_survives_in_every_field_that_a_client_or_a_model_writes(
    store: ConversationStore, tenant: str, text: str
) -> None:
    commit = turn(tenant, "conv_u" + tenant, text, [text], created=True, instructions=({"content": text},),
                  attachments=(document(text, text),), completion_metadata={text: text})  # fmt: skip
    await store.commit(commit)
    found = await rebuilt(store, tenant, "conv_u" + tenant)
    assert contents(found) == [text, text]
    assert in_force(found) == ({"content": text},)
    assert (found.attachments[0].content, found.attachments[0].title) == (text, text)
    completion = there(await store.find_completion(tenant, commit.ledger.request_id))
    assert completion.completion_metadata == {text: text}


async def test_an_upstreams_odd_error_code_does_not_lose_the_bill(store: ConversationStore, tenant: str) -> None:
    entry = bill(tenant, None, "failed", error_code="odd\x00code")
    await store.commit(TurnCommit(entry))
    found = there(await store.find_completion(tenant, entry.request_id))
    assert there(found.ledger.error_code).startswith("odd")


@pytest.mark.parametrize("odd", ["conv_\x00", "chatcmpl-\x00", "req_\x00", "\U0010ffff", "", "x" * 5000])
async def test_an_id_that_no_client_was_given_is_simply_unknown(
    store: ConversationStore, tenant: str, odd: str
) -> None:
    assert not await store.has_conversation(tenant, odd)
    assert await store.find_completion(tenant, odd) is None
    assert await store.update_completion(tenant, odd, {"a": "b"}) is None
    assert await store.completion_input(tenant, odd) is None
    assert not await store.delete_completion(tenant, odd)
    assert await listed(store, tenant, odd) == []
    assert await store.find_conversation(tenant, ConversationRef(odd), max_bytes=None) is None
    assert await store.find_conversation(tenant, ConversationRef(session=odd), max_bytes=None) is None


@pytest.mark.parametrize("figure", [2**63, 2**64 - 1])
async def test_figures_beyond_the_databases_do_not_lose_the_turn(
    store: ConversationStore, tenant: str, figure: int
) -> None:
    entry = bill(tenant, None, metadata={"usage": {"prompt_tokens": figure}, "cost": {"total_cost": Decimal(10) ** 9}})
    await store.commit(TurnCommit(entry))
    found = there(await store.find_completion(tenant, entry.request_id))
    assert found.ledger.metadata["usage"]["prompt_tokens"] == figure


async def test_what_is_older_than_a_message_is_read_as_far_as_it_may_be(store: ConversationStore, tenant: str) -> None:
    conversation = "conv_e" + tenant
    for number in range(4):
        await store.commit(turn(tenant, conversation, f"q{number}", [f"a{number}"], created=not number))
    found = await rebuilt(store, tenant, conversation, 1)
    assert contents(found) == ["q3", "a3"]
    oldest = found.path[0].message_id or ""
    everything = await store.read_earlier(tenant, oldest, max_bytes=100_000)
    assert [m.content for m in everything.messages] == ["q0", "a0", "q1", "a1", "q2", "a2"]
    assert [m.sequence_number for m in everything.messages] == [0, 1, 2, 3, 4, 5]
    assert everything.turns == 0
    weight = 2 * len('{"role": "assistant", "content": "a2"}')
    some = await store.read_earlier(tenant, oldest, max_bytes=weight)
    assert [m.content for m in some.messages] == ["q2", "a2"]
    assert some.turns == 2
    none = await store.read_earlier(tenant, oldest, max_bytes=0)
    assert (none.messages, none.turns) == ((), 3)
    assert (
        await store.read_earlier(tenant, everything.messages[0].message_id or "", max_bytes=9999) == EarlierMessages()
    )
    for stranger, name in (("stranger" + tenant, oldest), (tenant, "msg_unknown")):
        assert await store.read_earlier(stranger, name, max_bytes=100_000) == EarlierMessages()


async def test_s4_i4_what_is_said_amid_a_tool_loop_begins_no_turn(store: ConversationStore, tenant: str) -> None:
    """A path is read on to where its turn began, and its turns are counted so, on one path and beside branches."""
    conversation, loop = "conv_l" + tenant, [message("user", "task")]
    for name in ("c0", "c1"):
        call = {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        loop += [message("assistant", None, tool_calls=[call]), message("tool", "seen", tool_call_id=name)]
        loop += [message("user", f"amid {name}"), message("system", "a note"), message("user", "and hurry")]
    await store.commit(turn(tenant, conversation, "q0", ["a0"], created=True))
    await store.commit(turn(tenant, conversation, answers=["a1"], new_messages=tuple(loop)))
    found = await rebuilt(store, tenant, conversation, 1)
    assert contents(found)[0] == "task"
    await store.commit(turn(tenant, conversation, "q2", ["a2"]))
    for turns in (2, 2):
        latest = await rebuilt(store, tenant, conversation, 1)
        assert contents(latest) == ["q2", "a2"]
        assert (await store.read_earlier(tenant, latest.path[0].message_id or "", max_bytes=0)).turns == turns
        beside = {"at_head": False, "parent_id": found.path[-1].message_id}  # numbers are not of one path alone now
        await store.commit(turn(tenant, conversation, "q2", ["a2"], **beside))


async def test_turns_are_counted_along_the_path(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """Not those of other branches, nor those that were deleted."""
    conversation = "conv_p" + tenant
    first = turn(tenant, conversation, "q0", ["a0", "sibling"], created=True)
    await store.commit(first)
    await store.commit(turn(tenant, conversation, "left", ["left"]))
    shared = there(first.turn).answers[0].message.message_id
    await store.commit(turn(tenant, conversation, "q1", ["a1"], at_head=False, parent_id=shared))
    await store.commit(turn(tenant, conversation, "q2", ["a2"]))
    found = await rebuilt(store, tenant, conversation)
    assert contents(found) == ["q0", "a0", "q1", "a1", "q2", "a2"]
    oldest = found.path[4].message_id or ""
    assert (await store.read_earlier(tenant, oldest, max_bytes=0)).turns == 2
    records = ConversationRecords(transactions, SystemClock(), MemoryCache(1000, SystemClock()))
    await records.delete_item(tenant, conversation, found.path[0].message_id or "")
    earlier = await store.read_earlier(tenant, oldest, max_bytes=100_000)
    assert [m.content for m in earlier.messages] == ["a0", "q1", "a1"]
    assert (await store.read_earlier(tenant, oldest, max_bytes=0)).turns == 1
