"""`app.py`: what is open is let go of, whatever fails on the way."""

import asyncio

import pytest

from gateway.app import Gateway
from gateway.core.config.settings import Settings


async def test_a_fault_in_one_end_leaves_nothing_else_open(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(Settings.model_validate({"storage": {"url": "sqlite+aiosqlite:///:memory:"}}))
    ended: list[str] = []

    async def broken() -> None:
        raise RuntimeError("cannot end")

    monkeypatch.setattr(gateway.api.answering, "close", broken)
    for name, part in (("upstreams", gateway.upstreams), ("storage", gateway.storage.transactions)):
        closing = part.close

        async def close(name: str = name, closing: object = closing) -> None:
            ended.append(name)
            await closing()  # type: ignore[operator]

        monkeypatch.setattr(part, "close", close)
    with pytest.raises(RuntimeError, match="cannot end"):
        await gateway.close()
    assert ended == ["upstreams", "storage"]


async def test_a_start_that_is_cancelled_leaves_no_task(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    gateway = Gateway(Settings.model_validate({"storage": {"url": f"sqlite:///{tmp_path}/g.db"}}))
    before, waits = asyncio.all_tasks(), asyncio.Event()

    async def never(seconds: float) -> None:
        waits.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(gateway.margins, "looked_up", never)

    async def start() -> None:
        async with gateway.lifespan(None):
            raise AssertionError("it was not to begin")

    starting = asyncio.ensure_future(start())
    await waits.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()
