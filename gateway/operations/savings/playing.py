"""Plays recorded sessions through the gateway's own pipeline: no network, a storage in memory, a clock that follows the
recorded times, and an upstream that returns the recorded answers."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Protocol

from gateway.api import RequestArrival, validation
from gateway.billing import cost, prompt_cache
from gateway.context.tokens import CounterRegistry
from gateway.core import errors, ids, jsons, ports
from gateway.core.config.model_list import LitellmParams, ModelEntry
from gateway.core.config.settings import Settings, StorageSettings
from gateway.core.frozen_records import record
from gateway.core.jsons import Json
from gateway.core.types import upstreams
from gateway.core.types.chat import ChatRequest, ChunkStream, JsonAnswer, ModelDeployment, ModelFacts, RequestCaller
from gateway.core.types.content_parts import texts_of
from gateway.core.types.prompt_digests import unmarked
from gateway.operations.savings.transcripts import RecordedSession
from gateway.pipeline import WiredPipeline, not_paused
from gateway.storage import WiredStorage
from gateway.storage.database import migrate
from gateway.upstream import WiredUpstreams

# A provider's prompt cache for one session: which part of each prompt it has cached, and what it charges (guarantee
# §13.12).

MIN_CACHED_TOKENS = 1024
"""Providers do not cache shorter prompts."""
CACHE_BLOCK_TOKENS = 128
"""OpenAI counts cached tokens in blocks of this size."""
MIN_PARTIAL_CHARS = 200
"""The common beginning of two messages counts as cached only if it is longer."""
REPLY_TOKENS = 3
HOUR = 3600.0


@record
class PromptSegment:
    """A message of a prompt, or the tools before its messages."""

    digest: bytes
    text: str
    tokens: int


class PromptSegments:
    """Splits prompts into segments; counts each message once."""

    def __init__(self, counter: ports.TokenCounter) -> None:
        self._counter = counter
        self._known: dict[bytes, PromptSegment] = {}
        self._by_identity: dict[int, tuple[Json, PromptSegment]] = {}

    def of_prompt(self, messages: Sequence[Json], tools: Sequence[Json] | None) -> list[PromptSegment]:
        """Returns the segments of a prompt, without cache marks, since those move from request to request."""
        offered = {"tools": list(tools)} if tools else {}
        return [self._segment({"tools": tools}, lambda: self._counter.tools(offered)), *map(self._message, messages)]

    def tokens_of(self, message: Json) -> int:
        return self._message(message).tokens

    def partial(self, text: str) -> int:
        """Counts the tokens of the beginning of a segment's text."""
        return self._counter.text(text)

    def _message(self, message: Json) -> PromptSegment:
        known = self._by_identity.get(id(message))
        if known is None:  # storing the message keeps its identity unique
            bare = dict(unmarked(message))
            known = self._by_identity[id(message)] = message, self._segment(bare, lambda: self._counter.message(bare))
        return known[1]

    def _segment(self, value: Json, count: Any) -> PromptSegment:
        text = jsons.dumps(value)
        digest = _digest(text)
        found = self._known.get(digest)
        if found is None:
            found = self._known[digest] = PromptSegment(digest, text.decode(), count())
        return found


