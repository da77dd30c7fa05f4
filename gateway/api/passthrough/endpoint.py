"""Relays every other path under `/v1/`, streaming both ways (guarantee §1): to the deployment of the model that a call
names, or to the default upstream. A request body is forwarded while it arrives."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from urllib.parse import parse_qsl, unquote

from gateway.api.auth import KeyAuthenticator
from gateway.api.passthrough import relay_rules
from gateway.api.passthrough.bodies import Body, JsonBody, understood
from gateway.api.server import asgi
from gateway.api.server.middleware import note_caller, note_fault, nothing_at
from gateway.billing import AdmittedRequest, relayed_usage
from gateway.core import errors
from gateway.core.config.settings import Settings
from gateway.core.frozen_records import record
from gateway.core.instrumentation.metrics import COUNTED_METHODS
from gateway.core.tasks import offload_if
from gateway.core.types import upstreams
from gateway.core.types.chat import Headers, ModelDeployment, RequestCaller
from gateway.core.types.keys import HeldAdmission
from gateway.pipeline import LimitedPipeline, MeteredCall, RelayedBills
from gateway.upstream import PassthroughClient, RawAnswer, passthrough
from gateway.upstream.routing import ConfiguredRouter, RoutingCandidates, health


class RelayedUpload:
    """A request body. `fault` stores what ended it early, which would otherwise be raised inside the HTTP client.
    Raises RequestTooLarge: by its declared length, before it is read."""

    def __init__(self, scope: asgi.Scope, receive: asgi.Receive, max_bytes: int, seconds: float) -> None:
        self.fault: errors.GatewayError | asgi.ClientDisconnected | None = None
        self.seen: passthrough.BodySample | None = None
        """The stored sample of the body; None where none is needed."""
        self.length = asgi.header(scope, b"content-length")
        self.present = self.length not in (None, "0") or asgi.header(scope, b"transfer-encoding") is not None
        self.is_complete = not self.present
        self._receive = receive
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._ended = asyncio.Event()
        if not self.present:
            self._ended.set()
        if self.length is not None and self.length.isdecimal() and int(self.length) > max_bytes:
            raise self._too_large()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """Yields the pieces of the body; can be read only once.
        Raises RequestTooLarge: as soon as the body is too long; RequestTimeout: the client took longer than
        `server.receive_timeout`, without the time that the upstream takes; ClientDisconnected: the client left before
        the body's end."""
        try:
            async for piece in self._pieces():
                yield piece
        except (errors.GatewayError, asgi.ClientDisconnected) as fault:
            self.fault = fault
            raise
        finally:
            self._ended.set()

    async def read(self, place: asgi.BodySlot) -> bytes:
        """Reads the whole body; raises what reading in pieces raises.
        `place`: the body's share of the budget for large bodies.
        Raises Overloaded: the body is large, and the budget is used up."""
        declared = self.length or ""
        expected = int(declared) if declared.isdecimal() else self._max_bytes
        whole = BytesIO()
        async with aclosing(aiter(self)) as pieces:
            async for piece in pieces:
                whole.write(piece)
                await place.grow(whole.tell(), expected)
        return whole.getvalue()

    async def after(self) -> asgi.Message:
        """Returns the next message after the body's end: `http.disconnect`, sooner or later."""
        await self._ended.wait()
        return await self._receive()

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        size, waited, more = 0, 0.0, True
        while more:
            since = time.monotonic()
            try:
                async with asyncio.timeout(self._seconds - waited):
                    message = await self._receive()
            except TimeoutError:
                raise errors.RequestTimeout(f"The request did not arrive within {self._seconds:g} seconds.") from None
            waited += time.monotonic() - since
            if message["type"] == "http.disconnect":
                raise asgi.ClientDisconnected
            piece = message.get("body", b"")
            size += len(piece)
            if size > self._max_bytes:
                raise self._too_large()
            more = message.get("more_body", False)
            self.is_complete = not more
            if piece:
                if self.seen is not None:
                    self.seen.add(piece)
                yield piece

    def _too_large(self) -> errors.RequestTooLarge:
        return errors.RequestTooLarge(f"The request body exceeds {self._max_bytes} bytes.")


BEFORE_A_MODEL = ("engines", "deployments")
"""Segments of a path after which some upstreams expect the name of a model."""
MODELS_SEGMENT = "models"


