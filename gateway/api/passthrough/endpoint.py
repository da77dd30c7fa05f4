"""Every other path under `/v1/`: passed on to the upstream, streaming both ways (guarantee §1)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial

from gateway.api.auth import KeyAuthenticator
from gateway.api.key_watch import KeyWatch
from gateway.api.passthrough.destination import RelayDestination, RelayDestinations, RelayTarget
from gateway.api.passthrough.relay_rules import (
    OWN,
    PREFIX,
    QUERY,
    headers_down,
    headers_up,
    is_plain_path,
    named_calls,
    query_up,
)
from gateway.api.passthrough.upload import RelayedUpload
from gateway.api.server.admission import BodySlot, LargeBodies
from gateway.api.server.fast_router import ClientDisconnected, Receive, Scope, Send, note_fault, nothing_at
from gateway.api.server.receiving import header, until_disconnect
from gateway.billing.quota.gate import AdmittedRequest
from gateway.billing.relayed_usage import ENDPOINTS
from gateway.core.config.settings import Settings
from gateway.core.errors import GatewayError, MethodNotAllowed, NotRelayed, UpstreamError
from gateway.core.types.chat import Headers, ModelDeployment
from gateway.core.types.keys import HeldAdmission
from gateway.core.types.upstreams import CallScope, RelayedCall
from gateway.pipeline.limited import LimitedPipeline
from gateway.pipeline.passthrough_bills import MeteredCall, RelayedBills
from gateway.upstream.openai.passthrough import READABLE, BodySample, PassthroughClient, RawAnswer, UnpackingSample
from gateway.upstream.routing.router import ConfiguredRouter

# Which relayed calls are metered, and what is read of them while they pass (guarantee §13.8).

WHOLE_REQUEST = 2**18
"""Bytes of a request that are kept until its bill is made; of a longer one both ends are read."""
LARGE_PIECE = 2**15
"""Packed bytes that are unpacked in a thread."""
MANAGED = (b"x-gateway-managed", b"false")
"""Stands on every relayed answer."""
FORM = "multipart/"
LEFT, OURS = "client_disconnected", "internal_error"
Take = Callable[[bytes], Awaitable[None] | None]
"""Reads a piece along; what takes long is to be awaited."""


class CallMetering:
    """Begins a meter for each call that asks a model."""

    def __init__(self, bills: RelayedBills) -> None:
        self._bills = bills

    def meter(self, call: RelayTarget, upload: RelayedUpload) -> "CallMeter | None":
        """The meter of a call, before its body is read; None for one that asks no model.
        Raises StorageReadOnly: no bill could be kept."""
        path = call.target.partition("?")[0].rstrip("/")
        if call.scope["method"] != "POST" or path not in ENDPOINTS:
            return None
        self._bills.check_writable()
        return CallMeter(self._bills, call, path, upload)


class CallMeter:
    """Reads along, and hands over what it saw once the call is over, however it ends."""

    def __init__(self, bills: RelayedBills, call: RelayTarget, path: str, upload: RelayedUpload) -> None:
        self._bills = bills
        self._call = call
        self._path = path
        self._upload = upload
        self._at = bills.clock.now(), bills.clock.monotonic()
        self._metered: MeteredCall | None = None
        self.has_bill = False
        """Whether what was held for it is given back with its bill."""
        upload.seen = BodySample(WHOLE_REQUEST)

    async def most(self, found: RelayDestination) -> tuple[int | None, int]:
        """Picodollars (None: nobody knows) and tokens that the call may take at the most."""
        body, raw = found.asked, found.body
        fields = {**found.deployment.parameters, **(body.fields if body is not None else {})}
        sizes = len(raw) if isinstance(raw, bytes) else 0, body.file_bytes if body is not None else 0
        return await self._bills.most(self._path, found.deployment, found.model, fields, sizes)

    @asynccontextmanager
    async def sent(self, deployment: ModelDeployment, admission: HeldAdmission | None = None) -> AsyncIterator[None]:
        """While the model is asked and its answer passed on. An upstream that refuses charges nothing."""
        scope, call = self._call.scope, self._call
        kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        self._metered = metered = MeteredCall(
            request_id=scope["gateway"]["request_id"],
            caller=call.caller,
            path=self._path,
            models_in_address=lambda: call.models_in_address,
            deployment=deployment,
            arrived_at=self._at[0],
            started=self._at[1],
            request=self._upload.seen or BodySample(),
            is_form=kind.lower().startswith(FORM.encode()),
            sent_at=self._bills.clock.monotonic(),
            admission=admission,
        )
        declared = self._upload.length or ""
        try:
            await self._bills.begin(metered, max(metered.request.size, int(declared) if declared.isdigit() else 0))
        except BaseException:
            self._bills.left(metered)  # it may be written all the same
            raise
        try:
            yield
        except BaseException as error:  # whatever it is, the model was asked
            sent = self._upload.is_complete or metered.answer is not None
            if sent and (not isinstance(error, GatewayError) or error.may_be_charged):
                self.broke(error)
            raise
        finally:
            self._metered = None
            if not self.has_bill:
                self._bills.left(metered)

    def began(self, answer: RawAnswer) -> Take | None:
        """The answer's head is there; returns what takes its pieces as they have been sent. An error is no answer of a
        model."""
        if self._metered is None:
            return None
        if not 200 <= answer.status < 300:
            self._metered = None
            return None
        named = dict(answer.headers)
        encoding = named.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
        self._metered.answer = seen = UnpackingSample(encoding or "identity")
        self._metered.stream = named.get(b"content-type", b"").lower().startswith(b"text/event-stream")
        if seen.is_packed:
            return partial(_unpack, seen)
        return seen.glimpse.add if seen.readable else None

    def ended(self) -> None:
        """All of the answer was sent."""
        if self._metered is not None:
            self._metered.status = "complete"
            self._hand_over(None)

    def broke(self, error: BaseException) -> None:
        """The call broke off before its answer was complete."""
        if self._metered is not None:
            answer = self._metered.answer
            self._metered.status = "partial" if answer is not None and answer.glimpse.size else "failed"
            self._hand_over(error)

    def _hand_over(self, error: BaseException | None) -> None:
        metered, self._metered = self._metered, None
        if metered is not None:
            metered.error_code = _code(error) if error is not None else None
            metered.fault = error if isinstance(error, GatewayError) else None
            metered.ended_at = self._bills.clock.monotonic()
            self.has_bill = True
            self._bills.add(metered)


def _unpack(seen: UnpackingSample, piece: bytes) -> Awaitable[None] | None:
    if len(piece) > LARGE_PIECE:
        return asyncio.to_thread(seen.add, piece)
    seen.add(piece)
    return None


def _code(error: BaseException) -> str:
    """How a call ended that has no whole answer, as the ledger has it."""
    if isinstance(error, GatewayError):
        return error.code or OURS
    return LEFT if isinstance(error, asyncio.CancelledError | ClientDisconnected | GeneratorExit) else OURS


def readable_only(headers: Headers) -> Headers:
    """The headers with `Accept-Encoding` narrowed to what can be metered: what the client takes of gzip and deflate."""
    return [(name, _readable(value) if name == b"accept-encoding" else value) for name, value in headers]


def _readable(value: bytes) -> bytes:
    offered = [each.strip() for each in value.split(b",")]
    kept = [each for each in offered if each.split(b";")[0].strip().lower().decode("latin-1") in READABLE]
    return value if len(kept) == len(offered) else b", ".join(kept) or b"identity"


def marked(headers: Headers) -> Headers:
    """An answer's headers, which say that it was passed on as it came (guarantee §13.8)."""
    return [*(pair for pair in headers if pair[0] != MANAGED[0]), MANAGED]