class PromptCache:
    """Simulates a provider's prompt cache for one session.

    If cache writes have a price (Anthropic), the messages that a prompt shares with the beginning of an earlier one are
    read, and the rest is written. If only reads have a price (OpenAI), the common beginning is cached token by token,
    in blocks. Without either price nothing is cached. Entries expire after `lifetime` seconds without use.
    """

    def __init__(self, prices: Mapping[str, Decimal], segments: PromptSegments, lifetime: float) -> None:
        self._segments, self._lifetime, self._prices = segments, lifetime, prices
        self._writes, self._reads = prompt_cache.WRITE in prices, prompt_cache.READ in prices
        self._seen: dict[bytes, float] = {}
        self._behind: dict[bytes, dict[str, float]] = {}

    def usage(self, prompt: Sequence[PromptSegment], at: float, completion: int) -> Json:
        """Returns the usage, in OpenAI's format, that the provider would report of a call, and caches the prompt."""
        total = REPLY_TOKENS + sum(segment.tokens for segment in prompt)
        known = self._look(prompt, at)
        usage: Json = {"prompt_tokens": total, "completion_tokens": completion, "total_tokens": total + completion}
        if total < MIN_CACHED_TOKENS or not self._reads:
            return usage
        if not self._writes:
            cached = known // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS if known >= MIN_CACHED_TOKENS else 0
            return {**usage, "prompt_tokens_details": {"cached_tokens": cached}}
        written = total - known
        details: Json = {"cached_tokens": known, "cache_creation_tokens": written}
        if self._lifetime >= HOUR:
            details["cache_creation_token_details"] = {"ephemeral_1h_input_tokens": written}
        return {**usage, "prompt_tokens_details": details}

    def cost(self, usage: Json) -> Decimal:
        """Prices a usage in USD. Raises ValueError: the model has no known price."""
        found = cost.price_call("primary", "", usage, self._prices).total
        if found is None:
            raise ValueError("the model has no known price")
        return found

    def _look(self, prompt: Sequence[PromptSegment], at: float) -> int:
        chain = [b""]
        for segment in prompt:
            chain.append(_digest(chain[-1] + segment.digest))
        count = next((i for i in range(len(prompt), 0, -1) if self._is_warm(self._seen.get(chain[i]), at)), 0)
        known = sum(segment.tokens for segment in prompt[:count])
        if not self._writes and count < len(prompt):
            known += self._partly(chain[count], prompt[count], at)
        for number, segment in enumerate(prompt):
            self._seen[chain[number + 1]] = at
            if not self._writes:
                self._behind.setdefault(chain[number], {})[segment.text] = at
        return known

    def _partly(self, before: bytes, segment: PromptSegment, at: float) -> int:
        others = [text for text, last in self._behind.get(before, {}).items() if self._is_warm(last, at)]
        best = max((_common(segment.text, text) for text in others), default=0)
        if best <= MIN_PARTIAL_CHARS:
            return 0
        return min(segment.tokens - 1, self._segments.partial(segment.text[:best]))

    def _is_warm(self, last: float | None, at: float) -> bool:
        return last is not None and at - last <= self._lifetime


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _common(one: str, other: str) -> int:
    """Returns the length of the common prefix of two texts, in characters."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# Texts that an answer quotes for an exact match: an edit fails if the model does not have them verbatim.

OLD_SIDES = frozenset({"old_string", "old_str", "oldString", "oldText", "old_text", "search"})
"""Names of arguments that hold the text to replace."""
MIN_QUOTED_CHARS = 4
"""Shorter texts occur anywhere."""
PATCH, UPDATE = "*** Begin Patch", "*** Update File"
LINE_NUMBER = re.compile(r"(?m)^[ \t]*\d+(?:[→\t|:-]| ?\| ?)")
"""Line numbers as reading tools print them."""


def quoted(answer: Json) -> list[str]:
    found: list[str] = []
    for call in answer.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        written = function.get("arguments") if isinstance(function, dict) else None
        try:
            arguments = jsons.loads(written) if isinstance(written, str) else written
        except ValueError:
            continue
        found += _old_sides(arguments)
    return [text for text in dict.fromkeys(found) if len(text.strip()) >= MIN_QUOTED_CHARS]


def _old_sides(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _old_sides(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, str) and name in OLD_SIDES:
                yield each
            elif isinstance(each, str) and PATCH in each:
                yield from _hunks(each)
            else:
                yield from _old_sides(each)


def _hunks(patch: str) -> Iterator[str]:
    """Yields the old side of each hunk: its context and its removed lines as one text."""
    lines: list[str] = []
    is_update = False
    for line in [*patch.split("\n"), "***"]:
        if line.startswith(("***", "@@")):
            yield "\n".join(lines)
            lines = []
            is_update = line.startswith(UPDATE) if line.startswith("***") else is_update
        elif is_update and line[:1] in ("", " ", "-"):
            lines.append(line[1:])


class VerbatimTexts:
    """Finds texts that occur verbatim in messages; reads each message once."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Json, tuple[str, ...]]] = {}

    def has(self, messages: Sequence[Json], text: str) -> bool:
        """Returns whether a message contains the text verbatim, with or without the line numbers of tool results."""
        return any(text in each for message in messages for each in self._of(message))

    def _of(self, message: Json) -> tuple[str, ...]:
        known = self._texts.get(id(message))
        if known is None:
            known = self._texts[id(message)] = message, tuple(_texts(message))
        return known[1]


