"""Wires the APIs at startup, and defines which endpoint serves which path; any other path is relayed."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial

from starlette.routing import Route, Router

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
from gateway.api.files.endpoint import FileEndpoint, FileEndpoints
from gateway.api.files.uploads import UploadEndpoints
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
from gateway.api.responses.input_tokens import InputTokensEndpoint
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
from gateway.core.config import exposure
from gateway.core.config.settings import Settings
from gateway.core.instrumentation import refusals
from gateway.core.instrumentation.metrics import SharedCounts
from gateway.core.types import audit_log
from gateway.pipeline import WiredPipeline
from gateway.storage import audit_events
from gateway.upstream import HttpIdentityDocuments, PassthroughClient, resources

MEMORY_PATH = "/v1/conversations/{conversation_id}/memory/{memory_id}"
ATTACHMENT_PATH = "/v1/conversations/{conversation_id}/attachments/{attachment_id}"


class WiredApi:
    """Makes every endpoint; `app` joins them. `create_app` calls it."""

    def __init__(
        self,
        settings: Settings,
        requests: WiredPipeline,
        *,
        resends: BodyCache,
        passthrough: PassthroughClient,
        shared: SharedCounts | None,
    ) -> None:
        """`requests`: answers requests, with the packages under it; `passthrough`: sends what is relayed; `shared`:
        counts for all workers, if there are several."""
        instruments, documents = requests.instruments, requests.documents
        storage, upstreams = documents.storage, documents.upstreams
        self._settings, self._clock, self._resends, self._shared = settings, instruments.clock, resends, shared
        self._storage, self._upstreams, self._requests = storage, upstreams, requests
        self._documents, self._instruments = documents, instruments
        self._refused = refusals.RefusedRequests()
        self.observed = ObservedParts(
            metrics=instruments.metrics,
            paths=storage.paths,
            resends=resends,
            indexes=requests.indexes,
            cache=storage.cache,
            documents=documents.reader,
            running=requests.settlement.running,
            hooks=instruments.hooks,
            resting=requests.planner_cooldown,
            deployments=upstreams.router.health,
            refused=self._refused,
        )
        self._wire_access()
        self._wire_answers(passthrough)
        self._wire_conversations()

    def _wire_access(self) -> None:
        settings, clock, store = self._settings, self._clock, self._storage.store
        keys = RuntimeKeys(self._storage.keys, clock)
        self._identity = HttpIdentityDocuments(self._upstreams.client)
        jwt = settings.auth.jwt
        tokens = None if jwt is None else SignedTokens(jwt, self._identity, clock)
        self._auth = KeyAuthenticator(settings.auth, store, keys, clock, tokens)
        self._keys = KeyEndpoints(keys, self._auth)
        self._statistics = StatisticsEndpoint(self.observed, self._auth, settings)

    def _wire_answers(self, passthrough: PassthroughClient) -> None:
        """Makes the endpoints that call a model, or relay."""
        settings, clock, auth, store = self._settings, self._clock, self._auth, self._storage.store
        pipeline, limited, router = self._requests.pipeline, self._requests.limited, self._upstreams.router
        bodies = LargeBodies(settings.server.max_bytes_in_flight, settings.server.receive_timeout)
        self.answering = CompletionHandler(
            limited, self._requests.idempotency, auth=auth, settings=settings, clock=clock, bodies=bodies
        )
        self._chat = ChatCompletions(self.answering, settings, self._resends)
        self._compaction = CompactionEndpoint(store, auth, settings, clock, pipeline.check_model)
        self._responses = ResponsesEndpoint(self.answering, settings, self._resends, self._compaction)
        self._messages = MessagesEndpoint(self.answering, settings, self._resends, store)
        self._count_tokens = CountTokens(pipeline, auth, settings, clock)
        self._input_tokens = InputTokensEndpoint(pipeline, auth, settings, self._resends, self._compaction, clock)
        self._compress = CompressEndpoint(pipeline, limited, auth, settings, clock, bodies)
        listed = ModelsEndpoint(resources.UpstreamModels(self._upstreams.client, router), auth)
        self._models = ListedModels(listed)
        metering = CallMetering(self._requests.relayed_bills, limited)
        self.relay = RelayEndpoint(
            router=router, upstream=passthrough, auth=auth, settings=settings, metering=metering, bodies=bodies
        )
        documents, most = self._documents, settings.files.max_bytes
        endpoint = partial(FileEndpoint, auth, self.relay, documents.callers, documents.served_here)
        self._files = FileEndpoints(documents.service, endpoint, most)
        self._uploads = UploadEndpoints(documents.uploads, endpoint, most)

    def _wire_conversations(self) -> None:
        settings, storage, auth = self._settings, self._storage, self._auth
        max_bytes = settings.server.max_body_bytes
        records, store, past, replays = storage.records, storage.store, storage.past, storage.replays
        self._completions = StoredCompletions(store, auth, max_bytes)
        self._conversations = ConversationEndpoints(
            records,
            auth,
            max_body_bytes=max_bytes,
            hooks=self._instruments.hooks,
            files=self._documents.callers,
            delete=self._requests.settlement.delete_conversation,
        )
        self._attachments = AttachmentEndpoints(records, auth)
        self._context = ConversationContext(records, auth)
        self._stored = ClassicStorage(storage.things, records, store, storage.paths, self._resends)
        self._turns = TurnEndpoints(past, replays, auth)
        self._replays = ReplayEndpoint(
            replayer=self._requests.replayer,
            pipeline=self._requests.pipeline,
            past=past,
            replays=replays,
            store=store,
            auth=auth,
            settings=settings,
            clock=self._clock,
        )
        self._exported = ExportedConversation(storage.transfer, auth, storage.trail)
        self._imported = ImportedConversations(storage.transfer, auth, max_bytes)
        self._memories = MemoryEndpoints(storage.things, auth, max_bytes, settings.memory.things_days)
        self.mcp = McpEndpoint(settings, past, storage.things, auth, storage.large)

    def app(
        self,
        draining: ShutdownState,
        lifespan: Callable[[object], AbstractAsyncContextManager[None]],
        traced: Callable[[App], App],
    ) -> App:
        """Joins all endpoints to one ASGI application. `traced`: makes spans of requests."""
        routes = self.routes(draining)
        others = Router(routes, redirect_slashes=False, default=self.relay, lifespan=lifespan)
        app: App = FastRouter(self.posted(routes), others, routes)
        origins = self._settings.server.cors_origins
        if exposure.operators_keys(self._settings) and self._settings.auth.mode != "open":
            app = OriginCheck(app, origins)
        preflights = CorsPreflights(app, origins) if origins else app
        served = traced(EdgeMiddleware(preflights, draining, self._instruments.metrics, self._refused, self._clock))
        return CrossOrigin(served, origins) if origins else served

    def routes(self, draining: ShutdownState) -> list[Route]:
        """Lists every path that the gateway serves itself; all others are relayed."""
        conversations, memories, models = self._conversations, self._memories, self._models
        ready = ReadyEndpoint(self._storage.store, draining, self._clock, self._statistics)
        server = self._settings.server
        served: list[tuple[str, str, App]] = [
            ("GET", "/", RootEndpoint(metrics=server.metrics != "off", page=exposure.has_page(self._settings))),
            ("GET", "/openapi.json", OpenApiEndpoint()),
            ("GET", "/health/live", LiveEndpoint()),
            ("GET", "/health/ready", ready),
            ("GET", "/v1/models", models),
            ("GET", "/v1/models/{model:path}", models),
            ("", "/v1/models/{model:path}", self.relay),
            ("POST", CHAT_PATH, self._chat),
            ("GET", CHAT_PATH, self._completions.all),
            ("POST", "/v1/responses/input_tokens", self._input_tokens),
            ("POST", "/v1/messages", self._messages),
            ("POST", "/v1/messages/count_tokens", self._count_tokens),
            ("POST", "/v1/compress", self._compress),
            ("GET POST DELETE", CHAT_PATH + "/{completion_id}", self._completions.one),
            ("GET", CHAT_PATH + "/{completion_id}/messages", self._completions.messages),
            ("POST", "/v1/conversations/import", self._imported),
            ("GET", "/v1/conversations/{conversation_id}/export", self._exported),
            ("GET POST", "/v1/conversations", conversations.all),
            ("GET POST DELETE", "/v1/conversations/{conversation_id}", conversations.one),
            ("GET", "/v1/conversations/{conversation_id}/context", self._context.one),
            ("GET", "/v1/conversations/{conversation_id}/attachments", self._attachments.all),
            ("GET DELETE", ATTACHMENT_PATH, self._attachments.one),
            ("GET POST", "/v1/conversations/{conversation_id}/memory", memories.of_conversation),
            ("GET DELETE", MEMORY_PATH, memories.one),
            ("GET POST", "/v1/files", self._files.all),
            ("GET DELETE", "/v1/files/{file_id}", self._files.one),
            ("GET", "/v1/files/{file_id}/content", self._files.content),
            ("POST", "/v1/uploads", self._uploads.all),
            ("POST", "/v1/uploads/{upload_id}/parts", self._uploads.parts),
            ("POST", "/v1/uploads/{upload_id}/complete", self._uploads.complete),
            ("POST", "/v1/uploads/{upload_id}/cancel", self._uploads.cancel),
            ("", "/v1/files", self.relay),  # whatever else is sent there
            ("", "/v1/files/{rest:path}", self.relay),
            ("GET", "/v1/memory", memories.all),
            ("GET DELETE", "/v1/memory/{memory_id}", memories.one),
            ("GET", "/v1/memory/{type}/{thing_id:path}/conversations", memories.conversations),
            ("GET", "/v1/conversations/{conversation_id}/turns", self._turns.all),
            ("GET", "/v1/conversations/{conversation_id}/turns/{number}", self._turns.one),
            ("POST", "/v1/conversations/{conversation_id}/replay", self._replays),
            ("GET POST DELETE", "/v1/conversations/{conversation_id}/items", conversations.items),
            ("GET POST DELETE", "/v1/conversations/{conversation_id}/items/{item_id}", conversations.item),
        ]
        found = [
            Route(path, app, methods=[each] if each else None)
            for methods, path, app in served
            for each in methods.split() or [""]
        ]
        stored = StoredResponses(self._storage.store, self._auth)
        found += response_routes(self._responses, self._compaction, stored, self.relay)
        found += organization_routes(self._storage.transactions, self._auth, self._clock, self._storage.trail)
        listed = RequestListEndpoint(
            self._settings, self._storage.transactions, self._auth, self._clock, self._storage.trail
        )
        found.append(Route(REQUESTS_PATH, listed, methods=["GET"]))
        found += trail_routes(self._storage.transactions, self._auth, self._storage.trail)
        found += key_routes(
            self._keys, self._auth, lambda caller, _: audit_events.recorder(audit_log.actor_of(caller), self._clock)
        )
        found += self._classic_routes(ready)
        found += self.mcp.routes()
        page = UiApp(self._page_parts(ready))
        found += [Route("/ui", page), Route("/ui/{page:path}", page)]
        if server.metrics != "off":
            is_open = server.metrics == "open"
            counts = MetricsPage(self.observed.snapshot, self._auth, open_to_all=is_open, shared=self._shared)
            found.append(Route("/metrics", counts, methods=["GET"]))
        return found

    def posted(self, routes: Iterable[Route]) -> dict[str, App]:
        """Maps each exact path that takes a POST to its endpoint, for `FastRouter`, including those that are relayed
        and call a model."""
        found = {each.path: each.app for each in routes if "{" not in each.path and "POST" in (each.methods or ())}
        return {
            **{relay_rules.PREFIX + "/".join(each.segments): self.relay for each in relay_rules.BY_A_MODEL},
            **found,
        }

    def _page_parts(self, ready: ReadyEndpoint) -> PageParts:
        storage, documents = self._storage, self._documents
        return PageParts(
            settings=self._settings,
            clock=self._clock,
            auth=self._auth,
            transactions=storage.transactions,
            store=storage.store,
            past=storage.past,
            observed=self.observed,
            ready=ready,
            statistics=self._statistics,
            chat=self._chat,
            responses=self._responses,
            messages=self._messages,
            pipeline=self._requests.pipeline,
            router=self._upstreams.router,
            cache=storage.cache,
            started=self._clock.now(),
            trail=storage.trail,
            identity=self._identity,
            keys=self._keys,
            files=documents.service,
            replays=self._replays,
            serves=documents.served_here,
        )

    def _classic_routes(self, ready: ReadyEndpoint) -> list[Route]:
        """Lists the classic API: other names for what is served below `/v1/`."""
        chat, streamed = (
            ClassicChat(self.answering, self._settings, self._resends, stream=each) for each in (False, True)
        )
        conversations = ClassicConversations(self._stored, self._conversations, self._auth)
        info = PromptInfo(self._stored, self._requests.profiles, self._upstreams.router, self._auth, self._settings)
        return [
            Route("/api/v1/chat", chat, methods=["POST"]),
            Route("/api/v1/chat/stream", streamed, methods=["POST"]),
            Route("/api/v1/conversations", conversations.all, methods=["GET"]),
            Route("/api/v1/conversations/{conversation_id}/history", conversations.history, methods=["GET"]),
            Route("/api/v1/conversations/{conversation_id}/workflows", conversations.workflows, methods=["GET"]),
            Route("/api/v1/workflows/{spec_id:path}/conversations", conversations.about, methods=["GET"]),
            Route("/api/v1/conversations/{conversation_id}", conversations.one, methods=["DELETE"]),
            Route("/api/v1/conversations/{conversation_id}/permanent", conversations.permanent, methods=["DELETE"]),
            Route("/api/v1/health", ClassicHealth(ready, self._statistics), methods=["GET"]),
            Route("/api/v1/memory/stats", self._statistics, methods=["GET"]),
            Route("/api/v1/debug/prompt-info", info.endpoint, methods=["GET"]),
        ]
