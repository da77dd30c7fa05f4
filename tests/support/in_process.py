"""The gateway's pipeline in this process: no server, no network, a real storage, and a provider that is a function."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, cast

from gateway.api.request.body_cache import BodyCache, read_chat_request
from gateway.api.request.validation import RequestArrival, parse_chat_request, plain_messages
from gateway.billing.metadata import response_metadata
from gateway.context import ContextManager, ContextSources, PassageRanking
from gateway.context.tokens.counter import CounterRegistry
from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.config.settings import Settings
from gateway.core.errors import NotFound
from gateway.core.ids import new_id
from gateway.core.instrumentation.metrics import GatewayMetrics
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
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
    StoredFile,
)
from gateway.core.types.turn import TurnCommit
from gateway.core.types.upstreams import RoutingCandidates, UpstreamRequest
from gateway.documents.file_reader import AttachmentReader, FileReader
from gateway.pipeline.features import citations, echoes, pdf_pages
from gateway.pipeline.features.agent_sections import AgentSections
from gateway.pipeline.features.entity_memory import EntityMemory
from gateway.pipeline.features.pdf_pages import PageCutter
from gateway.pipeline.features.prompt_profiles import ProfileComposer
from gateway.pipeline.features.recall_rounds import RecallFeature
from gateway.pipeline.parts import PipelineParts
from gateway.pipeline.pipeline import open_pipeline
from gateway.pipeline.stages import FeatureHooks, SettledRequest, not_paused
from gateway.pipeline.stored_turn import TurnRecorder
from gateway.pipeline.unstored_frames import UnstoredFrames
from gateway.retrieval.index_cache import ContentIndexes
from gateway.storage.cache.frame_cache import FrameCache
from gateway.storage.cache.memory_cache import MemoryCache
from gateway.storage.database.sqlite import open_transactions
from gateway.storage.entities.entity_store import EntityStore
from gateway.storage.lookup.path_cache import PathCache, StorageCaches
from gateway.storage.store import ConversationStore
from gateway.upstream.routing.catalogue import ModelCatalogue
from gateway.upstream.routing.router import NO_HINT, ConfiguredRouter, RouteHint, SingleDeployment
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
        return self._by_name[model]


class Function:
    """Answers by a function and keeps what it was sent (an `Upstream`)."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.sent: list[Json] = []
        self.native: Json | None = None
        """What the latest request said in the words of its own API alone."""
        self.usage_of: Callable[[Json], Json] = lambda _: {
            "prompt_tokens": 1,
            "completion_tokens": 1,
            "total_tokens": 2,
        }

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


class NoFiles:
    """Nobody keeps any (adapter of `core.ports.documents.FileStore`)."""

    @staticmethod
    def keeps(_caller: RequestCaller) -> bool:
        return False

    async def check(self, file_id: str, caller: RequestCaller) -> None:
        raise NotFound("No such file.")

    async def fetch(self, file_id: str, caller: RequestCaller) -> StoredFile:
        raise NotFound("No such file.")


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
        self.clock = clock = clock or SystemClock()
        self.counters = counters = CounterRegistry()
        self.resends = BodyCache(settings.cache.conversation_bytes // 2 if remembers else 1, clock)
        self.paths = PathCache(settings.cache.conversation_bytes // 2 if remembers else 1, clock)
        self.indexes = ContentIndexes(2**24, 60.0, clock)
        cache = MemoryCache(2**20, clock, self.indexes.evict)
        self.settings = settings
        self.transactions = open_transactions(settings.storage)
        self.upstream = Function(answers)
        self.store = store = ConversationStore(self.transactions, clock, caches=StorageCaches(cache, self.paths))
        reader = FileReader(cache, 60.0)
        things = EntityStore(self.transactions, clock, store.secret, self.paths)
        self.context = ContextManager(
            settings=settings,
            counters=counters,
            sources=ContextSources(files=reader, store=store),
            ranking=PassageRanking(self.indexes),
            hooks=pdf_pages.build(PageCutter(reader.documents, cache, 60.0, settings.documents.native_pages)),
        )
        self.frames = FrameCache(shared, clock, settings.cache.frame_ttl, settings.cache.frame_bytes)
        parts = PipelineParts(
            router=self.router(facts) if upstream is None else ConfiguredRouter(settings, ModelCatalogue()),
            upstream=upstream or self.upstream,
            store=store,
            files=NoFiles(),
            attachments=AttachmentReader(NoFiles(), reader),
            context=self.context,
            counters=counters,
            clock=clock,
            metrics=GatewayMetrics(()),
            telemetry=TelemetryHooks(),
            frames=UnstoredFrames(self.frames, store, clock),
            features=features or self._features(things),
        )
        self.pipeline = open_pipeline(settings, parts)
        noting = NotingRecorder(self.pipeline.settlement._recorder)
        self.pipeline.settlement._recorder = cast(Any, noting)
        self.computed = noting.computed
        """Bills by the request's id, as they were computed."""

    def _features(self, things: EntityStore) -> FeatureHooks:
        """What a server has but for guards and rolling summaries, which ask models of their own."""
        return FeatureHooks(
            [
                EntityMemory(things).build(),
                ProfileComposer(self.settings.prompt_profiles, self.counters).build(),
                AgentSections(self.counters, self.settings.context).build(),
                RecallFeature(self.context, self.counters, self.indexes, self.settings.context).build(),
                echoes.build(),
                citations.build(),
            ]
        )

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
        """Lets go of the storage."""
        await self.pipeline.settlement.drain(5.0)
        await asyncio.wait_for(self.transactions.close(), 5.0)
