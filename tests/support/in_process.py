"""The gateway in this process, wired as a server is: no server, no network, a real storage, and a provider that is a
function."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

from gateway.api.request.body_cache import read_chat_request
from gateway.api.request.validation import RequestArrival, parse_chat_request, plain_messages
from gateway.app import Gateway
from gateway.billing.metadata import response_metadata
from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.config.settings import Settings
from gateway.core.ids import new_id
from gateway.core.ports import CacheBackend, Clock, Upstream
from gateway.core.types.bill import ResponseMetadata
from gateway.core.types.chat import (
    ChatRequest,
    ChunkStream,
    JsonAnswer,
    ModelDeployment,
    ModelFacts,
    NativeRequest,
    RequestCaller,
)
from gateway.core.types.turn import TurnCommit
from gateway.core.types.upstreams import UpstreamRequest
from gateway.pipeline.stages import FeatureHooks, SettledRequest, not_paused
from gateway.pipeline.stored_turn import TurnRecorder
from gateway.upstream.routing.catalogue import ModelCatalogue
from gateway.upstream.routing.router import NO_HINT, ConfiguredRouter, RouteHint, RoutingCandidates, SingleDeployment
from tests.support.answers import usage_of
from tests.support.schemas import bring_up

Json = dict[str, Any]
Answers = Callable[[Json], Json]
"""A provider: from the body that it is sent to the assistant's message."""


def plain(metadata: Json) -> Json:
    """A bill's `context_utilization` with its numbers as JSON has them."""
    found: Json = json.loads(jsons.dumps(metadata))["context_utilization"]
    return found


class OneProvider(ConfiguredRouter):
    """Every model is served by the same function; facts by the model's name."""

    def __init__(self, facts: dict[str, ModelFacts]) -> None:
        super().__init__(Settings(), ModelCatalogue())
        self._by_name = facts

    def deployment(self, model: str, caller: RequestCaller) -> ModelDeployment:
        return ModelDeployment(
            model, model, f"openai/{model}", "http://127.0.0.1:9/v1", "sk-test", operator_key=True, has_responses=False
        )

    def candidates(self, model: str, caller: RequestCaller, hint: RouteHint = NO_HINT) -> RoutingCandidates:
        return SingleDeployment(self.deployment(model, caller), self.health)

    def facts(self, model: str, deployment: ModelDeployment | None = None) -> ModelFacts:
        return self._by_name.get(model) or ModelFacts(model)


