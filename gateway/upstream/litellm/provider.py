"""Chat calls to providers with protocols of their own, through litellm (ADR 5)."""

import asyncio
import contextlib
import copy
import inspect
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import httpx

from gateway.core import errors, jsons
from gateway.core.formats.anthropic import serializer
from gateway.core.formats.tool_calls import ANY_ID, CallPairs, is_silent
from gateway.core.types import bill, tool_steps, upstreams
from gateway.core.types.chat import JsonAnswer, ModelDeployment
from gateway.core.types.content_parts import dicts_of, parts_of
from gateway.core.types.items import named_calls
from gateway.upstream.http import mending
from gateway.upstream.http_client import TOO_LONG, ConnectionOrigin, origin_of, translation
from gateway.upstream.litellm.wire import (
    FLAGGED,
    NO_FETCH,
    UNFLAGGED,
    GatewayTransport,
    LitellmLibrary,
    deadline,
    provider_of,
)
from gateway.upstream.routing.deployments import REQUEST_FIELDS

# litellm's exceptions as the gateway's errors (guarantee §7).

ERROR_PREFIX = re.compile(r"^(\s*(litellm\.)?\w*(Error|Exception)\s*[:-]+\s*)+")
ASIDE = re.compile(
    r"\s*\.?\s*(Received Messages=|Traceback \(most recent|To drop th|Example Expected|This looks like a bug in|"
    r"Handle with `litellm).*",
    re.DOTALL,
)
NAMED_PARAMETER = re.compile(
    r"parameters: \['(\w+)'|^Invalid `(\w+)`|\b(tool_choice|response_format|tool type|reasoning effort|"
    r"WebSearchOptions|Image url|image received|(?:user|system) message)s?\b"
)
"""How litellm names a field that it refuses, or an element of one."""
FIELDS_OF_ELEMENTS = {
    **dict.fromkeys(("Image url", "image received", "user message", "system message"), "messages"),
    "tool type": "tools",
    "reasoning effort": "reasoning_effort",
    "WebSearchOptions": "web_search_options",
}
SECRET_OPTION = re.compile(r"key|secret|token|credential|password")
MAX_MESSAGE_CHARS = 1000
ERROR_TYPES_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
}
UNREADABLE_STATUS = 422
"""litellm's status for an answer that it cannot read."""
BAD_KEY = b"API_KEY_INVALID"
"""Gemini's error reason for a refused key, which comes with status 400."""


def gateway_error(error: Exception, wire: GatewayTransport, deployment: ModelDeployment) -> errors.GatewayError:
    """Returns the error of a failed call: in the provider's own words where it answered, else in litellm's."""
    ours = next((e for e in _chain(error) if isinstance(e, errors.GatewayError)), None)
    if wire.fault is not None:
        return _kept(wire.fault, wire, deployment)
    if ours is not None:
        return ours
    if "ImageFetchError" in _names(error):
        return errors.InvalidRequest(NO_FETCH, param="messages", code="unsupported_url")
    cause = getattr(error, "original_exception", None) or error
    status = getattr(cause, "status_code", None)
    status = status if isinstance(status, int) else 500
    if wire.status is None:
        return _without_answer(cause, status, deployment)
    is_providers = "BaseLLMException" in _names(cause) and "APIConnectionError" not in _names(cause)
    if is_providers and status != UNREADABLE_STATUS:  # an error in the stream
        return said(status, message_of(cause, deployment), None, {}, deployment)
    return errors.UpstreamInvalidResponse("The upstream's answer is not what its protocol says.")


def said(
    status: int, text: str, code: str | None, headers: dict[str, str], deployment: ModelDeployment
) -> errors.UpstreamError:
    """Builds an error of the provider's in OpenAI's shape."""
    other = "server_error" if status >= 500 else ERROR_TYPES_BY_STATUS[400]
    kind = "rate_limit_error" if status == 429 else ERROR_TYPES_BY_STATUS.get(status, other)
    body = {"error": {"message": text, "type": kind, "param": None, "code": code}}
    return mending.refusal(status, jsons.dumps(body), headers, deployment)


def message_of(error: BaseException, deployment: ModelDeployment) -> str:
    """Returns litellm's error message without its prefixes, tracebacks and keys."""
    text = ASIDE.sub("", str(getattr(error, "message", None) or error))
    text = ERROR_PREFIX.sub("", text).strip()[:MAX_MESSAGE_CHARS] or "The request cannot be sent to this provider."
    return _blotted(text, deployment)


