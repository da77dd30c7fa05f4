"""Every path of responses that the gateway serves itself."""

from starlette.routing import Route

from gateway.api.auth import KeyAuthenticator
from gateway.api.completion_handler import CompletionHandler
from gateway.api.request.body_cache import BodyCache
from gateway.api.responses.compact import CompactionEndpoint
from gateway.api.responses.endpoint import ResponsesEndpoint
from gateway.api.responses.stored_responses import StoredResponses
from gateway.api.server.fast_router import App
from gateway.core.config.settings import Settings
from gateway.storage.store import ConversationStore

PATH = "/v1/responses"


def response_routes(
    answering: CompletionHandler,
    settings: Settings,
    resends: BodyCache,
    store: ConversationStore,
    auth: KeyAuthenticator,
    relay: App,
) -> list[Route]:
    """The routes. Other methods are relayed, as any path that is not served here."""
    compaction, stored = CompactionEndpoint(store, auth, settings, answering.clock), StoredResponses(store, auth)
    one = PATH + "/{response_id}"
    return [
        Route(PATH, ResponsesEndpoint(answering, settings, resends, compaction), methods=["POST"]),
        Route(PATH, relay),
        Route(PATH + "/compact", compaction, methods=["POST"]),
        Route(one, stored, methods=["GET", "DELETE"]),
        Route(one, relay),
        Route(one + "/cancel", stored.cancel, methods=["POST"]),
        Route(one + "/input_items", stored.input_items, methods=["GET"]),
    ]