def _texts(message: Json) -> Iterator[str]:
    for text in texts_of(message.get("content")):
        yield text
        if message.get("role") == "tool" and LINE_NUMBER.search(text):
            yield LINE_NUMBER.sub("", text)
    for call in message.get("tool_calls") or ():
        try:
            arguments = jsons.loads(call["function"]["arguments"])
        except (KeyError, TypeError, ValueError):
            continue
        yield from jsons.texts_in(arguments)


PLAY_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
BETWEEN_SECONDS = 7 * 86400.0
"""Between the end of a session and the beginning of the next, so that no cache is warm."""
MIN_DEARER = Decimal("1.0005")
"""The multiple of the direct cost above which a session counts as dearer."""


class WiredGateway(Protocol):
    """The parts of a gateway, as `app` wires it, that playing needs."""

    storage: WiredStorage
    upstreams: WiredUpstreams
    requests: WiredPipeline
    counters: CounterRegistry

    async def close(self) -> None: ...


MakeGateway = Callable[..., WiredGateway]
"""Wires a gateway (`app.Gateway`) with these settings, and the arguments `clock` and `upstream`."""


@record
class PlaySetting:
    """The context fields that played requests send, in addition to the configuration."""

    max_input_tokens: int | None = None
    economy: str | None = None
    store: bool = True

    @property
    def name(self) -> str:
        """The name in tables."""
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
class PlayedSession:
    """A session played at a setting: its cost in USD directly and through the gateway.

    Attributes:
        breaks: steps at which the client's messages extend the previous ones but the forwarded messages do not, while
            the provider's cache was warm; `cold_breaks`: such steps with a cold cache, which cost nothing.
        quoted: texts that answers quote for an exact match and that the client sent verbatim; `missing`: those that
            were not forwarded verbatim.
        refused: requests that the gateway refused; no sum includes them.
        metered: the net saving in USD by the gateway's own bills.
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
        """The cost through the gateway for each dollar of direct cost; 1 without a direct cost."""
        return self.gateway / self.direct if self.direct else Decimal(1)

    @property
    def is_dearer(self) -> bool:
        """Whether the session cost more than without the gateway."""
        return self.gateway > self.direct * MIN_DEARER


class TooLong(Exception):
    """A session with a request that exceeds the model's window without a gateway."""


