"""An OpenAI-compatible provider over httpx (adapter of `ports.Upstream`)."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx

from gateway import jsons
from gateway.errors import UpstreamError, UpstreamInvalidResponse, UpstreamTimeout, UpstreamUnreachable
from gateway.models.exchange import Deployment, JsonAnswer
from gateway.upstream.faults import refusal, relayed_headers, translated
from gateway.upstream.sse import events

MAX_ANSWER_BYTES = 256 * 2**20
MAX_CHOICES = 128
DONE = b"[DONE]"


class HttpUpstream:
    """Calls providers; a connection that failed before any byte is tried once more, nothing else is."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def complete(self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]) -> JsonAnswer:
        """One whole answer (see `ports.Upstream`)."""
        async with self._opened(deployment, body, headers) as response:
            raw = await self._read(response, deployment)
            try:
                answer = jsons.loads_exact(raw)
            except jsons.JSONDecodeError as error:
                raise UpstreamInvalidResponse("The upstream's answer is not JSON.") from error
            if not isinstance(answer, dict) or not isinstance(answer.get("choices"), list):
                if isinstance(answer, dict) and answer.get("error"):
                    raise refusal(response.status_code, raw, response.headers, deployment)
                raise UpstreamInvalidResponse("The upstream's answer holds no choices.")
            _check_choices(answer["choices"], "message")
            return JsonAnswer(answer, relayed_headers(response.headers))

    @contextlib.asynccontextmanager
    async def stream(
        self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]
    ) -> AsyncIterator["HttpChunkStream"]:
        """An answer in chunks (see `ports.Upstream`)."""
        async with self._opened(deployment, body, headers) as response:
            kind = response.headers.get("content-type", "")
            if "text/event-stream" not in kind:
                raw = await self._read(response, deployment)
                raise self._no_stream(raw, response, deployment)
            yield HttpChunkStream(response, deployment)

    @contextlib.asynccontextmanager
    async def _opened(
        self, deployment: Deployment, body: dict[str, Any], headers: dict[str, str]
    ) -> AsyncIterator[httpx.Response]:
        response = await self._send(deployment, jsons.dumps(body), headers)
        try:
            if response.status_code >= 400:
                raw = await self._read(response, deployment)
                raise refusal(response.status_code, raw, response.headers, deployment)
            if response.status_code >= 300:
                raise UpstreamInvalidResponse(f"The upstream answered with status {response.status_code}.")
            yield response
        finally:
            with contextlib.suppress(httpx.HTTPError):
                await response.aclose()

    async def _send(self, deployment: Deployment, content: bytes, headers: dict[str, str]) -> httpx.Response:
        sent = {
            "content-type": "application/json",
            "accept-encoding": "identity",
            **headers,
            **deployment.headers,
        }
        if deployment.api_key:
            sent["authorization"] = f"Bearer {deployment.api_key}"
        url = f"{deployment.api_base}/chat/completions"
        timeout = httpx.Timeout(connect=deployment.connect_timeout, read=None, write=None, pool=None)
        request = self._client.build_request("POST", url, content=content, headers=sent, timeout=timeout)
        for attempt in (1, 2):
            try:
                async with _deadline(deployment.first_byte_timeout):
                    with translated(begun=False):
                        return await self._client.send(request, stream=True)
            except UpstreamUnreachable:
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")

    async def _read(self, response: httpx.Response, deployment: Deployment) -> bytes:
        pieces: list[bytes] = []
        size = 0
        with translated(begun=True):
            async for piece in _idle_checked(response.aiter_bytes(), deployment.first_byte_timeout):
                pieces.append(piece)
                size += len(piece)
                if size > MAX_ANSWER_BYTES:
                    raise UpstreamInvalidResponse("The upstream's answer exceeds 256 MB.")
        return b"".join(pieces)

    def _no_stream(self, raw: bytes, response: httpx.Response, deployment: Deployment) -> UpstreamError:
        with contextlib.suppress(jsons.JSONDecodeError):
            if "error" in jsons.loads(raw):
                return refusal(response.status_code, raw, response.headers, deployment)
        return UpstreamInvalidResponse("The upstream answered a stream request with something else.")


class HttpChunkStream:
    """Chunks of one streamed answer."""

    def __init__(self, response: httpx.Response, deployment: Deployment) -> None:
        self._response = response
        self._deployment = deployment
        self.done = False

    @property
    def headers(self) -> dict[str, str]:
        return relayed_headers(self._response.headers)

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Chunks until `[DONE]`, or until the connection is closed in good order.

        Raises:
            UpstreamInterrupted, UpstreamTimeout: it broke off, or fell silent.
            UpstreamInvalidResponse: an event is not a JSON object.
            UpstreamRefused: upstream sent an error event.
        """
        with translated(begun=True):
            pieces = _idle_checked(self._response.aiter_bytes(), self._deployment.idle_timeout)
            async for _, data in events(pieces):
                if data.strip() == DONE:
                    self.done = True
                    return
                try:
                    chunk = jsons.loads_exact(data)
                except jsons.JSONDecodeError as error:
                    raise UpstreamInvalidResponse("The upstream sent an event that is not JSON.") from error
                if not isinstance(chunk, dict):
                    raise UpstreamInvalidResponse("The upstream sent an event that is no object.")
                if chunk.get("error") and not chunk.get("choices"):
                    raise refusal(self._response.status_code, data, {}, self._deployment)
                _check_choices(chunk.get("choices") or [], "delta")
                yield chunk


def _check_choices(choices: Any, part: str) -> None:
    """What all later steps rely on; a missing index is the choice's position.

    Raises:
        UpstreamInvalidResponse: choices, their messages or tool calls are not what OpenAI's protocol says.
    """
    if not isinstance(choices, list):
        raise UpstreamInvalidResponse("The upstream's choices are no list.")
    for position, choice in enumerate(choices):
        message = choice.get(part) if isinstance(choice, dict) else False
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        calls_fit = calls is None or (isinstance(calls, list) and all(isinstance(call, dict) for call in calls))
        if not (message is None or isinstance(message, dict)) or not calls_fit:
            raise UpstreamInvalidResponse("The upstream's answer holds a choice that is none.")
        index = choice.get("index")
        if not isinstance(index, int) or not 0 <= index < MAX_CHOICES:
            choice["index"] = position


@contextlib.asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise UpstreamTimeout("The upstream took too long.") from error


async def _idle_checked(pieces: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """The same pieces, with a limit on the time between two of them."""
    while True:
        async with _deadline(seconds):
            try:
                piece = await anext(pieces)
            except StopAsyncIteration:
                return
        yield piece
