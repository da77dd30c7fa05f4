"""What the process keeps of earlier requests makes no difference but to the cost (ADR 20): random conversations through
two replicas that keep them, and through one gateway that keeps nothing."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.api.request import body_cache as resends
from gateway.core.clock import SystemClock
from gateway.core.config.settings import Settings
from gateway.core.errors import GatewayError
from gateway.core.types.chat import ModelFacts
from gateway.core.types.records import ItemQuery
from gateway.storage.cache.memory_cache import MemoryCache
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.database import schema
from gateway.storage.database.finish import finish
from gateway.storage.lookup import path_cache
from tests.properties.materials import words
from tests.properties.running import CASES, FACTS
from tests.support.answers import assistant, function_tool, image_part, system, text_part, tool_call, tool_result, user
from tests.support.in_process import InProcess
from tests.support.marks import few_or_many

Json = dict[str, Any]
TALKS = CASES // 10
ROOMY = {"max_input_tokens": 40_000}
NARROW = {"max_input_tokens": 700, "recall_bytes": 30_000}
REQUESTS = 12
TENANT = "tenant"
ESTIMATES_DIFFER = 0.15
ESTIMATED = ("tokens_used", "tokens_estimated", "breakdown", "utilization")
SAVED = ("saved_tokens", "realised_tokens")
"""Figures of a bill's `economics`: what everything would have taken is estimated."""
MODELS = {
    **FACTS,
    "old": ModelFacts("gpt-4", tokenizer="cl100k_base", max_input_tokens=10**6),
    "unknown": ModelFacts("claude-x", max_input_tokens=50_000),
}
AGENTS = ({"id": "ada", "type": "chat"}, {"id": "bob", "type": "plain"}, {"id": "cy", "type": "google-gemini"})
IDS = ("request_id", "conversation_id", "timings_ms", "upstream_id", "completion_id")


@dataclass
class Side:
    """Replicas on one database, which their client reaches at random."""

    replicas: list[InProcess]
    reply: list[Json]
    conversation: str | None = None
    records: ConversationRecords = field(init=False)

    def __post_init__(self) -> None:
        first = self.replicas[0]
        clock = SystemClock()
        self.records = ConversationRecords(first.transactions, clock, MemoryCache(1000, clock), first.paths)


async def _side(folder: Path, name: str, count: int, *, remembers: bool, finished: bool, context: Json = ROOMY) -> Side:
    reply: list[Json] = [{}]
    settings = Settings.model_validate({"storage": {"url": f"sqlite:///{folder}/{name}.db"}, "context": context})
    made = [InProcess(settings, MODELS, lambda body: reply[0], remembers=remembers) for _ in range(count)]
    for each in made:
        await each.prepare()
    if finished:  # results of tools stand in `reasoning_events` alone
        await finish(made[0].transactions)
    return Side(made, reply)


async def _close(side: Side) -> None:
    for each in side.replicas:
        await each.close()


def _user(rng: random.Random) -> Any:
    text = words(rng, rng.choice((5, 60, 900)))
    picture = image_part("https://example.org/a.png", detail="low")
    parts = [text_part(text)]
    content = rng.choice((text, text, parts, [*parts, picture], f' {text}"\\}}]}},{{"role" \n'))
    return user(content)


def _step(rng: random.Random, number: int) -> list[Json]:
    call = tool_call(f"call_{number}", "read", '{"a":[{"b":1}]}')
    result = words(rng, rng.choice((5, 300, 1500)))
    return [assistant(None, tool_calls=[call]), tool_result(call["id"], result)]


def _written(rng: random.Random, body: Json) -> bytes:
    """The body as some client writes it: the same one mostly writes it alike."""
    if rng.random() < 0.15:
        items = list(body.items())
        rng.shuffle(items)
        body = dict(items)
    if rng.random() < 0.15:
        return json.dumps(body, indent=rng.choice((None, 1))).encode()
    if rng.random() < 0.1:
        return b" " + json.dumps(body).encode().replace(b'"messages"', b'"messages": [], "messages"', 1)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _wishes(rng: random.Random) -> Json:
    """Fields of a request beside its messages, which differ from one request of a conversation to the next."""
    found: Json = {"model": rng.choice(("exact", "exact", "exact", *MODELS)), "context": {}}
    if rng.random() < 0.1:
        found["store"] = False
    if rng.random() < 0.15:
        found["context"]["mode"] = rng.choice(("off", "simple", "auto"))
    if rng.random() < 0.1:
        found["context"]["max_input_tokens"] = rng.choice((3000, 9000))
    if rng.random() < 0.05:
        found["context"]["dry_run"] = True
    if rng.random() < 0.15:
        found["agent"] = rng.choice(AGENTS)
    for name, value in (("user", "somebody"), ("n", 2), ("metadata", {"topic": "weather"})):
        if rng.random() < 0.05:
            found[name] = value
    return found