class ReplayClock:
    """A `Clock` that only moves when it is set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return PLAY_BEGINNING + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class ScriptedUpstream:
    """Returns the answer that it was given, with the usage of a simulated prompt cache (an `Upstream`)."""

    def __init__(self, clock: ports.Clock) -> None:
        self._clock = clock
        self.segments: PromptSegments | None = None
        self.cache: PromptCache | None = None
        self.answer: Json = {}
        self.messages: list[Json] = []
        self.prompt: list[PromptSegment] = []

    async def complete(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> JsonAnswer:
        """Returns the current answer, and stores the forwarded messages and their segments."""
        assert self.segments is not None
        assert self.cache is not None
        self.messages = list(request.body["messages"])
        self.prompt = self.segments.of_prompt(self.messages, request.body.get("tools"))
        usage = self.cache.usage(self.prompt, self._clock.monotonic(), self.segments.tokens_of(self.answer))
        reason = "tool_calls" if self.answer.get("tool_calls") else "stop"
        choice = {"index": 0, "message": dict(self.answer), "finish_reason": reason}
        made = {"id": ids.new_id("chatcmpl-"), "object": "chat.completion", "created": 0, "model": deployment.model}
        return JsonAnswer({**made, "choices": [choice], "usage": usage}, {})

    def stream(
        self, deployment: ModelDeployment, request: upstreams.UpstreamRequest
    ) -> AbstractAsyncContextManager[ChunkStream]:
        """Raises NotImplementedError: playing never streams."""
        raise NotImplementedError


class SessionPlayer:
    """Plays sessions through a gateway at one setting. Create, use and close it in one event loop."""

    def __init__(
        self, settings: Settings, make: MakeGateway, model: str, setting: PlaySetting, lifetime: float
    ) -> None:
        self._clock = ReplayClock()
        self._upstream = ScriptedUpstream(self._clock)
        self._settings = replayed(settings, model)
        self._gateway = make(self._settings, clock=self._clock, upstream=self._upstream)
        self._model, self._setting, self._lifetime = model, setting, lifetime
        self._number = 0

    async def open(self) -> None:
        """Creates the schema of the storage. Raises ValueError: the model has no known price."""
        await migrate.migrate(self._gateway.storage.transactions)
        if not {"input_cost_per_token", "output_cost_per_token"} <= self.facts.prices.keys():
            raise ValueError(f"--model: no prices are known of {self._model!r}; say them in its model_info")

    @property
    def facts(self) -> ModelFacts:
        """The facts of the played model."""
        router = self._gateway.upstreams.router
        return router.facts(self._model, router.deployment(self._model, RequestCaller("replay")))

    async def play(self, session: RecordedSession) -> PlayedSession:
        """Plays a session. Raises TooLong: a request of the session exceeds the model's window."""
        facts, clock = self.facts, self._clock
        segments = PromptSegments(self._gateway.counters.counter(facts))
        upstream, direct = self._upstream, PromptCache(facts.prices, segments, self._lifetime)
        upstream.segments, upstream.cache = segments, PromptCache(facts.prices, segments, self._lifetime)
        played, verbatim = PlayedSession(session.name, session.agent, self._setting.name), VerbatimTexts()
        start = clock.seconds + BETWEEN_SECONDS
        self._number += 1
        caller = RequestCaller(f"session-{self._number}")
        sent: list[PromptSegment] = []
        forwarded: list[PromptSegment] = []
        last = start
        for step in session.steps:
            clock.seconds = start + step.at
            try:
                request = self._request(step.messages, session.tools, caller)
            except errors.InvalidRequest:
                played.refused += 1
                continue
            prompt = segments.of_prompt(step.messages, session.tools)
            usage = direct.usage(prompt, clock.seconds, segments.tokens_of(step.answer))
            if facts.max_input_tokens is not None and usage["prompt_tokens"] > facts.max_input_tokens:
                raise TooLong(f"has a request of {usage['prompt_tokens']} tokens")
            upstream.answer = step.answer
            try:
                cost, net = await self._ask(request)
            except errors.GatewayError:
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

    def _request(self, messages: Sequence[Json], tools: Sequence[Json], caller: RequestCaller) -> ChatRequest:
        """Raises InvalidRequest: the gateway refuses such a body."""
        body: Json = {"model": self._model, "messages": list(messages), "store": self._setting.store}
        body |= {"tools": list(tools)} if tools else {}
        body |= {"context": self._setting.context} if self._setting.context else {}
        arrival = RequestArrival(ids.new_id("req_"), self._clock.now(), self._clock.monotonic(), len(jsons.dumps(body)))
        plain = validation.plain_messages(body["messages"])
        return validation.parse_chat_request(body, {}, caller, self._settings, arrival, plain)

    async def _ask(self, request: ChatRequest) -> tuple[Decimal, Decimal]:
        """Sends a step's request; returns its cost and the net saving of its bill, both in USD."""
        completion = not_paused(await self._gateway.requests.pipeline.answer(request))
        bill = jsons.loads(jsons.dumps(completion.body["response_metadata"]))
        net = cost.usd_of(cost.meter_of(bill).get("net_saving"))
        return completion.cost or Decimal(0), net or Decimal(0)

    async def close(self) -> None:
        await self._gateway.close()


def replayed(settings: Settings, model: str) -> Settings:
    """Returns the settings for playing: the configured model, context and conversation settings, without calls of other
    models and without durable storage."""
    entry = next((each for each in settings.model_list if model in (each.model_name, each.star(model))), None)
    if entry is None:
        entry = ModelEntry(model_name=model, litellm_params=LitellmParams(model=model))
    params = entry.litellm_params.model_copy(update={"api_key": None, "api_base": "http://127.0.0.1:9/v1"})
    entry = entry.model_copy(update={"model_name": model, "litellm_params": params, "unset": ()})
    update = {"planning": "never", "embedding_model": None, "memory": "extracts", "economy_holdout": 0.0}
    context = settings.context.model_copy(update=update)
    storage = StorageSettings(url="sqlite:///:memory:")
    own = {"model_list": [entry], "context": context, "conversation": settings.conversation, "storage": storage}
    return Settings().model_copy(update=own)
