"""An upstream's error answers as the gateway's errors (guarantee §7).

What a provider's error body says (its message, its code, that the window is exceeded) is read in `error_bodies`.
"""

import re
from collections.abc import Mapping
from typing import Any

from gateway.base import jsons
from gateway.errors import UpstreamAuth, UpstreamError, UpstreamOverflow, UpstreamRefused
from gateway.models.exchange import Deployment
from gateway.upstream.http.compression import decompressed_at_once
from gateway.upstream.openai.error_bodies import is_overflow, message_of, reported_tokens, status_of

MAX_ERROR_BYTES = 2**20
SHOWN_CHARS = 4000
"""Of a body that is no JSON, so much is passed on."""
RELAYED = re.compile(r"^(x-ratelimit-.*|openai-.*|retry-after(-ms)?)$", re.IGNORECASE)
UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f]")


def refusal(status: int, raw: bytes, headers: Mapping[str, str], deployment: Deployment) -> UpstreamError:
    """The error for an answer whose status, or whose body, says that there is none.

    Args:
        status: below 400 for an error in the body of an answer with a good status; the status that the error itself
            names counts then, else 502.
    """
    if deployment.operator_key and deployment.api_key:
        raw = raw.replace(deployment.api_key.encode(), b"***")  # some providers quote the key that they refuse
    try:
        original: Any = jsons.loads(raw)
    except jsons.JSONDecodeError:
        original = raw.decode("utf-8", "replace")[:SHOWN_CHARS]
    named = status_of(original)
    if deployment.operator_key and (status in (401, 403) or named in (401, 403)):
        return UpstreamAuth("The upstream refused the gateway's key.")
    if not 400 <= status < 600:
        status = named or 502
    kept = relayed_headers(headers)
    if is_overflow(status, original):
        return UpstreamOverflow(original, kept, *reported_tokens(original), message_of(original))
    return UpstreamRefused(status, original, kept, message_of(original))


def relayed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that come back to the client (guarantee §1)."""
    return {name.lower(): UNPRINTABLE.sub("", value) for name, value in headers.items() if RELAYED.match(name)}


def check_refusal(method: str, status: int, raw: bytes, headers: Mapping[str, str], deployment: Deployment) -> None:
    """Returns if an error answer to a relayed call may go down as it came: it is in OpenAI's shape and names no key of
    the operator's.

    Raises:
        UpstreamError: what the client gets in its stead.
    """
    plain = decompressed_at_once(raw, headers.get("content-encoding", ""), MAX_ERROR_BYTES)
    fault = refusal(status, plain or b"", headers, deployment)
    secret = deployment.api_key.encode() if deployment.operator_key and deployment.api_key else None
    readable = plain is not None or secret is None
    if readable and type(fault) is UpstreamRefused and not (secret and secret in (plain or b"")):
        shaped = isinstance(fault.original, dict) and isinstance(fault.original.get("error"), dict)
        if shaped or plain is None or method == "HEAD":
            return
    raise fault
