"""Chat calls to an OpenAI-compatible provider."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from gateway.core import jsons
from gateway.core.errors import UpstreamError, UpstreamInvalidResponse, UpstreamUnreachable
from gateway.core.frozen_records import record
from gateway.core.types.chat import JsonAnswer, ModelDeployment, StreamOpener
from gateway.core.types.upstreams import UpstreamRequest
from gateway.upstream.http.client import Answering, address, request_head
from gateway.upstream.http.connection import UpstreamConnection
from gateway.upstream.http.connection_faults import FAULTS, ConnectionOrigin, translation
from gateway.upstream.http.pool import ConnectionPool
from gateway.upstream.openai.answers import (
    BLANKS,
    EVENTS,
    HttpChunkStream,
    body_of,
    header,
    read_body,
    relayable_headers,
    whole_within,
)
from gateway.upstream.openai.error_bodies import BYTE_ORDER_MARK, MAX_ERROR_BYTES, refusal, relayed_headers
from gateway.upstream.openai.mending import thinks_in_parts, whole_mended, with_thoughts_as_parts

CHAT = "chat/completions"
MISTRAL = "mistral"
"""The provider whose models think in parts of their contents, by LiteLLM's name, and in its address."""
JSON, STREAM = b"application/json", b"text/event-stream"
NO_STREAM = (JSON, b"text/html", b"application/problem+json")
OWN_HEADERS = {b"content-type": b"application/json", b"accept-encoding": b"identity", b"user-agent": b"context-gateway"}


Reader = Callable[[UpstreamConnection, ModelDeployment, dict[str, Any]], HttpChunkStream]


@record
class WholeAnswer:
    """A whole answer as it came: its JSON, its bytes, its status and those headers that may be relayed; as a completion
    at once if it came as a stream."""

    value: Any
    raw: bytes
    status: int
    headers: dict[str, str]
    completion: dict[str, Any] | None = None


