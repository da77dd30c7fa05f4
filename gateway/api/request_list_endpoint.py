"""`GET /v1/gateway/requests`: all requests, with the filters and access rules of the web UI (guarantee §13.18)."""

from decimal import Decimal
from typing import Any, Literal, get_type_hints

from gateway.api.api_call import received
from gateway.api.auth import KeyAuthenticator, seen_tenant
from gateway.api.pagination import limit_of, parameters
from gateway.api.server.asgi import Receive, Scope, Send, send_json
from gateway.api.server.middleware import is_foreign, is_local
from gateway.api.shapes import Unix, Usd, many, said, shape
from gateway.core import errors, ports
from gateway.core.config import exposure, setting_sections
from gateway.core.config.settings import Settings
from gateway.core.types import audit_log, report_lists
from gateway.core.types.chat import RequestCaller
from gateway.inspection import request_search
from gateway.storage import audit_events
from gateway.storage.database import DatabaseTransactions

PATH = "/v1/gateway/requests"
PARAMETERS = (*request_search.FILTERS, "tenant", "sort", "limit", *report_lists.DIRECTIONS)


ListedRequest = shape(
    "ListedRequest",
    "A request that asked a model. `cost` is null as soon as one call has no price, `known_cost` is of those that have "
    "one; `net_saving` is below 0 where it is a loss.",
    {
        name: Usd if kind == Decimal | None else kind
        for name, kind in get_type_hints(report_lists.RequestLine).items()
        if name in request_search.LINE_FIELDS
    }
    | {"id endpoint": str, "object": Literal["request"], "created_at": Unix, "question": str | None},
)
PLACE = said(str | None, "Where the list goes on, as `older` or `newer` of the next request.")
Requests = shape(
    "Requests",
    "Requests in their order. One look reads a bounded number of them: a page may be short, and go on.",
    {"object": Literal["list"], "has_more": bool, "data": many(ListedRequest), "older newer": PLACE},
)


class RequestListEndpoint:
    """A page of the list; the next ones begin at its `older` and `newer`."""

    def __init__(
        self,
        settings: Settings,
        transactions: DatabaseTransactions,
        auth: KeyAuthenticator,
        clock: ports.Clock,
        trail: audit_events.AuditLog,
    ) -> None:
        self._settings = settings
        self._search = request_search.RequestSearch(transactions)
        self._auth = auth
        self._clock = clock
        self._trail = trail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = (await received(scope, receive, self._auth, None)).caller
        own = self._own_tenant(scope, caller)
        given = parameters(scope["query_string"].decode("latin-1"))
        for name in given:
            if name not in PARAMETERS:
                raise errors.invalid(name, f"is not known; known are {', '.join(PARAMETERS)}")
        limit, tenant = limit_of(given), given.get("tenant") or own
        try:
            query = request_search.request_query(given, tenant, self._clock.now(), limit)
        except request_search.FilterRefused as error:
            raise errors.invalid(error.field, error.text) from None
        if query.having.text and await self._search.is_sealed():
            raise errors.invalid("text", "cannot be used: messages are encrypted")
        body: dict[str, Any] = {"object": "list", "data": [], "has_more": False, "older": None, "newer": None}
        if own is None or tenant == own:  # another tenant's requests are as none
            found = await self._search.find(query)
            body["data"] = [request_search.request_record(each) for each in found.found]
            body["has_more"] = found.older is not None
            body |= {name: str(place) if (place := getattr(found, name)) else None for name in report_lists.DIRECTIONS}
        filters = sorted(name for name in given if name in request_search.FILTERS)
        await self._trail.saw(
            audit_log.NewEvent(audit_log.actor_of(caller), "requests.seen", None, own, {"parameters": filters})
        )
        await send_json(send, 200, body, {"cache-control": "no-store"})

    def _own_tenant(self, scope: Scope, caller: RequestCaller) -> str | None:
        """Returns the only tenant whose requests may be seen; None: all.
        Raises Forbidden: the web UI would not show them to this caller."""
        if caller.key is not None and caller.roles & setting_sections.LOOKS:
            return seen_tenant(caller)
        is_open = not self._settings.auth.wants_keys and exposure.has_page(self._settings)
        if caller.key is None and is_open and is_local(scope) and not is_foreign(scope):
            return None
        raise errors.Forbidden("The list of requests is for keys of role 'viewer' or 'admin'.")
