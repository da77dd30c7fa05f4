"""Summaries of old turns in the storage (guarantee §11.13): which hold on a path, and that none overlap."""

import asyncio
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from gateway.billing.metadata import amended
from gateway.core.ids import new_id
from gateway.core.types.bill import BranchCosts, CallCost
from gateway.core.types.conversation import StoredConversation
from gateway.core.types.memory import NewSegment, SummarySegment, UncoveredPath
from gateway.core.types.turn import LedgerEntry, TurnCommit
from gateway.storage.store import ConversationStore
from tests.integration.commits import USAGE, rebuilt, turn
from tests.support.answers import there

CALL = CallCost("summarizer", "gpt-4o-mini", USAGE, Decimal("0.1"), Decimal("0.2"), False, {})


class Talk:
    """A conversation of a tenant's, by its commits."""

    def __init__(self, store: ConversationStore, tenant: str) -> None:
        self.store, self.tenant, self.name = store, tenant, "conv_" + new_id(tenant)
        self.commits: list[TurnCommit] = []

    async def say(self, number: int, after: str | None = None, costs: BranchCosts | None = None) -> TurnCommit:
        """A turn at the head, or behind the message `after`; `costs`: the sums of its branch with it."""
        more: dict[str, Any] = {"parent_id": after, "at_head": False} if after else {}
        made = turn(self.tenant, self.name, f"question {number}", created=not self.commits, **more)
        if costs is not None and made.turn is not None:
            (answer,) = made.turn.answers
            answer.message.costs = costs.as_text()
        await self.store.commit(made)
        self.commits.append(made)
        return made

    async def uncovered(self, commit: TurnCommit) -> UncoveredPath:
        return there(await self.store.uncovered(self.tenant, self.name, commit.ledger.request_id))

    async def summarize(self, commit: TurnCommit, turns: int, text: str = "") -> bool:
        """Stores a summary of the first uncovered turns on the path to an answer."""
        return await self.store_segment(commit, await self.uncovered(commit), turns, text)

    async def store_segment(self, commit: TurnCommit, found: UncoveredPath, turns: int, text: str = "") -> bool:
        first, last = found.messages[0], found.messages[2 * turns - 1]
        numbers = (found.turns_before + 1, found.turns_before + turns, 100)
        segment = SummarySegment(new_id("sum_"), first.number, last.number, last.message_id, text, *numbers)
        new = NewSegment(segment, found, 1)
        return await self.store.add_summary(self.tenant, self.name, commit.ledger.request_id, new, same)

    async def read(self, max_bytes: int | None = None) -> StoredConversation:
        return await rebuilt(self.store, self.tenant, self.name, max_bytes)

    async def told(self, max_bytes: int | None = None) -> list[tuple[int, int, str]]:
        """The turns of the segments that hold on the path to the head, and their texts."""
        return [(s.first_turn, s.last_turn, s.text) for s in (await self.read(max_bytes)).segments]


def same(entry: LedgerEntry) -> LedgerEntry:
    return entry


def last_of(commit: TurnCommit) -> str:
    """The id of a turn's answer."""
    return str(there(commit.turn).answers[0].message.message_id)


@pytest.fixture
def talk(store: ConversationStore, tenant: str) -> Talk:
    return Talk(store, tenant)


async def test_s11_13_segments_cover_a_path_from_its_beginning(talk: Talk) -> None:
    """Also where only the latest messages are read, which are none that a segment ends with."""
    commits = [await talk.say(number) for number in range(8)]
    assert await talk.told() == []
    assert await talk.summarize(commits[3], 2, "one")
    assert await talk.summarize(commits[7], 3, "two")
    assert await talk.told() == [(1, 2, "one"), (3, 5, "two")]
    found = await talk.read(max_bytes=1)
    assert len(found.path) == 2
    assert await talk.told(max_bytes=1) == [(1, 2, "one"), (3, 5, "two")]
    assert [m.number for m in (await talk.uncovered(commits[7])).messages] == list(range(10, 16))


async def test_s11_13_a_branch_has_the_segments_of_what_it_shares(talk: Talk) -> None:
    """And its own from there on; a segment of the other branch does not hold on it."""
    commits = [await talk.say(number) for number in range(6)]
    assert await talk.summarize(commits[5], 2, "shared")
    assert await talk.summarize(commits[5], 3, "of the first branch")
    edited = await talk.say(9, after=last_of(commits[2]))
    again = await talk.say(10)
    assert await talk.told() == [(1, 2, "shared")]
    assert len((await talk.uncovered(edited)).messages) == 4
    assert await talk.summarize(again, 2, "of the second branch")
    assert await talk.told() == [(1, 2, "shared"), (3, 4, "of the second branch")]


