"""§13.6, §13.7: how users stand in bills, and the deletion of what one person said, on both databases."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from gateway.billing.cost import ledger_figures
from gateway.core.clock import SystemClock
from gateway.core.types.memory import NotedThings
from gateway.core.types.turn import LedgerQuery, TurnCommit
from gateway.pipeline.features.entity_memory import noted
from gateway.storage.conversations import purge_user as module
from gateway.storage.conversations.purge_user import PurgedUser, UserPurge
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.entities.entity_store import EntityStore
from gateway.storage.keyed_hashes import user_digest
from gateway.storage.ledger import ledger_pages
from gateway.storage.store import ConversationStore
from tests.integration.commits import NOW, bill, contents, document, message, rebuilt, turn
from tests.integration.deleting import WORD, Keeping, full_turn, rows
from tests.integration.traces import traces

pytestmark = pytest.mark.in_turn("hashed")

ANN, BOB = "ann", "bob"


class At:
    """A clock that is set to minutes after `NOW`."""

    minutes = 0

    def now(self) -> datetime:
        return NOW + timedelta(minutes=self.minutes)

    def monotonic(self) -> float:
        return 0.0


def said(commit: TurnCommit, user: str | None, minutes: int = 0) -> TurnCommit:
    """The same from a request that named that user, with figures for the sums."""
    entry = commit.ledger
    figures = ledger_figures(entry.metadata, entry.calls)
    at = NOW + timedelta(minutes=minutes)
    return replace(commit, ledger=replace(entry, end_user=user, figures=figures, created_at=at))


def alone(tenant: str, user: str) -> TurnCommit:
    """The bill of a request that stores nothing."""
    return said(TurnCommit(bill(tenant, None)), user)


async def purged(
    transactions: DatabaseTransactions, tenant: str | None, *, whole: bool = False, dry_run: bool = False
) -> PurgedUser:
    return await UserPurge(transactions, SystemClock(), Keeping()).run(ANN, tenant, whole=whole, dry_run=dry_run)


async def users(transactions: DatabaseTransactions, table: sa.Table, tenant: str) -> list[Any]:
    """The users that stand in a table of sums or bills, one for each request."""
    found = await rows(transactions, table, tenant=tenant)
    return sorted((row.end_user or "") for row in found for _ in range(getattr(row, "requests", 1)))


async def digest_of(store: ConversationStore, user: str = ANN) -> str:
    return user_digest(await store.secret(), user)


async def test_s13_6_a_user_stands_in_bills_as_configured(transactions: DatabaseTransactions, tenant: str) -> None:
    """§13.6: in the ledger, the sums and the list of conversations alike; the same digest on all replicas."""
    for number, how in enumerate(("plain", "hashed", "off")):
        store = ConversationStore(transactions, SystemClock(), users=how)  # type: ignore[arg-type]
        place = f"{tenant}-{number}"
        await store.commit(said(turn(place, f"conv_{place}", created=True), ANN))
        await store.commit(alone(place, ANN))
        expected = {"plain": ANN, "hashed": await digest_of(store), "off": ""}[how]
        for table in (schema.ledger, schema.usage_days):
            assert await users(transactions, table, place) == [expected] * 2
        assert await users(transactions, schema.conversations, place) == [expected]


async def test_s13_6_an_audit_finds_a_user_by_name_and_by_digest(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    hashing = ConversationStore(transactions, SystemClock(), users="hashed")
    for each, user in ((store, ANN), (hashing, ANN), (hashing, BOB)):
        await each.commit(alone(tenant, user))
    digest = await digest_of(store)
    for name, count in ((ANN, 2), (digest, 1), (BOB, 1), ("nobody", 0)):
        query = LedgerQuery(tenant=tenant, end_user=name)
        assert sum([len(page) async for page in ledger_pages(transactions, query)]) == count, name


async def test_s13_7_nothing_that_a_user_said_is_left_and_the_sums_are(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """§13.7: in no column of any table; bills stay, of a digest; others keep what is theirs."""
    mine, other = f"conv_{tenant}", f"conv_other_{tenant}"
    user = f"ann {WORD}"
    for minutes in range(2):
        await store.commit(said(full_turn(tenant, mine, created=not minutes, cached=("pdf",)), user, minutes))
    await store.commit(said(turn(tenant, other, "mine stays", created=True), BOB))
    await store.commit(alone(tenant, user))
    memory = EntityStore(transactions, SystemClock(), store.secret, Keeping())
    place = await memory.place_of(tenant, user)
    await memory.note(tenant, other, (noted("workflow", "wf_1", WORD, "created"),), user, None)
    assert {"messages.body", "ledger.end_user", "usage_days.end_user", "conversations.end_user", "things.name",
            "conversations.question"} <= set(await traces(transactions, WORD))  # fmt: skip
    cache = Keeping()
    digest = await digest_of(store, user)
    expected = PurgedUser(digest, conversations=1, things=1, bills=3)
    assert await UserPurge(transactions, SystemClock(), cache).run(user, tenant, whole=False, dry_run=True) == expected
    assert "messages.body" in await traces(transactions, WORD)
    assert await UserPurge(transactions, SystemClock(), cache).run(user, tenant, whole=False, dry_run=False) == expected
    left = await rows(transactions, schema.things, tenant=tenant)
    assert [row.place for row in left] == [other]  # what a conversation noted itself is that conversation's
    await store.delete_conversation(tenant, other)
    assert await traces(transactions, WORD) == []
    assert cache.forgotten == [f"{tenant}:pdf"]
    assert place not in {row.place for row in left}
    assert await users(transactions, schema.ledger, tenant) == ["", *[digest] * 3]
    assert await users(transactions, schema.usage_days, tenant) == ["", *[digest] * 3]
    again = PurgedUser(digest, bills=3)
    assert await UserPurge(transactions, SystemClock(), cache).run(user, tenant, whole=False, dry_run=False) == again


@pytest.mark.parametrize("hashed", [False, True])
async def test_s13_7_of_a_shared_conversation_the_users_turns_go(
    transactions: DatabaseTransactions, tenant: str, hashed: bool
) -> None:
    """§13.7: with documents, things, failed turns and blocks; what others said stays, and can be gone on with."""
    clock = At()
    store = ConversationStore(transactions, clock, users="hashed" if hashed else "plain")
    name = f"conv_{tenant}"
    paper = replace(document("bob's paper", "paper"), artifact_id="art_00000000000000b0")
    things = NotedThings((noted("workflow", "wf_1", WORD, "created"),), (name,))
    for clock.minutes, user, made in (
        (0, BOB, turn(tenant, name, "bob first", ("to bob",), created=True, attachments=(paper,))),
        (5, ANN, full_turn(tenant, name)),
        (6, ANN, turn(tenant, name, WORD, (), status="failed")),
        (9, BOB, turn(tenant, name, "bob last", ("to bob again",), things=things)),
    ):
        await store.commit(said(made, user, clock.minutes))
    digest = await digest_of(store)  # the first digest makes the secret, which a dry run does not
    dry = await purged(transactions, tenant, dry_run=True)
    found = await purged(transactions, tenant)
    assert (found.conversations, found.shared, found.messages, found.documents) == (0, 1, 6, 1)
    assert dry == found
    kept = await rebuilt(store, tenant, name)
    assert contents(kept) == ["bob first", "to bob", "bob last", "to bob again"]
    assert [row.artifact_id for row in await rows(transactions, schema.attachments, conversation_id=name)] == [
        "art_00000000000000b0"
    ]
    left = await traces(transactions, WORD)
    assert left == ["instructions.body"]  # the application's words, which others were answered by, too
    bob = await digest_of(store, BOB) if hashed else BOB
    assert await users(transactions, schema.ledger, tenant) == sorted([bob, bob, digest, digest])
    assert (await purged(transactions, tenant)).shared == 0
    await store.delete_conversation(tenant, name)


async def test_s13_7_whole_takes_what_others_said_along(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    name = f"conv_{tenant}"
    await store.commit(said(turn(tenant, name, created=True), BOB))
    await store.commit(said(turn(tenant, name), ANN, 5))
    found = await purged(transactions, tenant, whole=True)
    assert (found.conversations, found.shared) == (1, 0)
    assert await rows(transactions, schema.messages, conversation_id=name) == []
    assert await users(transactions, schema.ledger, tenant) == sorted(["", await digest_of(store)])


async def test_s13_7_of_two_who_shared_a_conversation_the_second_takes_it_along(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """Nothing is left in it then but system messages, metadata and a session's name."""
    name = f"conv_{tenant}"
    await store.secret()  # which a dry run does not make
    await store.claim_session(tenant, WORD, name)
    await store.commit(said(turn(tenant, name), BOB))
    await store.commit(said(turn(tenant, name), ANN, 5))
    purging = UserPurge(transactions, SystemClock(), Keeping())
    for user, conversations in ((BOB, 0), (ANN, 1)):
        dry = await purging.run(user, tenant, whole=False, dry_run=True)
        found = await purging.run(user, tenant, whole=False, dry_run=False)
        assert (found.conversations, found.shared) == (conversations, 1 - conversations)
        assert dry == found
    assert await traces(transactions, WORD) == []
    digests = [await digest_of(store, user) for user in (ANN, BOB)]
    assert await users(transactions, schema.ledger, tenant) == sorted(digests)


