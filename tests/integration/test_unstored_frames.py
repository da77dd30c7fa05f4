"""`store: false`: a resend goes up as it went up before, and nobody's words are kept for that (§2, §4 I7, ADR 12)."""

import asyncio
import base64
import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gateway.context.tokens import counter
from gateway.core.clock import SystemClock
from gateway.core.config.settings import CacheSettings, Settings
from gateway.core.ports import CacheBackend
from gateway.core.types.chat import ModelFacts
from gateway.pipeline.stored_turn import TurnRecorder
from gateway.pipeline.unstored_frames import MAC
from gateway.storage.cache.frame_cache import MAX_BYTES, FrameCache
from gateway.storage.cache.memory_cache import MemoryCache, open_cache
from tests.support.economy import tokens
from tests.support.hand_clock import DayClock, HandClock
from tests.support.in_process import InProcess
from tests.support.valkey import Valkey

Json = dict[str, Any]
FACTS = {name: ModelFacts(name, max_input_tokens=100_000) for name in ("m", "other")}
BUDGET = 3000
REPLY: list[Json] = [{"content": "ok"}]
"""What the model answers next."""
WORD = re.compile(r"[a-z]{4,}")
TOOL: Json = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object", "properties": {}}}}


class Client:
    """An agent that sends everything again at each step, to one replica after another."""

    def __init__(self, gateways: Sequence[InProcess], seed: int = 1, *, store: bool = False, steps: int = 3) -> None:
        self.gateways, self.steps, self.store = gateways, steps, store
        self.random, self.said = random.Random(seed), list[Json]()
        self.forwarded: list[list[Json]] = []
        self.sent: list[list[Json]] = []
        self.made: set[str] = set()
        self.ending = ""

    def words(self, count: int) -> str:
        """Words that nobody else says, some of them in lines, some as JSON."""
        made = ["".join(self.random.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(count)]
        self.made.update(made)
        if count > 100 and self.random.random() < 0.3:
            return json.dumps(
                [{"key": word, "number": self.random.randrange(10**6)} for word in made[: count // 3]], indent=2
            )
        return "\n".join(" ".join(made[i : i + 9]) for i in range(0, count, 9)) + self.ending

    async def ask(self, tenant: str = "tenant", **more: Any) -> list[Json]:
        """What was forwarded of all that was said."""
        gateway = self.gateways[len(self.forwarded) % len(self.gateways)]
        body = {"model": "m", "messages": self.said, "tools": [TOOL], "context": {"max_input_tokens": BUDGET}}
        await gateway.ask({**body, "store": self.store, **more}, tenant)
        self.sent.append(list(self.said))
        self.forwarded.append(json.loads(json.dumps(gateway.upstream.sent[-1]["messages"])))
        return self.forwarded[-1]

    async def turn(self, **more: Any) -> None:
        """A question, some tool steps and an answer."""
        self.said.append({"role": "user", "content": f"please {self.words(12)}"})
        for _ in range(self.steps):
            name = f"call_{len(self.said)}"
            function = {"name": "lookup", "arguments": json.dumps({"query": self.words(2)})}
            call = {"id": name, "type": "function", "function": function}
            await self.answered({"role": "assistant", "content": None, "tool_calls": [call]}, **more)
            result = self.words(self.random.choice((40, 160, 240)))
            self.said.append({"role": "tool", "tool_call_id": name, "content": result})
        await self.answered({"role": "assistant", "content": self.words(20)}, **more)

    async def answered(self, answer: Json, **more: Any) -> None:
        """A request, and its answer."""
        REPLY[0] = answer
        await self.ask(**more)
        self.said.append(answer)

    @property
    def breaks(self) -> int:
        """Requests that did not begin with all that the one before forwarded."""
        return sum(later[: len(former)] != former for former, later in pairwise(self.forwarded))


def checked(forwarded: Sequence[Json]) -> None:
    """Calls and results in pairs, and the question last among the user messages."""
    calls = [call["id"] for message in forwarded for call in message.get("tool_calls") or ()]
    assert calls == [message["tool_call_id"] for message in forwarded if message["role"] == "tool"]


async def gateway(path: Path, shared: CacheBackend | None = None, **more: Any) -> InProcess:
    settings = Settings.model_validate({"storage": {"url": f"sqlite:///{path}"}})
    return await InProcess(settings, FACTS, lambda body: REPLY[0], shared=shared, **more).prepare()


@pytest.fixture(params=["memory", "valkey"])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[CacheBackend]:
    """The cache of all replicas."""
    server: Valkey | None = request.getfixturevalue("valkey") if request.param == "valkey" else None
    opened = open_cache(CacheSettings(url=server.url if server else None, timeout=2.0), SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[InProcess]:
    made = await gateway(tmp_path / "one.db")
    yield made
    await made.close()


async def test_s4_i7_what_is_not_stored_goes_up_again_as_it_went_up_before(one: InProcess) -> None:
    """With as few passes as what is stored, over turns and within them."""
    stored, unstored = Client([one], store=True), Client([one])
    for _ in range(5):
        await stored.turn()
        await unstored.turn()
    assert 2 <= unstored.breaks <= stored.breaks + 1
    for forwarded in unstored.forwarded:
        checked(forwarded)
    reduced = [m for m in unstored.forwarded[-1] if m not in unstored.sent[-1]]
    assert any("[Extract of" in str(m["content"]) or "[Left out" in str(m["content"]) for m in reduced)


async def test_s4_i7_the_same_over_replicas_by_the_shared_cache(tmp_path: Path, shared: CacheBackend) -> None:
    """Each step goes to another process; what neither has seen, such as a third, finds it, too."""
    gateways = [await gateway(tmp_path / "two.db", shared) for _ in range(2)]
    alone, both = Client(gateways[:1]), Client(gateways)
    for _ in range(4):
        await alone.turn()
        await both.turn(user="both")
    assert both.forwarded == alone.forwarded
    third = await gateway(tmp_path / "two.db", shared)
    both.gateways = [third]
    both.said.append({"role": "user", "content": "and?"})
    later = await both.ask(user="both")
    assert later[: len(both.forwarded[-2])] == both.forwarded[-2]
    for each in (*gateways, third):
        await each.close()


async def test_s2_no_word_of_anybody_is_in_a_frame_nor_in_the_database(tmp_path: Path) -> None:
    shared = MemoryCache(2**26, SystemClock())
    made = await gateway(tmp_path / "words.db", shared)
    client = Client([made])
    for _ in range(3):
        await client.turn()
    kept = [value for value, _ in shared._values.values()]
    kept += [value for frames in made.frames._kept.values() for value in frames.values()]
    assert kept
    for value in kept:
        texts = json.dumps([json.loads(value[MAC:])[name] for name in ("forms", "standing", "decisions", "memory")])
        assert client.made & set(WORD.findall(texts.casefold())) == set(), "nor in what is behind the seal"
    await made.close()
    database = b"".join(path.read_bytes() for path in files(tmp_path)).lower()
    assert not [word for word in client.made if word.encode() in database]


def files(folder: Path) -> list[Path]:
    """A database's file and what is beside it."""
    return list(folder.iterdir())


class Rubbish(MemoryCache):
    """A cache whose values are of somebody else, cut, or changed."""

    def __init__(self, how: str) -> None:
        super().__init__(2**26, SystemClock())
        self._how = how

    async def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        values = [value for value, _ in self._values.values()]
        if not values:
            return [None] * len(keys)
        wrong = {
            "of another place": values[0],
            "cut": values[-1][: len(values[-1]) // 2],
            "changed": values[-1].replace(b'"left"', b'"lost"').replace(b"1", b"2"),
            "none": b"\x00\xff",
            "empty": b"",
            "endless": b"[" * (MAX_BYTES + 1),
        }[self._how]
        return [wrong for _ in keys]


@pytest.mark.parametrize("how", ["of another place", "cut", "changed", "none", "empty", "endless"])
async def test_s5_a_cache_that_holds_rubbish_costs_a_fresh_fit_alone(tmp_path: Path, how: str) -> None:
    """Each request goes to a process that has seen nothing, so that all depends on the cache."""
    rubbish = Rubbish(how)
    first = await gateway(tmp_path / "r.db", rubbish)
    client = Client([first])
    for _ in range(3):
        await client.turn()
    client.said.append({"role": "user", "content": "and now?"})
    found = []
    for cache in (rubbish, None):
        fresh = await gateway(tmp_path / "r.db", cache)
        client.gateways = [fresh]
        found.append(await client.ask())
        checked(found[-1])
        await fresh.close()
    assert found[0] == found[1], "as if nothing was known"
    await first.close()


async def test_s8_frames_are_for_the_same_tenant_user_and_model_alone(one: InProcess) -> None:
    client = Client([one])
    for _ in range(3):
        await client.turn()
    client.said.append({"role": "user", "content": "and now?"})
    before = client.forwarded[-1]
    for other in ({"tenant": "another"}, {"user": "somebody"}, {"model": "other"}):
        found = await client.ask(**other)
        assert found[: len(before)] != before
        checked(found)
    again = await client.ask()
    assert again[: len(before)] == before


async def test_s4_i7_edits_branches_and_requests_at_once(one: InProcess) -> None:
    """What a client changed is what is forwarded; a branch goes on from what it shares with another."""
    client = Client([one])
    for _ in range(4):
        await client.turn()
    whole = list(client.said)
    results = [i for i, message in enumerate(whole) if message["role"] == "tool"]
    for index in (results[1], results[-1]):
        old = whole[index]["content"]
        client.said = [*whole, {"role": "user", "content": "and?"}]
        client.said[index] = {**whole[index], "content": "\n".join(reversed(old.split("\n")))}
        found = await client.ask()
        checked(found)
        lines = client.said[index]["content"].split("\n")
        own = [m for m in found if m.get("tool_call_id") == whole[index]["tool_call_id"]]
        shown = [line for m in own for line in m["content"].split("\n") if len(line) > 40 and not line.startswith("[")]
        assert set(shown) <= set(lines)
    spaced = [{**m, "content": f"  {m['content']}"} if m["role"] == "tool" else m for m in whole]
    client.said = [*spaced, {"role": "user", "content": "and?"}]
    checked(await client.ask())
    questions = [f"which {n}?" for n in range(4)]
    branches = [Client([one]) for _ in questions]
    for branch, question in zip(branches, questions, strict=True):
        branch.said = [*whole, {"role": "user", "content": question}]
    await asyncio.gather(*(branch.ask() for branch in branches))
    for sent, question in zip(one.upstream.sent[-4:], questions, strict=True):
        checked(sent["messages"])
        assert sent["messages"][-1]["content"].endswith(question)


async def test_s4_i7_a_changed_tool_list_and_moving_breakpoints_leave_the_rest_as_it_was(one: InProcess) -> None:
    """Breakpoints are no part of what is cached; each request has its client's own."""
    client = Client([one])
    mark = {"cache_control": {"type": "ephemeral"}}

    def marked(messages: list[Json]) -> list[Json]:
        last = max(i for i, m in enumerate(messages) if m["role"] == "tool")
        parts = [{"type": "text", "text": messages[last]["content"], **mark}]
        return [{**m, "content": parts} if i == last else m for i, m in enumerate(messages)]

    for _ in range(4):
        await client.turn()
    before = client.forwarded[-1]
    plain = [*client.said, {"role": "user", "content": "and?"}]
    client.said = marked(plain)
    found = await client.ask(tools=[TOOL, {**TOOL, "function": {**TOOL["function"], "name": "further"}}])
    assert str(found).count("cache_control") == 1
    unmarked = [{**m, "content": m["content"][0]["text"]} if isinstance(m["content"], list) else m for m in found]
    assert unmarked[: len(before)] == before


async def test_s4_i7_a_client_that_leaves_while_frames_are_kept_has_its_turn_or_no_frame(
    one: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, noting, kept, keep = Client([one]), asyncio.Event(), asyncio.Event(), TurnRecorder.keep_frame

    async def keep_frame(*args: Any) -> None:
        await keep(*args)
        noting.set()
        await kept.wait()

    client.said.append({"role": "user", "content": f"please {client.words(2000)}"})
    monkeypatch.setattr(TurnRecorder, "keep_frame", keep_frame)
    asked = asyncio.ensure_future(client.ask())
    await noting.wait()
    asked.cancel()
    kept.set()
    await asyncio.gather(asked, return_exceptions=True)
    await one.pipeline.settlement.drain(10)
    found = await one.store.find_completion("tenant", next(iter(one.computed)))
    assert found is not None
    assert (found.ledger.status, one.frames.size > 0) == ("complete", True)


async def test_what_was_changed_by_nothing_leaves_no_frame(one: InProcess) -> None:
    client = Client([one], steps=1)
    await client.turn(context={})
    assert one.frames.size == 0


async def test_s4_i6_what_a_turn_began_with_stays_when_something_first_has_to_leave_amid_it(tmp_path: Path) -> None:
    """The question, which earlier steps forwarded as it came, gets no block: it begins what is cached. It is as if the
    conversation was stored."""
    found: list[list[list[Json]]] = []
    for store in (True, False):
        made = await gateway(tmp_path / f"{store}.db")  # what one learns of tokens is nothing for the other
        client = Client([made], steps=2, store=store)
        client.ending = "\nwhich lantern glows"
        for client.steps in (2, 2, 14):
            await client.turn()
        assert client.breaks >= 1
        found.append(client.forwarded)
        await made.close()
    assert found[0] == found[1]


async def test_what_a_frame_has_counted_is_not_counted_again(one: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as all of it is as it was: one space more, and nothing of it counts."""
    client, counted, plain = Client([one]), list[Json](), counter.TiktokenCounter.plain
    for _ in range(4):
        await client.turn()

    def counts(self: counter.TiktokenCounter, message: Json) -> int | None:
        counted.append(message)
        return plain(self, message)

    monkeypatch.setattr(counter.TiktokenCounter, "plain", counts)
    client.said.append({"role": "user", "content": "and then?"})
    window = await client.ask()
    assert len(counted) < len(window) / 2
    counted.clear()
    shown = next(each for each in client.said if each["role"] == "user" and each in window)
    client.said = [{**each, "content": f"{each['content']} "} if each is shown else each for each in client.said]
    assert len(await client.ask()) == len(window)
    assert len(counted) > len(window) / 2


async def test_what_cannot_be_told_without_content_is_fitted_anew(one: InProcess) -> None:
    """Such as the text of a file, which stands in no message. No older frame counts, then."""
    client = Client([one])
    await client.turn()
    data = base64.b64encode(client.words(900).encode()).decode()
    part = {"type": "file", "file": {"filename": "a.md", "file_data": f"data:text/markdown;base64,{data}"}}
    client.said.append({"role": "user", "content": [part, {"type": "text", "text": "What is in it?"}]})
    await client.answered({"role": "assistant", "content": "Words."})
    values = [json.loads(value[MAC:]) for frames in one.frames._kept.values() for value in frames.values()]
    assert values[-1].get("lost")
    await client.turn()
    for forwarded in client.forwarded:
        checked(forwarded)


async def test_a_frame_lives_as_long_as_it_is_used(tmp_path: Path) -> None:
    """It is written anew before its time is over, and gone once nobody went on."""
    clock = HandClock(1000.0)
    made = await gateway(tmp_path / "t.db", clock=clock)
    client = Client([made])
    for _ in range(3):
        await client.turn()
    client.said.append({"role": "user", "content": "and?"})
    before = client.forwarded[-1]
    clock.seconds += 3500
    assert (await client.ask())[: len(before)] == before
    clock.seconds += 3700
    assert (await client.ask())[: len(before)] != before
    await made.close()


async def test_s4_i7_who_comes_back_after_hours_has_a_free_pass_and_what_was_paid_counts_from_the_first_step(
    tmp_path: Path,
) -> None:
    """By then no frame is known: only when the conversation was used last. It is as if it was stored."""
    names = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
    prices = dict(zip(names, map(Decimal, ("3e-6", "15e-6", "3e-7")), strict=True))
    facts = {"m": ModelFacts("m", max_input_tokens=100_000, prices=prices)}
    found, costs = list[Any](), list[list[float]]()

    def usage_of(body: dict[str, Any]) -> dict[str, int]:
        return {"prompt_tokens": sum(map(tokens, body["messages"])), "completion_tokens": 5}

    for store in (True, False):
        clock = DayClock(datetime(2026, 11, 21, tzinfo=UTC))
        settings = Settings.model_validate({"storage": {"url": f"sqlite:///{tmp_path / str(store)}.db"}})
        made = await InProcess(settings, facts, lambda body: REPLY[0], clock=clock).prepare()
        made.upstream.usage_of = usage_of
        client = Client([made], steps=18, store=store)
        await client.turn(context={"economy": "auto"})
        clock.at += timedelta(hours=4)
        client.said.append({"role": "user", "content": "and?"})
        asked = {"model": "m", "messages": client.said, "tools": [TOOL], "context": {"economy": "auto"}}
        bill = (await made.ask({**asked, "store": store}, "tenant"))["response_metadata"]["economics"]
        labels = sum("[Left out: tool result" in str(each["content"]) for each in made.upstream.sent[-1]["messages"])
        found.append((labels, bill["pass"]))
        costs.append([float(bill[name]) for name in ("direct_cost", "billed_cost")])
        await made.close()
    assert found[0] == found[1]
    assert found[0][0] >= 2
    assert costs[0] == pytest.approx(costs[1], rel=0.1), "where no prompt before is known, all is estimated"


async def test_frames_of_one_tenant_take_no_room_of_another() -> None:
    clock = HandClock(0.0)
    cache = FrameCache(None, clock, 60.0, 1000)
    await cache.keep("small", "s", b"x" * 100)
    for number in range(50):
        await cache.keep("large", f"l{number}", b"x" * 100)
        assert cache.size <= 1000
    assert await cache.first("small", ["s"]) == (0, b"x" * 100)
    assert await cache.first("large", ["l0"]) is None
    assert await cache.first("large", ["none", "l49", "l48"]) == (1, b"x" * 100)
    assert await cache.first("small", ["l49"]) is None
    await cache.keep("small", "s", b"y" * (MAX_BYTES + 1))
    clock.seconds += 61
    assert await cache.first("large", ["l49"]) is None
    assert await cache.first("small", ["s"]) is None


async def test_s4_i7_replicas_that_answered_one_request_go_on_from_the_same_frame(shared: CacheBackend) -> None:
    """A client whose answer was lost asks another replica: their frames differ if something had to leave."""
    first, second = (FrameCache(shared, HandClock(0.0), 60.0, 1000) for _ in range(2))
    await first.keep("tenant", "before", b"before")
    await first.keep("tenant", "step", b"lost")
    await second.keep("tenant", "step", b"answered")
    for replica in (first, second):
        assert await replica.first("tenant", ["new", "step", "before"]) == (1, b"answered")
        assert await replica.first("tenant", ["before"]) == (0, b"before")
