"""Foreign faults translated once: httpx's exceptions and upstream's error answers (contract §7)."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from gateway import jsons
from gateway.errors import (
    UpstreamAuth,
    UpstreamError,
    UpstreamInterrupted,
    UpstreamOverflow,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.models.exchange import Deployment

RELAYED = re.compile(r"^(x-ratelimit-.*|openai-.*|retry-after(-ms)?)$", re.IGNORECASE)
OVERFLOW_CODES = {"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded"}
OVERFLOW_WORDS = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|prompt is too long|input is too long|too many (input )?tokens|"
    r"exceeds? the (model'?s )?(maximum|available) (context|number of tokens)|input token count.*exceeds",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\d[\d,]{2,}")


@contextmanager
def translated(*, begun: bool) -> Iterator[None]:
    """Turns httpx's exceptions into the gateway's.

    Args:
        begun: whether a part of the answer has been read already.
    """
    try:
        yield
    except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as error:
        raise UpstreamTimeout("The upstream took too long.") from error
    except httpx.ConnectTimeout as error:
        raise UpstreamUnreachable("The upstream could not be reached.") from error
    except httpx.HTTPError as error:
        if begun:
            raise UpstreamInterrupted("The upstream broke off its answer.") from error
        raise UpstreamUnreachable("The upstream could not be reached.") from error
    except httpx.InvalidURL as error:
        raise UpstreamUnreachable("The upstream's address is not usable.") from error


def relayed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that come back to the client (contract §1)."""
    return {name.lower(): value for name, value in headers.items() if RELAYED.match(name)}


def refusal(status: int, raw: bytes, headers: Mapping[str, str], deployment: Deployment) -> UpstreamError:
    """The error for an answer whose status says that there is none."""
    if deployment.operator_key and deployment.api_key:
        raw = raw.replace(deployment.api_key.encode(), b"***")  # some providers quote the key that they refuse
    try:
        original: Any = jsons.loads(raw)
    except jsons.JSONDecodeError:
        original = raw.decode("utf-8", "replace")[:4000]
    if deployment.operator_key and (status in (401, 403) or _named_status(original) in (401, 403)):
        return UpstreamAuth("The upstream refused the gateway's key.")
    kept = relayed_headers(headers)
    if status in (400, 413, 422, 500) and _is_overflow(original):
        return UpstreamOverflow(original, kept, *_reported_tokens(original))
    return UpstreamRefused(status, original, kept)


def _named_status(original: Any) -> int | None:
    """The status that an error names inside an answer whose own status is another."""
    error = original.get("error") if isinstance(original, dict) else None
    code = error.get("code") or error.get("status") if isinstance(error, dict) else None
    if isinstance(code, str) and code.isdigit():
        return int(code[:3])
    return code if isinstance(code, int) else None


def _is_overflow(original: Any) -> bool:
    error = original.get("error") if isinstance(original, dict) else None
    if isinstance(error, dict):
        if {str(error.get("code")), str(error.get("type"))} & OVERFLOW_CODES:
            return True
        text = str(error.get("message") or "")
    else:
        text = jsons.dumps_text(original)[:4000]
    return bool(OVERFLOW_WORDS.search(text))


def _reported_tokens(original: Any) -> tuple[int | None, int | None]:
    """How many tokens the provider counted and how many it allows, where its error says so."""
    error = original.get("error") if isinstance(original, dict) else None
    if not isinstance(error, dict):
        return None, None
    if isinstance(error.get("n_prompt_tokens"), int) and isinstance(error.get("n_ctx"), int):  # llama.cpp
        return error["n_prompt_tokens"], error["n_ctx"]
    counts = sorted({int(n.replace(",", "")) for n in NUMBER.findall(str(error.get("message") or ""))})
    return (counts[-1], counts[0]) if len(counts) >= 2 else (None, None)