@record
class RelayTarget:
    """A call to relay. `target`: path and query below `/v1/`; `named`: an operator's key may be used."""

    scope: asgi.Scope
    caller: RequestCaller
    target: str
    named: bool

    @property
    def is_restricted(self) -> bool:
        """Whether the caller's key names the models that it may call."""
        return self.caller.key is not None and bool(self.caller.key.models)

    @property
    def models_in_address(self) -> list[str]:
        """The models that path and query name."""
        path, _, query = self.target.partition("?")
        segments = path.split("/")
        found = [value for name, value in parse_qsl(query, keep_blank_values=True) if name.strip().lower() == "model"]
        for at, segment in enumerate(map(unquote, segments[:-1])):
            if segment.lower() in BEFORE_A_MODEL:
                found.append(unquote(segments[at + 1]))
            elif segment.lower() == MODELS_SEGMENT:
                found.append(unquote("/".join(segments[at + 1 :])))
        return found


@record
class RelayDestination:
    """The upstream, the body for it, and the content type of a body that was serialized again. `model` and `user`:
    which model it calls and for whom, as far as that is known."""

    deployment: ModelDeployment
    body: bytes | RelayedUpload | None
    content_type: bytes | None = None
    model: str = ""
    user: str | None = None
    asked: Body | None = None
    """The parsed body, where it was read."""
    candidates: RoutingCandidates | None = None
    """The deployments of a listed model."""
    at: "Callable[[ModelDeployment], Awaitable[RelayDestination]] | None" = None
    """Writes the call for another of them. Raises as `RelayDestinations.of`."""


NOT_NAMED = (
    "This path is not relayed with the gateway's own key; server.relay could name it, and `files.serve: on` keeps "
    "files here."
)


