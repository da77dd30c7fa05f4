"""A request body that is passed on while it arrives."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from io import BytesIO

from gateway.api.server.admission import BodySlot
from gateway.api.server.fast_router import ClientDisconnected, Message, Receive, Scope
from gateway.api.server.receiving import header
from gateway.core.errors import GatewayError, RequestTimeout, RequestTooLarge
from gateway.upstream.openai.passthrough import BodySample


class RelayedUpload:
    """One body. `fault` keeps what ended it early, which would otherwise be raised inside the HTTP client.
    Raises RequestTooLarge: by its declared length, before it is read."""

    def __init__(self, scope: Scope, receive: Receive, max_bytes: int, seconds: float) -> None:
        self.fault: GatewayError | ClientDisconnected | None = None
        self.seen: BodySample | None = None
        """What is kept of it, where somebody wants to know."""
        self.length = header(scope, b"content-length")
        self.present = self.length not in (None, "0") or header(scope, b"transfer-encoding") is not None
        self.is_complete = not self.present
        self._receive = receive
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._ended = asyncio.Event()
        if not self.present:
            self._ended.set()
        if self.length is not None and self.length.isdigit() and int(self.length) > max_bytes:
            raise self._too_large()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """The pieces of the body; can be read once.
        Raises RequestTooLarge: as soon as the body is too long; RequestTimeout: the client took longer than
        `server.receive_timeout`, not counting what upstream takes; ClientDisconnected: the client left before it was
        complete."""
        try:
            async for piece in self._pieces():
                yield piece
        except (GatewayError, ClientDisconnected) as fault:
            self.fault = fault
            raise
        finally:
            self._ended.set()

    async def read(self, place: BodySlot) -> bytes:
        """The whole body; raises as reading in pieces does.
        `place`: what it holds of the budget for large bodies.
        Raises Overloaded: it is large, and there is no room for it."""
        declared = self.length or ""
        expected = int(declared) if declared.isdigit() else self._max_bytes
        whole = BytesIO()
        async with aclosing(aiter(self)) as pieces:
            async for piece in pieces:
                whole.write(piece)
                await place.grow(whole.tell(), expected)
        return whole.getvalue()

    async def after(self) -> Message:
        """The next message once the body has been read: `http.disconnect`, sooner or later."""
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
                raise RequestTimeout(f"The request did not arrive within {self._seconds:g} seconds.") from None
            waited += time.monotonic() - since
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
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

    def _too_large(self) -> RequestTooLarge:
        return RequestTooLarge(f"The request body exceeds {self._max_bytes} bytes.")
