"""Calls in the words of Responses: the inner form goes up as a request for a response and comes back as a completion.

Connections, limits and faults are those of chat completions.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from gateway.base import jsons
from gateway.errors import UpstreamError, UpstreamInvalidResponse, UpstreamOverflow, UpstreamRefused
from gateway.models.exchange import UNTRANSLATED, ChunkStream, Deployment, JsonAnswer, StreamOpener
from gateway.upstream.http.connection import Connection
from gateway.upstream.openai.answers import HttpChunkStream, event_object
from gateway.upstream.openai.chat import HttpUpstream
from gateway.upstream.openai.error_bodies import error_object, status_of
from gateway.upstream.openai.faults import refusal, relayed_headers
from gateway.upstream.openai.mending import whole_mended
from gateway.wire.responses.chunks import ENDS, ResponseChunks
from gateway.wire.responses.receiving import Failure, completion_of, failure_of, failure_of_event
from gateway.wire.responses.sending import SEALED, response_request, unnamed

Json = dict[str, Any]
RESPONSES = "responses"
UNFINISHED = ("queued", "in_progress", "cancelled")
REFUSED = (400, 422)
MAX_REMEMBERED = 1000


class ResponsesUpstream:
    """Calls providers by their endpoint for responses (an `Upstream`).

    Thoughts are asked for sealed, as they have to be put back. A model that has none refuses that; so does one that
    cannot read what is put back, as it was sealed with another account. Then it is asked once more without.
    """

    def __init__(self, http: HttpUpstream) -> None:
        self._http = http
        self._unsealed: set[tuple[str, str]] = set()
        """Deployments that refused to seal thoughts."""

    async def complete(self, deployment: Deployment, body: Json, headers: dict[str, str]) -> JsonAnswer:
        """One whole answer."""
        request = self._request(deployment, body)
        while True:
            try:
                answered = await self._http.whole(deployment, RESPONSES, request, headers)
                response = answered.value
                failed = failure_of(response) if isinstance(response, dict) else None
                if failed is not None:
                    raise _fault(failed, answered.status, deployment)
                break
            except UpstreamRefused as refused:
                request = self._lighter(request, refused, deployment, body)
        if not isinstance(response, dict) or not isinstance(response.get("output"), list):
            raise UpstreamInvalidResponse("The upstream's response holds no output.")
        if response.get("status") in UNFINISHED:
            raise UpstreamInvalidResponse("The upstream's response is not finished.")
        completion = whole_mended(completion_of(response), body, deployment, answered.raw, answered.headers)
        return JsonAnswer(completion, relayed_headers(answered.headers))

    def stream(self, deployment: Deployment, body: Json, headers: dict[str, str]) -> StreamOpener:
        """An answer in chunks."""
        return self._stream(deployment, body, headers)

    @asynccontextmanager
    async def _stream(self, deployment: Deployment, body: Json, headers: dict[str, str]) -> AsyncIterator[ChunkStream]:
        request = self._request(deployment, body)
        reader = partial(ResponseStream, as_items=UNTRANSLATED in body)
        async with AsyncExitStack() as stack:
            while True:
                call = self._http.events(deployment, RESPONSES, request, headers, reader)
                try:
                    opened = await stack.enter_async_context(call)
                    break
                except UpstreamRefused as refused:
                    request = self._lighter(request, refused, deployment, body)
            yield opened

    def _request(self, deployment: Deployment, body: Json) -> Json:
        request = response_request(body)
        if (deployment.api_base, deployment.provider_model) in self._unsealed and not _asks(body):
            return _without_seals(request)
        return request

    def _lighter(self, request: Json, refused: UpstreamRefused, deployment: Deployment, body: Json) -> Json:
        """The request without what was refused.

        Raises:
            UpstreamRefused: this one, if it was something else.
        """
        said = refused.message.lower()
        names_it = "encrypted" in said or error_object(refused.original).get("param") == "include"
        if isinstance(refused, UpstreamOverflow) or refused.status not in REFUSED or not names_it:
            raise refused
        lighter = _without_thoughts(request)
        if SEALED in request.get("include", ()) and not _asks(body) and "verif" not in said:
            if len(self._unsealed) >= MAX_REMEMBERED:
                self._unsealed.clear()
            self._unsealed.add((deployment.api_base, deployment.provider_model))
            lighter = _without_seals(lighter)
        if lighter == request:
            raise refused
        return lighter


class ResponseStream(HttpChunkStream):
    """The events of a response as chunks. Its end is `response.completed` or `response.incomplete`."""

    def __init__(self, connection: Connection, deployment: Deployment, body: Json, *, as_items: bool) -> None:
        super().__init__(connection, deployment, body)
        self._events = ResponseChunks(as_items=as_items)

    def _add(self, chunks: list[Json], data: bytes) -> None:
        event = event_object(data)
        failed = failure_of_event(event)
        response = event.get("response")
        if failed is None and event.get("type") in ENDS and isinstance(response, dict):
            failed = failure_of(response)
            if failed is None and response.get("status") in UNFINISHED:
                raise UpstreamInvalidResponse("The upstream's response is not finished.")
        if failed is not None:
            raise _fault(failed, 200, self._deployment)
        if event.get("type") == "keepalive":
            self._parser.signs.append(b" keepalive")
        for chunk in self._events.of(event):
            self._take(chunks, chunk, data)
        self.done = self._events.ended


def _fault(failed: Failure, status: int, deployment: Deployment) -> UpstreamError:
    """The fault that a response, or an event, tells of. A status that it names itself counts."""
    named, error = failed
    named = status_of(error) or named
    return refusal(status if status >= 400 else named, jsons.dumps(error), {}, deployment)


def _asks(body: Json) -> bool:
    """Whether it is the client that asks for sealed thoughts."""
    return SEALED in ((body.get(UNTRANSLATED) or {}).get("include") or ())


def _without_seals(request: Json) -> Json:
    kept = [each for each in request.get("include", ()) if each != SEALED]
    found = {name: value for name, value in request.items() if name != "include"}
    return {**found, "include": kept} if kept else found


def _without_thoughts(request: Json) -> Json:
    """The request without what is sealed, nor the ids by which the upstream knows what belongs to it."""
    items = [item for item in request["input"] if item.get("type") != "reasoning"]
    if len(items) == len(request["input"]):
        return request
    return {**request, "input": unnamed(items)}