def _kept(fault: errors.GatewayError, wire: GatewayTransport, deployment: ModelDeployment) -> errors.GatewayError:
    """Returns the provider's refusal: its message in OpenAI's shape, with the original error beside it."""
    if BAD_KEY in wire.raw:
        if deployment.operator_key:
            return errors.UpstreamAuth("The upstream refused the gateway's key.")
        fault = errors.UpstreamRefused(401, getattr(fault, "original", None), fault.headers, fault.message)
    if not isinstance(fault, errors.UpstreamRefused) or isinstance(fault, errors.UpstreamOverflow):
        return fault
    original = fault.original
    error = original.get("error") if isinstance(original, dict) else None
    if not isinstance(error, dict):
        return fault
    code = next((error[k] for k in ("status", "type", "code") if isinstance(error.get(k), str)), None)
    message = str(error.get("message") or fault.message)
    kind = "rate_limit_error" if fault.status == 429 else ERROR_TYPES_BY_STATUS.get(fault.status, "upstream_error")
    wrapped = {"message": message, "type": kind, "param": None, "code": code, "upstream": original}
    return errors.UpstreamRefused(fault.status, {"error": wrapped}, fault.headers, message)


def _without_answer(error: BaseException, status: int, deployment: ModelDeployment) -> errors.GatewayError:
    """Returns the error of a call that litellm gave up before, or outside, the gateway's own connections."""
    names, modules = _names(error), {type(e).__module__.partition(".")[0] for e in _chain(error)}
    text = message_of(error, deployment)
    if status in (401, 403) or modules & {"botocore", "google"}:
        if deployment.operator_key:
            return errors.UpstreamAuth("The gateway's credentials for this provider could not be used.")
        return errors.Unauthorized(text)
    if "ImportError" in names:
        return errors.UpstreamUnreachable(
            f"The provider of {deployment.model!r} needs a package that is not installed here."
        )
    if "Timeout" in names:
        return errors.UpstreamTimeout(TOO_LONG)
    if "ContextWindowExceededError" in names:
        original = {"error": {"message": text}}
        reported, limit = mending.reported_tokens(original)
        return errors.UpstreamOverflow(original, {}, reported, limit or mending.limit_alone(original), text)
    if modules & {"httpx", "httpcore", "aiohttp"}:
        fault = next((e for e in _chain(error) if isinstance(e, httpx.HTTPError)), None)
        if isinstance(fault, httpx.HTTPStatusError):  # Cohere's answers come over litellm's own connections
            answer = fault.response
            return mending.refusal(answer.status_code, text.encode(), answer.headers, deployment)
        if fault is None:
            fault = httpx.ConnectError("")
            fault.__cause__ = next((e for e in _chain(error) if isinstance(e, OSError)), None)
        return translation(fault, begun=False, origin=_origin(deployment))
    response: Any = getattr(error, "response", None)
    # Of these providers every answer comes over the gateway's own connections, and none did.
    is_litellms = "TypeError" in names and provider_of(deployment) in ("anthropic", *GEMINIS)
    if status in (404, 429) or (status >= 500 and "APIConnectionError" not in names and not is_litellms):
        return said(status, text, None, dict(getattr(response, "headers", None) or {}), deployment)
    field = NAMED_PARAMETER.search(text)
    named = next(filter(None, field.groups())) if field else None
    code = "unsupported_parameter" if "UnsupportedParamsError" in names else "invalid_request"
    return errors.InvalidRequest(text, param=FIELDS_OF_ELEMENTS.get(named, named) if named else None, code=code)


def _origin(deployment: ModelDeployment) -> ConnectionOrigin | None:
    """Returns where litellm's own connections lead, if the configuration names it."""
    try:
        return origin_of(httpx.URL(deployment.api_base))
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        return None


def _blotted(text: str, deployment: ModelDeployment) -> str:
    values = [deployment.api_key, *(v for k, v in deployment.options.items() if SECRET_OPTION.search(k))]
    for secret in (v for v in values if isinstance(v, str) and len(v) >= mending.MIN_SECRET):
        text = text.replace(secret, "***")
    return text


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for e in _chain(error) for kind in type(e).__mro__}


