"""Thoughts that are signed over all that stands before them, in tool loops that do not fit (guarantee §10.10)."""

import asyncio
import random
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.api.request.validation import RequestArrival, parse_chat_request
from gateway.core.config.settings import Settings
from gateway.core.errors import ContextLengthExceeded, UpstreamRefused
from gateway.core.formats.anthropic import plain_blocks
from gateway.core.formats.anthropic.serializer import message_of, messages_request
from gateway.core.ids import new_id
from gateway.core.jsons import Json
from gateway.core.types.chat import ModelDeployment, ModelFacts, NativeRequest, RequestCaller
from tests.support import anthropic_wire as wire
from tests.support import in_process
from tests.support.anthropic_wire import Refused
from tests.support.in_process import InProcess
from tests.support.signing_anthropic import SigningAnthropic

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
WORDS = ["lamp", "keeper", "ledger", "harbour", "winter", "copper", "signal", "bridge", "garden", "letter"]
ENABLED = {"type": "enabled", "budget_tokens": 1024}
ADAPTIVE = {"type": "adaptive"}


class Claude(in_process.OneProvider):
    """Every model is one of Anthropic's."""

    def deployment(self, model: str, caller: RequestCaller) -> ModelDeployment:
        found = super().deployment(model, caller)
        return replace(found, protocol="anthropic", provider="anthropic", origin="anthropic claude")


class ClaudeProcess(InProcess):
    """The pipeline in front of it."""

    router = Claude


class Talk:
    """A client and a model that signs. `native`: it speaks Messages; else chat completions, as through litellm.
    `keeps`: the client sends thoughts again, as Anthropic's clients do."""

    def __init__(self, *, native: bool, resends: bool, keeps: bool, thinking: Json, store: bool = True) -> None:
        self.model = SigningAnthropic()
        self.process: InProcess
        self.said: list[Json] = []
        self.next: list[Json] = []
        self.context: Json = {}
        self._conversation: str | None = None
        self._native, self._resends, self._keeps = native, resends, keeps
        self._thinking, self._store = thinking, store

    def answer(self, body: Json) -> Json:
        """What the gateway's upstream says."""
        request, _ = messages_request(body, self.process.upstream.native)
        try:
            return message_of(self.model.answer(request, *self.next)["content"])
        except Refused as refused:
            raise UpstreamRefused(400, refused.body, {}) from None

    async def start(self, window: int) -> None:
        made = Settings.model_validate({"storage": {"url": "sqlite:///:memory:"}, "context": {"planning": "never"}})
        facts = {"m": ModelFacts("m", context_window=window, max_input_tokens=window)}
        self.process = await ClaudeProcess(made, facts, self.answer, remembers=True).prepare()

    async def send(self, *messages: Json) -> Json:
        """Sends messages, and all that was said before where the client does so."""
        self.said += messages
        sent = list(messages)
        body: Json = {"model": "m", "tools": TOOLS, "max_tokens": 100, "store": self._store, "context": self.context}
        if self._resends:
            sent = self.said if self._keeps else [_without_thoughts(message) for message in self.said]
        elif self._conversation:
            body["conversation"] = self._conversation
        body["messages"] = sent
        fields = {"thinking": self._thinking}
        body |= {} if self._native else fields
        arrival = RequestArrival(new_id("req_"), datetime.now(UTC), 0.0, len(str(body)))
        request = parse_chat_request(body, {}, RequestCaller("t"), self.process.settings, arrival)
        if self._native:
            request = replace(request, api="messages", native=NativeRequest("anthropic", fields))
        answer: Json = await self.process.answer(request)
        self.said.append(answer["choices"][0]["message"])
        self._conversation = (answer.get("conversation") or {}).get("id")
        return self.said[-1]

    async def turn(self, question: str, results: list[str]) -> None:
        """A question, a tool call for each result, and an answer."""
        new: Json = {"role": "user", "content": question}
        for number, result in enumerate(results):
            call = f"toolu_{len(self.said)}_{number}"
            self.next = [wire.text("Let me look."), wire.tool_use(call, "search", q=str(number))]
            await self.send(new)
            new = {"role": "tool", "tool_call_id": call, "content": result}
        self.next = [wire.text("So it is, as far as I can tell.")]
        await self.send(new)


def _without_thoughts(message: Json) -> Json:
    own = ("thinking_blocks", "reasoning_content")
    return {name: value for name, value in message.items() if name not in own}