class RelayDestinations:
    """Without a `model_list`, the default upstream. With one, the gateway reads every call that names a model: a listed
    model is served where its entry points, any other is refused, or relayed unchanged (`upstream.unlisted`)."""

    def __init__(self, router: ConfiguredRouter, settings: Settings) -> None:
        self._router = router
        self._has_entries = bool(settings.model_list)
        limits = settings.limits
        self._limits_named = bool(limits.models or limits.users or limits.each_user.is_set)
        self._listed_only = self._has_entries and settings.upstream.unlisted == "refuse"

    def default(self, caller: RequestCaller, *, named: bool) -> ModelDeployment:
        """Returns the default upstream. Raises NotRelayed: it is not for this caller, or not for this path."""
        try:
            deployment = self._router.default("", caller)
        except errors.ModelNotFound:
            raise errors.NotRelayed("This path is not relayed: the default upstream has no key.") from None
        if deployment.operator_key and not named:
            raise errors.NotRelayed(NOT_NAMED)
        return deployment

    async def of(
        self, call: RelayTarget, upload: RelayedUpload, place: asgi.BodySlot, *, limited: bool
    ) -> RelayDestination:
        """Decides where a call goes, with which body. `limited`: the body shows what it may cost; `place`: the share
        that a body holds of the budget for large ones while it is read.
        Raises ModelNotFound: the model is not served here; NotRelayed: this key may not make the call, or the model's
        provider has no such path; InvalidRequest: the body, or its model, cannot be read; Overloaded: the body is
        large, and the budget is used up."""
        if self._listed_only:
            self._check_address(call)
        for name in call.models_in_address if call.is_restricted else ():
            call.caller.check_model(name)
        if not upload.present:
            return self._without_model(call, None)
        if not (limited or self._reads(call)):
            return RelayDestination(self.default(call.caller, named=call.named), upload)
        if limited or self._is_strict(call):
            asgi.check_encoding(call.scope)
        raw = await upload.read(place)
        body = await offload_if(len(raw) > asgi.LARGE_BODY, understood, raw, call.scope["headers"])
        model = self._model(body, strict=self._is_strict(call))
        if isinstance(body, JsonBody):
            call.caller.check_models_of(body.fields)
        if model is None:
            found = self._without_model(call, raw)
        elif not self._router.lists(model) and not self._listed_only:
            found = await self._unlisted(call, model, body, raw)
        else:
            found = await self._listed(call, model, body, len(raw))
        fields = body.fields if body is not None else {}
        return replace(found, asked=body, user=call.caller.end_user(fields))

    def _reads(self, call: RelayTarget) -> bool:
        """Returns whether a body is read before it is sent; with unlisted models, only for an operator's key."""
        if self._is_strict(call):
            return not relay_rules.only_stores_files(call.scope["method"], call.target.partition("?")[0])
        return (self._has_entries or self._limits_named) and call.named and call.scope["method"] == "POST"

    def _is_strict(self, call: RelayTarget) -> bool:
        """Returns whether a call is sent upstream only if its model is known."""
        return self._listed_only or call.is_restricted

    def _model(self, body: Body | None, *, strict: bool) -> str | None:
        if not strict:
            try:
                return body.model if body else None
            except errors.InvalidRequest:  # for the upstream to refuse
                return None
        if body is None:
            text = "The request body must be a JSON object in UTF-8, or a multipart form."
            raise errors.UnsupportedMediaType(text, param="content-type")
        return body.model

    def _without_model(self, call: RelayTarget, raw: bytes | None) -> RelayDestination:
        path = call.target.partition("?")[0]
        if self._is_strict(call) and relay_rules.is_operators(call.scope["method"], path):
            raise errors.missing("model")  # the upstream would choose one
        return RelayDestination(self.default(call.caller, named=call.named), raw)

    async def _unlisted(self, call: RelayTarget, model: str, body: Body | None, raw: bytes) -> RelayDestination:
        """Relays the body unchanged; with a key that names its models, serialized again as it was parsed."""
        deployment = self.default(call.caller, named=call.named)
        if body is None or not call.is_restricted:
            return RelayDestination(deployment, raw, model=model)
        call.caller.check_model(model)
        written, kind = await offload_if(len(raw) > asgi.LARGE_BODY, body.written, {}, model)
        return RelayDestination(deployment, written, kind, model)

    async def _listed(self, call: RelayTarget, model: str, body: Body | None, size: int) -> RelayDestination:
        candidates = self._router.candidates(model, call.caller)
        call.caller.check_model(model)
        call.scope["gateway"]["model"] = model
        at = partial(self._at, call, model, body, size)
        return replace(await at(candidates.first), candidates=candidates, at=at)

    async def _at(
        self, call: RelayTarget, model: str, body: Body | None, size: int, deployment: ModelDeployment
    ) -> RelayDestination:
        if not upstreams.PROTOCOLS[deployment.protocol].is_openais:
            raise errors.NotRelayed(
                f"The provider of {model!r} does not speak OpenAI's protocol; it serves chats alone."
            )
        if deployment.operator_key and not call.named:
            raise errors.NotRelayed(NOT_NAMED)
        if any(name != deployment.provider_model for name in call.models_in_address):
            raise errors.NotRelayed("A model is named in the body alone.")
        if body is None:
            raise errors.NotRelayed("A model is named in the body.")
        written, kind = await offload_if(
            size > asgi.LARGE_BODY, body.written, deployment.parameters, deployment.provider_model
        )
        return RelayDestination(deployment, written, kind, model)

    def _check_address(self, call: RelayTarget) -> None:
        """Raises ModelNotFound: path or query name a model that is not served here; NotRelayed: they name one that is
        served elsewhere than at the default upstream, or by another name there."""
        for name in call.models_in_address:
            found = self._router.deployment(name, call.caller)
            default = self.default(call.caller, named=call.named)
            there = (default.api_base, default.api_key, name)
            if (found.api_base, found.api_key, found.provider_model) != there or not upstreams.PROTOCOLS[
                found.protocol
            ].is_openais:
                raise errors.NotRelayed("This path is not relayed: its model is not served at the default upstream.")


# Which relayed calls are metered, and what is read of them while they pass (guarantee §13.8).

WHOLE_REQUEST = 2**18
"""Bytes of a request that are stored until its bill is made; of a longer request, both ends."""
LARGE_PIECE = 2**15
"""Compressed bytes from which on decompression runs in a thread."""
MANAGED = (b"x-gateway-managed", b"false")
"""The header on every relayed answer."""
MULTIPART_PREFIX = "multipart/"
Take = Callable[[bytes], Awaitable[None] | None]
"""Takes a piece as it passes; returns an awaitable where that takes long."""


