"""What an upstream tells of its models: who asks it, and who waits for the answer (guarantee §4 I1)."""

import asyncio

import httpx
import pytest

from gateway.core.types.chat import ModelDeployment
from gateway.upstream.openai import model_info as told_facts
from gateway.upstream.openai.model_info import DiscoveredModels
from tests.support.hand_clock import HandClock

MODEL = ModelDeployment("m", "m", "openai/m", "http://127.0.0.1:1/v1", "sk-client", operator_key=False)

LONG = 3600.0
"""Seconds: a busy machine may stop for as long as a request really waits."""


class Upstream:
    """Lists its model once `ready` is set."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.asked = asyncio.Event()
        self.times = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.times += 1
        self.asked.set()
        await self.ready.wait()
        return httpx.Response(200, json={"object": "list", "data": [{"id": "m", "max_model_len": 8192}]})


async def test_first_requests_at_once_ask_once_and_all_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_facts, "MODEL_INFO_WAIT_SECONDS", LONG)
    upstream = Upstream()
    async with httpx.AsyncClient(transport=httpx.MockTransport(upstream)) as client:
        told = DiscoveredModels(client, HandClock())
        waiting = [asyncio.create_task(told.ask(MODEL)) for _ in range(8)]
        await upstream.asked.wait()
        assert not any(each.done() for each in waiting)
        upstream.ready.set()
        await asyncio.gather(*waiting)
        assert (told.known(MODEL).window, upstream.times) == (8192, 1)


async def test_nobody_waits_for_longer_than_it_is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that began so long ago holds nobody up; what it finds counts from then on."""
    monkeypatch.setattr(told_facts, "MODEL_INFO_WAIT_SECONDS", LONG)
    upstream, clock = Upstream(), HandClock()
    async with httpx.AsyncClient(transport=httpx.MockTransport(upstream)) as client:
        told = DiscoveredModels(client, clock)
        first = asyncio.create_task(told.ask(MODEL))
        await upstream.asked.wait()
        clock.seconds = LONG
        await told.ask(MODEL)
        assert told.known(MODEL).window is None
        upstream.ready.set()
        await first
        assert (told.known(MODEL).window, upstream.times) == (8192, 1)