def text(seed: int, words: int) -> str:
    chosen = random.Random(seed)
    return "\n".join(" ".join(chosen.choices(WORDS, k=9)) + f" {seed}-{n}." for n in range(words // 10 + 1))


async def tell(talk: Talk, window: int, turns: list[list[int]]) -> None:
    await talk.start(window)
    try:
        for number, sizes in enumerate(turns):
            results = [text(100 * number + n, size) for n, size in enumerate(sizes)]
            await talk.turn(f"What of the {WORDS[number % 10]} number {number}?", results)
    except ContextLengthExceeded:
        pass
    finally:
        await talk.process.close()


TURNS = st.lists(st.lists(st.sampled_from([5, 60, 300, 900, 2500]), max_size=6), min_size=1, max_size=5)


@pytest.mark.parametrize("native", [False, True], ids=["chat", "messages"])
@given(
    turns=TURNS,
    window=st.sampled_from([1500, 2500, 4000, 8000, 10**6]),
    resends=st.booleans(),
    keeps=st.booleans(),
    enabled=st.booleans(),
    store=st.booleans(),
)
@example(turns=[[5, 60, 60, 900]], window=1500, resends=True, keeps=True, enabled=False, store=False)
@settings(max_examples=settings().max_examples // 6)  # each is a conversation
def test_s10_10_no_thought_stands_where_it_was_not_made(
    native: bool, turns: list[list[int]], window: int, resends: bool, keeps: bool, enabled: bool, store: bool
) -> None:
    """§10.10: whatever leaves the window or is reduced, the provider never sees a thought whose signature does not fit,
    nor a tool loop whose last step lacks the thought that it wants."""
    talk = Talk(
        native=native, resends=resends or not store, keeps=keeps, thinking=ENABLED if enabled else ADAPTIVE, store=store
    )
    asyncio.run(tell(talk, window, turns))
    assert talk.model.refused == []


@pytest.mark.parametrize("native", [False, True], ids=["chat", "messages"])
@pytest.mark.parametrize("resends", [False, True], ids=["by-id", "resent"])
def test_s10_10_thoughts_stay_where_nothing_changes(native: bool, resends: bool) -> None:
    """§10.10: where all fits, every request brings all the thoughts that were made before it."""
    talk = Talk(native=native, resends=resends, keeps=True, thinking=ENABLED)
    asyncio.run(tell(talk, 10**6, [[60, 300, 60], [5], [900]]))
    assert talk.model.thoughts == list(range(8))


def test_s10_10_thoughts_come_back_after_a_pass() -> None:
    """§10.10: what was thought before the window moved is gone; what is thought from then on stays."""
    talk = Talk(native=True, resends=False, keeps=True, thinking=ADAPTIVE)
    asyncio.run(tell(talk, 2500, [[300, 300, 300, 300, 300, 300, 5, 5, 5]]))
    found = talk.model.thoughts
    assert any(later < earlier for earlier, later in pairwise(found)), found
    assert found[-1] > 0, found


@pytest.mark.parametrize("native", [False, True], ids=["chat", "messages"])
@pytest.mark.parametrize("thinking", [ENABLED, ADAPTIVE], ids=["enabled", "adaptive"])
def test_s10_10_thoughts_behind_what_nobody_remembers_are_taken_out_once_refused(native: bool, thinking: Json) -> None:
    """§10.10: what was forwarded of an unstored conversation is forgotten after an hour or a restart. Its client still
    has thoughts that were made behind shorter results: they go once the provider refuses them, and all else goes on."""
    talk = Talk(native=native, resends=True, keeps=True, thinking=thinking, store=False)

    async def told() -> None:
        await talk.start(10**6)
        talk.context = {"max_input_tokens": 2500}
        await talk.turn("What of the lamp?", [text(n, 300) for n in range(8)])
        await talk.turn("What of the ledger?", [text(10, 60), text(11, 60)])
        talk.context = {}
        talk.process.frames._kept.clear()
        await talk.turn("What of the keeper?", [text(20, 60), text(21, 60)])
        await talk.process.close()

    asyncio.run(told())
    assert len(talk.model.refused) == 1
    assert talk.said[-1]["content"] == "So it is, as far as I can tell."


def test_s10_10_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider does refuse a thought in the wrong place: without the rule the same loop fails."""
    monkeypatch.setattr(plain_blocks, "without_thoughts", lambda message: message)
    talk = Talk(native=True, resends=False, keeps=True, thinking=ADAPTIVE)
    with pytest.raises(UpstreamRefused):
        asyncio.run(tell(talk, 2500, [[300, 300, 300, 300, 300, 300, 5, 5, 5]]))