class HttpUpstream:
    """Calls providers (an `Upstream`). A connection that failed before any byte is tried once more, nothing else is."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._think_in_parts: set[tuple[str, str]] = set()
        """Upstreams and models beside Mistral's whose answers have shown that."""

    async def complete(self, deployment: ModelDeployment, request: UpstreamRequest) -> JsonAnswer:
        body = self._taken(deployment, request.body)
        answered = await self.whole(deployment, CHAT, body, request.headers, HttpChunkStream)
        if isinstance(answered.value, dict) and thinks_in_parts(answered.value.get("choices"), "message"):
            self._think_in_parts.add(_model_of(deployment))
        answer = answered.completion or whole_mended(
            answered.value, request.body, deployment, answered.raw, answered.headers
        )
        return JsonAnswer(answer, relayed_headers(answered.headers))

    async def whole(
        self, deployment: ModelDeployment, path: str, body: dict[str, Any], headers: dict[str, str], reader: Reader
    ) -> WholeAnswer:
        """The JSON of a whole answer of any endpoint. `reader` reads it where it comes as a stream all the same.
        Raises UpstreamError: as drawn in `errors`."""
        connection = await self._open(deployment, path, body, headers)
        told, value, raw, completion = relayable_headers(connection), None, b"", None
        try:
            if _kind(connection) == STREAM:
                completion = await reader(connection, deployment, body).gathered()
            else:
                source = body_of(connection)
                raw = await read_body(connection, deployment, source=source)
                value = jsons.loads_answer(raw.removeprefix(BYTE_ORDER_MARK))
        except jsons.JSONDecodeError as error:
            if not raw.lstrip(BLANKS).startswith(EVENTS):
                raise UpstreamInvalidResponse("The upstream's answer is not JSON.") from error
            stream = reader(connection, deployment, body)
            stream.replay(raw, source)
            completion = await stream.gathered()
        finally:
            connection.close(linger=completion is not None)
        return WholeAnswer(value, raw, connection.status, told, completion)

    async def post(self, deployment: ModelDeployment, path: str, body: dict[str, Any], max_bytes: int) -> bytes:
        """The answer of another endpoint beside the completions, as it came.
        Raises UpstreamError: as drawn in `errors`; also if the answer exceeds `max_bytes`."""
        connection = await self._open(deployment, path, body, {})
        try:
            return await read_body(connection, deployment, max_bytes)
        finally:
            connection.close()

    def stream(self, deployment: ModelDeployment, request: UpstreamRequest) -> StreamOpener:
        return self.events(deployment, CHAT, self._taken(deployment, request.body), request.headers, HttpChunkStream)

    def _taken(self, deployment: ModelDeployment, body: dict[str, Any]) -> dict[str, Any]:
        """The body with thoughts where this upstream takes them back."""
        is_mistral = deployment.provider == MISTRAL or f"{MISTRAL}.ai" in deployment.api_base
        takes = is_mistral or _model_of(deployment) in self._think_in_parts
        return with_thoughts_as_parts(body) if takes else body

    @contextlib.asynccontextmanager
    async def events(
        self,
        deployment: ModelDeployment,
        path: str,
        body: dict[str, Any],
        headers: dict[str, str],
        reader: Reader,
    ) -> AsyncIterator[HttpChunkStream]:
        """The stream of any endpoint, which `reader` reads; of an answer that comes whole, too.
        Raises UpstreamError: as drawn in `errors`, also where there is no answer."""
        connection = await self._open(deployment, path, body, headers)
        done = False
        try:
            stream = reader(connection, deployment, body)
            if (kind := _kind(connection)) in NO_STREAM:
                seconds = whole_within(deployment) if kind == JSON else deployment.idle_timeout
                stream.take_whole(await read_body(connection, deployment, within=seconds))
            await stream.begin()
            try:
                yield stream
            finally:
                done = stream.done
                if stream.thinks_in_parts:
                    self._think_in_parts.add(_model_of(deployment))
        finally:
            connection.close(linger=done)

    async def _open(
        self, deployment: ModelDeployment, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> UpstreamConnection:
        """A connection whose response has begun, with a status that promises an answer."""
        content = jsons.dumps(body)
        origin, target, host = address(deployment.url(path))
        try:
            head = request_head(b"POST", target, _fields(deployment, headers, host, len(content)))
        except FAULTS as error:
            raise translation(error, begun=False, origin=origin) from error
        try:
            connection = await self._answered(origin, head, content, deployment, fresh=False)
        except UpstreamUnreachable:
            connection = await self._answered(origin, head, content, deployment, fresh=True)
        if connection.status >= 300:
            try:
                raise await _refused(connection, deployment)
            finally:
                connection.close()
        return connection

    async def _answered(
        self, origin: ConnectionOrigin, head: bytes, content: bytes, deployment: ModelDeployment, *, fresh: bool
    ) -> UpstreamConnection:
        seconds = deployment.first_byte_timeout
        try:
            connection = await self._pool.take(origin, deployment.connect_timeout, seconds, fresh=fresh)
            with Answering(connection):
                connection.begin(head, content)
                await connection.response(seconds)
        except FAULTS as error:
            raise translation(error, begun=False, origin=origin) from error
        return connection


def _model_of(deployment: ModelDeployment) -> tuple[str, str]:
    return deployment.api_base, deployment.provider_model


async def _refused(connection: UpstreamConnection, deployment: ModelDeployment) -> UpstreamError:
    if connection.status < 400:
        return UpstreamInvalidResponse(f"The upstream answered with status {connection.status}.")
    try:
        raw = await read_body(connection, deployment, MAX_ERROR_BYTES, within=deployment.idle_timeout)
    except UpstreamError:  # whatever is wrong with its words, its status was said
        raw = b""
    return refusal(connection.status, raw, relayable_headers(connection), deployment)


def _kind(connection: UpstreamConnection) -> bytes:
    return header(connection, b"content-type").partition(b";")[0].strip()


def _fields(
    deployment: ModelDeployment, headers: dict[str, str], host: bytes, length: int
) -> list[tuple[bytes, bytes]]:
    """The request's headers: the deployment's outrank the client's."""
    fields = {**OWN_HEADERS}
    for source in (headers, deployment.headers) if deployment.headers else (headers,):
        for name, value in source.items():
            fields[name.lower().encode("latin-1", "replace")] = value.encode("latin-1", "replace")
    for name, value in deployment.authorization.items():
        fields[name.encode()] = value.encode("latin-1", "replace")
    fields[b"host"] = host
    fields[b"content-length"] = b"%d" % length
    return list(fields.items())