NOISE = ("vertex_ai_", "citations", "images", "annotations", "thinking_blocks", "provider_specific_fields")
"""Fields that mean nothing while they are empty."""
LITELLM_OWN = ("response_ms", "_response_ms")
"""Fields that litellm adds."""
WITHHELD = ("model", "metadata", "store")
"""Fields of a request that are not passed to litellm."""
HINTS = frozenset({"prompt_cache_key", "prompt_cache_retention", "safety_identifier"})
"""Fields that change no answer, and that the gateway itself reads; agents send some with every request."""
NOT_A_CLIENTS = re.compile(
    r"(^|_)(key|token|secret|credential|credentials|password|url|uri|endpoint|host|base|headers?|region|project|role|"
    r"profile|account|tenant|client|model|provider|deployment|callbacks?|mock|fallbacks?|litellm|proxy|vertex|aws|azure|"
    r"gcs|s3|oci|sap|watsonx|ssl|session|router|logger|guardrails?|hf|prompt|cost|retries|timeout|version|id)(_|$)|^_"
)
"""Words in the names of litellm's settings, which only the operator may set."""
PLACEHOLDER_API_KEY = "no-key"
"""Passed where there is no key: litellm would take one from the environment."""
GEMINIS = ("gemini", "vertex_ai", "vertex_ai_beta")
"""Providers of Gemini. Others that they serve are asked in Gemini's API or in OpenAI's, where the same is right."""
MARKED_ENDS = ("gemini", "vertex_ai_beta")
"""Providers whose streams litellm ends cleanly even if they broke off: `GatewayTransport` looks for their end."""


def whole(response: Any) -> dict[str, Any]:
    """Converts a complete answer of litellm's to JSON of OpenAI's protocol, without what litellm adds."""
    answer = _plain(response)
    for number, choice in enumerate(answer.get("choices") or ()):
        choice.setdefault("index", number)
        choice.setdefault("finish_reason", None)
        message = choice.setdefault("message", {})
        message.setdefault("role", "assistant")
        message.setdefault("content", None)
        _tidy(message)
        calls = [call for call in message.get("tool_calls") or () if not _ran_by_provider(call)]
        if message.pop("tool_calls", None) and calls:
            message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in calls]
    return answer


def chunk(part: Any) -> dict[str, Any]:
    """Converts one chunk of a stream of litellm's to JSON of OpenAI's protocol, without what litellm adds."""
    found = _plain(part)
    for number, choice in enumerate(found.get("choices") or ()):
        choice.setdefault("index", number)
        choice.setdefault("finish_reason", None)
        _tidy(choice.setdefault("delta", {}))
    if isinstance(found.get("usage"), dict):
        found["choices"] = [c for c in found.get("choices") or () if c["delta"] or c["finish_reason"]]
    return found


def _as_ended(said: dict[str, Any], reason: str) -> dict[str, Any]:
    """Puts the reason for which the provider gave up an answer, or a chunk, back: litellm calls it a `stop`."""
    if reason.lower() in mending.FAILED_FINISHES:
        for choice in said.get("choices") or ():
            choice["finish_reason"] = choice["finish_reason"] and reason
    elif reason in FLAGGED:
        for own in (choice.get("provider_specific_fields") for choice in said.get("choices") or ()):
            if isinstance(own, dict) and own.get("native_finish_reason") == UNFLAGGED:
                own["native_finish_reason"] = reason
    return said


def _ran_by_provider(call: Mapping[str, Any]) -> bool:
    """Returns whether Anthropic itself runs the tool of a call: a client that took the call for its own could not
    answer it. litellm also reports the call, and its result, in `provider_specific_fields`."""
    return str(call.get("id")).startswith(tool_steps.SERVER_CALL)


