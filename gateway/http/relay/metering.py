"""Which relayed calls are metered, and what is read of them while they pass (guarantee §13.8)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from gateway.accounting.relayed import ENDPOINTS
from gateway.errors import GatewayError
from gateway.http.edge import ClientDisconnected
from gateway.http.relay.destination import Call, Destination
from gateway.http.relay.upload import Upload
from gateway.models.allowed import Admission
from gateway.models.exchange import Deployment, Headers
from gateway.turn.relayed_bills import MeteredCall, RelayedBills
from gateway.upstream.openai.glimpse import READABLE, Glimpse, Unpacking
from gateway.upstream.openai.passthrough import RawAnswer

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


class Metering:
    """Begins a meter for each call that asks a model."""

    def __init__(self, bills: RelayedBills) -> None:
        self._bills = bills

    def meter(self, call: Call, upload: Upload) -> "Meter | None":
        """The meter of a call, before its body is read; None for one that asks no model.

        Raises:
            StorageReadOnly: no bill could be kept.
        """
        path = call.target.partition("?")[0].rstrip("/")
        if call.scope["method"] != "POST" or path not in ENDPOINTS:
            return None
        self._bills.check_writable()
        return Meter(self._bills, call, path, upload)


class Meter:
    """Reads along, and hands over what it saw once the call is over, however it ends."""

    def __init__(self, bills: RelayedBills, call: Call, path: str, upload: Upload) -> None:
        self._bills = bills
        self._call = call
        self._path = path
        self._upload = upload
        self._at = bills.clock.now(), bills.clock.monotonic()
        self._metered: MeteredCall | None = None
        self.has_bill = False
        """Whether what was held for it is given back with its bill."""
        upload.seen = Glimpse(WHOLE_REQUEST)

    async def most(self, found: Destination) -> tuple[int | None, int]:
        """Picodollars (None: nobody knows) and tokens that the call may take at the most."""
        body, raw = found.asked, found.body
        fields = {**found.deployment.parameters, **(body.fields if body is not None else {})}
        sizes = len(raw) if isinstance(raw, bytes) else 0, body.file_bytes if body is not None else 0
        return await self._bills.most(self._path, found.deployment, found.model, fields, sizes)

    @asynccontextmanager
    async def sent(self, deployment: Deployment, admission: Admission | None = None) -> AsyncIterator[None]:
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
            request=self._upload.seen or Glimpse(),
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
        self._metered.answer = seen = Unpacking(encoding or "identity")
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
            metered.ended_at = self._bills.clock.monotonic()
            self.has_bill = True
            self._bills.add(metered)


def _unpack(seen: Unpacking, piece: bytes) -> Awaitable[None] | None:
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
