"""An agent before a provider that has a prompt cache and charges for it."""

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings, Settings
from gateway.core.types.chat import ModelFacts
from gateway.storage.cache.memory_cache import open_cache
from tests.support.answers import assistant, function_tool, tool_call, tool_result, user
from tests.support.documents import prose
from tests.support.hand_clock import DayClock
from tests.support.in_process import InProcess
from tests.support.o200k import text_tokens

Json = dict[str, Any]


READ, WRITE, PLAIN, OUT = (Decimal(each) for each in ("0.0000003", "0.00000375", "0.000003", "0.000015"))


PRICES = {
    "input_cost_per_token": PLAIN,
    "output_cost_per_token": OUT,
    "cache_read_input_token_cost": READ,
    "cache_creation_input_token_cost": WRITE,
}


FACTS = {
    name: ModelFacts(name, max_input_tokens=window, prices=prices, tokenizer="o200k_base")
    for name, window, prices in (("m", 200_000, PRICES), ("other", 200_000, PRICES), ("unpriced", 30_000, {}))
}


READING = function_tool("read", parameters={"type": "object", "properties": {}})


LIFE, PAUSE = timedelta(minutes=5), timedelta(minutes=6)


def tokens(message: Json) -> int:
    """As a vocabulary counts what it says."""
    return text_tokens(orjson.dumps(message).decode())


class Provider:
    """Its prompt cache: the longest beginning, message by message, of what it was sent within five minutes."""

    def __init__(self, clock: DayClock) -> None:
        self.clock, self.answer = clock, Json()
        self._known: dict[int, datetime] = {}
        """When each beginning was last sent."""

    def usage_of(self, body: Json) -> Json:
        read = written = 0
        beginning = hash(body["model"])  # each model has its own
        for message in body["messages"]:
            beginning = hash((beginning, orjson.dumps(message)))
            at = self._known.get(beginning)
            if at is not None and self.clock.at - at <= LIFE:
                read += tokens(message)
            else:
                written += tokens(message)
            self._known[beginning] = self.clock.at
        details = {"cached_tokens": read, "cache_write_tokens": written}
        return {"prompt_tokens": read + written, "completion_tokens": 50, "prompt_tokens_details": details}

    def cost(self, usage: Json) -> Decimal:
        """What it charges."""
        read, written = (int(each) for each in usage["prompt_tokens_details"].values())
        return READ * read + WRITE * written + OUT * 50


def common(one: Sequence[Json], other: Sequence[Json]) -> int:
    """How many messages at the beginning of both are equal."""
    pairs = zip(one, other, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


class Agent:
    """Sends everything again at each step, to one replica after another; beside it, the same goes to the provider."""

    def __init__(self, world: "World", *, store: bool, **context: Any) -> None:
        self.world, self.store, self.context = world, store, {"economy": "auto", **context}
        self.model, self.said = "m", list[Json]()
        self.forwarded: list[list[Json]] = []
        self.bills: list[Json] = []
        self.direct = Provider(world.clock)
        self.paid = self.unmanaged = Decimal(0)

    async def ask(self) -> Json:
        """One request with all that was said; its answer is said by then, too."""
        gateway = self.world.gateways[len(self.forwarded) % len(self.world.gateways)]
        body = {
            "model": self.model,
            "messages": self.said,
            "tools": [READING],
            "store": self.store,
            "context": self.context,
        }
        answer = await gateway.ask(body)
        self.forwarded.append(orjson.loads(orjson.dumps(gateway.upstream.sent[-1]["messages"])))
        self.bills.append(answer["response_metadata"])
        self.paid += Decimal(str(answer["usage"].get("cost") or 0))
        self.unmanaged += self.direct.cost(self.direct.usage_of({"model": self.model, "messages": self.said}))
        return answer

    async def reads(self, content: Any, name: str = "run", arguments: Json | None = None, **more: Any) -> None:
        """A tool step: a call, and its result, which goes up with the next request."""
        if not self.said:
            self.said.append(user("Look after the cranes."))
        self.world.clock.at += timedelta(seconds=10)
        number = len(self.said)
        call = tool_call(f"call_{number}", name, json.dumps(arguments or {"command": f"cranes {number}"}))
        self.world.provider.answer = assistant(None, tool_calls=[call])
        await self.ask()
        self.said += [self.world.provider.answer, {**tool_result(call["id"], content), **more}]

    async def steps(self, count: int, words: int = 300, name: str = "read", **more: str) -> None:
        """So many tool steps, each of which reads a file of its own; `more`: further arguments."""
        for _ in range(count):
            number = len(self.said) or 1
            await self.reads(prose(number, words), name, {"path": f"src/part{number}.py", **more})

    async def ends(self) -> Json:
        """The answer; the bill of its request."""
        self.world.provider.answer = assistant(f"Done at {len(self.said)}.")
        await self.ask()
        self.said.append(self.world.provider.answer)
        return self.bills[-1]

    async def turn(self, steps: int, question: str = "Go on.") -> None:
        """A question, some steps, and the answer."""
        self.said.append(user(question))
        await self.steps(steps)
        await self.ends()

    @property
    def breaks(self) -> list[int]:
        """The requests that did not begin with all that the one before forwarded."""
        pairs = enumerate(pairwise(self.forwarded), 1)
        return [number for number, (before, after) in pairs if common(before, after) < len(before)]

    @property
    def economics(self) -> list[Json]:
        """That of each bill that has it."""
        return [bill["economics"] for bill in self.bills if "economics" in bill]


def labels(messages: Sequence[Json]) -> list[int]:
    """The results that are labels, by their indexes."""
    return [n for n, each in enumerate(messages) if str(each["content"]).startswith("[Left out: tool result")]


class World:
    """Replicas with one storage and one cache, before one provider, and their time."""

    def __init__(self, folder: Path) -> None:
        self.clock = DayClock(datetime(2026, 11, 21, 12, tzinfo=UTC))
        self.provider = Provider(self.clock)
        self.shared = open_cache(CacheSettings(), SystemClock())
        self.settings = Settings.model_validate({"storage": {"url": f"sqlite:///{folder}/all.db"}})
        self.gateways: list[InProcess] = []

    async def start(self) -> None:
        """One more replica."""
        made = InProcess(
            self.settings, FACTS, lambda _: self.provider.answer, shared=self.shared, clock=self.clock, remembers=True
        )
        made.upstream.usage_of = self.provider.usage_of
        self.gateways.append(await made.prepare())

    async def stop(self) -> None:
        """None is left."""
        while self.gateways:
            await self.gateways.pop().close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.start()
    yield made
    await made.stop()
    await made.shared.close()


@pytest.fixture(params=[True, False], ids=["stored", "unstored"])
def store(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def agent(world: World, store: bool) -> Agent:
    return Agent(world, store=store)
