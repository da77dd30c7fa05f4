"""Wires what answers requests: the context's makers, the features that a process has, and the pipeline.

The only module of the pipeline that knows its features: it lists them in the order in which they act."""

from dataclasses import replace

from gateway.context import (
    PLAN_SECONDS,
    ContextManager,
    ContextPlanning,
    ContextSources,
    PassageRanking,
    SummaryCache,
    decision,
    internal_calls,
)
from gateway.context.tokens import CounterRegistry
from gateway.core import errors, ports
from gateway.core.config.loading import ConfigurationError
from gateway.core.config.settings import LOCAL, Settings
from gateway.core.types.relevance import EmbeddingFault
from gateway.documents.files import WiredDocuments
from gateway.pipeline.features import citations, echoes, pdf_pages
from gateway.pipeline.features.agent_sections import AgentSections
from gateway.pipeline.features.cache_breaks import CacheBreaks
from gateway.pipeline.features.entity_memory import EntityMemory
from gateway.pipeline.features.holdout import Holdout
from gateway.pipeline.features.pdf_pages import PageCutter
from gateway.pipeline.features.prompt_profiles import ProfileComposer
from gateway.pipeline.features.recall_rounds import RecallFeature
from gateway.pipeline.features.rolling_summaries import RollingSummaries, TurnSummarizer
from gateway.pipeline.guards.factory import Guards
from gateway.pipeline.idempotency import IdempotencyGate
from gateway.pipeline.parts import Instruments, PipelineParts
from gateway.pipeline.passthrough_bills import RelayedBills
from gateway.pipeline.pipeline import build_limited_pipeline, build_pipeline
from gateway.pipeline.stages import FeatureHooks
from gateway.pipeline.turn_replays import TurnReplayer
from gateway.pipeline.unstored_frames import UnstoredFrames
from gateway.retrieval import ContentIndexes, EmbeddingModel, MiniLM
from gateway.upstream import HttpUpstream, UpstreamEmbedder
from gateway.upstream.routing import ConfiguredRouter

SUMMARIES_SECONDS = 5.0
"""Longest wait at shutdown for summaries of old turns."""


class WiredPipeline:
    """Holds the pipeline and all its parts. `Gateway` makes it."""

    def __init__(
        self,
        settings: Settings,
        instruments: Instruments,
        documents: WiredDocuments,
        *,
        counters: CounterRegistry,
        indexes: ContentIndexes,
        guards: Guards,
    ) -> None:
        """`documents`: with the storage and the upstreams that they use."""
        clock, storage, upstreams = instruments.clock, documents.storage, documents.upstreams
        self._settings, self._clock, self._counters = settings, clock, counters
        self.instruments, self.documents, self.indexes = instruments, documents, indexes
        self._storage, self._upstreams = storage, upstreams
        opened = open_embedder(settings, upstreams.over_http, upstreams.router, counters)
        self.embedder = guards.embedder(opened)
        self._meaning = self._embedding_model()
        self.profiles = ProfileComposer(settings.prompt_profiles, counters)
        self.planner_cooldown = decision.PlannerCooldown(storage.cache, clock)
        loops = decision.ToolLoops(storage.cache, storage.store.secret)
        self._wire_context(loops)
        parts = PipelineParts(
            **vars(instruments),
            router=upstreams.router,
            upstream=upstreams.adapter,
            ready=upstreams.ready,
            store=storage.store,
            files=documents.callers,
            attachments=documents.attachments,
            context=self._context,
            counters=counters,
            frames=UnstoredFrames(storage.frames, storage.store, clock),
            loops=loops,
            features=self._features(guards),
        )
        self.pipeline = build_pipeline(settings, parts)
        self.settlement = self.pipeline.settlement
        self.limited = build_limited_pipeline(
            settings, storage.transactions, storage.store, self.pipeline, instruments.hooks
        )
        self.relayed_bills = RelayedBills(parts, self.settlement.open_calls)
        self.replayer = TurnReplayer(self.limited, storage.store, storage.replays, storage.past)
        hours = settings.conversation.idempotency_hours
        spares = self.settlement.open_calls.spares
        self.idempotency = IdempotencyGate(storage.claims, storage.store, clock, hours, spares)

    def _embedding_model(self) -> EmbeddingModel | None:
        if self.embedder is None:
            return None
        cache, store = self._storage.cache, self._storage.store
        seconds, ttl = self._settings.context.embedding_timeout, self._settings.cache.vector_ttl
        return EmbeddingModel(self.embedder, cache, self._clock, seconds, ttl, store.has_conversation)

    def _wire_context(self, loops: decision.ToolLoops) -> None:
        settings, clock, cache = self._settings, self._clock, self._storage.cache
        store, documents = self._storage.store, self.documents
        longest = settings.context.planning_max_seconds
        kept = SummaryCache(cache, clock, settings.cache.summary_ttl, longest)
        plans = SummaryCache(cache, clock, PLAN_SECONDS, longest)
        metrics, spans = self.instruments.metrics, self.instruments.spans
        internal = internal_calls.InternalModels(
            self._upstreams.adapter, self._upstreams.router, self._counters, clock, metrics.internal_call_ended, spans
        )
        due = settings.memory.model_copy(update={"max_turns": settings.max_turns})
        turn_summarizer = TurnSummarizer(settings.context, internal, kept, clock)
        self._summaries = RollingSummaries(store, turn_summarizer, cache, due, metrics)
        self._planning = ContextPlanning(
            settings.context, internal, summaries=kept, plans=plans, store=store, rest=self.planner_cooldown
        )
        ttl, pages = settings.cache.document_ttl, documents.native_pages
        cutter = PageCutter(documents.reader.documents, cache, ttl, pages)
        self._context = ContextManager(
            settings=settings,
            counters=self._counters,
            sources=ContextSources(files=documents.reader, store=store, large=self._storage.large, loops=loops),
            ranking=PassageRanking(self.indexes, self._meaning),
            planning=self._planning,
            hooks=replace(pdf_pages.build(cutter), on_step=spans),
        )

    def _features(self, guards: Guards) -> FeatureHooks:
        """Lists the features in the order in which they act."""
        context, counters = self._settings.context, self._counters
        return FeatureHooks(
            [
                guards.build(),
                EntityMemory(self._storage.things).build(),
                Holdout(context.economy_holdout, self._storage.store).build(),
                self.profiles.build(),
                AgentSections(counters, context).build(),
                RecallFeature(self._context, counters, self.indexes, context).build(),
                echoes.build(),
                citations.build(),
                self._summaries.build(),
                CacheBreaks(self.instruments.metrics).build(),
            ]
        )

    async def close(self) -> None:
        """Waits for pending writes, each for its time."""
        seconds = self._settings.storage.timeout
        await self._summaries.close(SUMMARIES_SECONDS)
        if self._meaning is not None:
            await self._meaning.close()
        await self.replayer.close()
        for bills in (self.relayed_bills, self.settlement):
            await bills.drain(2 * seconds)
        await self.limited.close()
        await self._planning.close()
        await self.idempotency.drain(seconds)


def open_embedder(
    settings: Settings, http: HttpUpstream, router: ConfiguredRouter, counters: CounterRegistry
) -> ports.Embedder | None:
    """Opens the embedder, neither loaded nor called yet; None where none is configured.
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
