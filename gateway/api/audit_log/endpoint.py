"""`GET /v1/gateway/trail` and `GET /v1/gateway/trail/export`, for keys of role `admin`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

from pydantic import Field
from starlette.routing import Route

from gateway.api.api_call import ApiCall, MethodEndpoint, received
from gateway.api.auth import KeyAuthenticator
from gateway.api.pagination import Query, limit_of, newest_first, number_of, parameters, unix_time_of
from gateway.api.server.asgi import Receive, Scope, Send, send_start
from gateway.api.shapes import IsoTime, Json, many, said, shape
from gateway.core import errors
from gateway.core.config import setting_sections
from gateway.core.types import audit_log
from gateway.core.types.chat import RequestCaller
from gateway.storage import audit_events
from gateway.storage.database import DatabaseTransactions

PATH = "/v1/gateway/trail"
AUDIT_LOG_HEADERS = {"content-type": "application/x-ndjson", "cache-control": "no-store"}
NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)


DIGEST = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
TrailEventObject = shape(
    "TrailEvent",
    "What somebody did; `digest` is keyed, over the event and `previous_digest`, that of the event before.",
    {
        "number": Annotated[int, Field(ge=1)],
        "at": said(IsoTime, "UTC, to the microsecond."),
        "actor": said(str | None, "The id of the key; null: a command."),
        "actor_name": said(str | None, "Of the key, or of the system's user who ran the command."),
        "tenant": said(str | None, "Whose data it is about."),
        "action": str,
        "object_id": said(str | None, "What it was done to."),
        "ok": said(bool, "False for what was refused."),
        "details": Json,
        "previous_digest digest": DIGEST,
    },
)
TrailPage = shape(
    "TrailEvents",
    "Events in the order of their numbers; the next page is `after=` its `last_id`.",
    {"object": Literal["list"], "has_more": bool, "data": many(TrailEventObject), "first_id last_id": int | None},
)


@dataclass(eq=False, slots=True)
class TrailEndpoints:
    """Serves a page of events (`list`); called, sends all events as lines of JSON, its own event included."""

    transactions: DatabaseTransactions
    auth: KeyAuthenticator
    trail: audit_events.AuditLog

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = _admin((await received(scope, receive, self.auth, None)).caller)
        given = parameters(scope["query_string"].decode("latin-1"))
        query = trail_query({name: value for name, value in given.items() if name not in ("limit", "order")})
        filters = {name: given[name] for name in ("action", "actor", "since", "until") if name in given}
        details = {**({"after": query.after} if query.after is not None else {}), **filters}
        await self.trail.saw(audit_log.NewEvent(audit_log.actor_of(caller), "trail.exported", details=details))
        await send_start(send, 200, AUDIT_LOG_HEADERS)
        async for page in audit_events.all_events(self.transactions, query):
            await send({"type": "http.response.body", "body": audit_events.event_lines(page), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def list(self, call: ApiCall) -> Json:
        """Returns a page of events as an OpenAI list; the next page begins after `last_id`."""
        _admin(call.received.caller)
        found, has_more = await self.transactions.run(partial(audit_events.read_events, query=trail_query(call.query)))
        numbers: Sequence[int | None] = [event.number for event in found] or [None]
        ends = {"first_id": numbers[0], "last_id": numbers[-1]}
        return {
            "object": "list",
            "data": [audit_events.event_json(event) for event in found],
            **ends,
            "has_more": has_more,
        }


def _admin(caller: RequestCaller) -> RequestCaller:
    """Returns the caller. Raises Forbidden: the caller's key does not have the role `admin`."""
    if setting_sections.ADMIN not in caller.roles:
        raise errors.Forbidden("The trail is for keys of role 'admin'; where there are no keys, for `gateway trail`.")
    return caller


def trail_query(given: Query) -> audit_log.TrailQuery:
    """Parses the query of a list of events. Raises InvalidRequest: a parameter breaks its rule; `param` names it."""
    for name in ("action", "actor"):
        if name in given and not NAME.fullmatch(given[name]):
            raise errors.invalid(name, "must be 1 to 64 letters, digits, dots, dashes or underscores")
    return audit_log.TrailQuery(
        after=number_of(given, "after"),
        limit=limit_of(given),
        action=given.get("action"),
        actor=given.get("actor"),
        since=_time(unix_time_of(given, "since")),
        until=_time(unix_time_of(given, "until")),
        newest_first=newest_first(given, "asc"),
    )


def _time(second: int | None) -> datetime | None:
    return None if second is None else datetime.fromtimestamp(second, UTC)


def trail_routes(
    transactions: DatabaseTransactions, auth: KeyAuthenticator, trail: audit_events.AuditLog
) -> list[Route]:
    answers = TrailEndpoints(transactions, auth, trail)
    return [
        Route(PATH, MethodEndpoint(auth, 0, {"GET": answers.list}), methods=["GET"]),
        Route(f"{PATH}/export", answers, methods=["GET"]),
    ]