class CallMetering:
    """Admits calls that may cost something, and starts a meter for each that calls a model."""

    def __init__(self, bills: RelayedBills, limited: LimitedPipeline) -> None:
        self._bills = bills
        self._limited = limited
        self.clock = bills.clock

    def may_limit(self, call: RelayTarget) -> bool:
        """Returns whether a budget or limit may apply to a call; only a POST has a body to read it from."""
        return call.scope["method"] == "POST" and self._limited.may_limit(call.caller.key)

    async def admit(self, call: RelayTarget, named: tuple[str, str | None]) -> AdmittedRequest | None:
        """Admits a call that names this model and user; returns None where nothing limits it.
        Raises BudgetExceeded, RateLimitExceeded, LimitsUnavailable: nothing is left of a budget or limit."""
        if not self.may_limit(call):
            return None
        request_id: str = call.scope["gateway"]["request_id"]
        return await self._limited.relayed(request_id, call.caller, named, self.clock.now())

    def meter(self, call: RelayTarget, upload: RelayedUpload) -> "CallMeter | None":
        """Returns the meter of a call, before its body is read; None for a call of no model.
        Raises StorageReadOnly: no bill could be stored."""
        path = call.target.partition("?")[0].rstrip("/")
        if call.scope["method"] != "POST" or path not in relayed_usage.RELAYED_ENDPOINTS:
            return None
        self._bills.check_writable()
        return CallMeter(self._bills, call, path, upload)


class CallMeter:
    """Observes a call, and hands over what it saw at the end of the call, however the call ends."""

    def __init__(self, bills: RelayedBills, call: RelayTarget, path: str, upload: RelayedUpload) -> None:
        self._bills = bills
        self._call = call
        self._path = path
        self._upload = upload
        self._at = bills.clock.now(), bills.clock.monotonic()
        self._metered: MeteredCall | None = None
        self.has_bill = False
        """Whether its bill releases what the admission holds."""
        upload.seen = passthrough.BodySample(WHOLE_REQUEST)

    async def most(self, found: RelayDestination) -> tuple[int | None, int]:
        """Returns the most picodollars (None: unknown) and tokens that the call may use."""
        body, raw = found.asked, found.body
        fields = {**found.deployment.parameters, **(body.fields if body is not None else {})}
        sizes = len(raw) if isinstance(raw, bytes) else 0, body.file_bytes if body is not None else 0
        return await self._bills.most(self._path, found.deployment, found.model, fields, sizes)

    @asynccontextmanager
    async def sent(self, deployment: ModelDeployment, admission: HeldAdmission | None = None) -> AsyncIterator[None]:
        """Meters a call in the block that makes it and relays its answer. An upstream that refuses charges nothing."""
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
            request=self._upload.seen or passthrough.BodySample(),
            is_form=kind.lower().startswith(MULTIPART_PREFIX.encode()),
            sent_at=self._bills.clock.monotonic(),
            admission=admission,
            asked=[deployment],
        )
        declared = self._upload.length or ""
        try:
            await self._bills.begin(metered, max(metered.request.size, int(declared) if declared.isdecimal() else 0))
        except BaseException:
            self._bills.left(metered)  # it may be written all the same
            raise
        try:
            yield
        except BaseException as error:  # whatever it is, the model was asked
            sent = self._upload.is_complete or metered.answer is not None
            if sent and (not isinstance(error, errors.GatewayError) or error.may_be_charged):
                self.broke(error)
            self._refused(error)
            raise
        finally:
            self._metered = None
            if not self.has_bill:
                self._bills.left(metered)

    def began(self, answer: RawAnswer) -> Take | None:
        """Records the head of the answer; returns what takes its pieces as sent. An error is no answer of a model."""
        if self._metered is None:
            return None
        if not 200 <= answer.status < 300:
            self._refused(answer.refusal)
            return None
        named = dict(answer.headers)
        encoding = named.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
        self._metered.answer = seen = passthrough.UnpackingSample(encoding or "identity")
        self._metered.stream = named.get(b"content-type", b"").lower().startswith(b"text/event-stream")
        if seen.is_packed:
            return partial(_unpack, seen)
        return seen.sample.add if seen.readable else None

    def turned(self, deployment: ModelDeployment, error: errors.UpstreamError) -> None:
        """Records that a try failed, and that another deployment is asked."""
        if self._metered is not None:
            self._metered.continue_at(deployment, error, self._bills.clock.monotonic())

    @property
    def charged(self) -> Sequence[ModelDeployment]:
        """The deployments that failed before the last one and may have charged."""
        return self._metered.charged if self._metered is not None else ()

    def _refused(self, error: BaseException | None) -> None:
        """Records that the last deployment charges nothing: there is a bill only of what tries before it may have
        cost."""
        if self._metered is not None and self._metered.charged:
            self._metered.deployment = self._metered.charged.pop()
            self._hand_over(error)
        self._metered = None

    def ended(self) -> None:
        """Records that all of the answer was sent."""
        if self._metered is not None:
            self._metered.status = "complete"
            self._hand_over(None)

    def broke(self, error: BaseException) -> None:
        """Records that the call broke off before its answer was complete."""
        if self._metered is not None:
            answer = self._metered.answer
            self._metered.status = "partial" if answer is not None and answer.sample.size else "failed"
            self._hand_over(error)

    def _hand_over(self, error: BaseException | None) -> None:
        metered, self._metered = self._metered, None
        if metered is not None:
            metered.error_code = _code(error) if error is not None else None
            metered.fault = error if isinstance(error, errors.GatewayError) else None
            metered.ended_at = self._bills.clock.monotonic()
            self.has_bill = True
            self._bills.add(metered)