async def test_s13_7_another_tenants_user_of_the_same_name_stays(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    for place in (tenant, tenant + "x"):
        await store.commit(said(turn(place, f"conv_{place}", WORD, created=True), ANN))
    await purged(transactions, tenant)
    assert await users(transactions, schema.ledger, tenant + "x") == [ANN]
    assert "messages.body" in await traces(transactions, WORD)
    await purged(transactions, None)
    assert await traces(transactions, WORD) == []
    assert await users(transactions, schema.ledger, tenant + "x") == [await digest_of(store)]


async def test_s13_7_a_turn_that_is_under_way_is_not_stored(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str
) -> None:
    """As with any deletion: its bill stays and names nobody."""
    name = f"conv_{tenant}"
    await store.commit(said(turn(tenant, name, created=True), ANN))
    await purged(transactions, tenant)
    await store.commit(said(turn(tenant, name, WORD), ANN))
    assert await traces(transactions, WORD) == []
    assert await users(transactions, schema.ledger, tenant) == sorted(["", await digest_of(store)])


async def test_s13_7_bills_are_renamed_in_small_steps(
    store: ConversationStore, transactions: DatabaseTransactions, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    for _ in range(5):
        await store.commit(alone(tenant, ANN))
    assert (await purged(transactions, tenant)).bills == 5
    assert await users(transactions, schema.usage_days, tenant) == [await digest_of(store)] * 5


async def test_s13_7_answers_of_many_items_go_whole(
    transactions: DatabaseTransactions, store: ConversationStore, tenant: str
) -> None:
    """§13.7: several thoughts, calls that share an id, and calls that the provider ran; another user's answer, in
    which its provider gave a call the same id, stays as it was."""
    name = f"conv_many-{tenant}"
    hosted = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    thoughts = [{"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]} for text in ("one", "two")]
    many = {
        "reasoning_items": thoughts,
        "output_items": [hosted, {"type": "mcp_list_tools"}, {"type": "mcp_list_tools"}],
    }
    asked = (message("user", WORD), message("assistant", WORD, tool_calls=[call, call], **many))
    first = turn(tenant, name, created=True, new_messages=(*asked, message("user", WORD)), answers=(WORD,))
    await store.commit(said(first, ANN))
    assert first.turn is not None
    kept = (message("user", "bob's"), message("assistant", "found", output_items=[hosted]), message("user", "more"))
    second = turn(tenant, name, parent_id=first.turn.answers[0].message.message_id, new_messages=kept)
    await store.commit(said(second, BOB, 1))
    done = await purged(transactions, tenant)
    assert (done.messages, done.shared) == (4, 1)
    found = await rebuilt(store, tenant, name)
    assert contents(found) == ["bob's", "found", "more", "answer"]
    assert found.path[1].body["output_items"] == [hosted]