def _as_sent(rng: random.Random, view: list[Json]) -> list[Json]:
    """What a client makes of its conversation for one request: mostly that, now and then something odd or wrong."""
    *before, last = view
    odd = rng.random()
    if odd < 0.04:
        return [each for each in view if each["role"] != "tool" or rng.random() < 0.7]
    if odd < 0.06:
        return [*view, assistant("It is")]
    if odd < 0.08:
        return [*before, system("It is Monday."), last]
    if odd < 0.1:
        return [{"role": "developer", "content": "Be brief."}, *view]
    if odd < 0.13:
        return [*before, {**last, "extra": rng.choice((1, True, 1.0, 10**30, None, [[[]]]))}]
    if odd < 0.15:
        return [*view, {"role": "user"}]
    return [*view, last] if odd < 0.17 else view


async def _asked(side: Side, which: int, raw: bytes, reply: Json) -> Json:
    gateway = side.replicas[which % len(side.replicas)]
    side.reply[0] = reply
    gateway.upstream.sent.clear()
    try:
        answered = await gateway.send(raw, TENANT)
    except GatewayError as error:
        return {"refused": error.body()}
    bill = {k: v for k, v in answered["response_metadata"].items() if k not in IDS}
    if answered.get("conversation"):
        side.conversation = answered["conversation"]["id"]
    forwarded = gateway.upstream.sent[-1:] or answered.get("messages")
    return {"sent": forwarded, "bill": bill, "kept": bool(answered.get("conversation"))}


def _comparable(one: Json, other: Json) -> Json:
    """An answer without figures that one side only estimates: which messages are counted may be news to a replica."""
    figures = [each.get("bill", {}).get("context_utilization") or {} for each in (one, other)]
    if not all(figures):
        return one
    mine = figures[0]
    if any(each["tokens_estimated"] for each in figures):
        _close_by(*(each["tokens_used"] for each in figures))
        mine = {k: v for k, v in mine.items() if k not in ESTIMATED}
    if all(each.get("economics") for each in figures):
        for name in SAVED:
            _close_by(*((each["tokens_used"] or 0) + (each["economics"].get(name) or 0) for each in figures))
        mine = {**mine, "economics": {k: v for k, v in mine["economics"].items() if k not in SAVED}}
    return {**one, "bill": {**one["bill"], "context_utilization": mine}}


def _close_by(one: int, other: int) -> None:
    assert abs(one - other) <= ESTIMATES_DIFFER * max(abs(one), abs(other))


async def _changed(side: Side, how: str, which: float) -> None:
    """Something that happens to a stored conversation behind its client's back."""
    if side.conversation is None:
        return
    if how == "item deleted":
        page = await side.records.items(TENANT, side.conversation, ItemQuery(limit=100))
        await side.records.delete_item(TENANT, side.conversation, page.found[int(which * len(page.found))]["id"])
    elif how == "conversation deleted":
        await side.replicas[0].store.delete_conversation(TENANT, side.conversation)
        side.conversation = None
    elif how == "steps gone":
        table = schema.reasoning_events
        gone = table.delete().where(table.c.conversation_id == side.conversation)
        await side.replicas[0].transactions.run(lambda c: c.execute(gone).rowcount, write=True)


