"""Composition root: the only place that names adapters and wires them; the routes at a glance."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.routing import Route, Router

from gateway.artifacts.files import FileReader
from gateway.base.clock import SystemClock
from gateway.config.loading import ConfigurationError
from gateway.config.settings import LOCAL, Settings
from gateway.context.manager import ContextManager
from gateway.context.planner import ContextPlanning
from gateway.embeddings.meaning import Meaning
from gateway.embeddings.minilm import MiniLM
from gateway.errors import GatewayError, StorageUnavailable
from gateway.http.auth import Authenticator
from gateway.http.chat.endpoint import ChatCompletions
from gateway.http.conversations.completions import StoredCompletions
from gateway.http.conversations.endpoint import Conversations
from gateway.http.conversations.transfer import ExportedConversation, ImportedConversations
from gateway.http.edge import App, Direct, Draining, Edge
from gateway.http.operations import Live, MetricsPage, Models, Ready
from gateway.http.relay.endpoint import Relay
from gateway.internal_models.calls import InternalModels
from gateway.models.relevance import EmbeddingFault
from gateway.operations.purge import sweep_for_ever, sweep_seconds
from gateway.planning.summary_cache import SummaryCache
from gateway.ports import Embedder
from gateway.relevance.index_cache import ContentIndexes, IndexedCache
from gateway.storage.cache.memory import open_cache
from gateway.storage.calibrations import SqlCalibrations
from gateway.storage.claims import ClaimStore
from gateway.storage.conversations.records import ConversationRecords
from gateway.storage.conversations.transfer import ConversationTransfer
from gateway.storage.database.engine import Transactions, open_transactions
from gateway.storage.database.migrate import migrate
from gateway.storage.retention import Retention
from gateway.storage.store import ConversationStore
from gateway.telemetry.logs import get_logger
from gateway.telemetry.metrics import Metrics
from gateway.tokens.calibration import Margins, keep_calibrated
from gateway.tokens.counter import CounterRegistry
from gateway.turn.idempotency import IdempotencyGate
from gateway.turn.pipeline import Pipeline
from gateway.turn.settlement import Settlement
from gateway.upstream.http.client import new_client
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.litellm.library import Library
from gateway.upstream.litellm.provider import LitellmUpstream
from gateway.upstream.openai.chat import HttpUpstream
from gateway.upstream.openai.embeddings import UpstreamEmbedder
from gateway.upstream.openai.passthrough import Passthrough
from gateway.upstream.openai.resources import UpstreamFiles, UpstreamModels
from gateway.upstream.routing.catalogue import Catalogue
from gateway.upstream.routing.providers import ProtocolUpstream, unsupported
from gateway.upstream.routing.router import ConfiguredRouter, modifies_params

# Which embedder `context.embedding_model` names.


def open_embedder(
    settings: Settings, http: HttpUpstream, router: ConfiguredRouter, counters: CounterRegistry
) -> Embedder | None:
    """The embedder, not loaded or called yet; None where none is configured.

    Raises:
        ConfigurationError: it cannot be used.
    """
    name = settings.context.embedding_model
    if name is None:
        return None
    try:
        return MiniLM() if name == LOCAL else UpstreamEmbedder(http, router, counters.counter, name)
    except EmbeddingFault as error:
        hint = "; install context-gateway[embeddings]" if name == LOCAL else ""
        raise ConfigurationError(f"context.embedding_model: {name}: {error}{hint}") from None
    except GatewayError as error:
        raise ConfigurationError(f"context.embedding_model: {name}: {error.message}") from None


RETRY_SECONDS = 1.0
WARM_UP_AFTER = 0.25
CALIBRATED_WITHIN = 1.0
"""Seconds that a start waits for what was learned of models; requests that come before that are estimated without."""
log = get_logger("gateway.app")


def create_app(settings: Settings, draining: Draining | None = None) -> App:
    """The gateway as an ASGI application; connects to nothing before its lifespan begins."""
    draining = draining or Draining()
    clock = SystemClock()
    transactions = open_transactions(settings.storage)
    indexes = ContentIndexes(settings.cache.index_bytes, settings.cache.document_ttl, clock)
    cache = IndexedCache(open_cache(settings.cache, clock), indexes)
    store = ConversationStore(transactions, clock, cache, settings.conversation.retention_days)
    retention = Retention(transactions, clock, cache)
    margins = Margins(clock)
    counters = CounterRegistry(margins)
    calibrations = SqlCalibrations(transactions)
    metrics = Metrics(entry.model_name for entry in settings.model_list)
    settlement = Settlement(store, counters, clock, metrics, settings.conversation.match)
    pool = ConnectionPool(settings.upstream.max_connections)
    client = new_client(pool)
    catalogue = Catalogue()
    router = ConfiguredRouter(settings, catalogue)
    through_litellm = LitellmUpstream(client, Library(modify_params=modifies_params(settings)))
    over_http = HttpUpstream(pool)
    upstream = ProtocolUpstream(over_http, through_litellm)
    embedder = open_embedder(settings, over_http, router, counters)
    meaning = None
    if embedder is not None:
        seconds, ttl = settings.context.embedding_timeout, settings.cache.vector_ttl
        meaning = Meaning(embedder, cache, clock, seconds, ttl)
    reader = FileReader(cache, settings.cache.document_ttl)
    summaries = SummaryCache(cache, clock, settings.cache.summary_ttl, settings.context.planning_max_seconds)
    internal = InternalModels(upstream, router, counters, clock, metrics.internal_call_ended)
    planning = ContextPlanning(settings.context, internal, summaries, store, clock)
    context = ContextManager(settings.context, counters, reader, meaning, indexes, planning, store)
    files = UpstreamFiles(client, router)
    match = settings.conversation.match
    pipeline = Pipeline(router, upstream, store, files, context, settlement, settings.context, match)
    auth = Authenticator(settings.auth, store)
    once = IdempotencyGate(ClaimStore(transactions, clock), store, clock, settings.conversation.idempotency_hours)
    chat = ChatCompletions(pipeline, once, store, auth, settings, clock)
    stored = StoredCompletions(store, auth)
    records = ConversationRecords(transactions, clock, cache)
    conversations = Conversations(records, store, auth, settings.server.max_body_bytes)
    models = Models(UpstreamModels(client, router), auth)
    transfer = ConversationTransfer(transactions, clock)
    exported = ExportedConversation(transfer, auth)
    imported = ImportedConversations(transfer, auth, settings.server.max_body_bytes)
    relay = Relay(router, Passthrough(pool), auth, settings)

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        for entry in settings.model_list:
            if problem := unsupported(entry):
                log.warning("model_cannot_be_served", model=entry.model_name, reason=problem)
        preparing = asyncio.ensure_future(_prepare_storage(settings, transactions))
        await asyncio.wait({preparing}, timeout=settings.storage.timeout)
        warming = asyncio.ensure_future(_warm_up(catalogue, embedder))
        days = settings.conversation.retention_days
        sweeping = asyncio.ensure_future(sweep_for_ever(retention, clock, days, sweep_seconds(days)))
        keeping = asyncio.ensure_future(once.keep())
        calibrating = asyncio.ensure_future(keep_calibrated(margins, calibrations))
        await margins.looked_up(CALIBRATED_WITHIN)
        try:
            yield
        finally:
            preparing.cancel()
            warming.cancel()
            sweeping.cancel()
            keeping.cancel()
            calibrating.cancel()
            if meaning is not None:
                await meaning.close()
            await settlement.drain(2 * settings.storage.timeout)
            await planning.close()
            await once.drain(settings.storage.timeout)
            if margins.is_worth_writing:
                await margins.try_to_keep(calibrations)
            await client.aclose()
            await cache.close()
            await transactions.close()

    routes = [
        Route("/health/live", Live(), methods=["GET"]),
        Route("/health/ready", Ready(store, draining), methods=["GET"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{model:path}", models, methods=["GET"]),
        Route("/v1/models/{model:path}", relay, methods=["DELETE"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/chat/completions", stored, methods=["GET"]),
        Route("/v1/chat/completions/{completion_id}", stored, methods=["GET"]),
        Route("/v1/conversations/import", imported, methods=["POST"]),
        Route("/v1/conversations/{conversation_id}/export", exported, methods=["GET"]),
        Route("/v1/conversations", conversations.all, methods=["GET"]),
        Route("/v1/conversations", conversations.all, methods=["POST"]),
        Route("/v1/conversations/{conversation_id}", conversations.one, methods=["GET"]),
        Route("/v1/conversations/{conversation_id}", conversations.one, methods=["POST"]),
        Route("/v1/conversations/{conversation_id}", conversations.one, methods=["DELETE"]),
        Route("/v1/conversations/{conversation_id}/items", conversations.items, methods=["GET"]),
        Route("/v1/conversations/{conversation_id}/items", conversations.items, methods=["POST"]),
        Route("/v1/conversations/{conversation_id}/items/{item_id}", conversations.item, methods=["GET"]),
        Route("/v1/conversations/{conversation_id}/items/{item_id}", conversations.item, methods=["DELETE"]),
    ]
    if settings.server.metrics != "off":
        page = MetricsPage(metrics, auth, open_to_all=settings.server.metrics == "open")
        routes.append(Route("/metrics", page, methods=["GET"]))
    others = Router(routes, default=relay, lifespan=lifespan)
    return Edge(Direct("POST", "/v1/chat/completions", chat, others), draining, metrics)


async def _warm_up(catalogue: Catalogue, embedder: Embedder | None) -> None:
    """Once the server answers, loads what its first request would otherwise wait for."""
    await asyncio.sleep(WARM_UP_AFTER)
    await asyncio.to_thread(catalogue.load)
    if isinstance(embedder, MiniLM):
        await embedder.load()


async def _prepare_storage(settings: Settings, transactions: Transactions) -> None:
    """Brings the schema up to date; a storage that cannot be reached yet is tried again until it can."""
    while settings.storage.auto_migrate:
        try:
            await migrate(transactions, settings.storage.migration_timeout)
            return
        except StorageUnavailable as error:
            log.warning("storage_unavailable_at_start", reason=error.message)
        await asyncio.sleep(RETRY_SECONDS)
