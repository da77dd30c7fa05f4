"""Chat calls to providers with protocols of their own, through litellm (ADR 5)."""

import contextlib
import copy
import inspect
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from typing import Any

import httpx

from gateway.base import jsons
from gateway.errors import GatewayError, InvalidRequest, UpstreamInterrupted
from gateway.models.exchange import Deployment, JsonAnswer
from gateway.models.upstream import UpstreamRequest
from gateway.upstream.litellm.faults import gateway_error
from gateway.upstream.litellm.library import Library
from gateway.upstream.litellm.wire import Wire, deadline, provider_of
from gateway.upstream.openai.faults import relayed_headers
from gateway.upstream.openai.mending import StreamMender, whole_mended
from gateway.upstream.routing.deployments import REQUEST_FIELDS
from gateway.wire.anthropic.receiving import arguments_of

NOISE = ("vertex_ai_", "citations", "images", "annotations", "thinking_blocks", "provider_specific_fields")
"""Fields that say nothing while they are empty."""
LITELLM_OWN = ("response_ms", "_response_ms")
"""Fields that litellm adds of its own."""
WITHHELD = ("model", "metadata", "store")
"""Fields of a request that are not passed to litellm."""
BODY_IS_MERGED = ("gemini/", "vertex_ai/gemini", "vertex_ai_beta/")
"""For these, litellm merges `extra_body` into the provider's body as it stands."""
NOT_A_CLIENTS = re.compile(
    r"(^|_)(key|token|secret|credential|credentials|password|url|uri|endpoint|host|base|headers?|region|project|role|"
    r"profile|account|tenant|client|model|provider|deployment|callbacks?|mock|fallbacks?|litellm|proxy|vertex|aws|azure|"
    r"gcs|s3|oci|sap|watsonx|ssl|session|router|logger|guardrails?|hf|prompt|cost|retries|timeout|version|id)(_|$)|^_"
)
"""Words in the names of litellm's settings, which are the operator's alone."""
NO_KEY = "no-key"
"""Given where there is no key: litellm would take one out of the environment."""
MARKED_ENDS = ("gemini", "vertex_ai_beta")
"""Providers whose streams litellm ends cleanly even if they broke off: `Wire` looks for their end."""


def whole(response: Any) -> dict[str, Any]:
    """A complete answer of litellm's as JSON of OpenAI's protocol, without what litellm adds of its own."""
    answer = _plain(response)
    for number, choice in enumerate(answer.get("choices") or ()):
        choice.setdefault("index", number)
        choice.setdefault("finish_reason", None)
        message = choice.setdefault("message", {})
        message.setdefault("role", "assistant")
        message.setdefault("content", None)
        _tidy(message)
        for call in message.get("tool_calls") or ():
            call.pop("index", None)
    return answer


def chunk(part: Any) -> dict[str, Any]:
    """The same of one chunk of a stream."""
    found = _plain(part)
    for number, choice in enumerate(found.get("choices") or ()):
        choice.setdefault("index", number)
        choice.setdefault("finish_reason", None)
        _tidy(choice.setdefault("delta", {}))
    if isinstance(found.get("usage"), dict):
        found["choices"] = [c for c in found.get("choices") or () if c["delta"] or c["finish_reason"]]
    return found


