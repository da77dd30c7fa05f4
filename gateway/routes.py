"""Every path that the gateway serves itself, and what serves it."""

from collections.abc import Iterable

from starlette.routing import Route, Router

from gateway.api.audit_log.endpoint import trail_routes
from gateway.api.classic.classic_chat import ClassicChat
from gateway.api.classic.endpoint import ClassicConversations, ClassicHealth, PromptInfo
from gateway.api.keys.endpoint import key_routes
from gateway.api.middleware.cors import CorsPreflights, CrossOrigin
from gateway.api.middleware.origin_check import OriginCheck
from gateway.api.openapi.openapi_document import OpenApiEndpoint, RootEndpoint
from gateway.api.operations import LiveEndpoint, MetricsPage, ReadyEndpoint
from gateway.api.organization.endpoint import organization_routes
from gateway.api.request_list_endpoint import PATH as REQUESTS_PATH
from gateway.api.request_list_endpoint import RequestListEndpoint
from gateway.api.responses.endpoint import StoredResponses, response_routes
from gateway.api.server.fast_router import CHAT_PATH, App, EdgeMiddleware, FastRouter, ShutdownState
from gateway.api.ui.app import UiApp
from gateway.api.ui.dependencies import PageParts
from gateway.app import Gateway
from gateway.billing.relayed_usage import RELAYED_ENDPOINTS
from gateway.core.config.exposure import has_page, operators_keys
from gateway.core.config.settings import Settings
from gateway.core.instrumentation.metrics import SharedCounts
from gateway.core.types.audit_log import actor_of
from gateway.storage.audit_events import recorder

MEMORY_PATH = "/v1/conversations/{conversation_id}/memory/{memory_id}"
ATTACHMENT_PATH = "/v1/conversations/{conversation_id}/attachments/{attachment_id}"


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
    if operators_keys(settings) and settings.auth.mode != "open":
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
        ("GET", "/", RootEndpoint(metrics=server.metrics != "off", page=has_page(gateway.settings))),
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
        gateway.key_endpoints, gateway.auth, lambda caller, _: recorder(actor_of(caller), gateway.clock)
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
    return {**{f"/v1/{path}": gateway.relay for path in RELAYED_ENDPOINTS}, **found}


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
    info = PromptInfo(gateway.stored, gateway.context, gateway.router, gateway.auth, gateway.settings)
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
