"""Replays as they are stored: one holder at a time, a place that is committed with its turn, a head that stays."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from gateway.core.clock import SystemClock
from gateway.core.errors import ConversationNotFound, ReplayNotFound, ReplayRunning
from gateway.core.types.conversation import BranchPoint
from gateway.core.types.past_turns import ReplayChanges, ReplayRun
from gateway.storage.conversations.reading import PastReader
from gateway.storage.conversations.replay_store import HELD_FOR, ReplayStore
from gateway.storage.database import schema
from gateway.storage.database.sqlite import DatabaseTransactions
from gateway.storage.store import ConversationStore
from tests.integration.commits import rebuilt, turn


class LaterClock(SystemClock):
    """A clock that a test puts forward."""

    later = timedelta(0)

    def now(self):  # type: ignore[no-untyped-def]
        return super().now() + self.later


@pytest.fixture
def clock() -> LaterClock:
    return LaterClock()


@pytest.fixture
def replays(transactions: DatabaseTransactions, clock: LaterClock, store: ConversationStore) -> ReplayStore:
    return ReplayStore(transactions, clock)


async def begun(store: ConversationStore, replays: ReplayStore, name: str) -> ReplayRun:
    """A conversation of one turn, and a replay of it."""
    await store.commit(turn("t", name, created=True))
    head = await head_of(store, name)
    made = ReplayRun(
        f"replay_{name}", name, head, 1, 1, ReplayChanges("gpt-4o", {"max": {"window": 1}}, {"temperature": 0.5})
    )
    await replays.begin("t", made)
    return made


async def head_of(store: ConversationStore, name: str) -> str:
    found = await rebuilt(store, "t", name)
    assert found.head_id is not None
    return found.head_id


async def replay_turn(store: ConversationStore, made: ReplayRun, **more: object) -> None:
    branch = BranchPoint(made.replay_id, None, 1)
    await store.commit(turn("t", made.conversation_id, answers=("anew",), at_head=False, branch=branch, **more))


async def test_one_at_a_time_holds_a_replay(store: ConversationStore, replays: ReplayStore, clock: LaterClock) -> None:
    """§11.18: until it says that it is done, or gives no sign of life."""
    made = await begun(store, replays, "conv_held")
    with pytest.raises(ReplayRunning):
        await replays.take(made)
    await replays.release(made.replay_id)
    found = await replays.take(made)
    assert found.asked == made.asked
    clock.later = HELD_FOR - timedelta(seconds=1)
    await replays.hold(made.replay_id)
    clock.later = HELD_FOR + timedelta(seconds=1)
    with pytest.raises(ReplayRunning):
        await replays.take(made)
    clock.later = 2 * HELD_FOR
    await replays.take(made)


async def test_the_place_is_committed_with_its_turn_and_the_head_stays(
    store: ConversationStore, replays: ReplayStore, transactions: DatabaseTransactions
) -> None:
    """§11.18: a partial or failed turn moves nothing; the question that is shared is stored once."""
    made = await begun(store, replays, "conv_place")
    await replay_turn(store, made, status="partial")
    await replay_turn(store, made, status="failed")
    assert (await replays.find("t", "conv_place", made.replay_id)).at_id is None
    await replay_turn(store, made)
    found = await replays.find("t", "conv_place", made.replay_id)
    assert (found.turn, found.request) == (1, 0)
    assert await head_of(store, "conv_place") == made.source_id
    past = PastReader(transactions)
    branch = await past.path("t", "conv_place", found.at_id)
    old = await past.path("t", "conv_place")
    assert [each.message.content for each in branch.messages] == ["question", "anew"]
    assert branch.messages[0] == old.messages[0]


async def test_the_head_moves_only_where_the_conversation_has_not_gone_on(
    store: ConversationStore, replays: ReplayStore
) -> None:
    """§11.18: what was said meanwhile is never left behind."""
    made = await begun(store, replays, "conv_head")
    assert not await replays.move_head(made)
    await replay_turn(store, made)
    found = await replays.find("t", "conv_head", made.replay_id)
    assert await replays.move_head(found)
    assert await head_of(store, "conv_head") == found.at_id
    assert await replays.move_head(found)
    await store.commit(turn("t", "conv_head", question="and now?", parent_id=found.at_id))
    later = await head_of(store, "conv_head")
    assert not await replays.move_head(found)
    assert await head_of(store, "conv_head") == later


async def test_replays_belong_to_their_conversation(
    store: ConversationStore, replays: ReplayStore, transactions: DatabaseTransactions
) -> None:
    """§8.3, §11.18: another tenant's is not there; with the conversation all of it is gone."""
    made = await begun(store, replays, "conv_own")
    for tenant, name, replay in (("u", "conv_own", made.replay_id), ("t", "conv_none", made.replay_id)):
        with pytest.raises(ConversationNotFound):
            await replays.find(tenant, name, replay)
    for name in ("replay_none", "\x00"):
        with pytest.raises(ReplayNotFound):
            await replays.find("t", "conv_own", name)
    with pytest.raises(ConversationNotFound):
        await replays.begin("u", made)
    await store.delete_conversation("t", "conv_own")
    rows = await transactions.run(
        lambda c: c.execute(sa.select(schema.replays).where(schema.replays.c.conversation_id == "conv_own")).all()
    )
    assert rows == []


async def test_one_of_which_nothing_is_done_can_be_dropped(store: ConversationStore, replays: ReplayStore) -> None:
    """§11.18: one that has begun cannot."""
    made = await begun(store, replays, "conv_drop")
    await replay_turn(store, made)
    await replays.drop(made.replay_id)
    assert await replays.find("t", "conv_drop", made.replay_id)
    other = await begun(store, replays, "conv_dropped")
    await replays.drop(other.replay_id)
    with pytest.raises(ReplayNotFound):
        await replays.find("t", "conv_dropped", other.replay_id)
