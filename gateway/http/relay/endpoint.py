"""Every other path under `/v1/`: passed on to the upstream, streaming both ways (guarantee §1)."""

from contextlib import nullcontext

from gateway.config.settings import Settings
from gateway.errors import MethodNotAllowed, NotRelayed, UpstreamError
from gateway.http.admission import LargeBodies, Place
from gateway.http.auth import Authenticator
from gateway.http.edge import Receive, Scope, Send, note_fault, nothing_at
from gateway.http.key_watch import KeyWatch
from gateway.http.receive import header, until_disconnect
from gateway.http.relay.destination import Call, Destination, Destinations
from gateway.http.relay.metering import MANAGED, Meter, Metering, marked, readable_only
from gateway.http.relay.rules import OWN, PREFIX, QUERY, headers_down, headers_up, is_plain_path, named_calls, query_up
from gateway.http.relay.upload import Upload
from gateway.models.upstream import CallScope, RelayedCall
from gateway.quota.gate import Admitted
from gateway.turn.limited import LimitedPipeline
from gateway.turn.relayed_bills import RelayedBills
from gateway.upstream.openai.passthrough import Passthrough, RawAnswer
from gateway.upstream.routing.router import ConfiguredRouter

WITHOUT_BODY = (204, 304)
"""Statuses whose answers have no body."""
BODY_HEADERS = (b"content-type", b"content-encoding", b"digest", b"content-digest", b"content-md5")
"""What is said of a body that is written anew."""


class Relay:
    """Decides where a call goes and with whose key, then lets both bodies flow."""

    def __init__(
        self,
        router: ConfiguredRouter,
        upstream: Passthrough,
        auth: Authenticator,
        settings: Settings,
        bills: RelayedBills,
        limited: LimitedPipeline,
        watch: KeyWatch,
        bodies: LargeBodies,
    ) -> None:
        self._destinations = Destinations(router, settings)
        self._upstream = upstream
        self._auth = auth
        self._metering = Metering(bills)
        self._clock = bills.clock
        self._limited = limited
        self._watch = watch
        self._bodies = bodies
        self._server = settings.server
        self._named = named_calls(settings.server.relay)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("latin-1")
        if not path.startswith(PREFIX) or scope["path"].startswith(OWN):
            raise nothing_at(scope["path"])
        caller = await self._auth.caller(scope)
        scope["gateway"]["tenant"] = caller.tenant
        target = _target(scope, path)
        upload = Upload(scope, receive, self._server.max_body_bytes, self._server.receive_timeout)
        named = any(pattern.fits(scope["method"], path) for pattern in self._named)
        if not named:
            self._destinations.default(caller, named=False)  # says no before a body is read
        with self._bodies.place(caller.tenant) as place, self._watch.holding(scope, caller):
            work = self._relay(Call(scope, caller, target, named), send, upload, place)
            await until_disconnect(upload.after, work)

    async def _relay(self, call: Call, send: Send, upload: Upload, place: Place) -> None:
        scope = call.scope
        meter = self._metering.meter(call, upload)
        limited = meter is not None and self._limited.may_limit(call.caller.key)
        found = await self._destinations.of(call, upload, place, limited=limited)
        operator = found.deployment.operator_key or call.caller.key is not None
        headers = headers_up(scope["headers"], operator=operator)
        if found.content_type is not None:
            headers = [pair for pair in headers if pair[0] not in BODY_HEADERS]
            headers.append((b"content-type", found.content_type))
        if upload.length is not None and not isinstance(found.body, bytes):
            headers.append((b"content-length", upload.length.encode()))
        if meter is not None:
            headers = readable_only(headers)
        admitted = await self._admit(call, found)
        try:
            if meter is not None and admitted is not None and isinstance(found.body, bytes):
                await admitted.reserve(*await meter.most(found))
            made_for = CallScope(call.caller, scope["gateway"]["request_id"], "relayed")
            relayed = RelayedCall(scope["method"], call.target, headers, found.body, made_for)
            sent = meter.sent(found.deployment, admitted) if meter is not None else nullcontext()
            async with sent, self._upstream.open(found.deployment, relayed) as answer:
                place.release()
                answer.headers = headers_down(answer.headers, operator=operator)
                await self._pass_down(scope, send, answer, meter, admitted)
        except UpstreamError as error:
            if upload.fault is not None:
                raise upload.fault from None
            error.headers = {**error.headers, MANAGED[0].decode(): MANAGED[1].decode()}
            raise
        finally:
            if admitted is not None:
                admitted.leave()
                if meter is None or not meter.has_bill:
                    admitted.closed()

    async def _admit(self, call: Call, found: Destination) -> Admitted | None:
        """Lets a call in that may cost something, by what is known of it before its answer.

        Raises:
            BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is nothing left.
        """
        if call.scope["method"] != "POST" or not self._limited.may_limit(call.caller.key):
            return None
        request_id, now = call.scope["gateway"]["request_id"], self._clock.now()
        return await self._limited.relayed(request_id, call.caller, (found.model, found.user), now)

    async def _pass_down(
        self, scope: Scope, send: Send, answer: RawAnswer, meter: Meter | None, admitted: Admitted | None
    ) -> None:
        headers = marked(answer.headers)
        if admitted is not None and (ours := admitted.headers):
            kept = (pair for pair in headers if pair[0].decode("latin-1") not in ours)
            headers = [*kept, *((name.encode(), value.encode()) for name, value in ours.items())]
        if answer.status in WITHOUT_BODY:
            headers = [pair for pair in headers if pair[0] != b"content-length"]
        take = meter.began(answer) if meter is not None else None
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        try:
            async for piece in answer.pieces():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                if take is not None and (reading := take(piece)) is not None:
                    await reading
        except UpstreamError as error:
            # The answer has begun. Without its end the server breaks the connection, so it cannot pass for a whole one.
            note_fault(scope["gateway"], error)
            if meter is not None:
                meter.broke(error)
            return
        if meter is not None:
            meter.ended()  # its bill begins behind this step, in which the client gets the end
        await send({"type": "http.response.body", "body": b""})


def _target(scope: Scope, path: str) -> str:
    """Path and query below the upstream's base, as they came.

    Raises:
        MethodNotAllowed: for CONNECT and TRACE.
        NotRelayed: the upstream could read the path as another one, or the request asks for a WebSocket.
    """
    query = query_up(scope["query_string"].decode("latin-1"))
    if scope["method"] in ("CONNECT", "TRACE"):
        raise MethodNotAllowed("This method is not allowed here.")
    if (header(scope, b"upgrade") or "").lower() == "websocket":
        raise NotRelayed("WebSocket connections are not relayed.")
    if not is_plain_path(path) or not QUERY.fullmatch(query):
        raise NotRelayed("This path is not relayed as it is written.")
    return path.removeprefix(PREFIX) + (f"?{query}" if query else "")