def _plain(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = response.model_dump(exclude_none=True, warnings=False)
    if isinstance(found.get("usage"), dict):
        found["usage"].pop("cost", None)  # litellm's floating-point cost; the gateway makes the bill
    return {k: v for k, v in found.items() if k not in LITELLM_OWN and (v or not k.startswith(NOISE))}


def _tidy(message: dict[str, Any]) -> None:
    """Removes duplicates and empty fields; thoughts and signatures stay as they are."""
    fields = message.get("provider_specific_fields")
    if isinstance(fields, dict):
        kept = {k: v for k, v in fields.items() if v and not (k == "thinking_blocks" and message.get(k) == v)}
        message["provider_specific_fields"] = kept
        if not kept:
            del message["provider_specific_fields"]
    for name in [k for k, v in message.items() if k.startswith(NOISE) and not v]:
        del message[name]


def arguments(deployment: ModelDeployment, body: Mapping[str, Any], owned: Collection[str]) -> dict[str, Any]:
    """Converts a chat request to keyword arguments of `litellm.acompletion`, without transport and timeouts.

    Fields that litellm knows are passed as such; any other is sent upstream unchanged, unless its name may be that of
    one of litellm's own settings: only the operator may set those.

    Messages and tools are copies: litellm rewrites its arguments, and these are still to be stored.
    `owned`: names of litellm's own parameters.
    Raises InvalidRequest: a field cannot be sent upstream; `param` names it."""
    found: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, value in body.items():
        if name in REQUEST_FIELDS:
            if value is not None:  # says nothing; litellm stumbles over some
                found[name] = copy.deepcopy(value)
        elif name not in WITHHELD:
            if name not in deployment.parameters and (name in owned or NOT_A_CLIENTS.search(name)):
                text = f"The field {name!r} cannot be sent to the provider of {deployment.model!r}."
                raise errors.InvalidRequest(text, param=name, code="unsupported_parameter")
            extra[name] = value
    is_claude = _is_claude(deployment)
    if found.get("messages") and (is_claude or provider_of(deployment) in GEMINIS):
        found["messages"] = sound_chat(found["messages"], is_claude=is_claude)
    elif found.get("messages") and provider_of(deployment) == "bedrock":
        # Its models of all makers refuse the colons that ids of others have.
        found["messages"] = list(map(CallPairs().in_message, found["messages"]))
    _check_tools(found.get("tools"), typed=is_claude)
    if is_claude:
        _check_format(found.get("response_format"))
        _fit_sampling(found)
    _make_arguments_objects(found.get("messages"))
    if extra and deployment.route.startswith(upstreams.GEMINI_ROUTES):  # merged unchanged into the provider's body
        extra = {"extra_body": extra}
    is_keyed = deployment.api_key or not deployment.operator_key
    keyed = {"api_key": deployment.api_key or PLACEHOLDER_API_KEY} if is_keyed else {}
    addressed = {"api_base": deployment.api_base} if deployment.api_base else {}
    headed = {"extra_headers": dict(deployment.headers)} if deployment.headers else {}
    own = {"model": deployment.route, "num_retries": 0, "max_retries": 0, "_skip_mcp_handler": True}
    options = {k: v for k, v in deployment.options.items() if k != "modify_params"}
    return {**extra, **found, **keyed, **addressed, **headed, **options, **own}


def _is_claude(deployment: ModelDeployment) -> bool:
    return upstreams.family_in(deployment.route) is upstreams.CLAUDE and not upstreams.is_routed(deployment)


def _check_tools(tools: Any, *, typed: bool) -> None:
    """Raises InvalidRequest: a tool has no type (`typed`: its provider knows none without), or a function no name or no
    schema. litellm's own error names only what it stumbled over."""
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if not isinstance(tool, dict):
            continue
        where, kind = f"tools[{index}]", tool.get("type")
        if typed and not {"type", "name"} & tool.keys():
            raise errors.missing(f"{where}.type")
        if kind in ("function", "custom") and not isinstance(tool.get(kind), dict):
            raise errors.missing(f"{where}.{kind}")
        if kind != "function":
            continue
        if not isinstance(tool[kind].get("name"), str):
            raise errors.missing(f"{where}.function.name")
        parameters = tool[kind].get("parameters") or {}
        if not (isinstance(parameters, dict) and _is_schema(parameters)):
            raise errors.invalid(f"{where}.function.parameters", "must be an object, a JSON schema")


def _is_schema(node: Any) -> bool:
    """Returns whether the properties of a schema, and those below, are objects."""
    if not isinstance(node, dict):
        return True
    properties = node.get("properties") or {}
    below = (*properties.values(), node.get("items")) if isinstance(properties, dict) else (None,)
    return isinstance(properties, dict) and all(map(_is_schema, below))


def _check_format(asked: Any) -> None:
    """Raises InvalidRequest: the form of the answer has no type, or no schema, as its type says."""
    if not isinstance(asked, dict):
        return
    if not isinstance(asked.get("type"), str):
        raise errors.missing("response_format.type")
    if asked["type"] != "json_schema":
        return
    if not isinstance(asked.get("json_schema"), dict):
        raise errors.missing("response_format.json_schema")
    if not isinstance(asked["json_schema"].get("schema"), dict):
        raise errors.missing("response_format.json_schema.schema")


def _fit_sampling(wanted: dict[str, Any]) -> None:
    """Fits what a chat says of sampling to Claude, as Anthropic's own endpoint for chats does: a temperature above 1
    becomes 1. New models take no `top_p` beside a temperature: one that leaves nothing out says nothing."""
    heat = wanted.get("temperature")
    if isinstance(heat, int | float) and heat > 1:
        wanted["temperature"] = 1
    if heat is not None and wanted.get("top_p") == 1:
        del wanted["top_p"]


def _make_arguments_objects(messages: Any) -> None:
    """Makes the arguments of calls objects: litellm refuses others, such as those of a call that was cut off."""
    calls = [call for message in messages or () for call in message.get("tool_calls") or ()]
    for function in [call["function"] for call in calls if isinstance(call.get("function"), dict)]:
        said = function.get("arguments")
        made = serializer.arguments_of(said)
        if not said or made == {"arguments": said}:
            function["arguments"] = jsons.dumps_text(made)


class LitellmUpstream:
    """Calls providers through litellm (an `Upstream`). It retries a connection that failed before any byte once, and
    nothing else."""

    def __init__(self, client: httpx.AsyncClient, library: LitellmLibrary) -> None:
        self._client = client
        self._library = library

    async def complete(self, deployment: ModelDeployment, request: upstreams.UpstreamRequest) -> JsonAnswer:
        async with self._call(deployment) as call:
            response = await call.ask(request.body)
            answer = _as_ended(whole(response), call.wire.ended_by)
            answer = mending.whole_mended(answer, request.body, deployment, headers=call.wire.headers)
            return JsonAnswer(answer, call.headers(response))

    @contextlib.asynccontextmanager
    async def stream(
        self, deployment: ModelDeployment, request: upstreams.UpstreamRequest
    ) -> AsyncIterator["LitellmChunkStream"]:
        """Opens an answer in chunks and waits for the first: litellm calls some providers only then."""
        async with self._call(deployment) as call:
            response = await call.ask({**request.body, "stream": True, "stream_options": {"include_usage": True}})
            stream = LitellmChunkStream(call, response, mending.StreamMender(deployment, request.body))
            try:
                await stream.begin()
                yield stream
            finally:
                await stream.aclose()

    @contextlib.asynccontextmanager
    async def _call(self, deployment: ModelDeployment) -> AsyncIterator["_LitellmCall"]:
        litellm = await self._library.get()
        wire = GatewayTransport(self._client, deployment)
        try:
            yield _LitellmCall(litellm, wire, deployment)
        finally:
            await wire.hang_up()


class _LitellmCall:
    """One call in progress."""

    def __init__(self, litellm: Any, wire: GatewayTransport, deployment: ModelDeployment) -> None:
        self._litellm = litellm
        self.wire = wire
        self.deployment = deployment

    async def ask(self, body: dict[str, Any]) -> Any:
        """Calls the provider; returns litellm's response object. Raises GatewayError: see `gateway_error`."""
        deployment = self.deployment
        timeout = httpx.Timeout(
            connect=deployment.connect_timeout, read=deployment.first_byte_timeout, write=None, pool=None
        )
        async with self.translated(body):
            wanted = arguments(deployment, self._without_hints(body), self._owned())
            if _is_claude(deployment) and not self._litellm.modify_params:  # which makes up a message
                serializer.check_turns(wanted.get("messages") or ())
            wanted |= self._fitting_thinking(wanted)
            return await self._litellm.acompletion(**wanted, **self._transport(), timeout=timeout)

    def _without_hints(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns a request without the hints that its provider lacks. Raises: as litellm."""
        hints = HINTS & body.keys()
        if not hints:
            return body
        known = self._litellm.get_supported_openai_params(model=self.deployment.route) or ()
        lacked = hints.difference(known, self.deployment.options.get("allowed_openai_params") or ())
        return {name: value for name, value in body.items() if name not in lacked}

    def _fitting_thinking(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what replaces an effort for Claude that would be a budget of thinking above the limit of the answer,
        which its providers refuse; litellm itself corrects only a budget of its own making. Raises: as litellm."""
        effort, most = wanted.get("reasoning_effort"), max(wanted.get(name) or 0 for name in upstreams.OUTPUT_LIMITS)
        if not (isinstance(effort, str) and most and upstreams.becomes_thinking(self.deployment)) or wanted.get(
            "thinking"
        ):
            return {}
        model, claude = self.deployment.route.partition("/")[2], self._litellm.AnthropicConfig
        thinking = claude.map_reasoning_effort(effort, model, provider_of(self.deployment))
        fitting = claude.cap_thinking_budget_to_max_tokens(thinking, most) if thinking else thinking
        if fitting == thinking:
            return {}
        return {"reasoning_effort": None} | ({"thinking": fitting} if fitting else {})

    def headers(self, response: Any) -> dict[str, str]:
        """Returns the headers for the client: the provider's, and litellm's translation of its rate limits."""
        hidden = getattr(response, "_hidden_params", None) or {}
        translated = hidden.get("additional_headers") or {}
        limits = {k: str(v) for k, v in translated.items() if k.startswith("x-ratelimit-")}
        relayed = mending.relayed_headers({**limits, **self.wire.headers}, self.deployment)
        return {k: v for k, v in relayed.items() if not k.startswith("anthropic-")}

    @contextlib.asynccontextmanager
    async def translated(self, body: Mapping[str, Any] | None = None) -> AsyncIterator[None]:
        """Translates litellm's exceptions into the gateway's. `body`: of the request, before it is answered."""
        try:
            yield
        except errors.GatewayError:
            raise
        except Exception as error:  # litellm lets through whatever its translation of a provider raises
            fault = gateway_error(error, self.wire, self.deployment)
            if isinstance(fault, errors.InvalidRequest) and fault.code == "unsupported_url" and body is not None:
                fault.param = place_of_address(body.get("messages") or ())
            raise fault from error

    def _transport(self) -> dict[str, Any]:
        """Returns the gateway's own connections; providers that litellm calls with OpenAI's SDK use their own."""
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

    def __init__(self, call: _LitellmCall, response: Any, mender: mending.StreamMender) -> None:
        self._call = call
        self._response = response
        self._mender = mender
        self._first: dict[str, Any] | None = None
        self._ran: set[Any] = set()
        """Indexes of the calls that the provider answers itself."""
        self.done = False

    @property
    def headers(self) -> dict[str, str]:
        return self._call.headers(self._response)

    async def begin(self) -> None:
        """Waits for the first chunk: until then a fault is one of the whole call."""
        deployment = self._call.deployment
        async with deadline(deployment.first_byte_timeout):
            self._first = await self._next()
        for choice in (self._first or {}).get("choices") or ():
            choice["delta"].setdefault("role", "assistant")  # litellm leaves it out where an answer holds nothing
        said = (getattr(part, "usage", None) for part in getattr(self._response, "chunks", ()))
        if self._first is not None and (usage := next(filter(None, said), None)) is not None:
            # litellm keeps it for the end of the stream: of an answer that breaks off this alone is known
            self._first.setdefault("usage", bill.sound(bill.of_prompt_alone(usage.model_dump(exclude_none=True))))
        self._call.wire.patience = deployment.idle_timeout

    async def batches(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yields chunks, one at a time, until the provider's own end of the stream.
        Raises UpstreamInterrupted, UpstreamTimeout: it broke off, or fell silent; UpstreamInvalidResponse: litellm
        could not parse it; UpstreamRefused: the provider sent an error."""
        found = self._first
        longest = max(self._call.deployment.first_byte_timeout, self._call.deployment.idle_timeout)
        while found is not None:
            if found.get("choices") or self._reported:
                yield [found]
            if self._mender.fault is not None:
                raise self._mender.fault
            async with deadline(longest):  # pings alone do not keep it alive
                found = await self._next()
        self.done = self._finished

    async def push(self, take: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Returns at once, pushing nothing: litellm yields chunks only on request (see `ChunkStream.push`)."""

    async def aclose(self) -> None:
        """Closes litellm's response."""
        with contextlib.suppress(Exception):  # the connection itself is closed by `GatewayTransport.hang_up`
            await self._response.aclose()

    async def _next(self) -> dict[str, Any] | None:
        async with self._call.translated():
            part = await anext(self._response, None)
        if part is None:
            return None
        found = self._mender.mended(self._without_ran(_as_ended(chunk(part), self._call.wire.ended_by)))
        if not found and self._mender.fault is not None:
            raise self._mender.fault
        if any(choice["finish_reason"] for choice in found[0].get("choices") or ()) and not self._finished:
            raise errors.UpstreamInterrupted("The upstream closed the stream before the answer was finished.")
        return found[0]

    def _without_ran(self, said: dict[str, Any]) -> dict[str, Any]:
        """Returns a chunk without the pieces of calls that the provider answers itself."""
        for choice in said.get("choices") or ():
            pieces = choice["delta"].pop("tool_calls", None) or ()
            self._ran |= {piece.get("index") for piece in pieces if _ran_by_provider(piece)}
            if kept := [piece for piece in pieces if piece.get("index") not in self._ran]:
                choice["delta"]["tool_calls"] = kept
        return said

    @property
    def _finished(self) -> bool:
        """Whether the provider gave a finish reason; litellm makes one up where there is none."""
        response = self._response
        if getattr(response, "custom_llm_provider", None) in MARKED_ENDS and not self._call.wire.ended_by:
            return False
        return bool(
            getattr(response, "received_finish_reason", None) or getattr(response, "intermittent_finish_reason", None)
        )

    @property
    def _reported(self) -> bool:
        """Whether the usage is the provider's; litellm counts by itself where there is none."""
        return any(getattr(part, "usage", None) for part in getattr(self._response, "chunks", ()))


# A call that goes nowhere loads what litellm loads at its first call, before the first real one.

WARM_UP_ROUTE = "anthropic/claude-warm-up"
"""litellm sends this provider's calls with the given client and connects nowhere else; what it loads is the same for
all providers, but for a hundredth of a second."""
REHEARSAL_SECONDS = 60.0


class RefusingTransport(httpx.AsyncBaseTransport):
    """Refuses each request without sending it."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Returns a 400 without content."""
        return httpx.Response(400, stream=httpx.ByteStream(b"{}"), request=request)


async def warm_up_call(library: LitellmLibrary) -> None:
    """Loads litellm, then makes a call that goes nowhere, in a thread with its own event loop, since the call computes
    for half a second."""
    await library.get()
    await asyncio.to_thread(lambda: asyncio.run(_call_nowhere(library)))


async def _call_nowhere(library: LitellmLibrary) -> None:
    nowhere = ModelDeployment(
        model="warm-up",
        provider_model="claude-warm-up",
        route=WARM_UP_ROUTE,
        api_base="",
        api_key=None,
        operator_key=False,
        connect_timeout=REHEARSAL_SECONDS,
        first_byte_timeout=REHEARSAL_SECONDS,
        idle_timeout=REHEARSAL_SECONDS,
        protocol="litellm",
    )
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "warm-up"}], "max_tokens": 1}
    async with httpx.AsyncClient(transport=RefusingTransport()) as client:
        try:
            await LitellmUpstream(client, library).complete(nowhere, upstreams.UpstreamRequest(body))
        except errors.GatewayError:  # the transport refused the call, as intended
            return


