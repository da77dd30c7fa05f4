"""Foreign faults translated once: httpx's exceptions and upstream's error answers (guarantee §7)."""

import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from gateway.base import jsons
from gateway.errors import (
    UpstreamAuth,
    UpstreamError,
    UpstreamInterrupted,
    UpstreamInvalidResponse,
    UpstreamOverflow,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.models.exchange import Deployment
from gateway.upstream.http.connection import NotHttp
from gateway.upstream.openai.error_bodies import error_object, is_overflow, reported_tokens

RELAYED = re.compile(r"^(x-ratelimit-.*|openai-.*|retry-after(-ms)?)$", re.IGNORECASE)
UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f]")


@contextmanager
def translated(*, begun: bool) -> Iterator[None]:
    """Turns the HTTP client's exceptions into the gateway's.

    Args:
        begun: whether a part of the answer has been read already.
    """
    try:
        yield
    except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as error:
        raise UpstreamTimeout("The upstream took too long.") from error
    except httpx.ConnectTimeout as error:
        raise UpstreamUnreachable("The upstream could not be reached.") from error
    except NotHttp as error:
        raise UpstreamInvalidResponse("The upstream's answer is not HTTP.") from error
    except httpx.DecodingError as error:
        raise UpstreamInvalidResponse("The upstream's answer is not compressed as it says.") from error
    except httpx.HTTPError as error:
        if begun:
            raise UpstreamInterrupted("The upstream broke off its answer.") from error
        raise UpstreamUnreachable("The upstream could not be reached.") from error
    except httpx.InvalidURL as error:
        raise UpstreamUnreachable("The upstream's address is not usable.") from error


def relayed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that come back to the client (guarantee §1)."""
    return {name.lower(): UNPRINTABLE.sub("", value) for name, value in headers.items() if RELAYED.match(name)}


def refusal(status: int, raw: bytes, headers: Mapping[str, str], deployment: Deployment) -> UpstreamError:
    """The error for an answer whose status says that there is none.

    Args:
        status: below 400 for an error in the body of an answer that says it is well; the error's own status, or else
            502, then counts.
    """
    if deployment.operator_key and deployment.api_key:
        raw = raw.replace(deployment.api_key.encode(), b"***")  # some providers quote the key that they refuse
    try:
        original: Any = jsons.loads(raw)
    except jsons.JSONDecodeError:
        original = raw.decode("utf-8", "replace")[:4000]
    named = _named_status(original)
    if deployment.operator_key and (status in (401, 403) or named in (401, 403)):
        return UpstreamAuth("The upstream refused the gateway's key.")
    if not 400 <= status < 600:
        status = named or 502
    kept = relayed_headers(headers)
    if is_overflow(status, original):
        return UpstreamOverflow(original, kept, *reported_tokens(original), _message(original))
    return UpstreamRefused(status, original, kept, _message(original))


def _message(original: Any) -> str | None:
    """What the provider says, wherever it says it; None if it says nothing that can be shown."""
    if not isinstance(original, dict | list) or not original:
        return None
    error = error_object(original)
    return next((t for t in (error.get("message"), error.get("detail")) if isinstance(t, str) and t), None)


def _named_status(original: Any) -> int | None:
    """The status that an error names inside an answer whose own status is another."""
    error = error_object(original)
    for code in (error.get("code"), error.get("status"), error.get("status_code")):
        number = int(code) if isinstance(code, str) and re.fullmatch(r"[45]\d\d", code) else code
        if isinstance(number, int) and 400 <= number < 600:
            return number
    return None


# What a client is told of an error answer to a relayed call (guarantee §7).


MAX_ERROR_BYTES = 2**20


def check_refusal(method: str, status: int, raw: bytes, headers: Mapping[str, str], deployment: Deployment) -> None:
    """Returns if the answer may go down as it came: an error in OpenAI's shape that names no key of the operator's.

    Raises:
        UpstreamError: what the client is told in its stead.
    """
    plain = _decoded(raw, headers.get("content-encoding", ""))
    fault: UpstreamError = refusal(status, plain or b"", headers, deployment)
    secret = deployment.api_key.encode() if deployment.operator_key and deployment.api_key else None
    readable = plain is not None or secret is None
    if readable and type(fault) is UpstreamRefused and not (secret and secret in (plain or b"")):
        shaped = isinstance(fault.original, dict) and isinstance(fault.original.get("error"), dict)
        if shaped or plain is None or method == "HEAD":
            return
    raise fault


def _decoded(raw: bytes, coding: str) -> bytes | None:
    """The body in plain; None where its coding is not one that we read."""
    if coding in ("", "identity"):
        return raw
    if coding not in ("gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(47).decompress(raw, MAX_ERROR_BYTES)
    except zlib.error:
        return None
