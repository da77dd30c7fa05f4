"""`POST /v1/chat/completions`."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gateway.base import jsons
from gateway.config.settings import Settings
from gateway.errors import GatewayError
from gateway.http.alive import comment
from gateway.http.answering import Answering, StreamWriter
from gateway.http.edge import STREAM_END, Receive, Scope, Send, event
from gateway.http.inner.resends import Resends, read_chat_request
from gateway.http.inner.validation import Arrival
from gateway.models.exchange import Caller, ChatRequest
from gateway.turn.streaming import Chunks
from gateway.wire.responses.reading import Reading


class ChatCompletions:
    """The endpoint."""

    def __init__(self, answering: Answering, settings: Settings, resends: Resends) -> None:
        self._answering = answering
        self._settings = settings
        self._resends = resends

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        translated: Callable[[bytes], bytes] | None = None,
        caller: Caller | None = None,
    ) -> None:
        """`translated` makes a chat of the body of another API's request; it may raise `InvalidRequest`. `caller` is
        who asks, where that is known already."""
        dialect = ChatDialect(self._settings, self._resends, translated)
        await self._answering.answer(scope, receive, send, dialect, caller)


class ChatDialect:
    """The inner form in its own words, which are those of chat completions (a `Dialect`); one for each request, as some
    come in the words of Responses and are answered as any chat."""

    def __init__(
        self, settings: Settings, resends: Resends, translated: Callable[[bytes], bytes] | None = None
    ) -> None:
        self._settings = settings
        self._resends = resends
        self._translated = translated
        self._reading: Reading | None = None

    def read(self, raw: bytes, headers: Mapping[str, str], caller: Caller, arrival: Arrival) -> ChatRequest:
        """The request; of a body that begins as an earlier one only the rest is parsed (ADR 20)."""
        if self._translated is not None:
            raw = self._translated(raw)
        return read_chat_request(self._resends, raw, headers, caller, self._settings, arrival, self._read)

    def _read(self, reading: Reading) -> None:
        self._reading = reading

    async def look_up(self, caller: Caller) -> None:
        """A chat says everything itself."""

    def holding(self, raw: bytes, request: ChatRequest) -> AbstractContextManager[object]:
        """The body is kept for later requests that begin with the same bytes."""
        is_as_it_came = self._translated is None and request.native is None
        return self._resends.holding(raw, request) if is_as_it_came else nullcontext()

    def own_name(self, path: str) -> str:
        """The same, unless the client has said it in other words."""
        return path if self._reading is None else self._reading.own_name(path)

    def whole(self, body: dict[str, Any], request: ChatRequest) -> bytes:
        """The completion as it is."""
        return jsons.dumps(body)

    def writer(self, request: ChatRequest) -> StreamWriter:
        """Chunks as they are."""
        return CHUNKS


class _Chunks:
    """Chunks as they are, then `[DONE]`."""

    def events(self, chunks: Chunks) -> bytes:
        return b"".join([event(chunk) for chunk in chunks])

    def end(self) -> bytes:
        return STREAM_END

    def fault(self, error: GatewayError) -> bytes:
        return event(error.body())

    def alive(self, said: bytes) -> bytes:
        return comment(said)


CHUNKS = _Chunks()
