"""What a model was sent: found along its path, by model and branch, and gone with what it quotes (§4 I7, ADR 12)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.api.conversations.import_check import parse_export
from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.types.chain import chain_digests
from gateway.core.types.conversation import FrozenDecision, HistoryLookup, NewFrame, PromptFrame
from gateway.core.types.turn import TurnCommit
from gateway.storage.cache.memory_cache import MemoryCache
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.conversations.transfers import ConversationTransfer
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.store import ConversationStore
from tests.integration.commits import contents, rebuilt, turn
from tests.integration.exports import bare, time, user_message
from tests.integration.traces import traces
from tests.support.answers import assistant, there, user

WORD = "zanzibar"


async def frame_at(store: ConversationStore, tenant: str, conversation: str, model: str = "m") -> PromptFrame | None:
    found = await rebuilt(store, tenant, conversation, model=model)
    return found.frame


def leaving(commit: TurnCommit, frame: PromptFrame, *, full: bool, model: str = "m") -> TurnCommit:
    """The same turn with a frame."""
    return replace(commit, turn=replace(there(commit.turn), frame=NewFrame(model, full, frame)))


def asked(commit: TurnCommit) -> str:
    """The id of a turn's question."""
    return there(there(commit.turn).new_messages[0].message_id)


def answered(commit: TurnCommit) -> str:
    """The id of its answer."""
    return there(there(commit.turn).answers[0].message.message_id)


async def test_a_frame_and_what_was_added_to_it(store: ConversationStore, tenant: str) -> None:
    """The latest full one and all additions since; another model has its own, and one without changes nothing."""
    conversation = "conv_f" + tenant
    first = turn(tenant, conversation, "q1", ["a1"], created=True)
    whole = PromptFrame(
        first=asked(first),
        left_out=frozenset({"msg_left"}),
        forms={asked(first): user("form"), "msg_bare": None},
        shown_in_full={asked(first): ("art_1",)},
        decisions={asked(first): (FrozenDecision("art_2", "rag_extract", 7),)},
        decided=frozenset({"art_2"}),
        unsent=frozenset({asked(first)}),
        counts={asked(first): {"o200k": 5}},
    )
    await store.commit(leaving(first, PromptFrame(forms={"msg_old": None}), full=True))
    second = turn(tenant, conversation, "q2", ["a2"])
    await store.commit(leaving(second, whole, full=True))
    assert await frame_at(store, tenant, conversation) == whole
    assert await frame_at(store, tenant, conversation, "another") is None
    third = turn(tenant, conversation, "q3", ["a3"])
    added = PromptFrame(forms={asked(third): user("3")})
    await store.commit(leaving(third, added, full=False))
    await store.commit(turn(tenant, conversation, "q4", ["a4"]))
    assert await frame_at(store, tenant, conversation) == whole.followed_by(added)
    await store.commit(leaving(turn(tenant, conversation, "q5", ["a5"]), added, full=True, model="another"))
    assert await frame_at(store, tenant, conversation, "another") == added
    assert await frame_at(store, tenant, conversation) == whole.followed_by(added)


async def test_a_failed_turn_leaves_no_frame(store: ConversationStore, tenant: str) -> None:
    """It is in no rebuilt history (§3.6), so nothing of what it forwarded is to be kept to."""
    conversation = "conv_failed" + tenant
    await store.commit(turn(tenant, conversation, "q1", ["a1"], created=True))
    failed = turn(tenant, conversation, "q2", [], status="failed")
    await store.commit(leaving(failed, PromptFrame(first="msg_x"), full=True))
    assert await frame_at(store, tenant, conversation) is None


async def test_a_branch_has_the_frames_of_what_it_shares(store: ConversationStore, tenant: str) -> None:
    """Another answer to the same question is asked for with the same frame; another question after the same answer with
    what was frozen before it; a branch from before the frame's window with none of it."""
    conversation = "conv_b" + tenant
    first, second, third = (turn(tenant, conversation, f"q{n}", [f"a{n}"], created=n == 1) for n in (1, 2, 3))
    await store.commit(first)
    await store.commit(leaving(second, PromptFrame(first=asked(second)), full=True))
    await store.commit(third)
    aside = turn(tenant, conversation, "other", ["way"], at_head=False, parent_id=answered(first))
    await store.commit(leaving(aside, PromptFrame(first=asked(first), forms={asked(first): None}), full=True))
    found = there(await frame_at(store, tenant, conversation))
    assert found.first == asked(first)
    back = turn(tenant, conversation, "back", ["there"], at_head=False, parent_id=answered(third))
    await store.commit(back)
    found = there(await frame_at(store, tenant, conversation))
    assert found.first == asked(second)