# Chats as litellm's translation to the APIs of Anthropic and Gemini needs them: it drops, merges or invents what those
# lack.

TAKEN = frozenset(("text", "refusal", "image_url", "file", "document", "guarded_text", "grounding_source", "query"))
TAKEN_IN_RESULTS = frozenset(("text", "image_url", "file", "tool_reference"))
"""Parts that litellm translates for models of Anthropic's; it drops all others."""

PART_FIELDS = {"image_url": ("url",), "file": ("file_id", "file_data"), "input_audio": ("data",)}
"""What a part of a type is of: one of these."""


def sound_chat(messages: Iterable[dict[str, Any]], *, is_claude: bool) -> list[dict[str, Any]]:
    """Returns the messages with a distinct id for each call, refusals as text, and without blank texts beside others.
    For Claude legacy calls become calls with ids: litellm makes up an id for each, and another one for its result.
    Raises InvalidRequest: no model of Anthropic's takes a part, or it lacks what it is of."""
    # Gemini never sees an id: litellm may keep a signature in it, and finds the name of a result's tool by it.
    ids = CallPairs() if is_claude else CallPairs(ANY_ID)
    found: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}].content"
        if is_claude:
            message = _with_id(message)
        message = ids.in_message(message)
        if message.get("role") == "assistant":
            message = _answer(message)
            if is_silent(message):
                continue
        elif message.get("tool_call_id"):
            parts = parts_of(message.get("content"))
            _check(parts, TAKEN_IN_RESULTS if is_claude else None, where)
            if not is_claude:
                message["content"] = _with_joined_texts(message.get("content"))
            elif parts:  # Anthropic refuses blank ones, as a tool may return beside a picture
                message["content"] = _parts(parts) or ""
        elif parts := parts_of(message.get("content")):
            _check(parts, TAKEN if is_claude else None, where)
            message = {**message, "content": _parts(parts) or parts}
        found.append(message)
    return found if is_claude else list(_paired_by_order(found))


