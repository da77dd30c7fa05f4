"""Random conversations of agents of all types: budgets, whole pairs, and sections that are an unbroken run of what was
said last (guarantee §4, §11)."""

import asyncio
import random
from dataclasses import dataclass, field

from gateway.core.config.settings import Settings
from gateway.core.errors import ContextLengthExceeded
from gateway.core.jsons import Json
from tests.properties.checks import tokens
from tests.properties.running import FACTS
from tests.support.in_process import InProcess
from tests.support.marks import few_or_many

REQUESTS = 10
TYPES = ("chat", "claude-code", "openai-codex", "google-gemini", "plain", "nobody-knows")
HEADERS = {"google-gemini": ("Conversation so far:\n", "User message:\n"), "bracketed": ("[CONTEXT]\n", "[MESSAGE]\n")}
WORDS = ["lamp", "oil", "ice", "fog", "ferry", "keeper", "clause", "depot", "order", "truck", "yard", "price"]
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]


@dataclass
class Team:
    """A conversation as a reader would write it down: who said what, in its order."""

    rng: random.Random
    said: list[tuple[str, str]] = field(default_factory=list)
    task: str | None = None

    def text(self) -> str:
        count = self.rng.choice((1, 3, 12, 60, 200))
        marker = self.rng.choice(("", "", " [NEXT:max]"))
        return f"{len(self.said)}: {' '.join(self.rng.choice(WORDS) for _ in range(count))}{marker}"

    def agent(self) -> Json:
        kind, name = self.rng.choice(TYPES), self.rng.choice(("max", "sarah", "carol"))
        found: Json = {"id": name, "type": kind}
        if self.rng.random() < 0.4:
            found["instruction"] = "Be brief. " * self.rng.choice((1, 20))
        if kind != "chat" and self.rng.random() < 0.4:
            found["window"] = self.rng.choice((0, 1, 3, 20))
        return found


@few_or_many(4, 400)
def test_s11_3_the_sections_are_what_was_said_last_and_fit(number: int) -> None:
    """§4 I1 to I4, and I7 within a tool loop."""
    answered = [asyncio.run(_play(seed)) for seed in range(number)]
    assert sum(answered) > number * REQUESTS / 2


async def _play(seed: int) -> int:
    """How many requests were answered and checked."""
    rng = random.Random(seed)
    reply: list[Json] = [{}]
    settings = Settings.model_validate({"storage": {"url": "sqlite:///:memory:"}})
    gateway = await InProcess(settings, FACTS, lambda body: reply[0]).prepare()
    team, answered = Team(rng), 0
    try:
        for _ in range(REQUESTS):
            answered += await _ask(gateway, team, reply)
    finally:
        await gateway.close()
    return answered


async def _ask(gateway: InProcess, team: Team, reply: list[Json]) -> int:
    rng, agent = team.rng, team.agent()
    steps = rng.choice((0, 0, 1, 2))
    delivers = bool(team.said) and team.said[-1][0] != "user" and rng.random() < 0.4
    own = None if delivers else team.text()
    budget = rng.choice((150, 400, 1500, 20_000))
    body: Json = {"model": "exact", "agent": agent, "context": {"session": "team", "max_input_tokens": budget}}
    body |= {"max_tokens": 10, "tools": TOOLS} if steps else {"max_tokens": 10}
    messages: list[Json] = [] if own is None else [{"role": "user", "content": own}]
    before: list[Json] = []
    asked: list[Json] = []
    for step in range(steps + 1):
        call = {"id": f"call_{step}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        answer = team.text()
        last = step == steps
        reply[0] = {"content": answer} if last else {"content": None, "tool_calls": [call]}
        try:
            await gateway.ask({**body, "messages": messages})
        except ContextLengthExceeded:
            assert budget < 1500
            return 0
        sent = gateway.upstream.sent[-1]["messages"]
        current = team.said[-1][1] if own is None else own
        earlier = team.said if own is not None and not step else team.said[:-1]
        _check(sent, body, agent, earlier, current, budget)
        whole = not any(str(message["content"]).startswith("[") and message["role"] == "tool" for message in before)
        if before and whole and _at_most([*before, *asked, *messages], body) <= budget:
            assert sent[: len(before)] == before, "a step does not begin with what the step before was sent"
        asked = [{"role": "assistant", **reply[0]}]
        before = sent if agent["type"] != "chat" else []
        if not step and own is not None:
            team.said.append(("user", own))
        messages = [{"role": "tool", "tool_call_id": f"call_{step}", "content": team.text()}]
    team.said.append((agent["id"], answer))
    return 1


def _at_most(messages: list[Json], body: Json) -> int:
    """Tokens that a careful count may give."""
    return tokens.of_prompt(messages, body) + tokens.most_beside(messages, body)


def _check(sent: list[Json], body: Json, agent: Json, said: list[tuple[str, str]], current: str, budget: int) -> None:
    assert tokens.of_prompt(sent, body) <= budget
    for index, message in enumerate(sent):
        if message["role"] == "tool":
            assert sent[index - 1].get("tool_calls") or sent[index - 1]["role"] == "tool"
        if message.get("tool_calls"):
            assert sent[index + 1]["role"] == "tool"
    if agent["type"] == "chat":
        return
    prompts = [message["content"] for message in sent if message["role"] == "user"]
    assert len(prompts) == 1
    shown = current.removesuffix(" [NEXT:max]")
    assert prompts[0].endswith(shown)
    above_context, above_message = HEADERS.get(agent["type"], HEADERS["bracketed"])
    if agent["type"] in ("plain", "nobody-knows"):
        above_context = above_message = ""
    sections = prompts[0].partition("</context_data>\n\n")[2] or prompts[0]  # behind a block, where there is one
    lines: str = sections.removesuffix(above_message + shown)
    lines = lines.partition(above_context)[2] if above_context else lines.removeprefix(_instruction(agent))
    found = [line for line in lines.split("\n") if line]
    window = agent.get("window", 5)
    wanted = [f"{who}: {text.removesuffix(' [NEXT:max]')}" for who, text in said][
        len(said) - window if window < len(said) else 0 :
    ]
    assert len(found) <= window
    assert found == wanted[len(wanted) - len(found) :], "the context is no unbroken run of what was said last"


def _instruction(agent: Json) -> str:
    text = str(agent.get("instruction", "")).strip()
    return f"{text}\n\n" if text else ""