class Function:
    """Answers by a function and keeps what it was sent (an `Upstream`)."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.sent: list[Json] = []
        self.native: Json | None = None
        """What the latest request said in the words of its own API alone."""
        self.usage_of: Callable[[Json], Json] = lambda _: usage_of(1, 1)

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        body, self.native = request.body, request.native
        self.sent.append(body)
        message = {"role": "assistant", **self._answers(body)}
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return JsonAnswer(
            {"id": "c-1", "object": "chat.completion", "choices": [choice], "usage": self.usage_of(body)}, {}
        )

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> AbstractAsyncContextManager[ChunkStream]:
        raise NotImplementedError("this provider does not stream")


class NotingRecorder:
    """Keeps bills as requests computed them, before anything is left out of what is stored (as a `TurnRecorder`)."""

    def __init__(self, recorder: TurnRecorder) -> None:
        self._recorder = recorder
        self.computed: dict[str, ResponseMetadata] = {}

    async def commit_of(self, settled: SettledRequest) -> TurnCommit:
        self.computed[settled.known.request_id] = settled.known
        return await self._recorder.commit_of(settled)

    async def keep(self, settled: SettledRequest) -> None:
        await self._recorder.keep(settled)


class InProcess:
    """`ask` is what `POST /v1/chat/completions` does, without HTTP. To be made and closed in one event loop."""

    router = OneProvider

    def __init__(
        self,
        settings: Settings,
        facts: dict[str, ModelFacts],
        answers: Answers,
        *,
        remembers: bool = False,
        upstream: Upstream | None = None,
        shared: CacheBackend | None = None,
        clock: Clock | None = None,
        features: FeatureHooks | None = None,
    ) -> None:
        """
        Args:
            features: act in place of the gateway's own.
            remembers: it keeps conversations in the process, as a server does.
            shared: the cache of all replicas, for frames of what is not stored.
            upstream: is asked in place of `answers`, where `settings` say that models are served.
        """
        if not remembers:
            settings = settings.model_copy(
                update={"cache": settings.cache.model_copy(update={"conversation_bytes": 2})}
            )
        self.settings, self.upstream = settings, Function(answers)
        self.clock = clock or SystemClock()
        with ExitStack() as patches:
            if upstream is None:
                router = self.router(facts)
                patches.enter_context(patch("gateway.upstream.wiring.ConfiguredRouter", lambda *_: router))
            if features is not None:
                patches.enter_context(patch("gateway.pipeline.wiring.FeatureHooks", lambda _: features))
            gateway = Gateway(settings, clock=self.clock, upstream=upstream or self.upstream)
        self.gateway, self.resends, self.counters = gateway, gateway.resends, gateway.counters
        storage, requests = gateway.storage, gateway.requests
        self.transactions, self.store, self.paths = storage.transactions, storage.store, storage.paths
        self.frames = storage.frames
        self.frames._shared = shared
        self.indexes, self.pipeline = requests.indexes, requests.pipeline
        self.context = requests.pipeline._parts.context
        noting = NotingRecorder(self.pipeline.settlement._recorder)
        self.pipeline.settlement._recorder = cast(Any, noting)
        self.computed = noting.computed
        """Bills by the request's id, as they were computed."""

    async def prepare(self) -> "InProcess":
        """Makes the schema."""
        await bring_up(self.transactions)
        return self

    async def ask(self, body: Json, tenant: str = "tenant", native: NativeRequest | None = None) -> Json:
        """The answer's body. `native`: what the request says in the words of Responses alone, which it came by.

        Raises:
            GatewayError: what an HTTP client would get as an error.
        """
        size = len(jsons.dumps(body))
        plain = plain_messages(body["messages"])
        arrival = RequestArrival(new_id("req_"), self.clock.now(), time.monotonic(), size)
        request = parse_chat_request(body, {}, RequestCaller(tenant), self.settings, arrival, plain)
        return await self.answer(replace(request, api="responses", native=native) if native else request)

    async def send(self, raw: bytes, tenant: str = "tenant") -> Json:
        """The same of a body as it comes over HTTP.

        Raises:
            GatewayError: what an HTTP client would get as an error.
        """
        arrival = RequestArrival(new_id("req_"), self.clock.now(), time.monotonic(), len(raw))
        request = read_chat_request(self.resends, raw, {}, RequestCaller(tenant), self.settings, arrival)
        with self.resends.holding(raw, request):
            return await self.answer(request)

    async def answer(self, request: ChatRequest) -> Json:
        """The answer's body to a request of any API in the inner form.

        Raises:
            GatewayError: what an HTTP client would get as an error.
        """
        if request.options.dry_run:
            return not_paused(await self.pipeline.dry_run(request))
        answer = not_paused(await self.pipeline.answer(replace(request, stream=False)))
        answered: Json = json.loads(jsons.dumps(answer.body))
        return answered

    async def bill(self, completion_id: str, tenant: str = "tenant") -> Json:
        """The stored bill's `context_utilization`, which has every artifact."""
        found = await self.store.find_completion(tenant, completion_id)
        assert found is not None
        return plain(found.ledger.metadata)

    def computed_bill(self, request_id: str) -> Json:
        """The same as its request computed it."""
        return plain(response_metadata(self.computed[request_id]))

    async def close(self) -> None:
        """Ends what is under way, and lets go of the storage."""
        await asyncio.wait_for(self.gateway.close(), 10.0)