def _plain(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = response.model_dump(exclude_none=True, warnings=False)
    if isinstance(found.get("usage"), dict):
        found["usage"].pop("cost", None)  # litellm's reckoning in floating point; the bill is the gateway's
    return {k: v for k, v in found.items() if k not in LITELLM_OWN and (v or not k.startswith(NOISE))}


def _tidy(message: dict[str, Any]) -> None:
    """Takes out what is said twice or says nothing; thoughts and signatures stay as they are."""
    fields = message.get("provider_specific_fields")
    if isinstance(fields, dict):
        kept = {k: v for k, v in fields.items() if v and not (k == "thinking_blocks" and message.get(k) == v)}
        message["provider_specific_fields"] = kept
        if not kept:
            del message["provider_specific_fields"]
    for name in [k for k, v in message.items() if k.startswith(NOISE) and not v]:
        del message[name]


def arguments(deployment: Deployment, body: Mapping[str, Any], owned: Collection[str]) -> dict[str, Any]:
    """A chat request as keyword arguments of `litellm.acompletion`, without transport and timeouts.

    Fields that litellm knows are passed as such; any other goes up as it is, unless its name may be that of one of
    litellm's own settings: those are the operator's alone.

    Messages and tools are copies: litellm rewrites what it is given, and these are still to be stored.

    Args:
        owned: names of litellm's own parameters.

    Raises:
        InvalidRequest: a field cannot go up; `param` names it.
    """
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in body.items():
        if name in REQUEST_FIELDS:
            found[name] = copy.deepcopy(value)
        elif name not in WITHHELD:
            if name not in deployment.parameters and (name in owned or NOT_A_CLIENTS.search(name)):
                text = f"The field {name!r} cannot be sent to the provider of {deployment.model!r}."
                raise InvalidRequest(text, param=name, code="unsupported_parameter")
            extra[name] = value
    _make_arguments_objects(found.get("messages"))
    if extra and deployment.route.startswith(BODY_IS_MERGED):
        extra = {"extra_body": extra}
    keyed = {"api_key": deployment.api_key or NO_KEY} if deployment.api_key or not deployment.operator_key else {}
    addressed = {"api_base": deployment.api_base} if deployment.api_base else {}
    headed = {"extra_headers": dict(deployment.headers)} if deployment.headers else {}
    own = {"model": deployment.route, "num_retries": 0, "max_retries": 0, "_skip_mcp_handler": True}
    options = {k: v for k, v in deployment.options.items() if k != "modify_params"}
    return {**extra, **found, **keyed, **addressed, **headed, **options, **own}


def _make_arguments_objects(messages: Any) -> None:
    """litellm refuses calls with arguments that are none, such as a model's call that was cut off."""
    calls = [call for message in messages or () for call in message.get("tool_calls") or ()]
    for function in [call["function"] for call in calls if isinstance(call.get("function"), dict)]:
        said = function.get("arguments")
        made = arguments_of(said)
        if not said or made == {"arguments": said}:
            function["arguments"] = jsons.dumps_text(made)


class LitellmUpstream:
    """Calls providers through litellm (an `Upstream`). A connection that failed before any byte is tried once more,
    nothing else is."""

    def __init__(self, client: httpx.AsyncClient, library: Library) -> None:
        self._client = client
        self._library = library

    async def complete(self, deployment: Deployment, request: UpstreamRequest) -> JsonAnswer:
        """One whole answer."""
        async with self._call(deployment) as call:
            response = await call.ask(request.body)
            answer = whole_mended(whole(response), request.body, deployment, headers=call.wire.headers)
            return JsonAnswer(answer, call.headers(response))

    @contextlib.asynccontextmanager
    async def stream(self, deployment: Deployment, request: UpstreamRequest) -> AsyncIterator["LitellmChunkStream"]:
        """An answer in chunks, once the first of them is there: litellm calls some providers only then."""
        async with self._call(deployment) as call:
            response = await call.ask({**request.body, "stream": True, "stream_options": {"include_usage": True}})
            stream = LitellmChunkStream(call, response, StreamMender(deployment, request.body))
            try:
                await stream.begin()
                yield stream
            finally:
                await stream.aclose()

    @contextlib.asynccontextmanager
    async def _call(self, deployment: Deployment) -> AsyncIterator["_Call"]:
        litellm = await self._library.get()
        wire = Wire(self._client, deployment)
        try:
            yield _Call(litellm, wire, deployment)
        finally:
            await wire.hang_up()


class _Call:
    """One call under way."""

    def __init__(self, litellm: Any, wire: Wire, deployment: Deployment) -> None:
        self._litellm = litellm
        self.wire = wire
        self.deployment = deployment

    async def ask(self, body: dict[str, Any]) -> Any:
        """litellm's response object.

        Raises:
            GatewayError: as `faults.gateway_error` says.
        """
        deployment = self.deployment
        wanted = arguments(deployment, body, self._owned())
        timeout = httpx.Timeout(
            connect=deployment.connect_timeout, read=deployment.first_byte_timeout, write=None, pool=None
        )
        async with self.translated():
            return await self._litellm.acompletion(**wanted, **self._transport(), timeout=timeout)

    def headers(self, response: Any) -> dict[str, str]:
        """Those that come back to the client: the provider's, and litellm's translation of its rate limits."""
        hidden = getattr(response, "_hidden_params", None) or {}
        translated = hidden.get("additional_headers") or {}
        limits = {k: str(v) for k, v in translated.items() if k.startswith("x-ratelimit-")}
        own = {k: v for k, v in relayed_headers(self.wire.headers).items() if not k.startswith("anthropic-")}
        return {**limits, **own}

    @contextlib.asynccontextmanager
    async def translated(self) -> AsyncIterator[None]:
        """litellm's exceptions as the gateway's."""
        try:
            yield
        except GatewayError:
            raise
        except Exception as error:  # litellm lets through whatever its translation of a provider stumbles over
            raise gateway_error(error, self.wire, self.deployment) from error

    def _transport(self) -> dict[str, Any]:
        """The gateway's own connections; providers that litellm calls with OpenAI's SDK use their own."""
        if provider_of(self.deployment) in self._litellm.openai_compatible_providers:
            return {}
        from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

        handler = AsyncHTTPHandler(transport=self.wire, follow_redirects=False)
        handler.client = handler.client  # so that it does not try to close the connections when it is dropped
        return {"client": handler}

    def _owned(self) -> frozenset[str]:
        signature = inspect.signature(self._litellm.acompletion).parameters
        return frozenset(self._litellm.all_litellm_params) | frozenset(signature)


class LitellmChunkStream:
    """Chunks of one streamed answer, in OpenAI's protocol."""

    def __init__(self, call: _Call, response: Any, mender: StreamMender) -> None:
        self._call = call
        self._response = response
        self._mender = mender
        self._first: dict[str, Any] | None = None
        self.done = False

    @property
    def headers(self) -> dict[str, str]:
        return self._call.headers(self._response)

    async def begin(self) -> None:
        """Waits for the first chunk: until then a fault is one of the whole call."""
        deployment = self._call.deployment
        async with deadline(deployment.first_byte_timeout):
            self._first = await self._next()
        self._call.wire.patience = deployment.idle_timeout

    async def batches(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Chunks, one at a time, until the provider's own end of the stream.

        Raises:
            UpstreamInterrupted, UpstreamTimeout: it broke off, or fell silent.
            UpstreamInvalidResponse: litellm could not understand it.
            UpstreamRefused: the provider sent an error.
        """
        found = self._first
        longest = max(self._call.deployment.first_byte_timeout, self._call.deployment.idle_timeout)
        while found is not None:
            if any(choice["finish_reason"] for choice in found.get("choices") or ()) and not self._finished:
                raise UpstreamInterrupted("The upstream closed the stream before the answer was finished.")
            if found.get("choices") or self._reported:
                yield [found]
            if self._mender.fault is not None:
                raise self._mender.fault
            async with deadline(longest):  # pings alone do not keep it alive
                found = await self._next()
        self.done = self._finished

    async def push(self, take: Callable[[list[dict[str, Any]]], bool]) -> None:
        """See `ChunkStream.push`: litellm gives chunks only to who asks for them."""

    async def aclose(self) -> None:
        """Lets litellm close what it holds."""
        with contextlib.suppress(Exception):  # the connection itself is closed by `Wire.hang_up`
            await self._response.aclose()

    async def _next(self) -> dict[str, Any] | None:
        async with self._call.translated():
            part = await anext(self._response, None)
        if part is None:
            return None
        found = self._mender.mended(chunk(part))
        if not found and self._mender.fault is not None:
            raise self._mender.fault
        return found[0]

    @property
    def _finished(self) -> bool:
        """Whether the provider said why the answer ended; litellm makes up a reason where there is none."""
        response = self._response
        if getattr(response, "custom_llm_provider", None) in MARKED_ENDS and not self._call.wire.ended:
            return False
        return bool(
            getattr(response, "received_finish_reason", None) or getattr(response, "intermittent_finish_reason", None)
        )

    @property
    def _reported(self) -> bool:
        """Whether usage is the provider's; litellm counts itself where there is none."""
        return any(getattr(part, "usage", None) for part in getattr(self._response, "chunks", ()))
