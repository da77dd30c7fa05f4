"""Composition root: wires all parts, and says which of them serves which path."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from starlette.routing import Route, Router

from gateway import operations
from gateway.api.audit_log.endpoint import trail_routes
from gateway.api.auth import KeyAuthenticator, RuntimeKeys
from gateway.api.chat.endpoint import ChatCompletions
from gateway.api.classic.classic_chat import ClassicChat
from gateway.api.classic.endpoint import ClassicConversations, ClassicHealth, ClassicStorage, PromptInfo
from gateway.api.completion_handler import CompletionHandler
from gateway.api.compress.endpoint import CompressEndpoint
from gateway.api.conversations.completion_endpoints import StoredCompletions
from gateway.api.conversations.context import ConversationContext
from gateway.api.conversations.endpoint import ConversationEndpoints
from gateway.api.conversations.memory_endpoints import AttachmentEndpoints, MemoryEndpoints
from gateway.api.conversations.replay_endpoint import ReplayEndpoint
from gateway.api.conversations.transfer_endpoints import ExportedConversation, ImportedConversations
from gateway.api.conversations.turn_endpoints import TurnEndpoints
from gateway.api.files.endpoint import FileEndpoints
from gateway.api.keys.endpoint import KeyEndpoints, key_routes
from gateway.api.mcp.endpoint import McpEndpoint
from gateway.api.messages.count_tokens import CountTokens, ListedModels
from gateway.api.messages.endpoint import MessagesEndpoint
from gateway.api.openapi.openapi_document import OpenApiEndpoint, RootEndpoint
from gateway.api.operations import LiveEndpoint, MetricsPage, ModelsEndpoint, ReadyEndpoint
from gateway.api.organization.endpoint import organization_routes
from gateway.api.passthrough import relay_rules
from gateway.api.passthrough.endpoint import CallMetering, RelayEndpoint
from gateway.api.request.body_cache import BodyCache
from gateway.api.request_list_endpoint import PATH as REQUESTS_PATH
from gateway.api.request_list_endpoint import RequestListEndpoint
from gateway.api.responses.compact import CompactionEndpoint
from gateway.api.responses.endpoint import ResponsesEndpoint, StoredResponses, response_routes
from gateway.api.server.asgi import CHAT_PATH, App, LargeBodies
from gateway.api.server.middleware import (
    CorsPreflights,
    CrossOrigin,
    EdgeMiddleware,
    FastRouter,
    OriginCheck,
    ShutdownState,
)
from gateway.api.statistics import ObservedParts, StatisticsEndpoint
from gateway.api.tokens import SignedTokens
from gateway.api.ui.app import UiApp
from gateway.api.ui.dependencies import PageParts
from gateway.context.internal_calls import InternalModels
from gateway.context.manager import ContextManager, ContextSources, PassageRanking
from gateway.context.planner import ContextPlanning
from gateway.context.planning import decision
from gateway.context.planning.summaries import PLAN_SECONDS, SummaryCache
from gateway.context.tokens.counter import CounterRegistry
from gateway.context.tokens.model_margins import ModelMargins, keep_calibrated
from gateway.core import clock, errors, ports
from gateway.core.clock import SystemClock
from gateway.core.config import exposure
from gateway.core.config.loading import ConfigurationError
from gateway.core.config.settings import LOCAL, Settings
from gateway.core.instrumentation import logs, metrics, refusals
from gateway.core.instrumentation.metrics import SharedCounts
from gateway.core.instrumentation.telemetry_hooks import TelemetryHooks
from gateway.core.scheduler import Scheduler
from gateway.core.types import audit_log
from gateway.core.types.relevance import EmbeddingFault
from gateway.documents import file_reader, process
from gateway.documents.files import CallersFiles, FilesHere, ReadingFiles, open_files
from gateway.operations import CommandCall, WarmUp, open_telemetry, purge, serve, storage_upkeep, warm_up_pieces
from gateway.pipeline.billing import BEAT_SECONDS
from gateway.pipeline.features import citations, echoes, pdf_pages
from gateway.pipeline.features.agent_sections import AgentSections
from gateway.pipeline.features.cache_breaks import CacheBreaks
from gateway.pipeline.features.entity_memory import EntityMemory
from gateway.pipeline.features.holdout import Holdout
from gateway.pipeline.features.pdf_pages import PageCutter
from gateway.pipeline.features.prompt_profiles import ProfileComposer
from gateway.pipeline.features.recall_rounds import RecallFeature
from gateway.pipeline.features.rolling_summaries import RollingSummaries, TurnSummarizer
from gateway.pipeline.guards.factory import open_guards, refuses_files
from gateway.pipeline.idempotency import HEARTBEAT_SECONDS, IdempotencyGate
from gateway.pipeline.indexing import DocumentIndexing
from gateway.pipeline.parts import PipelineParts
from gateway.pipeline.passthrough_bills import RelayedBills
from gateway.pipeline.pipeline import open_limited, open_pipeline
from gateway.pipeline.replay import TurnReplayer
from gateway.pipeline.stages import FeatureHooks
from gateway.pipeline.unstored_frames import UnstoredFrames
from gateway.retrieval import ContentIndexes, EmbeddingModel, MiniLM
from gateway.storage import audit_events, stored_files, stored_keys
from gateway.storage.cache.frame_cache import FrameCache
from gateway.storage.cache.memory_cache import open_cache
from gateway.storage.calibrations import SqlCalibrations
from gateway.storage.claims import ClaimStore
from gateway.storage.conversations.conversation_records import ConversationRecords
from gateway.storage.conversations.reading import PastReader
from gateway.storage.conversations.replay_store import ReplayStore
from gateway.storage.conversations.transfers import ConversationTransfer
from gateway.storage.database import sqlite
from gateway.storage.encryption.columns import open_vault
from gateway.storage.entities.entity_store import EntityStore
from gateway.storage.large_documents import ArrivingTexts, LargeDocuments
from gateway.storage.lookup.path_cache import PathCache, StorageCaches
from gateway.storage.retention import Retention
from gateway.storage.store import PROBE_SECONDS, ConversationStore
from gateway.upstream import (
    AnthropicUpstream,
    ConnectionPool,
    DiscoveredModels,
    HttpIdentityDocuments,
    HttpUpstream,
    LitellmLibrary,
    LitellmUpstream,
    ResponsesUpstream,
    UpstreamEmbedder,
    new_client,
    resources,
)
from gateway.upstream.routing import (
    ConfiguredRouter,
    FreeformUpstream,
    ModelCatalogue,
    ProtocolUpstream,
    catalogue,
    router,
)

log = logs.get_logger("gateway.app")
MEMORY_PATH = "/v1/conversations/{conversation_id}/memory/{memory_id}"
ATTACHMENT_PATH = "/v1/conversations/{conversation_id}/attachments/{attachment_id}"
EXPIRE_SECONDS = 60.0
"""Between two looks at what has been kept in memory for too long."""
HOOKS_SECONDS = 5.0
"""Most seconds that an end waits for what hooks have not been told yet."""
JOBS_SECONDS = 1.0
"""For jobs that are cancelled at shutdown to end."""
SUMMARIES_SECONDS = 5.0
"""Most seconds that an end waits for summaries of old turns."""
CALIBRATED_WITHIN = 1.0
"""Seconds that a start waits for what was learned of models; requests that come before that are estimated without."""


class Gateway:
    """All parts, wired once and in sight."""

    def __init__(
        self,
        settings: Settings,
        shared: SharedCounts | None = None,
        *,
        clock: ports.Clock | None = None,
        upstream: ports.Upstream | None = None,
    ) -> None:
        """`shared`: where it counts, if it is one of several workers; `clock`: another one than the system's;
        `upstream`: is asked in the place of all upstreams: nothing goes to the network."""
        self.shared = shared
        self.settings = settings
        self.clock = clock or SystemClock()
        self._scripted = upstream
        self.hooks = TelemetryHooks()
        self.telemetry = open_telemetry(settings.telemetry)
        self.metrics = self.telemetry.metrics((entry.model_name for entry in settings.model_list), self.clock.now)
        self._wire_storage()
        self.guards = open_guards(settings, self.store.secret, self.clock)
        self._wire_upstreams()
        self._wire_context()
        self._wire_endpoints()
        self._wire_warm_up()

    def _wire_storage(self) -> None:
        settings, clock = self.settings, self.clock
        self.transactions = sqlite.open_transactions(settings.storage)
        self.indexes = ContentIndexes(settings.cache.index_bytes, settings.cache.document_ttl, clock)
        self.cache = open_cache(settings.cache, clock, open_vault(settings.storage), self.indexes.evict)
        half, ttl = settings.cache.conversation_bytes // 2, settings.cache.conversation_ttl
        self.resends = BodyCache(half, clock, ttl)
        self.paths = PathCache(half, clock, ttl, also_forget=self.resends.forget)
        self.large = LargeDocuments(self.transactions, clock)
        self.indexing = DocumentIndexing(self.large)
        self.store = ConversationStore(
            self.transactions,
            clock,
            caches=StorageCaches(self.cache, self.paths),
            retention_days=settings.conversation.retention_days,
            users=settings.accounting.users,
            arriving=ArrivingTexts(self.transactions, clock, settings.documents.index_chars, self.indexing.wake),
        )
        self.things = EntityStore(self.transactions, clock, self.store.secret, self.paths)
        self.retention = Retention(self.transactions, clock, self.cache, self.paths)
        claims = ClaimStore(self.transactions, clock)
        self.idempotency = IdempotencyGate(claims, self.store, clock, settings.conversation.idempotency_hours)

    def _wire_upstreams(self) -> None:
        settings = self.settings
        self.pool = ConnectionPool(settings.upstream.max_connections)
        self.client = new_client(self.pool)
        self.catalogue = ModelCatalogue()
        self.margins = ModelMargins(self.clock)
        self.told = DiscoveredModels(self.client, self.clock, self.margins)
        self.router = ConfiguredRouter(
            settings, self.catalogue, self.told if self._scripted is None else None, self.clock
        )
        self.over_http = self.telemetry.http(self.pool)
        self.library = LitellmLibrary(modify_params=router.modifies_params(settings))
        litellm = LitellmUpstream(self.client, self.library)
        responses = ResponsesUpstream(self.over_http)
        anthropic = AnthropicUpstream(self.over_http, self.clock)
        adapters = ProtocolUpstream(openai=self.over_http, responses=responses, anthropic=anthropic, litellm=litellm)
        self.upstream = self.guards.upstream(self.telemetry.upstream(self._scripted or FreeformUpstream(adapters)))
        self.counters = CounterRegistry(self.margins)
        self.calibrations = SqlCalibrations(self.transactions)

    def _wire_context(self) -> None:
        settings, cache, clock = self.settings, self.cache, self.clock
        opened = open_embedder(settings, self.over_http, self.router, self.counters)
        self.embedder = self.guards.embedder(opened)
        self.meaning = None
        if self.embedder is not None:
            seconds, ttl = settings.context.embedding_timeout, settings.cache.vector_ttl
            self.meaning = EmbeddingModel(self.embedder, cache, clock, seconds, ttl, self.store.has_conversation)
        self.profiles = ProfileComposer(settings.prompt_profiles, self.counters)
        summaries = SummaryCache(cache, clock, settings.cache.summary_ttl, settings.context.planning_max_seconds)
        count = self.metrics.internal_call_ended
        spans = self.telemetry.spans
        internal = InternalModels(self.upstream, self.router, self.counters, clock, count, spans)
        self.rest = decision.PlannerCooldown(cache, clock)
        turn_summarizer = TurnSummarizer(settings.context, internal, summaries, clock)
        due = settings.memory.model_copy(update={"max_turns": settings.max_turns})
        self.summaries = RollingSummaries(self.store, turn_summarizer, cache, due, self.metrics)
        self.loops = decision.ToolLoops(cache, self.store.secret)
        plans = SummaryCache(cache, clock, PLAN_SECONDS, settings.context.planning_max_seconds)
        self.planning = ContextPlanning(
            settings.context, internal, summaries=summaries, plans=plans, store=self.store, rest=self.rest
        )
        documents = settings.documents
        if refuses_files(settings):  # what is read of a PDF goes up as text, which can be masked
            documents = documents.model_copy(update={"native_pages": 0})
        rows = stored_files.FileRows(self.transactions, clock, cache, self.paths)
        self.reading = ReadingFiles(rows)
        self.kept_files = open_files(
            settings=settings,
            transactions=self.transactions,
            rows=rows,
            client=self.client,
            added=self.reading.add,
        )
        self.serves = FilesHere(settings, self.router, clock)
        upstreams = resources.UpstreamFiles(self.client, self.router)
        self.callers_files = CallersFiles(self.kept_files, upstreams, self.serves)
        self.files = reader = file_reader.FileReader(
            cache, settings.cache.document_ttl, documents, store=self.callers_files
        )
        pages = PageCutter(reader.documents, cache, settings.cache.document_ttl, documents.native_pages)
        self.context = ContextManager(
            settings=settings,
            counters=self.counters,
            sources=ContextSources(files=reader, store=self.store, large=self.large, loops=self.loops),
            ranking=PassageRanking(self.indexes, self.meaning),
            planning=self.planning,
            hooks=replace(pdf_pages.build(pages), on_step=self.telemetry.spans),
        )

    def _features(self) -> FeatureHooks:
        """What acts on requests, in its order."""
        return FeatureHooks(
            [
                self.guards.build(),
                EntityMemory(self.things).build(),
                Holdout(self.settings.context.economy_holdout, self.store).build(),
                self.profiles.build(),
                AgentSections(self.counters, self.settings.context).build(),
                RecallFeature(self.context, self.counters, self.indexes, self.settings.context).build(),
                echoes.build(),
                citations.build(),
                self.summaries.build(),
                CacheBreaks().build(),
            ]
        )

    def _wire_warm_up(self) -> None:
        found = warm_up_pieces(
            self.settings,
            self.router,
            models=self.catalogue,
            counters=self.counters,
            pool=self.pool,
            library=self.library,
            load_embedder=self.embedder.load if isinstance(self.embedder, MiniLM) else None,
            clock=self.clock,
        )
        self.warm_up = WarmUp(found, self.clock)

    def _wire_endpoints(self) -> None:
        settings, store, clock = self.settings, self.store, self.clock
        max_bytes = settings.server.max_body_bytes
        shared = self.cache if settings.cache.url else None
        frames = FrameCache(shared, clock, settings.cache.frame_ttl, settings.cache.frame_bytes)
        parts = PipelineParts(
            router=self.router,
            upstream=self.upstream,
            store=store,
            files=self.callers_files,
            attachments=file_reader.AttachmentReader(self.callers_files, self.files),
            context=self.context,
            counters=self.counters,
            clock=clock,
            metrics=self.metrics,
            telemetry=self.hooks,
            frames=UnstoredFrames(frames, store, clock),
            loops=self.loops,
            spans=self.telemetry.spans,
            features=self._features(),
        )
        self.pipeline = pipeline = open_pipeline(settings, parts)
        self.settlement = pipeline.settlement
        self.limited = limited = open_limited(settings, self.transactions, store, pipeline, self.hooks)
        self.keys = RuntimeKeys(stored_keys.KeyStore(self.transactions, clock, store.secret), clock)
        self.identity = HttpIdentityDocuments(self.client)
        jwt = settings.auth.jwt
        tokens = None if jwt is None else SignedTokens(jwt, self.identity, clock)
        self.auth = auth = KeyAuthenticator(settings.auth, store, self.keys, clock, tokens)
        self.key_endpoints = KeyEndpoints(self.keys, auth)
        bodies = LargeBodies(settings.server.max_bytes_in_flight, settings.server.receive_timeout)
        self.answering = CompletionHandler(
            limited, self.idempotency, auth=auth, settings=settings, clock=clock, bodies=bodies
        )
        self.chat = ChatCompletions(self.answering, settings, self.resends)
        self.compaction = CompactionEndpoint(store, auth, settings, clock)
        self.responses = ResponsesEndpoint(self.answering, settings, self.resends, self.compaction)
        self.messages = MessagesEndpoint(self.answering, settings, self.resends, store)
        self.count_tokens = CountTokens(pipeline, auth, settings, clock)
        self.compress = CompressEndpoint(pipeline, limited, auth, settings, clock, bodies)
        self.completions = StoredCompletions(store, auth, max_bytes)
        records = ConversationRecords(self.transactions, clock, self.cache, self.paths)
        self.conversations = ConversationEndpoints(
            records, store, auth, max_body_bytes=max_bytes, hooks=self.hooks, serves=self.serves
        )
        self.attachments = AttachmentEndpoints(records, auth)
        self.window = ConversationContext(records, auth)
        self.refused = refusals.RefusedRequests()
        self.observed = ObservedParts(
            metrics=self.metrics,
            paths=self.paths,
            resends=self.resends,
            indexes=self.indexes,
            cache=self.cache,
            documents=self.files,
            running=self.settlement.running,
            hooks=self.hooks,
            resting=self.rest,
            deployments=self.router.health,
            refused=self.refused,
        )
        self.statistics = StatisticsEndpoint(self.observed, auth, settings)
        self.stored = ClassicStorage(self.things, records, store, self.paths, self.resends)
        self.past = past = PastReader(self.transactions)
        replays = ReplayStore(self.transactions, clock)
        self.turns = TurnEndpoints(past, replays, auth)
        self.replayer = TurnReplayer(limited, store, replays, past)
        self.replays = ReplayEndpoint(
            replayer=self.replayer,
            pipeline=pipeline,
            past=past,
            replays=replays,
            store=store,
            auth=auth,
            settings=settings,
            clock=clock,
        )
        chars = settings.documents.index_chars
        transfer = ConversationTransfer(self.transactions, clock, chars, self.indexing.wake)
        self.trail = audit_events.AuditLog(self.transactions, clock, is_strict=settings.auth.wants_keys)
        self.exported = ExportedConversation(transfer, auth, self.trail)
        self.imported = ImportedConversations(transfer, auth, max_bytes)
        self.memories = MemoryEndpoints(self.things, auth, max_bytes, settings.memory.things_days)
        self.models = ListedModels(ModelsEndpoint(resources.UpstreamModels(self.client, self.router), auth))
        self.mcp = McpEndpoint(settings, past, self.things, auth, self.large)
        self.relayed_bills = RelayedBills(parts, self.settlement.open_calls)
        passthrough = self.guards.passthrough(self.telemetry.passthrough(self.pool))
        self.relay = RelayEndpoint(
            router=self.router,
            upstream=passthrough,
            auth=auth,
            settings=settings,
            metering=CallMetering(self.relayed_bills, limited),
            bodies=bodies,
        )
        largest = settings.files.max_bytes
        self.file_endpoints = FileEndpoints(
            self.kept_files, self.callers_files, auth, self.relay, self.serves, max_bytes=largest
        )

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """Starts what runs beside requests; at the end waits for what is still to be written."""
        settings = self.settings
        for entry in settings.model_list:
            if problem := catalogue.unsupported(entry):
                log.warning("model_cannot_be_served", model=entry.model_name, reason=problem)
        preparing = await storage_upkeep.begin_preparing(settings, self.transactions)
        days = settings.conversation.retention_days
        often = purge.sweep_seconds(clock.fewest_days(days, *(key.retention_days for key in settings.auth.keys)))
        running = [
            preparing,
            asyncio.ensure_future(self.warm_up.run()),
            asyncio.ensure_future(self.indexing.run()),
            asyncio.ensure_future(keep_calibrated(self.margins, self.calibrations)),
        ]
        jobs = Scheduler()
        purge.schedule_sweeps(jobs, self.retention, self.clock, days, often)
        storage_upkeep.schedule_older_bills(jobs, self.transactions, purge.sweep_seconds(days))
        purge.schedule_files(jobs, self.kept_files, self.reading.look)
        self._schedule(jobs)
        self.reading.start(self.kept_files, self.files)
        self.hooks.start()
        self.telemetry.start(self.observed.snapshot)
        await self.margins.looked_up(CALIBRATED_WITHIN)
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await jobs.close(JOBS_SECONDS)
            if self.shared is not None:
                self.shared.write(self.observed.snapshot())
            await self.close()

    def _schedule(self, jobs: Scheduler) -> None:
        jobs.every(process.SWEEP_SECONDS, process.clear_left_behind, name="document_folders", at_once=True)
        jobs.every(
            HEARTBEAT_SECONDS,
            self.idempotency.beat,
            name="claims",
            postponed="claims_not_confirmed",
            failed="beat_failed",
        )
        jobs.every(PROBE_SECONDS, self.store.probe_if_refused, name="storage_probe")
        jobs.every(BEAT_SECONDS, self._look, name="open_calls", at_once=True, failed="open_calls_not_looked_at")
        jobs.every(EXPIRE_SECONDS, self._expire, name="expiry")
        if (seconds := self.settings.routing.probe) is not None:
            look = partial(resources.probe, self.router.health, partial(resources.reach, self.client), seconds)
            jobs.every(seconds, look, name="deployment_probes")
        if self.shared is not None:
            jobs.every(metrics.COUNTS_WRITE_SECONDS, partial(self._share, self.shared), name="shared_counts")

    async def _look(self) -> None:
        await self.settlement.open_calls.look()

    async def _share(self, shared: SharedCounts) -> None:
        shared.write(self.observed.snapshot())

    async def _expire(self) -> None:
        """Also in a process that nobody asks anything, what is kept of conversations is gone in time."""
        self.paths.expire()
        self.resends.expire()

    async def close(self) -> None:
        """Ends what is under way and lets go of all that is open; of the storage whatever fails before:
        it may have writes for which nobody waits."""
        try:
            await self._end_work()
        finally:
            await self.transactions.close()
            await self.telemetry.close()

    async def _end_work(self) -> None:
        await self.answering.close()
        await self.reading.close()
        await self.mcp.close()
        await self.summaries.close(SUMMARIES_SECONDS)
        if self.meaning is not None:
            await self.meaning.close()
        await self.replayer.close()
        for bills in (self.relayed_bills, self.settlement):
            await bills.drain(2 * self.settings.storage.timeout)
        await self.limited.close()
        await asyncio.to_thread(self.hooks.close, HOOKS_SECONDS)
        await self.planning.close()
        await self.idempotency.drain(self.settings.storage.timeout)
        if self.margins.is_worth_writing:
            await self.margins.try_to_keep(self.calibrations)
        await self.told.close()
        await self.client.aclose()
        await self.cache.close()


def open_embedder(
    settings: Settings, http: HttpUpstream, router: ConfiguredRouter, counters: CounterRegistry
) -> ports.Embedder | None:
    """The embedder, not loaded or called yet; None where none is configured.
    Raises ConfigurationError: it cannot be used."""
    name = settings.context.embedding_model
    if name is None:
        return None
    try:
        return MiniLM() if name == LOCAL else UpstreamEmbedder(http, router, counters.counter, name)
    except EmbeddingFault as error:
        hint = "; install context-gateway[embeddings]" if name == LOCAL else ""
        raise ConfigurationError(f"context.embedding_model: {name}: {error}{hint}") from None
    except errors.GatewayError as error:
        raise ConfigurationError(f"context.embedding_model: {name}: {error.message}") from None


def create_app(settings: Settings, draining: ShutdownState | None = None, shared: SharedCounts | None = None) -> App:
    """The gateway as an ASGI application. It connects to nothing before its lifespan begins.
    `shared`: where it counts, if it is one of several workers.
    Raises ConfigurationError: the configured embedder, or OpenTelemetry, cannot be used."""
    draining = draining or ShutdownState()
    gateway = Gateway(settings, shared)
    routes = route_table(gateway, draining)
    others = Router(routes, redirect_slashes=False, default=gateway.relay, lifespan=gateway.lifespan)
    app: App = FastRouter(posted(gateway, routes), others, routes)
    origins = settings.server.cors_origins
    if exposure.operators_keys(settings) and settings.auth.mode != "open":
        app = OriginCheck(app, origins)
    served = EdgeMiddleware(
        CorsPreflights(app, origins) if origins else app, draining, gateway.metrics, gateway.refused, gateway.clock
    )
    traced = gateway.telemetry.app(served)
    return CrossOrigin(traced, origins) if origins else traced


def route_table(gateway: Gateway, draining: ShutdownState) -> list[Route]:
    """Every path that the gateway serves itself; all others are relayed."""
    conversations, memories, models = gateway.conversations, gateway.memories, gateway.models
    ready = ReadyEndpoint(gateway.store, draining, gateway.statistics)
    server = gateway.settings.server
    served: list[tuple[str, str, App]] = [
        ("GET", "/", RootEndpoint(metrics=server.metrics != "off", page=exposure.has_page(gateway.settings))),
        ("GET", "/openapi.json", OpenApiEndpoint()),
        ("GET", "/health/live", LiveEndpoint()),
        ("GET", "/health/ready", ready),
        ("GET", "/v1/models", models),
        ("GET", "/v1/models/{model:path}", models),
        ("DELETE", "/v1/models/{model:path}", gateway.relay),
        ("POST", CHAT_PATH, gateway.chat),
        ("GET", CHAT_PATH, gateway.completions.all),
        ("POST", "/v1/messages", gateway.messages),
        ("POST", "/v1/messages/count_tokens", gateway.count_tokens),
        ("POST", "/v1/compress", gateway.compress),
        ("GET POST DELETE", CHAT_PATH + "/{completion_id}", gateway.completions.one),
        ("GET", CHAT_PATH + "/{completion_id}/messages", gateway.completions.messages),
        ("POST", "/v1/conversations/import", gateway.imported),
        ("GET", "/v1/conversations/{conversation_id}/export", gateway.exported),
        ("GET POST", "/v1/conversations", conversations.all),
        ("GET POST DELETE", "/v1/conversations/{conversation_id}", conversations.one),
        ("GET", "/v1/conversations/{conversation_id}/context", gateway.window.one),
        ("GET", "/v1/conversations/{conversation_id}/attachments", gateway.attachments.all),
        ("GET DELETE", ATTACHMENT_PATH, gateway.attachments.one),
        ("GET POST", "/v1/conversations/{conversation_id}/memory", memories.of_conversation),
        ("GET DELETE", MEMORY_PATH, memories.one_of_conversation),
        ("GET POST", "/v1/files", gateway.file_endpoints.all),
        ("GET DELETE", "/v1/files/{file_id}", gateway.file_endpoints.one),
        ("GET", "/v1/files/{file_id}/content", gateway.file_endpoints.content),
        ("", "/v1/files", gateway.relay),  # whatever else is sent there
        ("", "/v1/files/{rest:path}", gateway.relay),
        ("GET", "/v1/memory", memories.all),
        ("GET DELETE", "/v1/memory/{memory_id}", memories.one),
        ("GET", "/v1/memory/{type}/{thing_id:path}/conversations", memories.conversations),
        ("GET", "/v1/conversations/{conversation_id}/turns", gateway.turns.all),
        ("GET", "/v1/conversations/{conversation_id}/turns/{number}", gateway.turns.one),
        ("POST", "/v1/conversations/{conversation_id}/replay", gateway.replays),
        ("GET POST DELETE", "/v1/conversations/{conversation_id}/items", conversations.items),
        ("GET POST DELETE", "/v1/conversations/{conversation_id}/items/{item_id}", conversations.item),
    ]
    found = [
        Route(path, app, methods=[each] if each else None)
        for methods, path, app in served
        for each in methods.split() or [""]
    ]
    stored = StoredResponses(gateway.store, gateway.auth)
    found += response_routes(gateway.responses, gateway.compaction, stored, gateway.relay)
    found += organization_routes(gateway.transactions, gateway.auth, gateway.clock, gateway.trail)
    listed = RequestListEndpoint(gateway.settings, gateway.transactions, gateway.auth, gateway.clock, gateway.trail)
    found.append(Route(REQUESTS_PATH, listed, methods=["GET"]))
    found += trail_routes(gateway.transactions, gateway.auth, gateway.trail)
    found += key_routes(
        gateway.key_endpoints,
        gateway.auth,
        lambda caller, _: audit_events.recorder(audit_log.actor_of(caller), gateway.clock),
    )
    found += _classic_routes(gateway, ready)
    found += gateway.mcp.routes()
    page = UiApp(_page_parts(gateway, ready))
    found += [Route("/ui", page), Route("/ui/{page:path}", page)]
    if server.metrics != "off":
        is_open = server.metrics == "open"
        counts = MetricsPage(gateway.observed.snapshot, gateway.auth, open_to_all=is_open, shared=gateway.shared)
        found.append(Route("/metrics", counts, methods=["GET"]))
    return found


def posted(gateway: Gateway, routes: Iterable[Route]) -> dict[str, App]:
    """The endpoints of whole paths to which is posted, those among them that are relayed and ask a model."""
    found = {each.path: each.app for each in routes if "{" not in each.path and "POST" in (each.methods or ())}
    return {**{relay_rules.PREFIX + "/".join(each.segments): gateway.relay for each in relay_rules.BY_A_MODEL}, **found}


def _page_parts(gateway: Gateway, ready: ReadyEndpoint) -> PageParts:
    """Those of the gateway under their own names, and some under the page's."""
    own = {name: found for name in PageParts.__annotations__ if (found := getattr(gateway, name, None)) is not None}
    named = {"keys": gateway.key_endpoints, "files": gateway.kept_files, "ready": ready}
    return PageParts(**{**own, **named, "started": gateway.clock.now()})


