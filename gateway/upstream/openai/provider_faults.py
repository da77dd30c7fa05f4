"""An upstream's error answers as the gateway's errors (guarantee §7).

What a provider's error body says (its message, its code, that the window is exceeded) is read in `error_bodies`.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from gateway.core import jsons
from gateway.core.clock import SystemClock
from gateway.core.errors import UpstreamAuth, UpstreamError, UpstreamOverflow, UpstreamRefused
from gateway.core.formats.anthropic.message_completion import FAULTS
from gateway.core.formats.responses.response_completion import FAILED
from gateway.core.ports import Clock
from gateway.core.types.chat import Headers, ModelDeployment
from gateway.upstream.http.compression import decompressed_at_once
from gateway.upstream.openai.error_bodies import (
    error_object,
    is_overflow,
    limit_alone,
    message_of,
    reported_tokens,
    status_of,
)

MAX_ERROR_BYTES = 2**20
SHOWN_CHARS = 4000
"""Of a body that is no JSON, so much is passed on."""
RELAYED = re.compile(r"^(x-ratelimit-.*|anthropic-ratelimit-.*|openai-.*|retry-after(-ms)?)$", re.IGNORECASE)
UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f]")

BY_NAME = {name: status for name, status in (FAULTS | FAILED).items() if status != 500}
"""Statuses of errors that come in an answer of a good one, by their codes and types; of what says no more than that the
server failed, 502 does."""
WAITS = {"retry-after": 1, "retry-after-ms": 1000}
"""The headers, and how many of their units a second has."""
LONGEST = timedelta(days=7)
"""Quotas of providers begin anew each day or week; a client that is told more would sleep for ever."""
NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)
HTTP_DATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} "
    r"\d\d:\d\d:\d\d GMT",
    re.ASCII,
)
"""The one form that servers may send (RFC 9110 §5.6.7)."""


def refusal(status: int, raw: bytes, headers: Mapping[str, str], deployment: ModelDeployment) -> UpstreamError:
    """The error for an answer whose status, or whose body, says that there is none.

    Args:
        status: below 400 for an error in the body of an answer with a good status; the status that the error itself
            names counts then, by its number or its name, else 502.
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
        error = error_object(original)
        names = (str(error.get(name)) for name in ("code", "type"))
        status = named or next((BY_NAME[name] for name in names if name in BY_NAME), 502)
    kept = relayed_headers(headers)
    if is_overflow(status, original):
        reported, limit = reported_tokens(original)
        return UpstreamOverflow(original, kept, reported, limit or limit_alone(original), message_of(original))
    return UpstreamRefused(status, original, kept, message_of(original))


def relayed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that come back to the client (guarantee §1). What tells a client to wait must be sane: some would
    sleep for years, or stumble over what is no number."""
    kept = {name.lower(): UNPRINTABLE.sub("", value) for name, value in headers.items() if RELAYED.match(name)}
    return {name: value for name, value in kept.items() if name not in WAITS or is_sane_wait(name, value)}


def is_sane_wait(name: str, value: str, clock: Clock | None = None) -> bool:
    """Whether the value of one of `WAITS` is a number of at most `LONGEST`, or (`retry-after`) a date that is no
    farther away. A date in the past means at once."""
    value = value.strip()
    if NUMBER.fullmatch(value):
        return float(value) / WAITS[name] <= LONGEST.total_seconds()
    if name != "retry-after" or not HTTP_DATE.fullmatch(value):
        return False
    try:
        when = parsedate_to_datetime(value)
    except ValueError:  # the 31st of February, the 25th hour
        return False
    return when - (clock or SystemClock()).now() <= LONGEST


def waited_for(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that an upstream wants to be left alone, by its headers in lower case; None where it does not say, or
    nothing sane."""
    for name, units in reversed(WAITS.items()):  # milliseconds are more exact
        value = headers.get(name, "").strip()
        if not value or not is_sane_wait(name, value):
            continue
        if NUMBER.fullmatch(value):
            return float(value) / units
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    return None


def without_insane_waits(headers: Headers) -> Headers:
    """Headers as they came, but for waits that no client could obey."""

    def stays(name: str, value: str) -> bool:
        return name not in WAITS or is_sane_wait(name, value)

    return [pair for pair in headers if stays(pair[0].decode("latin-1"), pair[1].decode("latin-1"))]


def check_refusal(
    method: str, status: int, raw: bytes, headers: Mapping[str, str], deployment: ModelDeployment
) -> None:
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
