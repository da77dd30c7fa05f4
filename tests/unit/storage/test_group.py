"""Commits that share a transaction: all or each for itself, and none is lost with its caller."""

import asyncio
from typing import Any

import pytest

from gateway.core.errors import StorageUnavailable
from gateway.core.types.turn import TurnCommit
from gateway.storage.store import CommitGroup
from tests.integration.commits import bill


class Disk:
    """Writes what it is given, slowly enough that others arrive meanwhile."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.bad: set[str] = set()
        self.down = False

    async def __call__(self, commits: list[Any]) -> None:
        ids = [commit.ledger.request_id for commit in commits]
        await asyncio.sleep(0.005)
        if self.down:
            raise StorageUnavailable("down")
        if self.bad.intersection(ids):
            raise ValueError("not to be written")
        self.batches.append(ids)


def commits(count: int) -> list[TurnCommit]:
    return [TurnCommit(bill("tenant", None)) for _ in range(count)]


async def test_what_arrives_during_a_write_goes_into_the_next_one() -> None:
    disk = Disk()
    group = CommitGroup(disk)
    made = commits(30)
    first = asyncio.ensure_future(group.add(made[0]))
    await asyncio.sleep(0.001)
    await asyncio.gather(*(group.add(each) for each in made[1:]))
    assert first.done()
    assert [len(batch) for batch in disk.batches] == [1, 29]
    assert [request for batch in disk.batches for request in batch] == [each.ledger.request_id for each in made]


async def test_one_that_cannot_be_written_does_not_take_the_others_with_it() -> None:
    disk = Disk()
    group = CommitGroup(disk)
    made = commits(4)
    disk.bad = {made[2].ledger.request_id}
    done = await asyncio.gather(*(group.add(each) for each in made), return_exceptions=True)
    assert [type(each) for each in done] == [type(None), type(None), ValueError, type(None)]
    assert sorted(r for batch in disk.batches for r in batch) == sorted(
        each.ledger.request_id for each in made if each is not made[2]
    )


async def test_an_outage_is_everyones() -> None:
    disk = Disk()
    disk.down = True
    group = CommitGroup(disk)
    done = await asyncio.gather(*(group.add(each) for each in commits(3)), return_exceptions=True)
    assert {type(each) for each in done} == {StorageUnavailable}
    disk.down = False
    await group.add(commits(1)[0])
    assert len(disk.batches) == 1


async def test_s36_what_its_caller_left_is_written_all_the_same() -> None:
    disk = Disk()
    group = CommitGroup(disk)
    (made,) = commits(1)
    adding = asyncio.ensure_future(group.add(made))
    await asyncio.sleep(0.001)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    await group.add(commits(1)[0])
    assert disk.batches[0] == [made.ledger.request_id]