async def test_s11_13_a_branch_within_what_the_other_summarized_gets_its_own(talk: Talk) -> None:
    """A segment that goes on beyond the shared messages does not hold on the branch, and nobody pays in vain."""
    commits = [await talk.say(number) for number in range(6)]
    assert await talk.summarize(commits[5], 5, "of the first branch")
    await talk.say(9, after=last_of(commits[2]))
    edited = await talk.say(10)
    assert await talk.told() == []
    assert await talk.summarize(edited, 2, "of the second branch")
    assert await talk.told() == [(1, 2, "of the second branch")]
    await talk.say(11, after=last_of(commits[5]))
    assert await talk.told() == [(1, 5, "of the first branch")]


@pytest.mark.parametrize(("first", "second"), [(2, 2), (2, 4), (4, 2)])
async def test_s11_13_of_two_replicas_one_stores_its_segment(
    talk: Talk, other_store: ConversationStore, first: int, second: int
) -> None:
    """Whatever turns the other chose: no two segments overlap."""
    commits = [await talk.say(number) for number in range(6)]
    other = Talk(other_store, talk.tenant)
    other.name = talk.name
    found = await talk.uncovered(commits[5])
    assert await talk.store_segment(commits[5], found, first, "first")
    assert not await other.store_segment(commits[4], found, second, "second")
    assert await talk.told() == [(1, first, "first")]
    rest = await talk.uncovered(commits[5])
    stored = await asyncio.gather(*(each.store_segment(commits[5], rest, 1, "at once") for each in (talk, other)))
    assert sorted(stored) == [False, True]


async def test_s11_13_nothing_is_stored_of_what_is_gone(talk: Talk) -> None:
    commits = [await talk.say(number) for number in range(3)]
    found = await talk.uncovered(commits[2])
    assert not await talk.store_segment(commits[2], replace(found, forgotten_at=commits[0].ledger.created_at), 1)
    assert await talk.store.delete_conversation(talk.tenant, talk.name)
    assert not await talk.store_segment(commits[2], found, 1)
    assert await talk.store.uncovered(talk.tenant, talk.name, commits[2].ledger.request_id) is None


async def test_s6_what_a_summary_cost_is_in_the_sums_of_its_branch(talk: Talk) -> None:
    """Also where the branch has gone on meanwhile; another branch has paid for none of it."""
    sums = BranchCosts("m", 10, 0, Decimal(1), Decimal(1))
    first = await talk.say(0, costs=sums)
    shared = first.turn.answers[0].message.message_id if first.turn else None
    second = await talk.say(1, shared, costs=sums)
    after = second.turn.answers[0].message.message_id if second.turn else None
    ends = [second, await talk.say(2, after, costs=sums), await talk.say(3, shared, costs=sums)]
    amend = partial(amended, further=[CALL])
    await talk.store.add_summary(talk.tenant, talk.name, second.ledger.request_id, None, amend)
    found = []
    for commit in ends:
        end = commit.turn.answers[0].message.message_id if commit.turn else None
        (message,) = await talk.store.messages(talk.name, [end or ""])
        costs = there(BranchCosts.of_text(message.costs or ""))
        found.append(costs.billed)
    assert found == [1 + (CALL.total or 0), 1 + (CALL.total or 0), 1]


async def test_s11_13_another_tenants_answers_are_none(talk: Talk) -> None:
    commit = await talk.say(0)
    assert await talk.store.uncovered("somebody", talk.name, commit.ledger.request_id) is None
    found = await talk.uncovered(commit)
    other = Talk(talk.store, "somebody")
    other.name = talk.name
    assert not await other.store_segment(commit, found, 1)


async def test_s11_13_a_bill_is_amended(talk: Talk) -> None:
    """With its segment or without one; the figures of the primary model stay."""
    commit = await talk.say(0)
    before = await talk.store.find_completion(talk.tenant, commit.ledger.request_id)
    amend = partial(amended, further=[CALL])
    await talk.store.add_summary(talk.tenant, talk.name, commit.ledger.request_id, None, amend)
    after = await talk.store.find_completion(talk.tenant, commit.ledger.request_id)
    assert before is not None
    assert after is not None
    assert [call.purpose for call in after.ledger.calls] == ["primary", "summarizer"]
    assert after.ledger.calls[0] == before.ledger.calls[0]
    assert after.completion == before.completion
    assert after.ledger.metadata["usage"] == before.ledger.metadata["usage"]
    await talk.store.add_summary(talk.tenant, talk.name, "req_nobody", None, amend)
