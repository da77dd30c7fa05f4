"""Calls by Anthropic's Messages API: the inner form is sent upstream as a request for a message, and the answer is
returned as a completion, over the gateway's own connections.

Connections, limits and faults are those of chat completions.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from gateway.core import errors, jsons, ports
from gateway.core.formats.anthropic import message_events, serializer
from gateway.core.jsons import Json
from gateway.core.types import upstreams
from gateway.core.types.chat import JsonAnswer, ModelDeployment, StreamOpener
from gateway.upstream.http.answers import HttpChunkStream, HttpUpstream, event_object
from gateway.upstream.http.mending import refusal, relayed_headers, whole_mended
from gateway.upstream.http_client import UpstreamConnection

ANTHROPIC_MESSAGES = "messages"
ANTHROPIC_API_VERSION = "2023-06-01"
"""Latest version of the API."""
VERSION_HEADER = "anthropic-version"
BETA_HEADER = "anthropic-beta"
OPENAIS = "openai-"
"""Prefix of client headers that only OpenAI understands."""


class AnthropicUpstream:
    """Calls Anthropic, and every provider that offers its API (an `Upstream`)."""

    def __init__(self, http: HttpUpstream, clock: ports.Clock) -> None:
        self._http = http
        self._clock = clock

    async def complete(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> JsonAnswer:
        body, betas = serializer.messages_request(request.body, request.native)
        deployment, headers = _headed(deployment, request.headers, betas)
        reader = partial(MessageStream, created=self._now())
        answered = await self._http.whole(deployment, ANTHROPIC_MESSAGES, body, headers, reader, request.arrived)
        completion = answered.completion
        if completion is None:
            made = serializer.completion_of(
                _checked(answered.value, answered.raw, answered.headers, deployment), self._now()
            )
            completion = whole_mended(made, request.body, deployment, answered.raw, answered.headers)
        return JsonAnswer(completion, relayed_headers(answered.headers, deployment))

    def stream(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> StreamOpener:
        body, betas = serializer.messages_request(request.body, request.native)
        deployment, headers = _headed(deployment, request.headers, betas)
        reader = partial(MessageStream, created=self._now())
        return self._http.events(deployment, ANTHROPIC_MESSAGES, body, headers, reader)

    def _now(self) -> int:
        return int(self._clock.now().timestamp())


class MessageStream(HttpChunkStream):
    """The events of a message as chunks. Its end is `message_stop`; a `ping` breaks the silence and carries nothing."""

    def __init__(
        self, connection: UpstreamConnection, deployment: ModelDeployment, body: Json, *, created: int
    ) -> None:
        super().__init__(connection, deployment, body)
        self._events = message_events.MessageChunks(created)

    def _add(self, chunks: list[Json], data: bytes) -> None:
        event = event_object(data)
        if event.get("type") == "error" or event.get("error"):
            raise _fault(event, data, {}, self._deployment)
        if event.get("type") == "ping":
            self._parser.comments += 1
            self._parser.signs.append(b" ping")
            return
        for chunk in self._events.of(event):
            self._take(chunks, chunk, data)
        self.done = self._events.ended

    def _events_of(self, answer: Json, raw: bytes) -> list[Any]:
        return message_events.events_of(_checked(answer, raw, self._said_headers, self._deployment))


def _checked(message: Any, raw: bytes, headers: dict[str, str], deployment: ModelDeployment) -> Json:
    """Returns a whole message. Raises UpstreamRefused: it reports a failure; UpstreamInvalidResponse: it is none."""
    if isinstance(message, dict) and message.get("error"):
        raise _fault(message, raw, headers, deployment)
    if not serializer.is_message(message):
        raise errors.UpstreamInvalidResponse("The upstream's answer is no message.")
    found: Json = message
    return found


def _fault(said: Json, raw: bytes, headers: dict[str, str], deployment: ModelDeployment) -> errors.UpstreamError:
    return refusal(serializer.fault_status(said), raw if raw else jsons.dumps(said), headers, deployment)


def _headed(
    deployment: ModelDeployment, headers: dict[str, str], betas: Iterable[str]
) -> tuple[ModelDeployment, dict[str, str]]:
    """Returns the call's deployment, and the client's headers. Betas of the operator precede the client's."""
    found = {name: value for name, value in headers.items() if not name.lower().startswith(OPENAIS)}
    found.setdefault(VERSION_HEADER, ANTHROPIC_API_VERSION)
    configured = [value for name, value in deployment.headers.items() if name.lower() == BETA_HEADER]
    named = [*(name for value in configured for name in value.split(",")), *betas]
    unique = dict.fromkeys(name.strip() for name in named if name.strip())
    if not unique:
        return deployment, found
    own = {name: value for name, value in deployment.headers.items() if name.lower() != BETA_HEADER}
    return replace(deployment, headers={**own, BETA_HEADER: ",".join(unique)}), found
