"""Large bodies are worked on within a budget of bytes, in their order; small ones never wait."""

import asyncio
from typing import Any

import pytest

from gateway.api.passthrough.endpoint import RelayedUpload
from gateway.api.server.asgi import LARGE_BYTES, BodySlot, LargeBodies
from gateway.core.errors import Overloaded

BUDGET = 3 * LARGE_BYTES


async def admitted(place: BodySlot, size: int = LARGE_BYTES) -> None:
    await place.grow(LARGE_BYTES, size)


async def test_small_bodies_never_wait() -> None:
    bodies = LargeBodies(BUDGET, 60)
    with bodies.place("") as large, bodies.place("") as small:
        await admitted(large, BUDGET)
        await small.grow(LARGE_BYTES - 1, 10 * BUDGET)


async def test_large_ones_wait_for_room_and_come_in_their_order() -> None:
    bodies, order = LargeBodies(BUDGET, 60), []

    async def work(name: str, size: int) -> None:
        with bodies.place("") as place:
            await admitted(place, size)
            order.append(name)

    with bodies.place("") as first:
        await admitted(first, BUDGET - LARGE_BYTES)
        waiting = [
            asyncio.ensure_future(work(name, size)) for name, size in (("large", BUDGET), ("would fit", LARGE_BYTES))
        ]
        await asyncio.sleep(0)
        assert order == []
    await asyncio.gather(*waiting)
    assert order == ["large", "would fit"]


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_s12_16_of_tenants_each_has_its_turn(number: int) -> None:
    """§12.16: however much one of them has waiting, the first of each other comes before its second."""
    bodies, order = LargeBodies(LARGE_BYTES, 60), []
    others = [f"other {n}" for n in range(number)]

    async def work(tenant: str) -> None:
        with bodies.place(tenant) as place:
            await admitted(place)
            order.append(tenant)
            await asyncio.sleep(0)

    with bodies.place("") as first:
        await admitted(first)
        waiting = [asyncio.ensure_future(work(name)) for name in (*["busy"] * 20, *others)]
        await asyncio.sleep(0)
        left = asyncio.ensure_future(work("gone"))
        await asyncio.sleep(0)
        left.cancel()
    await asyncio.gather(*waiting)
    assert order == ["busy", *others, *["busy"] * 19]


async def test_one_larger_than_the_budget_is_worked_on_alone() -> None:
    bodies = LargeBodies(BUDGET, 0.01)
    with bodies.place("") as place:
        await admitted(place, 2 * BUDGET)
        with bodies.place("") as other, pytest.raises(Overloaded):
            await admitted(other)


async def test_who_waits_too_long_or_leaves_takes_no_room() -> None:
    bodies = LargeBodies(BUDGET, 0.01)
    with bodies.place("") as first:
        await admitted(first, BUDGET)
        with bodies.place("") as late, pytest.raises(Overloaded) as refused:
            await admitted(late)
        assert (refused.value.status, refused.value.headers["retry-after"]) == (503, "5")
        with bodies.place("") as left:
            leaving = asyncio.ensure_future(admitted(left))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.wait({leaving})
    with bodies.place("") as next_one:
        await admitted(next_one, BUDGET)


async def test_who_is_admitted_as_he_leaves_gives_the_room_back() -> None:
    bodies = LargeBodies(BUDGET, 60)
    with bodies.place("") as left:
        with bodies.place("") as first:
            await admitted(first, BUDGET)
            leaving = asyncio.ensure_future(admitted(left, BUDGET))
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
        with bodies.place("") as next_one:
            await admitted(next_one, BUDGET)


async def test_a_place_may_be_given_back_before_its_block_ends() -> None:
    bodies = LargeBodies(BUDGET, 0.01)
    with bodies.place("") as answered, bodies.place("") as other:
        await admitted(answered, BUDGET)
        answered.release()
        answered.release()
        await admitted(other, BUDGET)


async def test_a_large_answer_never_waits_and_requests_wait_for_it() -> None:
    """It is paid for: it takes its room whatever is there, and gives it back."""
    bodies, order = LargeBodies(BUDGET, 60), []

    async def work() -> None:
        with bodies.place("") as place:
            await admitted(place)
            order.append("request")

    with bodies.occupied(BUDGET), bodies.occupied(BUDGET), bodies.occupied(LARGE_BYTES - 1):
        waiting = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        order.append("answers")
    await waiting
    assert order == ["answers", "request"]


async def test_s12_16_relayed_bodies_that_are_read_share_the_room() -> None:
    """One that is large waits for its tenant's turn, and is refused where none comes."""
    bodies = LargeBodies(BUDGET, 0.01)
    message = {"type": "http.request", "body": bytes(LARGE_BYTES), "more_body": False}

    async def receive() -> Any:
        return message

    def upload() -> RelayedUpload:
        headers = [(b"content-length", str(LARGE_BYTES).encode())]
        return RelayedUpload({"headers": headers}, receive, 2 * BUDGET, 60)

    with bodies.place("busy") as held:
        await admitted(held, BUDGET)
        with bodies.place("other") as place, pytest.raises(Overloaded):
            await upload().read(place)
    with bodies.place("other") as place:
        assert len(await upload().read(place)) == LARGE_BYTES
