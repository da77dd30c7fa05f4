"""Every path of responses that the gateway serves itself."""

from starlette.routing import Route

from gateway.config.settings import Settings
from gateway.http.answering import Answering
from gateway.http.auth import Authenticator
from gateway.http.edge import App
from gateway.http.inner.resends import Resends
from gateway.http.responses.compact import Compaction
from gateway.http.responses.endpoint import Responses
from gateway.http.responses.stored import StoredResponses
from gateway.storage.store import ConversationStore

PATH = "/v1/responses"


def response_routes(
    answering: Answering,
    settings: Settings,
    resends: Resends,
    store: ConversationStore,
    auth: Authenticator,
    relay: App,
) -> list[Route]:
    """The routes. Other methods are relayed, as any path that is not served here."""
    compaction, stored = Compaction(store, auth, settings, answering.clock), StoredResponses(store, auth)
    one = PATH + "/{response_id}"
    return [
        Route(PATH, Responses(answering, settings, resends, compaction), methods=["POST"]),
        Route(PATH, relay),
        Route(PATH + "/compact", compaction, methods=["POST"]),
        Route(one, stored, methods=["GET", "DELETE"]),
        Route(one, relay),
        Route(one + "/cancel", stored.cancel, methods=["POST"]),
        Route(one + "/input_items", stored.input_items, methods=["GET"]),
    ]