def _unpack(seen: passthrough.UnpackingSample, piece: bytes) -> Awaitable[None] | None:
    if len(piece) > LARGE_PIECE:
        return asyncio.to_thread(seen.add, piece)
    seen.add(piece)
    return None


def _code(error: BaseException) -> str:
    """Returns how a call without a whole answer ended, as the ledger stores it."""
    if isinstance(error, errors.GatewayError):
        return error.code or errors.InternalError.code
    is_cut = isinstance(error, asyncio.CancelledError | asgi.ClientDisconnected | GeneratorExit)
    return errors.cancellation_code(error) if is_cut else errors.InternalError.code


def _readable(value: bytes) -> bytes:
    """Narrows `Accept-Encoding` to what can be metered: what the client accepts of gzip and deflate."""
    offered = [each.strip() for each in value.split(b",")]
    kept = [
        each
        for each in offered
        if each.split(b";")[0].strip().lower().decode("latin-1") in passthrough.READABLE_ENCODINGS
    ]
    return value if len(kept) == len(offered) else b", ".join(kept) or b"identity"


def marked(headers: Headers) -> Headers:
    """Adds to an answer's headers the one that marks it as relayed unchanged (guarantee §13.8)."""
    return [*(pair for pair in headers if pair[0] != MANAGED[0]), MANAGED]


WITHOUT_BODY = (204, 304)
"""Statuses whose answers have no body."""
BODY_HEADERS = (b"content-type", b"content-encoding", b"digest", b"content-digest", b"content-md5")
"""Headers that describe a body, replaced where it is serialized again."""


class RelayedDown:
    """Sends an answer down as it arrives."""

    def __init__(self, send: asgi.Send) -> None:
        self._send = send
        self._is_stream = False
        self._takes_event = False
        """An event may come next: it is a readable event stream, and not within a line."""

    async def __call__(self, message: asgi.Message) -> None:
        """Sends a message of ASGI."""
        if message["type"] == "http.response.start":
            named = dict(message["headers"])
            is_stream = named.get(b"content-type", b"").startswith(b"text/event-stream")
            self._takes_event = self._is_stream = is_stream and not named.keys() & ENCODED_OR_MEASURED
        elif message["body"]:
            self._takes_event = self._is_stream and message["body"].endswith(b"\n")
        await self._send(message)

    async def broke(self, error: errors.GatewayError) -> None:
        """Tells a client why its stream ends early (guarantee §7). Without its end the server breaks the connection, so
        that it cannot pass for a whole one."""
        if self._takes_event:
            event = b"\n" + asgi.event(error.body())  # the upstream's own may lack its empty line
            await self._send({"type": "http.response.body", "body": event, "more_body": True})


ENCODED_OR_MEASURED = {b"content-encoding", b"content-length"}
"""Headers of a stream in which no event can be added."""


