"""Calls by the Responses API: the inner form is sent upstream as a request for a response, and the answer is returned
as a completion.

Connections, limits and faults are those of chat completions.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from gateway.core import errors, jsons
from gateway.core.bounded_cache import BoundedCache
from gateway.core.formats.responses import response_completion, response_request
from gateway.core.jsons import Json
from gateway.core.types import upstreams
from gateway.core.types.chat import ChunkStream, JsonAnswer, ModelDeployment
from gateway.upstream.http.answers import HttpChunkStream, HttpUpstream, event_object
from gateway.upstream.http.mending import refusal, relayed_headers, status_of, whole_mended
from gateway.upstream.http_client import UpstreamConnection

RESPONSES = "responses"
UNFINISHED_STATUSES = ("queued", "in_progress", "cancelled")
RESPONSES_REFUSED_STATUSES = (400, 422)
MAX_UNSEALED = 1000


class ResponsesUpstream:
    """Calls providers by their endpoint for responses (an `Upstream`).

    Requests ask for sealed thoughts, as these have to be sent again. A model that has none refuses that; so does one
    that cannot read the thoughts it is sent, as another account sealed them. Then the call is repeated without.
    """

    def __init__(self, http: HttpUpstream) -> None:
        self._http = http
        self._unsealed: BoundedCache[tuple[str, str], bool] = BoundedCache(MAX_UNSEALED)
        """Deployments that refused to seal thoughts."""

    async def complete(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> JsonAnswer:
        body, reader = self._body(deployment, request), partial(ResponseStream, as_items=False)
        while True:
            try:
                answered = await self._http.whole(deployment, RESPONSES, body, request.headers, reader, request.arrived)
                completion = answered.completion
                made = (
                    response_completion.completion_of(_checked(answered.value, answered.status, deployment))
                    if not completion
                    else {}
                )
                break
            except errors.UpstreamRefused as refused:
                body = self._lighter(body, refused, deployment, request)
        completion = completion or whole_mended(made, request.body, deployment, answered.raw, answered.headers)
        return JsonAnswer(completion, relayed_headers(answered.headers, deployment))

    @asynccontextmanager
    async def stream(
        self, deployment: ModelDeployment, request: upstreams.UpstreamRequest
    ) -> AsyncIterator[ChunkStream]:
        body = self._body(deployment, request)
        reader = partial(ResponseStream, as_items=request.native is not None)
        async with AsyncExitStack() as stack:
            while True:
                call = self._http.events(deployment, RESPONSES, body, request.headers, reader)
                try:
                    opened = await stack.enter_async_context(call)
                    break
                except errors.UpstreamRefused as refused:
                    body = self._lighter(body, refused, deployment, request)
            yield opened

    def _body(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> Json:
        body = response_request.response_request(request.body, request.native)
        if self._unsealed.get((deployment.api_base, deployment.provider_model)) and not _asks(request):
            return _without_seals(body)
        return body

    def _lighter(
        self,
        body: Json,
        refused: errors.UpstreamRefused,
        deployment: ModelDeployment,
        request: upstreams.UpstreamRequest,
    ) -> Json:
        """Returns the body without what was refused. Raises UpstreamRefused: the upstream refused something else."""
        said = refused.message.lower()
        names_it = "encrypted" in said or errors.error_object(refused.original).get("param") == "include"
        is_overflow = isinstance(refused, errors.UpstreamOverflow)
        if is_overflow or refused.status not in RESPONSES_REFUSED_STATUSES or not names_it:
            raise refused
        lighter = _without_thoughts(body)
        if response_completion.ENCRYPTED in body.get("include", ()) and not _asks(request) and "verif" not in said:
            self._unsealed.put((deployment.api_base, deployment.provider_model), True)
            lighter = _without_seals(lighter)
        if lighter == body:
            raise refused
        return lighter


class ResponseStream(HttpChunkStream):
    """The events of a response as chunks. Its end is `response.completed` or `response.incomplete`."""

    def __init__(
        self, connection: UpstreamConnection, deployment: ModelDeployment, body: Json, *, as_items: bool
    ) -> None:
        super().__init__(connection, deployment, body)
        self._events = response_completion.ResponseChunks(as_items=as_items)

    def _add(self, chunks: list[Json], data: bytes) -> None:
        event = event_object(data)
        failed = response_completion.failure_of_event(event)
        response = event.get("response")
        if failed is None and event.get("type") in response_completion.RESPONSE_ENDS and isinstance(response, dict):
            failed = response_completion.failure_of(response)
            _check_finished(response, failed)
        if failed is not None:
            raise _fault(failed, 200, self._deployment)
        if event.get("type") == "keepalive":
            self._parser.signs.append(b" keepalive")
        for chunk in self._events.of(event):
            self._take(chunks, chunk, data)
        self.done = self._events.ended

    def _events_of(self, answer: Json, raw: bytes) -> list[Any]:
        response = _checked(answer, self._status, self._deployment)
        kind = "incomplete" if response.get("status") == "incomplete" else "completed"
        return [{"type": f"response.{kind}", "response": response}]


def _checked(response: Any, status: int, deployment: ModelDeployment) -> Json:
    """Returns a whole response.
    `status`: of the answer that holds it.
    Raises UpstreamRefused: it reports a failure; UpstreamInvalidResponse: it is no response, or not finished."""
    failed = response_completion.failure_of(response) if isinstance(response, dict) else None
    if failed is not None:
        raise _fault(failed, status, deployment)
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise errors.UpstreamInvalidResponse("The upstream's response holds no output.")
    _check_finished(response)
    return response


def _check_finished(response: Json, failed: response_completion.Failure | None = None) -> None:
    """Raises UpstreamInvalidResponse: the response is in progress or was cancelled, and reports no failure."""
    if failed is None and response.get("status") in UNFINISHED_STATUSES:
        raise errors.UpstreamInvalidResponse("The upstream's response is not finished.")


def _fault(failed: response_completion.Failure, status: int, deployment: ModelDeployment) -> errors.UpstreamError:
    """Builds the fault that a response, or an event, reports. A status that it names itself counts."""
    named, error = failed
    named = status_of(error) or named
    return refusal(status if status >= 400 else named, jsons.dumps(error), {}, deployment)


def _asks(request: upstreams.UpstreamRequest) -> bool:
    """Returns whether the client asks for sealed thoughts."""
    return response_completion.ENCRYPTED in ((request.native or {}).get("include") or ())


def _without_seals(request: Json) -> Json:
    kept = [each for each in request.get("include", ()) if each != response_completion.ENCRYPTED]
    found = {name: value for name, value in request.items() if name != "include"}
    return {**found, "include": kept} if kept else found


def _without_thoughts(request: Json) -> Json:
    """Returns the request without sealed thoughts and the ids by which the upstream links them to their items."""
    sent = request.get("input", ())
    items = [item for item in sent if item.get("type") != "reasoning"]
    if len(items) == len(sent):
        return request
    return {**request, "input": response_request.unnamed(items)}