async def test_a_branch_knows_nothing_that_was_decided_in_the_one_it_left(
    store: ConversationStore, tenant: str
) -> None:
    """What the frames of the branch that was left say of its own messages: a document attached anew may say the same as
    a result there, and has been shown nowhere here."""
    conversation = "conv_left" + tenant
    first, left = turn(tenant, conversation, "q1", ["a1"], created=True), turn(tenant, conversation, "q2", ["a2"])
    await store.commit(
        leaving(first, PromptFrame(decisions={asked(first): (FrozenDecision("art_1", "exclude", 0),)}), full=True)
    )
    decided = PromptFrame(forms={asked(left): None}, decisions={asked(left): (FrozenDecision("art_2", "exclude", 0),)})
    await store.commit(leaving(left, decided, full=False))
    sent = (user("q1"), assistant("a1"))
    lookup = HistoryLookup(sent, chain_digests(sent))
    found = await rebuilt(store, tenant, conversation, lookup=lookup, model="m")
    assert found.frame is not None
    assert found.frame.borrowed
    assert set(found.frame.decisions) == {asked(first)}
    assert not found.frame.forms


async def test_a_frozen_window_is_read_from_its_beginning(store: ConversationStore, tenant: str) -> None:
    """§4 I7: its messages may be stored with more bytes than are read for a window, since documents in them stand
    reduced; what lies before the window is not read for that, nor is any other conversation."""
    conversation, long = "conv_w" + tenant, "word " * 60
    turns = [turn(tenant, conversation, f"q{n} {long}", [f"a{n}"], created=n == 1) for n in range(1, 6)]
    for each in turns[:4]:
        await store.commit(each)
    await store.commit(leaving(turns[4], PromptFrame(first=asked(turns[1])), full=True))
    found = await rebuilt(store, tenant, conversation, 800, model="m")
    assert found.path[0].message_id == asked(turns[1])
    assert [m.sequence_number for m in found.path] == list(range(2, 10))
    another = await rebuilt(store, tenant, conversation, 800, model="another")
    assert len(another.path) == 6  # as far as the bytes go, to where a turn begins
    tight = await rebuilt(store, tenant, conversation, 100, model="m")
    assert len(tight.path) == 2  # a window that was frozen for a far larger budget cannot stay


@pytest.mark.parametrize("arrives", [timedelta(minutes=-1), timedelta(minutes=1)])
async def test_a_deleted_items_words_are_in_no_frame(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str, arrives: timedelta
) -> None:
    """§5: neither its own form nor a block behind it that quotes it; nor the frame of a request that had read it, also
    where that came later than the deletion, which waited for its turn, or by another clock."""
    conversation = "conv_d" + tenant
    first = turn(tenant, conversation, f"{WORD} one", ["a1"], created=True)
    second = turn(tenant, conversation, "q2", ["a2"])
    quoting = PromptFrame(forms={asked(second): user(f"<block>{WORD}</block>q2")})
    await store.commit(first)
    await store.commit(leaving(second, quoting, full=True))
    assert "frames.body" in await traces(transactions, WORD)
    late = turn(tenant, conversation, "q3", ["a3"])
    records = ConversationRecords(transactions, SystemClock(), MemoryCache(1000, SystemClock()))
    await records.delete_item(tenant, conversation, asked(first))
    late = replace(late, ledger=replace(late.ledger, created_at=SystemClock().now() + arrives))
    await store.commit(leaving(late, quoting, full=True))
    assert await traces(transactions, WORD) == []
    assert await frame_at(store, tenant, conversation) is None
    found = await rebuilt(store, tenant, conversation)
    knowing = turn(tenant, conversation, "q4", ["a4"], forgotten_at=found.forgotten_at)
    await store.commit(leaving(knowing, PromptFrame(first=asked(knowing)), full=True))
    assert await frame_at(store, tenant, conversation) is not None


async def test_a_deleted_conversation_leaves_no_frame(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§5: gone for good."""
    conversation = "conv_gone" + tenant
    first = turn(tenant, conversation, "q1", ["a1"], created=True)
    await store.commit(leaving(first, PromptFrame(forms={asked(first): user(WORD * 2)}), full=True))
    assert await store.delete_conversation(tenant, conversation)
    assert await traces(transactions, WORD * 2) == []


async def test_an_import_ignores_the_frames_of_an_earlier_export(
    transactions: DatabaseTransactions, tenant: str
) -> None:
    """They are accepted; the first request of the imported conversation forwards what it decides anew."""
    store, transfer = ConversationStore(transactions, SystemClock()), ConversationTransfer(transactions, SystemClock())
    frame = {"model": "m", "message": "msg_0", "full": True, "frame": {"forms": {"msg_0": None}}, "created_at": time(0)}
    document = jsons.dumps(bare([user_message(0, None)], frames=[frame]))
    made = await transfer.import_conversation(tenant, parse_export(document))
    found = await rebuilt(store, tenant, made.conversation_id, model="m")
    assert contents(found) == ["hello"]
    assert found.frame is None
    pieces = there(await transfer.export_conversation(tenant, made.conversation_id))
    assert "frames" not in jsons.loads(b"".join(pieces))