def _with_joined_texts(content: Any) -> Any:
    """Returns a result's content with its adjacent texts as one: litellm puts them together without a break."""
    parts: list[Any] = []
    for part in parts_of(content):
        if _is_text(part) and parts and _is_text(parts[-1]):
            parts[-1] = {"type": "text", "text": f"{parts[-1].get('text')}\n{part.get('text')}"}
        else:
            parts.append(part)
    return parts or content


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _paired_by_order(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the messages as Gemini pairs results with calls: it knows no ids, so the results of an answer stand in
    the order of its calls. Equal calls, of which litellm would send one, become steps of their own."""
    at = 0
    while at < len(messages):
        message = messages[at]
        calls = list(dicts_of(message.get("tool_calls"))) if message.get("role") == "assistant" else []
        until = at = at + 1
        while calls and until < len(messages) and messages[until].get("role") == "tool":
            until += 1
        results = messages[at:until]
        at = until
        if not calls:
            yield message
            continue
        steps: list[list[dict[str, Any]]] = [[]]
        seen = Counter[tuple[str, str]]()
        for call in calls:
            function = call.get("function") or {}
            what = (str(function.get("name")), str(function.get("arguments")))
            steps += [[]] if results and seen[what] == len(steps) else []
            steps[seen[what] if results else 0].append(call)
            seen[what] += 1
        for number, step in enumerate(steps):
            said = {"role": "assistant", "content": None} if number else message
            yield {**said, "tool_calls": step}
            yield from (each for call in step for each in results if each.get("tool_call_id") == call["id"])
        known = {call["id"] for call in calls}
        yield from (each for each in results if each.get("tool_call_id") not in known)


def _with_id(message: dict[str, Any]) -> dict[str, Any]:
    """Returns a legacy call, or its result, as one that has the function's name as id; any other message unchanged."""
    if message.get("role") == "function":
        rest = {name: value for name, value in message.items() if name != "name"}
        return {**rest, "role": "tool", "tool_call_id": str(message.get("name"))}
    if not isinstance(message.get("function_call"), dict):
        return message
    calls = [{"type": "function", **call} for call in named_calls(message)]
    return {**{name: value for name, value in message.items() if name != "function_call"}, "tool_calls": calls}


def _answer(message: dict[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in message.items() if name != "refusal"}
    parts = _parts(message.get("content")) + _parts(message.get("refusal"))
    if not isinstance(message.get("content"), str) or message.get("refusal") or not parts:
        said["content"] = parts or None
    return said


def _parts(content: Any) -> list[dict[str, Any]]:
    """Returns what is said as parts, refusals as texts, without blank texts."""
    told = [{"type": "text", "text": content}] if isinstance(content, str) else dicts_of(content)
    parts = [{"type": "text", "text": part.get("refusal")} if part.get("type") == "refusal" else part for part in told]
    return [part for part in parts if part.get("type") != "text" or str(part.get("text") or "").strip()]


def _check(parts: Sequence[Any], taken: Collection[str] | None, where: str) -> None:
    """Raises InvalidRequest: a part is none of those that are `taken`, or lacks what it is of: litellm's own error
    names only what it stumbled over."""
    for number, part in enumerate(parts):
        if not isinstance(part, dict):
            continue
        kind, param = str(part.get("type")), f"{where}[{number}]"
        if taken is not None and kind not in taken:
            text = f"This model takes no {upstreams.NOT_READ_BY_CLAUDE.get(kind, f'part of type {kind[:64]} here')}."
            raise errors.InvalidRequest(text, param=param, code="unsupported_parameter")
        names, said = PART_FIELDS.get(kind, ()), part.get(kind)
        if not names:
            continue
        if isinstance(said, str) and kind == "image_url":
            said = {"url": said}
        values = [said.get(name) for name in names] if isinstance(said, dict) else []
        if not any(values) or not all(value is None or isinstance(value, str) for value in values):
            text = f"A part of type {kind} needs its {kind}, with {' or '.join(names)} as text."
            raise errors.InvalidRequest(text, param=param)
        if kind == "image_url" and not _is_picture(str(values[0])):
            raise errors.InvalidRequest("A picture is an address, or data:TYPE;base64,DATA.", param=param)


def place_of_address(messages: Iterable[Mapping[str, Any]]) -> str:
    """Returns where the part stands that litellm would have fetched: the first whose address is not of TLS, which no
    provider takes; else the only one with an address. `messages` if that is not certain."""
    found = [
        (url, f"messages[{index}].content[{number}]")
        for index, message in enumerate(messages)
        for number, part in enumerate(parts_of(message.get("content")))
        if isinstance(part, dict) and (url := _address_in(part))
    ]
    plain = [place for url, place in found if url.startswith("http:")]
    return plain[0] if plain else found[0][1] if len(found) == 1 else "messages"


def _address_in(part: Mapping[str, Any]) -> str:
    said = part.get(str(part.get("type")))
    values = said.values() if isinstance(said, dict) else (said,)
    return next((value for value in values if isinstance(value, str) and value.startswith("http")), "")


def _is_picture(url: str) -> bool:
    """Returns whether litellm reads a picture's address; with others it fails, and does not say where they are."""
    return url.startswith("http") or "gs://" in url or ("data:" in url and ";base64," in url)