@record
class RelayedExchange:
    """A call that is being relayed, and its answer on the way down."""

    call: RelayTarget
    send: RelayedDown
    upload: RelayedUpload
    place: asgi.BodySlot
    meter: CallMeter | None
    admitted: AdmittedRequest | None

    async def reserve(self, found: RelayDestination, failed: Sequence[ModelDeployment] = ()) -> None:
        """Reserves what the call may cost there, and may have cost at deployments that `failed`.
        Raises BudgetExceeded, RateLimitExceeded: too little is left."""
        if self.meter is not None and self.admitted is not None and isinstance(found.body, bytes):
            cost, tokens = await self.meter.most(found)
            spent = sum([(await self.meter.most(replace(found, deployment=each)))[0] or 0 for each in failed])
            await self.admitted.reserve(None if cost is None else cost + spent, tokens)

    def request(self, found: RelayDestination) -> upstreams.RelayedCall:
        """Returns the call as it is sent there."""
        scope = self.call.scope
        headers = relay_rules.headers_up(scope["headers"], operator=self._is_operators(found))
        if found.content_type is not None:
            headers = [pair for pair in headers if pair[0] not in BODY_HEADERS]
            headers.append((b"content-type", found.content_type))
        if self.upload.length is not None and not isinstance(found.body, bytes):
            headers.append((b"content-length", self.upload.length.encode()))
        if self.meter is not None:
            headers = [(name, _readable(value) if name == b"accept-encoding" else value) for name, value in headers]
        made_for = upstreams.CallScope(self.call.caller, scope["gateway"]["request_id"], "relayed")
        return upstreams.RelayedCall(scope["method"], self.call.target, headers, found.body, made_for)

    async def pass_down(self, answer: RawAnswer, found: RelayDestination) -> errors.UpstreamError | None:
        """Passes an answer down as it arrives; returns the error that ended it early."""
        self.place.release()
        headers = marked(relay_rules.headers_down(answer.headers, operator=self._is_operators(found)))
        if self.admitted is not None and (ours := self.admitted.headers):
            kept = (pair for pair in headers if pair[0].decode("latin-1") not in ours)
            headers = [*kept, *((name.encode(), value.encode()) for name, value in ours.items())]
        if answer.status in WITHOUT_BODY:
            headers = [pair for pair in headers if pair[0] != b"content-length"]
        take = self.meter.began(answer) if self.meter is not None else None
        await self.send({"type": "http.response.start", "status": answer.status, "headers": headers})
        try:
            async for piece in answer.pieces():
                await self.send({"type": "http.response.body", "body": piece, "more_body": True})
                if take is not None and (reading := take(piece)) is not None:
                    await reading
        except errors.UpstreamError as error:
            note_fault(self.call.scope["gateway"], error)
            await self.send.broke(error)
            if self.meter is not None:
                self.meter.broke(error)
            return error
        if self.meter is not None:
            self.meter.ended()  # its bill begins behind this step, in which the client gets the end
        await self.send({"type": "http.response.body", "body": b""})
        return None

    def _is_operators(self, found: RelayDestination) -> bool:
        return found.deployment.operator_key or self.call.caller.key is not None


