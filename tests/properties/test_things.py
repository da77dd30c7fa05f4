"""Random conversations with the memory of things on at random: the budget holds, for things nothing else leaves, and
what was forwarded stays (guarantee §4, §11)."""

import asyncio
import random
import re
from dataclasses import dataclass, field

from gateway.core.config.settings import Settings
from gateway.core.errors import ContextLengthExceeded
from gateway.core.jsons import Json
from tests.properties.checks import tokens
from tests.properties.running import FACTS
from tests.support.in_process import InProcess
from tests.support.marks import few_or_many

TURNS = 8
WORDS = ["lamp", "oil", "ice", "fog", "ferry", "keeper", "clause", "depot", "truck", "yard", "price"]
KINDS = ("workflow", "order", "file", "ticket")
NAMES = ("Task {} Management", "Lamp {}", "Order desk {}", "</context_data> {}", "תכנית {}", "report_{}.pdf")
TOOLS = [{"type": "function", "function": {"name": "create_order", "parameters": {"type": "object", "properties": {}}}}]
ITEM = re.compile(r'<artifact type="known_things" source="memory">\n(.*?)\n</artifact>\n', re.DOTALL)
EMPTY = re.compile(r'<context_data note="[^"]*">\n</context_data>\n\n')


@dataclass
class Talk:
    """A conversation as its client keeps it."""

    rng: random.Random
    known: list[Json] = field(default_factory=list)
    made: int = 0
    conversation: str | None = None
    before: list[Json] = field(default_factory=list)
    stayed: int = 0
    """Requests that began with all that the one before forwarded."""
    shown: int = 0
    without_room: int = 0
    """Requests that were told of things, and that named some for which there was no room."""

    def words(self) -> str:
        return " ".join(self.rng.choice(WORDS) for _ in range(self.rng.choice((1, 4, 20, 150))))

    def thing(self) -> Json:
        self.made += 1
        kind = self.rng.choice(KINDS)
        return {"type": kind, "id": f"{kind}_{self.made}", "name": self.rng.choice(NAMES).format(self.made)}

    def question(self) -> str:
        named = self.rng.sample(self.known, min(len(self.known), self.rng.choice((0, 1, 1, 3, 8))))
        names = " and ".join(self.rng.choice((each["name"], each["id"], f"my {each['type']}")) for each in named)
        return f"{self.made} {self.words()} {names}"


@few_or_many(12, 600)
def test_s11_14_for_things_nothing_else_leaves_and_the_budget_holds(number: int) -> None:
    """§11.14, §4 I1, I4, I6, I7: beside what is forwarded without memory there are at most five lines."""
    talks = [asyncio.run(_play(seed)) for seed in range(number)]
    assert sum(talk.shown for talk in talks) > number
    assert sum(talk.stayed for talk in talks) > number
    assert sum(talk.without_room for talk in talks) > 0


async def _play(seed: int) -> Talk:
    rng = random.Random(seed)
    reply: list[Json] = [{}]
    settings = Settings.model_validate({"storage": {"url": "sqlite:///:memory:"}})
    gateway = await InProcess(settings, FACTS, lambda body: reply[0]).prepare()
    talk = Talk(rng)
    budget = rng.choice((60, 120, 300, 1000, 4000, 20_000))
    try:
        for _ in range(TURNS):
            steps = rng.choice((0, 0, 1))
            messages = [{"role": "user", "content": talk.question()}]
            for step in range(steps + 1):
                function = {"name": "create_order", "arguments": '{"name": "Lamp order"}'}
                call: Json = {"id": f"c{talk.made}", "type": "function", "function": function}
                is_last = step == steps
                reply[0] = {"content": talk.words()} if is_last else {"content": None, "tool_calls": [call]}
                found = await _ask(gateway, talk, messages, budget)
                if found is None:
                    return talk
                talk.shown += found > 0
                talk.without_room += found < 0
                messages = [{"role": "tool", "tool_call_id": call["id"], "content": f'{{"id": "o-{talk.made}"}}'}]
    finally:
        await gateway.close()
    return talk


async def _ask(gateway: InProcess, talk: Talk, messages: list[Json], budget: int) -> int | None:
    """How many things were shown; -1: some were left out for want of room; None: the request cannot be made to fit."""
    rng = talk.rng
    is_on = rng.random() < 0.7
    new = [talk.thing() for _ in range(rng.choice((0, 0, 1, 3)))] if is_on else []
    body: Json = {"model": "exact", "messages": messages, "tools": TOOLS, "max_tokens": 10}
    body["context"] = {"max_input_tokens": budget}
    if talk.conversation:
        body["conversation"] = talk.conversation
    try:
        bare = await gateway.ask({**body, "context": {"max_input_tokens": budget, "dry_run": True}})
    except ContextLengthExceeded:
        return None
    memory = {"memory": {"remember": new}} if is_on else {}
    answer = await gateway.ask({**body, **memory})
    sent, used = gateway.upstream.sent[-1]["messages"], answer["response_metadata"]["context_utilization"]
    assert tokens.of_prompt(sent, body) <= budget
    told = used.get("things") or []
    assert len(told) <= 5
    fresh = messages[0]["role"] == "user"
    if fresh:
        content = next(m["content"] for m in reversed(sent) if m["role"] == "user")
        assert content.endswith(messages[0]["content"])
        item = ITEM.search(content)
        assert len(item[1].split("\n") if item else []) == len(told)
    else:
        assert not told
    excluded = bare["response_metadata"]["context_utilization"]["messages_excluded"]
    if not excluded and not _is_reduced(bare["response_metadata"]):
        assert used["messages_excluded"] == 0
        assert [_plain(m) for m in sent] == [_plain(m) for m in bare["messages"]], "something else left, or changed"
    count = len(talk.before)
    if count and not excluded and bare["messages"][:count] == talk.before:
        assert sent[:count] == talk.before
        talk.stayed += 1
    talk.before = sent
    talk.conversation = answer["conversation"]["id"]
    named = fresh and is_on and any(each["name"] in messages[0]["content"] for each in talk.known)
    talk.known += new
    return len(told) or (-1 if named else 0)


def _is_reduced(metadata: Json) -> bool:
    records = metadata["context_utilization"]["artifacts_processed"]
    return any(r["processed_size_chars"] != r["original_size_chars"] for r in records)


def _plain(message: Json) -> Json:
    """The message without the known things of its block."""
    content = message.get("content")
    return {**message, "content": EMPTY.sub("", ITEM.sub("", content))} if isinstance(content, str) else message
