"""Work that goes on when its client has left (guarantee §3.6)."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.http.chat import repeats
from gateway.http.chat.repeats import Unattended
from gateway.http.edge import ClientDisconnected


class Permit(SimpleNamespace):
    """What the work stands under: whether anybody wants it, and whether it is over."""

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()


def permit(*, wanted: bool) -> Any:
    return Permit(wanted=wanted, over=asyncio.Event())


async def gone() -> dict[str, Any]:
    """A client that has left."""
    return {"type": "http.disconnect"}


async def here() -> Any:
    """A client that waits."""
    await asyncio.Event().wait()


async def test_a_client_that_stays_gets_the_result_and_the_fault() -> None:
    async def fails() -> None:
        raise LookupError("x")

    async def works() -> int:
        await asyncio.sleep(0)
        return 7

    assert await Unattended().result(here, permit(wanted=False), 0, works()) == 7
    with pytest.raises(LookupError):
        await Unattended().result(here, permit(wanted=False), 0, fails())


@pytest.mark.parametrize("wanted", [True, False])
async def test_what_nobody_waits_for_is_cut_and_what_is_wanted_is_not(
    monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    monkeypatch.setattr(repeats, "patience", lambda _retries: 0.01)
    answer, held, outcome = asyncio.Event(), permit(wanted=wanted), []

    async def work() -> None:
        try:
            await answer.wait()
            outcome.append("done")
        except asyncio.CancelledError:
            outcome.append("cut")
            raise

    waiting = Unattended()
    with pytest.raises(ClientDisconnected):
        await waiting.result(gone, held, 0, work())
    if wanted:
        for _ in range(5):
            await asyncio.sleep(0.01)
        answer.set()
    await asyncio.wait_for(held.over.wait(), 5)
    assert outcome == ["done" if wanted else "cut"]
    await waiting.close()


async def test_the_end_of_the_server_cuts_it() -> None:
    held, waiting = permit(wanted=True), Unattended()
    with pytest.raises(ClientDisconnected):
        await waiting.result(gone, held, 0, asyncio.Event().wait())
    await waiting.close()
    assert held.over.is_set()


def test_patience_is_what_an_sdk_needs_to_try_again() -> None:
    assert [repeats.patience(n) for n in (0, 1, 2, 10, 10**9)] == [1.0, 1.5, 2.5, 8.5, 8.5]
