"""Which modules one request visits: the application in this process, a real upstream, and a profile of its calls.

A module is visited when a function that is written in it runs for the request, in whatever thread; what dataclasses and
records have without its being written does not count. A change is a call from a function of one module to that of
another. A return is a call into a module that had been left for others since an earlier call into it.
"""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

from gateway.app import create_app
from gateway.core.config.settings import Settings
from gateway.operations.warm_up import WarmUp
from tests.support.factory import default_config
from tests.support.mock_upstream import MockUpstream
from tests.support.schemas import sqlite_url

Json = dict[str, Any]
GENERATED = "gateway.core.frozen_records"
"""Where records have their equality and hash."""
SETTLED = 0.05
"""Seconds for what a request leaves to be done after its answer."""


@dataclass(slots=True)
class Visits:
    """Calls by module, calls from one module to another, and calls back into modules that had been left."""

    calls: Counter[str] = field(default_factory=Counter)
    changes: int = 0
    returns: int = 0
    at: str = ""
    """The module of the latest call."""

    @property
    def modules(self) -> int:
        return len(self.calls)


@contextmanager
def profiled(visits: Visits) -> Any:
    """Counts all calls of the gateway's functions, in this thread and in those that start meanwhile."""

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_filename == "<string>":
            return
        name = frame.f_globals.get("__name__", "")
        if name.startswith("gateway.") and name != GENERATED:
            visits.returns += name != visits.at and name in visits.calls
            visits.at = name
            visits.calls[name] += 1
            caller = frame.f_back
            while caller is not None and not caller.f_globals.get("__name__", "").startswith("gateway."):
                caller = caller.f_back
            visits.changes += caller is not None and caller.f_globals["__name__"] != name

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def visits_by_request(folder: Path) -> dict[str, Visits]:
    """The visits of typical requests: one that needs nothing, a stream, a follow-up, one whose document is reduced."""
    question = [_user("What is the capital of France? Say it.")]
    document = "\n\n".join(f"The keeper of lamp {number} is called Name{number}." for number in range(2000))
    found: dict[str, Visits] = {}
    with MockUpstream() as upstream:
        settings = Settings.model_validate(default_config(upstream, sqlite_url(folder)))
        async with _client(settings) as send:

            async def count(name: str, body: Json) -> None:
                found[name] = Visits()
                with profiled(found[name]):
                    await send(body)

            first = await send({"model": "gpt-4o", "messages": question})
            await count("plain", {"model": "gpt-4o", "messages": [_user("Hi there, how are you today?")]})
            await count("stream", {"model": "gpt-4o", "messages": [_user("Hi there, who are you?")], "stream": True})
            said = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
            resent = [*question, said, _user("And of Spain?")]
            await count("resend", {"model": "gpt-4o", "messages": resent})
            follow_up = {"model": "gpt-4o", "messages": [_user("And of Italy?")], "conversation": first["conversation"]}
            await send(follow_up)
            await count("follow-up", {**follow_up, "messages": [_user("And of Malta?")]})
            reduced = {"model": "small", "attachments": [{"content": document}]}
            await send({**reduced, "messages": [_user("Who keeps lamp 5?")]})
            await count("reduced", {**reduced, "messages": [_user("Who keeps lamp 77?")]})
    return found


def _user(text: str) -> Json:
    return {"role": "user", "content": text}


async def _warm() -> None:
    """Waits for what a process loads after its start: the threads that load it would be counted as a request's."""
    (loading,) = [
        task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == WarmUp.run.__qualname__
    ]
    await loading


@asynccontextmanager
async def _client(settings: Settings) -> AsyncIterator[Callable[[Json], Any]]:
    app = create_app(settings)
    received: asyncio.Queue[Json] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()
    await received.put({"type": "lifespan.startup"})
    lifespan = asyncio.ensure_future(app({"type": "lifespan", "state": {}}, received.get, sent.put))
    await sent.get()
    await _warm()
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=60) as client:

        async def send(body: Json) -> Any:
            answer = await client.post("/v1/chat/completions", json=body)
            answer.raise_for_status()
            await asyncio.sleep(SETTLED)
            return None if body.get("stream") else answer.json()

        yield send
    await received.put({"type": "lifespan.shutdown"})
    await lifespan