class RelayEndpoint:
    """Decides where a call goes and with whose key, then streams both bodies."""

    def __init__(
        self,
        router: ConfiguredRouter,
        upstream: PassthroughClient,
        auth: KeyAuthenticator,
        settings: Settings,
        metering: CallMetering,
        bodies: asgi.LargeBodies,
    ) -> None:
        self._destinations = RelayDestinations(router, settings)
        self._upstream = upstream
        self._auth = auth
        self._metering = metering
        self._bodies = bodies
        self._server = settings.server
        self._named = relay_rules.named_calls(settings.server.relay)
        self._routing = settings.routing

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        path = scope["raw_path"].decode("latin-1")
        if not path.startswith(relay_rules.PREFIX) or scope["path"].startswith(relay_rules.OWN):
            raise nothing_at(scope["path"])
        caller = await self._auth.caller(scope)
        note_caller(scope["gateway"], caller)
        target = _target(scope, path)
        upload = RelayedUpload(scope, receive, self._server.max_body_bytes, self._server.receive_timeout)
        named = any(pattern.fits(scope["method"], path) for pattern in self._named)
        if not named:
            self._destinations.default(caller, named=False)  # refuses before a body is read
        down = RelayedDown(send)
        try:
            with self._bodies.place(caller.tenant) as place, self._auth.watch.holding(scope, caller):
                work = self._relay(RelayTarget(scope, caller, target, named), down, upload, place)
                await asgi.until_disconnect(upload.after, work)
        except errors.Unauthorized as error:  # the key ended
            await down.broke(error)
            raise

    async def _relay(self, call: RelayTarget, send: RelayedDown, upload: RelayedUpload, place: asgi.BodySlot) -> None:
        meter = self._metering.meter(call, upload)
        limited = meter is not None and self._metering.may_limit(call)
        found = await self._destinations.of(call, upload, place, limited=limited)
        admitted = await self._metering.admit(call, (found.model, found.user))
        exchange = RelayedExchange(call, send, upload, place, meter, admitted)
        try:
            await exchange.reserve(found)
            async with meter.sent(found.deployment, admitted) if meter is not None else nullcontext():
                await self._ask(exchange, found)
        except errors.UpstreamError as error:
            if upload.fault is not None:
                raise upload.fault from None
            error.headers = {**error.headers, MANAGED[0].decode(): MANAGED[1].decode()}
            raise
        finally:
            if admitted is not None:
                admitted.leave()
                if meter is None or not meter.has_bill:
                    admitted.closed()

    async def _ask(self, exchange: RelayedExchange, found: RelayDestination) -> None:
        """Passes down the answer of the first deployment that has one, else what the last one said (guarantee §12.6).
        Raises UpstreamError: the last one gave no answer that may be relayed."""
        tries = 1
        other: RelayDestination | None = None
        while True:
            attempt = found.candidates.began(found.deployment) if found.candidates is not None else None
            fault: BaseException | None = None
            try:
                async with self._upstream.open(found.deployment, exchange.request(found)) as answer:
                    fault = answer.refusal
                    other = await self._other(exchange, found, answer.refusal, tries)
                    if other is None:
                        if attempt is not None and fault is None:
                            attempt.answered()
                        fault = await exchange.pass_down(answer, found) or fault
                        return
            except errors.UpstreamError as error:
                fault = error
                other = await self._other(exchange, found, error, tries)
                if other is None:
                    raise
            except BaseException as error:
                fault = error
                raise
            finally:
                if attempt is not None:
                    attempt.ended(fault)
                if other is not None and exchange.meter is not None and isinstance(fault, errors.UpstreamError):
                    exchange.meter.turned(other.deployment, fault)
            assert other is not None
            found, tries = other, tries + 1

    async def _other(
        self, exchange: RelayedExchange, found: RelayDestination, error: errors.UpstreamError | None, tries: int
    ) -> RelayDestination | None:
        """Returns the next healthy deployment for a call of a model, before anything was passed down; None without
        an error, or if there is none or another try would not help."""
        candidates = found.candidates
        if error is None or candidates is None or found.at is None or exchange.meter is None or not candidates.several:
            return None
        charged = [*exchange.meter.charged, *([found.deployment] if error.may_be_charged else ())]
        while (deployment := candidates.next(found.deployment, error)) is not None:
            failed = health.FailedTry(error, tries, 0, rests=candidates.rests(deployment), has_room=False)
            if not health.decide(failed, self._routing, random.random, self._metering.clock.now()).again:
                return None
            with suppress(errors.GatewayError):
                written = await found.at(deployment)
                other = replace(found, deployment=deployment, body=written.body, content_type=written.content_type)
                await exchange.reserve(other, charged)  # it may be dearer
                return other
        return None


def _target(scope: asgi.Scope, path: str) -> str:
    """Returns path and query below the upstream's base, unchanged.
    Raises MethodNotAllowed: for CONNECT and TRACE; NotRelayed: the upstream could read the path as another one, or the
    request asks for a WebSocket."""
    query = relay_rules.query_up(scope["query_string"].decode("latin-1"))
    if scope["method"] in ("CONNECT", "TRACE"):
        raise errors.MethodNotAllowed(COUNTED_METHODS)
    if (asgi.header(scope, b"upgrade") or "").lower() == "websocket":
        raise errors.NotRelayed("WebSocket connections are not relayed.")
    if not relay_rules.is_plain_path(path) or not relay_rules.QUERY.fullmatch(query):
        raise errors.NotRelayed("This path is not relayed as it is written.")
    return path.removeprefix(relay_rules.PREFIX) + (f"?{query}" if query else "")
