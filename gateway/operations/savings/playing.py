"""Plays recorded sessions through the gateway's own pipeline: no network, a storage in memory, a clock that follows the
recorded times, and an upstream that gives the recorded answers."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol

from gateway.accounting.cost import meter_of, usd_of
from gateway.base import jsons
from gateway.base.ids import new_id
from gateway.config.model_list import LitellmParams, ModelEntry
from gateway.config.settings import Settings, StorageSettings
from gateway.errors import GatewayError
from gateway.http.inner.messages import plain_messages
from gateway.http.inner.validation import Arrival, parse_chat_request
from gateway.models.exchange import Caller, ChunkStream, Deployment, JsonAnswer, ModelFacts
from gateway.models.upstream import UpstreamRequest
from gateway.operations.savings.prompt_cache import PromptCache, Segment, Segments
from gateway.operations.savings.quoted import Verbatim, quoted
from gateway.operations.savings.recording import Session
from gateway.ports import Clock, Upstream
from gateway.storage.database.migrate import migrate
from gateway.storage.database.transactions import Transactions
from gateway.tokens.counter import CounterRegistry
from gateway.turn.pipeline import Pipeline
from gateway.turn.stages import not_paused
from gateway.upstream.routing.router import ConfiguredRouter

Json = dict[str, Any]
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
BETWEEN_SECONDS = 7 * 86400.0
"""From the end of a session to the next one's beginning: nothing is warm any more."""
MIN_DEARER = Decimal("1.0005")
"""Times the direct bill, above which a session counts as dearer."""


class Wired(Protocol):
    """What is needed of the gateway as `app` wires it."""

    pipeline: Pipeline
    router: ConfiguredRouter
    counters: CounterRegistry
    transactions: Transactions

    async def close(self) -> None: ...


class MakeGateway(Protocol):
    """Wires a gateway (`app.Gateway`)."""

    def __call__(self, settings: Settings, *, clock: Clock, upstream: Upstream) -> Wired: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What requests say of their context, beside the configuration."""

    max_input_tokens: int | None = None
    economy: str | None = None
    store: bool = True

    @property
    def name(self) -> str:
        """As tables call it."""
        window = "whole window" if self.max_input_tokens is None else f"{self.max_input_tokens} tokens"
        return ", ".join(
            [window, *([f"economy {self.economy}"] if self.economy else []), *(["unstored"] * (not self.store))]
        )

    @property
    def context(self) -> Json:
        """The field `context`."""
        said = {"max_input_tokens": self.max_input_tokens, "economy": self.economy}
        return {name: value for name, value in said.items() if value is not None}


@dataclass(slots=True)
class Played:
    """A session at a setting: USD of its client's own requests, and through the gateway.

    Attributes:
        breaks: steps at which the client's messages go on and the forwarded ones do not begin with those before, while
            the provider's cache was warm; `cold_breaks`: the same where it was cold, which costs nothing.
        quoted: texts that answers quote for an exact match and that their client sent verbatim; `missing`: those of
            them that were not forwarded verbatim.
        refused: requests that the gateway refused; they are in no sum.
        metered: USD that the gateway's own bills say were saved net.
    """

    session: str
    agent: str
    setting: str
    steps: int = 0
    direct: Decimal = Decimal(0)
    gateway: Decimal = Decimal(0)
    breaks: int = 0
    cold_breaks: int = 0
    quoted: int = 0
    missing: int = 0
    refused: int = 0
    metered: Decimal = Decimal(0)

    @property
    def ratio(self) -> Decimal:
        """The gateway's bill for each dollar of the direct one."""
        return self.gateway / self.direct if self.direct else Decimal(1)

    @property
    def is_dearer(self) -> bool:
        """Whether the session cost more than without the gateway."""
        return self.gateway > self.direct * MIN_DEARER


class TooLong(Exception):
    """A session that the model could not have been asked without a gateway."""


class ReplayClock:
    """Stands still until it is set (a `Clock`)."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class ScriptedUpstream:
    """Gives the answer that it is handed, with the usage that a provider's prompt cache would report (an
    `Upstream`)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.segments: Segments | None = None
        self.cache: PromptCache | None = None
        self.answer: Json = {}
        self.messages: list[Json] = []
        self.prompt: list[Segment] = []

    async def complete(self, deployment: Deployment, request: UpstreamRequest) -> JsonAnswer:
        """The answer at hand; what was forwarded is kept."""
        assert self.segments is not None
        assert self.cache is not None
        self.messages = list(request.body["messages"])
        self.prompt = self.segments.of_prompt(self.messages, request.body.get("tools"))
        usage = self.cache.usage(self.prompt, self._clock.monotonic(), self.segments.tokens_of(self.answer))
        reason = "tool_calls" if self.answer.get("tool_calls") else "stop"
        choice = {"index": 0, "message": dict(self.answer), "finish_reason": reason}
        made = {"id": new_id("chatcmpl-"), "object": "chat.completion", "created": 0, "model": deployment.model}
        return JsonAnswer({**made, "choices": [choice], "usage": usage}, {})

    def stream(self, deployment: Deployment, request: UpstreamRequest) -> AbstractAsyncContextManager[ChunkStream]:
        """Nothing is streamed here."""
        raise NotImplementedError