def _classic_routes(gateway: Gateway, ready: ReadyEndpoint) -> list[Route]:
    """The classic API: other names for what is served below `/v1/`."""
    chat, streamed = (
        ClassicChat(gateway.answering, gateway.settings, gateway.resends, stream=each) for each in (False, True)
    )
    conversations = ClassicConversations(gateway.stored, gateway.conversations, gateway.auth)
    info = PromptInfo(gateway.stored, gateway.profiles, gateway.router, gateway.auth, gateway.settings)
    return [
        Route("/api/v1/chat", chat, methods=["POST"]),
        Route("/api/v1/chat/stream", streamed, methods=["POST"]),
        Route("/api/v1/conversations", conversations.all, methods=["GET"]),
        Route("/api/v1/conversations/{conversation_id}/history", conversations.history, methods=["GET"]),
        Route("/api/v1/conversations/{conversation_id}/workflows", conversations.workflows, methods=["GET"]),
        Route("/api/v1/workflows/{spec_id:path}/conversations", conversations.about, methods=["GET"]),
        Route("/api/v1/conversations/{conversation_id}", conversations.one, methods=["DELETE"]),
        Route("/api/v1/conversations/{conversation_id}/permanent", conversations.permanent, methods=["DELETE"]),
        Route("/api/v1/health", ClassicHealth(ready, gateway.statistics), methods=["GET"]),
        Route("/api/v1/memory/stats", gateway.statistics, methods=["GET"]),
        Route("/api/v1/debug/prompt-info", info.endpoint, methods=["GET"]),
    ]


def serve_command(call: CommandCall) -> int:
    """Serves until it is told to end. A terminal's log is coloured where nothing speaks against it."""
    environ = call.environ
    return serve(call.settings, create_app, colour=not environ.get("NO_COLOR") and environ.get("TERM") != "dumb")


def replay_command(call: CommandCall) -> int:
    """Plays recorded sessions through a gateway."""
    return operations.savings_by_replay(call, Gateway)
