"""litellm's exceptions as the gateway's errors (guarantee §7)."""

import re
from typing import Any

import httpx

from gateway.base import jsons
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    Unauthorized,
    UpstreamAuth,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverflow,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.models.exchange import Deployment
from gateway.upstream.http.client import origin_of
from gateway.upstream.http.faults import TOO_LONG, Origin, translation
from gateway.upstream.litellm.library import NO_FETCH
from gateway.upstream.litellm.wire import Wire
from gateway.upstream.openai.error_bodies import limit_alone, reported_tokens
from gateway.upstream.openai.faults import refusal

PREFIX = re.compile(r"^(\s*(litellm\.)?\w*(Error|Exception)\s*[:-]+\s*)+")
ASIDE = re.compile(
    r"\s*\.?\s*(Received Messages=|Traceback \(most recent|To drop these|Example Expected|This looks like a bug in|"
    r"Handle with `litellm).*",
    re.DOTALL,
)
NAMED = re.compile(r"parameters: \['(\w+)'")
SECRET = re.compile(r"key|secret|token|credential|password")
MAX_MESSAGE_CHARS = 1000
TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
BAD_KEY = b"API_KEY_INVALID"
"""Gemini's reason for a refused key, with status 400."""


def gateway_error(error: Exception, wire: Wire, deployment: Deployment) -> GatewayError:
    """The error of a failed call: in the provider's own words where it answered, else in litellm's."""
    ours = next((e for e in _chain(error) if isinstance(e, GatewayError)), None)
    if wire.fault is not None:
        return _kept(wire.fault, wire, deployment)
    if ours is not None:
        return ours
    if "ImageFetchError" in _names(error):
        return InvalidRequest(NO_FETCH, param="messages", code="unsupported_url")
    cause = getattr(error, "original_exception", None) or error
    status = getattr(cause, "status_code", None)
    status = status if isinstance(status, int) else 500
    if wire.status is None:
        return _without_answer(cause, status, deployment)
    if "BaseLLMException" in _names(cause) and "APIConnectionError" not in _names(cause):  # an error in the stream
        return said(status, message_of(cause, deployment), None, {}, deployment)
    return UpstreamInvalidResponse("The upstream's answer is not what its protocol says.")


def said(status: int, text: str, code: str | None, headers: dict[str, str], deployment: Deployment) -> UpstreamError:
    """An error of the provider's in OpenAI's shape."""
    kind = "rate_limit_error" if status == 429 else TYPES.get(status, "server_error" if status >= 500 else TYPES[400])
    body = {"error": {"message": text, "type": kind, "param": None, "code": code}}
    return refusal(status, jsons.dumps(body), headers, deployment)


def message_of(error: BaseException, deployment: Deployment) -> str:
    """litellm's words without its prefixes, tracebacks and keys."""
    text = ASIDE.sub("", str(getattr(error, "message", None) or error))
    text = PREFIX.sub("", text).strip()[:MAX_MESSAGE_CHARS] or "The request cannot be sent to this provider."
    return _blotted(text, deployment)


def _kept(fault: GatewayError, wire: Wire, deployment: Deployment) -> GatewayError:
    """The provider's refusal: its words in OpenAI's shape, with the original beside them."""
    if BAD_KEY in wire.raw:
        if deployment.operator_key:
            return UpstreamAuth("The upstream refused the gateway's key.")
        fault = UpstreamRefused(401, getattr(fault, "original", None), fault.headers, fault.message)
    if not isinstance(fault, UpstreamRefused) or isinstance(fault, UpstreamOverflow):
        return fault
    original = fault.original
    error = original.get("error") if isinstance(original, dict) else None
    if not isinstance(error, dict):
        return fault
    code = next((error[k] for k in ("status", "type", "code") if isinstance(error.get(k), str)), None)
    message = str(error.get("message") or fault.message)
    kind = "rate_limit_error" if fault.status == 429 else TYPES.get(fault.status, "upstream_error")
    wrapped = {"message": message, "type": kind, "param": None, "code": code, "upstream": original}
    return UpstreamRefused(fault.status, {"error": wrapped}, fault.headers, message)


def _without_answer(error: BaseException, status: int, deployment: Deployment) -> GatewayError:
    """litellm gave up before, or beside, the gateway's own connections."""
    names, modules = _names(error), _modules(error)
    text = message_of(error, deployment)
    if status in (401, 403) or modules & {"botocore", "google"}:
        if deployment.operator_key:
            return UpstreamAuth("The gateway's credentials for this provider could not be used.")
        return Unauthorized(text)
    if "ImportError" in names:
        return UpstreamUnreachable(f"The provider of {deployment.model!r} needs a package that is not installed here.")
    if "Timeout" in names:
        return UpstreamTimeout(TOO_LONG)
    if "ContextWindowExceededError" in names:
        original = {"error": {"message": text}}
        reported, limit = reported_tokens(original)
        return UpstreamOverflow(original, {}, reported, limit or limit_alone(original), text)
    if modules & {"httpx", "httpcore", "aiohttp"}:
        fault = next((e for e in _chain(error) if isinstance(e, httpx.HTTPError)), None)
        if fault is None:
            fault = httpx.ConnectError("")
            fault.__cause__ = next((e for e in _chain(error) if isinstance(e, OSError)), None)
        return translation(fault, begun=False, origin=_origin(deployment))
    response: Any = getattr(error, "response", None)
    if status in (404, 429) or (status >= 500 and "APIConnectionError" not in names):
        return said(status, text, None, dict(getattr(response, "headers", None) or {}), deployment)
    field = NAMED.search(text)
    code = "unsupported_parameter" if "UnsupportedParamsError" in names else "invalid_request"
    return InvalidRequest(text, param=field.group(1) if field else None, code=code)


def _origin(deployment: Deployment) -> Origin | None:
    """Where litellm's own connections lead, if the configuration says so."""
    try:
        return origin_of(httpx.URL(deployment.api_base))
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        return None


def _blotted(text: str, deployment: Deployment) -> str:
    values = [deployment.api_key, *(v for k, v in deployment.options.items() if SECRET.search(k))]
    for secret in (v for v in values if isinstance(v, str) and len(v) >= 8):
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


def _modules(error: BaseException) -> set[str]:
    return {type(e).__module__.partition(".")[0] for e in _chain(error)}