class Player:
    """A gateway of one setting. To be made, used and closed in one event loop."""

    def __init__(self, settings: Settings, make: MakeGateway, model: str, setting: Setting, lifetime: float) -> None:
        self._clock = ReplayClock()
        self._upstream = ScriptedUpstream(self._clock)
        self._settings = replayed(settings, model)
        self._gateway = make(self._settings, clock=self._clock, upstream=self._upstream)
        self._model, self._setting, self._lifetime = model, setting, lifetime
        self._number = 0

    async def open(self) -> None:
        """Makes the schema.

        Raises:
            ValueError: the model has no known price.
        """
        await migrate(self._gateway.transactions)
        if not {"input_cost_per_token", "output_cost_per_token"} <= self.facts.prices.keys():
            raise ValueError(f"--model: no prices are known of {self._model!r}; say them in its model_info")

    @property
    def facts(self) -> ModelFacts:
        """What is known of the model."""
        router = self._gateway.router
        return router.facts(self._model, router.deployment(self._model, Caller("replay")))

    async def play(self, session: Session) -> Played:
        """
        Raises:
            TooLong: a request of the session exceeds the model's window.
        """
        facts, clock = self.facts, self._clock
        segments = Segments(self._gateway.counters.counter(facts))
        upstream, direct = self._upstream, PromptCache(facts.prices, segments, self._lifetime)
        upstream.segments, upstream.cache = segments, PromptCache(facts.prices, segments, self._lifetime)
        played, verbatim = Played(session.name, session.agent, self._setting.name), Verbatim()
        start = clock.seconds + BETWEEN_SECONDS
        self._number += 1
        caller = Caller(f"session-{self._number}")
        sent: list[Segment] = []
        forwarded: list[Segment] = []
        last = start
        for step in session.steps:
            clock.seconds = start + step.at
            prompt = segments.of_prompt(step.messages, session.tools)
            usage = direct.usage(prompt, clock.seconds, segments.tokens_of(step.answer))
            if facts.max_input_tokens is not None and usage["prompt_tokens"] > facts.max_input_tokens:
                raise TooLong(f"has a request of {usage['prompt_tokens']} tokens")
            upstream.answer = step.answer
            try:
                cost, net = await self._ask(step.messages, session.tools, caller)
            except GatewayError:
                played.refused += 1
                continue
            played.steps += 1
            played.direct += direct.cost(usage)
            played.gateway += cost
            played.metered += net
            goes_on = bool(sent) and prompt[: len(sent)] == sent
            if goes_on and upstream.prompt[: len(forwarded)] != forwarded:
                is_cold = clock.seconds - last > self._lifetime
                played.cold_breaks += is_cold
                played.breaks += not is_cold
            sent, forwarded, last = prompt, upstream.prompt, clock.seconds
            for text in quoted(step.answer):
                if verbatim.has(step.messages, text):
                    played.quoted += 1
                    played.missing += not verbatim.has(upstream.messages, text)
        return played

    async def _ask(self, messages: Sequence[Json], tools: Sequence[Json], caller: Caller) -> tuple[Decimal, Decimal]:
        """What a step cost, and what its bill says was saved net."""
        body: Json = {"model": self._model, "messages": list(messages), "store": self._setting.store}
        body |= {"tools": list(tools)} if tools else {}
        body |= {"context": self._setting.context} if self._setting.context else {}
        arrival = Arrival(new_id("req_"), self._clock.now(), self._clock.monotonic(), len(jsons.dumps(body)))
        plain = plain_messages(body["messages"])
        request = parse_chat_request(body, {}, caller, self._settings, arrival, plain)
        completion = not_paused(await self._gateway.pipeline.answer(request))
        bill = jsons.loads(jsons.dumps(completion.body["response_metadata"]))
        net = usd_of(meter_of(bill).get("net_saving"))
        return completion.cost or Decimal(0), net or Decimal(0)

    async def close(self) -> None:
        """Lets go of the storage."""
        await self._gateway.close()


def replayed(settings: Settings, model: str) -> Settings:
    """The settings by which sessions are played: the configured model, context and conversations; nothing that asks
    another model, and nothing that is kept."""
    entry = next((each for each in settings.model_list if model in (each.model_name, each.star(model))), None)
    if entry is None:
        entry = ModelEntry(model_name=model, litellm_params=LitellmParams(model=model))
    params = entry.litellm_params.model_copy(update={"api_key": None, "api_base": "http://127.0.0.1:9/v1"})
    entry = entry.model_copy(update={"model_name": model, "litellm_params": params, "unset": ()})
    update = {"planning": "never", "embedding_model": None, "memory": "extracts"}
    context = settings.context.model_copy(update=update)
    storage = StorageSettings(url="sqlite:///:memory:")
    own = {"model_list": [entry], "context": context, "conversation": settings.conversation, "storage": storage}
    return Settings().model_copy(update=own)