async def play(seed: int, folder: Path) -> int:
    """How many requests were recognised by their bytes.
    Raises AssertionError: what is kept of earlier ones made a difference."""
    rng = random.Random(seed)
    finished = rng.random() < 0.7
    bare = await _side(folder, f"bare{seed}", 1, remembers=False, finished=finished)
    kept = await _side(folder, f"kept{seed}", 2, remembers=True, finished=finished)
    view: list[Json] = [system(words(rng, 700))] if rng.random() < 0.7 else []
    view.append(_user(rng))
    tools = rng.random() < 0.7
    definitions = [function_tool("read", parameters={"type": "object"})]
    named, home = rng.random() < 0.3, rng.randrange(2)
    try:
        for number in range(REQUESTS):
            body: Json = {"messages": _as_sent(rng, view), **_wishes(rng)}
            if tools:
                body["tools"] = definitions
            if named:
                body["context"]["session"] = f"session {seed}"
            step = _step(rng, rng.choice((number, 1000 * seed + number))) if tools and rng.random() < 0.7 else None
            reply = {k: v for k, v in step[0].items() if k != "role"} if step else {"content": words(rng, 60)}
            raw, which = _written(rng, body), home if rng.random() < 0.8 else 1 - home
            one, other = await _asked(bare, 0, raw, reply), await _asked(kept, which, raw, reply)
            assert _comparable(one, other) == _comparable(other, one), f"seed {seed}, request {number}"
            view = [*view, {"role": "assistant", **reply}, step[1] if step else _user(rng)]
            if rng.random() < 0.2:  # edits and goes back, mostly not far
                asked = [at for at, message in enumerate(view) if message["role"] == "user"]
                view = [*view[: max(rng.choices(asked, k=2))], _user(rng)]
            if rng.random() < 0.1:
                view = [*view[:-1], {**view[-1], "name": "somebody"}]
            if rng.random() < 0.1:
                kept.replicas[home].paths.forget()
            elif rng.random() < 0.1:
                kept.replicas[home].resends.forget()
            if rng.random() < 0.1:
                how, where = rng.choice(("item deleted", "conversation deleted", "steps gone")), rng.random()
                await _changed(bare, how, where)
                await _changed(kept, how, where)
        return sum(each.resends.recognised for each in kept.replicas)
    finally:
        await _close(bare)
        await _close(kept)


async def _play_long(seed: int, folder: Path) -> int:
    """A conversation that is far longer than its window, by id or resent. How many requests found what they recall from
    among messages that were kept."""
    rng = random.Random(seed)
    finished, tools = rng.random() < 0.7, rng.random() < 0.5
    bare = await _side(folder, f"bare{seed}", 1, remembers=False, finished=finished, context=NARROW)
    kept = await _side(folder, f"kept{seed}", 2, remembers=True, finished=finished, context=NARROW)
    view: list[Json] = []
    for number in range(80):
        view.append(user(f"{rng.choice(('Always', 'And'))} {words(rng, rng.choice((60, 300)))}"))
        view += _step(rng, number) if tools and rng.random() < 0.3 else []
        view.append(assistant(words(rng, rng.choice((40, 300)))))
    used = 0
    try:
        for number in range(REQUESTS):
            question = user(f"{words(rng, 20)} {view[rng.randrange(len(view))].get('content')}")
            question["content"] = question["content"][:600]
            view.append(question)
            reply = {"content": words(rng, 60)}
            which = 0 if rng.random() < 0.8 else 1
            if number and bare.conversation and rng.random() < 0.7:
                bodies = [{"messages": [question], "conversation": side.conversation} for side in (bare, kept)]
            else:
                bodies = [{"messages": view}] * 2
            one, other = [
                await _asked(side, which, json.dumps({"model": "exact", **body}).encode(), reply)
                for side, body in zip((bare, kept), bodies, strict=True)
            ]
            assert _comparable(one, other) == _comparable(other, one), f"seed {seed}, request {number}"
            view.append({"role": "assistant", **reply})
            paths = kept.replicas[which].paths
            before = paths.earlier(kept.conversation) if kept.conversation else None
            used += before is not None and number > 0
            if rng.random() < 0.1:
                kept.replicas[0].paths.forget()
            if rng.random() < 0.15:
                how, where = rng.choice(("item deleted", "item deleted", "steps gone")), rng.random()
                await _changed(bare, how, where)
                await _changed(kept, how, where)
            if rng.random() < 0.1:  # goes back
                view = view[: -2 * rng.choice((1, 3))]
        return used
    finally:
        await _close(bare)
        await _close(kept)


@few_or_many(1, 60)
def test_s3_8_what_is_kept_of_messages_before_a_window_changes_nothing_but_the_cost(
    tmp_path: Path, number: int
) -> None:
    """The same passages are recalled, whatever was kept, deleted or branched off in between."""
    used = [asyncio.run(_play_long(seed, tmp_path)) for seed in range(number)]
    assert sum(used) > number * REQUESTS / 4


def test_s3_8_what_is_kept_of_earlier_requests_changes_nothing_but_the_cost(tmp_path: Path) -> None:
    """Edits, branches, spacing, escapes, modes, agents, models, mistakes, two replicas, deletions, and memory that was
    lost between requests."""
    recognised = [asyncio.run(play(seed, tmp_path)) for seed in range(TALKS)]
    assert sum(recognised) > TALKS * REQUESTS / 8


@pytest.mark.parametrize("module", [resends, path_cache])
def test_what_is_kept_expires(module: Any) -> None:
    """A replica learns nothing of what another one deleted: what nobody asks for is gone in minutes."""
    assert module.KEPT_SECONDS <= 600