WITHOUT_BODY = (204, 304)
"""Statuses whose answers have no body."""
BODY_HEADERS = (b"content-type", b"content-encoding", b"digest", b"content-digest", b"content-md5")
"""What is said of a body that is written anew."""


class RelayEndpoint:
    """Decides where a call goes and with whose key, then lets both bodies flow."""

    def __init__(
        self,
        router: ConfiguredRouter,
        upstream: PassthroughClient,
        auth: KeyAuthenticator,
        settings: Settings,
        bills: RelayedBills,
        limited: LimitedPipeline,
        watch: KeyWatch,
        bodies: LargeBodies,
    ) -> None:
        self._destinations = RelayDestinations(router, settings)
        self._upstream = upstream
        self._auth = auth
        self._metering = CallMetering(bills)
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
        upload = RelayedUpload(scope, receive, self._server.max_body_bytes, self._server.receive_timeout)
        named = any(pattern.fits(scope["method"], path) for pattern in self._named)
        if not named:
            self._destinations.default(caller, named=False)  # says no before a body is read
        with self._bodies.place(caller.tenant) as place, self._watch.holding(scope, caller):
            work = self._relay(RelayTarget(scope, caller, target, named), send, upload, place)
            await until_disconnect(upload.after, work)

    async def _relay(self, call: RelayTarget, send: Send, upload: RelayedUpload, place: BodySlot) -> None:
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

    async def _admit(self, call: RelayTarget, found: RelayDestination) -> AdmittedRequest | None:
        """Lets a call in that may cost something, by what is known of it before its answer.
        Raises BudgetExceeded, RateLimitExceeded, LimitsUnavailable: there is nothing left."""
        if call.scope["method"] != "POST" or not self._limited.may_limit(call.caller.key):
            return None
        request_id, now = call.scope["gateway"]["request_id"], self._clock.now()
        return await self._limited.relayed(request_id, call.caller, (found.model, found.user), now)

    async def _pass_down(
        self, scope: Scope, send: Send, answer: RawAnswer, meter: CallMeter | None, admitted: AdmittedRequest | None
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
    Raises MethodNotAllowed: for CONNECT and TRACE; NotRelayed: the upstream could read the path as another one, or the
    request asks for a WebSocket."""
    query = query_up(scope["query_string"].decode("latin-1"))
    if scope["method"] in ("CONNECT", "TRACE"):
        raise MethodNotAllowed("This method is not allowed here.")
    if (header(scope, b"upgrade") or "").lower() == "websocket":
        raise NotRelayed("WebSocket connections are not relayed.")
    if not is_plain_path(path) or not QUERY.fullmatch(query):
        raise NotRelayed("This path is not relayed as it is written.")
    return path.removeprefix(PREFIX) + (f"?{query}" if query else "")
